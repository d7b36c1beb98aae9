//! The whole controller against an in-memory apiserver and provider, on a paused clock.

use tokio::time::sleep;

use super::*;
use ccm_cloud::fake::{Call, FakeProvider, instance, method};
use ccm_kube::fixtures::node;
use ccm_reconcile::{
    node_server::NodeServer,
    settings::NodeSettings,
    stage::{self, Stage},
};

mod failures;
mod histories;
mod initialise;
mod metrics;
mod refresh;
mod shadow;

const PERIOD: Duration = Duration::from_secs(300);

#[derive(derive_more::Deref)]
struct Scene(Stage);

impl Scene {
    async fn start(nodes: impl IntoIterator<Item = Node>, prepare: impl FnOnce(&FakeProvider)) -> Self {
        let fake = FakeProvider::new("fake");
        prepare(&fake);
        Self::start_with(nodes, fake, vec![], |_| {}).await
    }

    async fn start_with(
        nodes: impl IntoIterator<Item = Node>,
        fake: Arc<FakeProvider>,
        others: Vec<Arc<FakeProvider>>,
        change: impl FnOnce(&mut NodeSettings),
    ) -> Self {
        let mut settings = stage::settings().nodes;
        change(&mut settings);
        Self::on(NodeServer::new(nodes), fake, others, settings).await
    }

    async fn on(
        server: NodeServer,
        fake: Arc<FakeProvider>,
        others: Vec<Arc<FakeProvider>>,
        settings: NodeSettings,
    ) -> Self {
        let fakes: Vec<_> = [fake].into_iter().chain(others).collect();
        let mut all = stage::settings();
        all.nodes = settings;
        Self(Stage::set(&REGISTRATION, server, &fakes, all).await.run())
    }

    /// Another process takes over.
    async fn restart(self) -> Self {
        let (server, fake) = (self.server.clone(), Arc::clone(&self.fake));
        self.stop().await;
        Self::on(server, fake, vec![], stage::settings().nodes).await
    }

    async fn until_initialised(&self, name: &str) {
        self.until(|_| !self.is_tainted(name)).await;
        self.rest().await;
    }

    fn is_tainted(&self, name: &str) -> bool {
        self.server.part(name, "/spec/taints").to_string().contains(taint::UNINITIALIZED)
    }

    fn questions(&self) -> usize {
        self.fake.take_calls().len()
    }
}

/// A new node that the cloud knows as `fake://n`.
fn new_node(name: &str) -> Node {
    node(name).tainted_uninitialized().with_address("Hostname", name)
}

fn running(name: &str) -> ccm_cloud::InstanceAnswer {
    ccm_cloud::fake::machine(ccm_cloud::InstanceState::Running, Some(instance(&format!("fake://{name}"))))
}
