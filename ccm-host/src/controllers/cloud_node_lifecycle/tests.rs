//! The whole controller against an in-memory apiserver and provider, on a paused clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::{
    cloud::{
        InstanceState,
        fake::{Call, FakeProvider, error, instance, method},
    },
    controllers::{node_server::NodeServer, taint},
    kube::{
        events::EventType as Kind,
        fixtures::{Recorded, node, recorder, refusal},
    },
};

mod deletion;
mod evidence;
mod ledger;
mod shutdown;
mod taints;
mod waking;

const PERIOD: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(100);

struct Scene {
    server: NodeServer,
    nodes: Cache<Node>,
    fake: Arc<FakeProvider>,
    events: Recorded,
    registry: Registry,
    cancel: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

fn settings() -> Settings {
    Settings {
        node_monitor_period: PERIOD,
        node_deletion_grace: Duration::from_secs(300),
        node_deletion_confirmations: 2,
        node_deletion_max_share: Share::from_fraction(0.05).unwrap(),
        node_deletion_window: Duration::from_secs(600),
        node_shutdown_policy: Policy::Taint,
        node_shutdown_grace: Duration::from_secs(60),
    }
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
        settings: Settings,
    ) -> Self {
        let cancel = CancellationToken::new();
        let (recorder, events) = recorder();
        let mut registry = Registry::default();
        let all = [Arc::clone(&fake)].into_iter().chain(others).map(|fake| fake as Arc<dyn Provider>);
        let selector = LabelSelector::everything();
        let nodes = server.cache(keep(&selector), &cancel).await;
        let controller = Controller::new(Context {
            nodes: nodes.clone(),
            writer: server.writer(),
            providers: Providers::new(all.collect()),
            recorder,
            metrics: LifecycleMetrics::register(&mut registry),
            settings,
            selector,
        });
        server.take_calls();
        let running = tokio::spawn(controller.run(cancel.clone()));
        let scene = Self { server, nodes, fake, events, registry, cancel, running };
        sleep(MOMENT).await;
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
        self.events.take().into_iter().map(|(kind, reason, _)| (kind, reason)).collect()
    }

    fn has_metric(&self, line: &str) -> bool {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines().any(|other| other == line)
    }

    /// Whether that rule holds back exactly that many nodes.
    fn is_held(&self, rule: Rule, nodes: usize) -> bool {
        let rule = rule.label();
        self.has_metric(&format!(
            r#"node_lifecycle_deletions_blocked{{provider="fake",rule="{rule}"}} {nodes}"#
        ))
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.running.await.unwrap().unwrap();
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
    node.with_label(decide::ZONES[0], zone)
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
