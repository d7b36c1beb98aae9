//! The whole controller against an in-memory apiserver and provider, on a paused clock.

use prometheus_client::registry::Registry;
use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::{
    cloud::{
        Provider,
        fake::{Call, FakeProvider, instance, method},
    },
    controllers::node_server::NodeServer,
    kube::fixtures::{Recorded, node, recorder},
};

mod failures;
mod histories;
mod initialise;
mod refresh;
mod shadow;

const PERIOD: Duration = Duration::from_secs(300);

/// A running controller and its environment.
struct Scene {
    server: NodeServer,
    fake: Arc<FakeProvider>,
    events: Recorded,
    registry: Registry,
    cancel: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

fn settings() -> Settings {
    Settings {
        concurrent_node_syncs: 32,
        concurrent_node_status_updates: 0,
        node_status_update_frequency: PERIOD,
        node_selector: crate::kube::selector::LabelSelector::everything(),
    }
}

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
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let mut settings = settings();
        change(&mut settings);
        Self::on(NodeServer::new(nodes), fake, others, settings).await
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
        let controller = Controller::new(Context {
            nodes: server.cache(keep(&settings), &cancel).await,
            writer: server.writer(),
            providers: Providers::new(all.collect()),
            recorder,
            metrics: CloudNodeMetrics::register(&mut registry),
            cloud_metrics: CloudMetrics::register(&mut registry),
            queue_metrics: QueueMetrics::default(),
            settings,
        });
        server.take_calls();
        let running = tokio::spawn(controller.run(cancel.clone()));
        Self { server, fake, events, registry, cancel, running }
    }

    /// Another process takes over.
    async fn restart(self) -> Self {
        let (server, fake) = (self.server.clone(), Arc::clone(&self.fake));
        self.stop().await;
        Self::on(server, fake, vec![], settings()).await
    }

    /// Waits until the condition holds.
    async fn until(&self, what: impl Fn(&Self) -> bool) {
        tokio::time::timeout(PERIOD, async {
            while !what(self) {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("it never came to be so");
    }

    async fn until_initialised(&self, name: &str) {
        self.until(|scene| !scene.is_tainted(name)).await;
        self.rest().await;
    }

    /// Lets everything settle that needs no more than a moment.
    async fn rest(&self) {
        sleep(Duration::from_millis(100)).await;
    }

    fn is_tainted(&self, name: &str) -> bool {
        self.server.part(name, "/spec/taints").to_string().contains(taint::UNINITIALIZED)
    }

    fn questions(&self) -> usize {
        self.fake.take_calls().len()
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.events.take().into_iter().map(|(_, reason, _)| reason).collect()
    }

    fn metric(&self, line: &str) -> bool {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines().any(|other| other == line)
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.running.await.unwrap().unwrap();
    }
}

/// A new node that the cloud knows as `fake://n`.
fn new_node(name: &str) -> Node {
    node(name).tainted_uninitialized().with_address("Hostname", name)
}

fn running(name: &str) -> crate::cloud::InstanceAnswer {
    crate::cloud::fake::machine(
        crate::cloud::InstanceState::Running,
        Some(instance(&format!("fake://{name}"))),
    )
}
