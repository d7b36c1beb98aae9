//! The whole controller against an in-memory apiserver and provider, on a paused clock.

use ccm_reconcile::settings::lifecycle::{LifecycleSettings, ShutdownPolicy};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time::sleep;

use super::*;
use ccm_cloud::{
    InstanceState,
    fake::{Call, FakeProvider, error, instance, method},
};
use ccm_kube::{
    events::EventType as Kind,
    fixtures::{node, refusal},
};
use ccm_reconcile::{
    node_server::NodeServer,
    stage::{self, Stage},
    taint,
};

mod deletion;
mod evidence;
mod ledger;
mod shutdown;
mod taints;
mod waking;

const PERIOD: Duration = Duration::from_secs(5);

#[derive(derive_more::Deref)]
struct Scene(Stage);

fn settings() -> LifecycleSettings {
    stage::settings().lifecycle
}

impl Scene {
    async fn start(nodes: impl IntoIterator<Item = Node>, prepare: impl FnOnce(&FakeProvider)) -> Self {
        let fake = FakeProvider::new("fake");
        prepare(&fake);
        Self::start_with(nodes, fake, vec![]).await
    }

    /// Starts the controller, and returns after its first pass.
    async fn start_with(
        nodes: impl IntoIterator<Item = Node>,
        fake: Arc<FakeProvider>,
        others: Vec<Arc<FakeProvider>>,
    ) -> Self {
        Self::on(NodeServer::new(nodes), fake, others, settings()).await
    }

    async fn on(
        server: NodeServer,
        fake: Arc<FakeProvider>,
        others: Vec<Arc<FakeProvider>>,
        settings: LifecycleSettings,
    ) -> Self {
        let fakes: Vec<_> = [fake].into_iter().chain(others).collect();
        let settings = ccm_reconcile::Settings { lifecycle: settings, ..stage::settings() };
        let scene = Self(Stage::set(&REGISTRATION, server, &fakes, settings).await.run());
        scene.rest().await;
        scene
    }

    /// Another process takes over.
    async fn restart(self) -> Self {
        let (server, fake) = (self.server.clone(), Arc::clone(&self.fake));
        self.stop().await;
        Self::on(server, fake, vec![], settings()).await
    }

    /// Waits for that many more passes.
    async fn passes(&self, count: u32) {
        sleep(PERIOD * count).await;
    }

    fn events(&self) -> Vec<(Kind, &'static str)> {
        self.0.events().into_iter().map(|(kind, reason, _)| (kind, reason)).collect()
    }

    /// Whether that rule holds back exactly that many nodes.
    fn is_held(&self, rule: Rule, nodes: usize) -> bool {
        let rule = rule.label();
        self.has_metric(&format!(
            r#"node_lifecycle_deletions_blocked{{provider="fake",rule="{rule}"}} {nodes}"#
        ))
    }
}

/// An old node that is Ready.
fn ready(name: &str) -> Node {
    node(name).with_provider_id(&format!("fake://{name}")).ready()
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("n{index:03}")).collect()
}

fn in_zone(node: Node, zone: &str) -> Node {
    node.with_label(ccm_base::label::ZONE[0], zone)
}

/// An old node that has fallen silent.
fn silent(name: &str) -> Node {
    node(name).with_provider_id(&format!("fake://{name}")).not_ready()
}

fn aged(node: Node, seconds: i64) -> Node {
    node.created_at(Timestamp::now() - SignedDuration::from_secs(seconds))
}

fn is_tainted(scene: &Scene, name: &str) -> bool {
    scene.server.part(name, "/spec/taints").to_string().contains(taint::SHUTDOWN)
}
