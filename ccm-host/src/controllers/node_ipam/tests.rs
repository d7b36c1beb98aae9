//! The whole controller against an in-memory apiserver and provider, on a paused clock.

mod cloud;
mod ranges;
mod uncertain;

use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::{settings::NodeRange, *};
use crate::{
    cidr,
    cloud::{Provider, fake::FakeProvider},
    controllers::node_server::NodeServer,
    kube::{
        events::EventType,
        fixtures::{Recorded, node, recorder},
    },
};

/// Enough for everything that has no delay.
const MOMENT: Duration = Duration::from_millis(100);

struct Scene {
    server: NodeServer,
    cache: Cache<Node>,
    fake: Arc<FakeProvider>,
    events: Recorded,
    registry: Registry,
    cancel: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

/// Ranges written as `cluster>mask`.
fn ranges(texts: &[&str]) -> Allocation {
    let range = |text: &&str| {
        let (cluster, mask) = text.split_once('>').unwrap();
        NodeRange { cluster: cidr::parse(cluster).unwrap(), node_mask: mask.parse().unwrap() }
    };
    Allocation::Ranges { ranges: texts.iter().map(range).collect(), reserved: Vec::new() }
}

impl Scene {
    async fn start(allocation: Allocation, nodes: impl IntoIterator<Item = Node>) -> Self {
        Self::start_with(allocation, "", nodes, |_| {}).await
    }

    /// Returns when the controller has settled.
    async fn start_with(
        allocation: Allocation,
        selector: &str,
        nodes: impl IntoIterator<Item = Node>,
        prepare: impl FnOnce(&Self),
    ) -> Self {
        Self::start_on(NodeServer::new(nodes), allocation, selector, prepare).await
    }

    async fn start_on(
        server: NodeServer,
        allocation: Allocation,
        selector: &str,
        prepare: impl FnOnce(&Self),
    ) -> Self {
        let cancel = CancellationToken::new();
        let (recorder, events) = recorder();
        let mut registry = Registry::default();
        let fake = FakeProvider::new("fake");
        let selector: LabelSelector = selector.parse().unwrap();
        let cache = server.cache(keep(&selector), &cancel).await;
        let controller = Controller::new(Context {
            nodes: cache.clone(),
            writer: server.writer(),
            providers: Providers::new(vec![Arc::clone(&fake) as Arc<dyn Provider>]),
            recorder,
            metrics: IpamMetrics::register(&mut registry),
            queue_metrics: QueueMetrics::default(),
            allocation,
            workers: 4,
            selector,
        });
        let running = tokio::spawn(std::future::ready(Ok(())));
        let mut scene = Self { server, cache, fake, events, registry, cancel, running };
        prepare(&scene);
        scene.running = tokio::spawn(controller.run(scene.cancel.clone()));
        sleep(MOMENT).await;
        scene
    }

    async fn moment(&self) {
        sleep(MOMENT).await;
    }

    /// `spec.podCIDRs` in the apiserver.
    fn cidrs(&self, name: &str) -> Value {
        self.server.part(name, "/spec/podCIDRs")
    }

    fn events(&self) -> Vec<(EventType, &'static str, String)> {
        self.events.take()
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.events().into_iter().map(|(_, reason, _)| reason).collect()
    }

    fn has_metric(&self, line: &str) -> bool {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines().any(|other| other == line)
    }

    /// Whether there are exactly that many problems of a kind.
    fn problems(&self, kind: &str, count: u32) -> bool {
        self.has_metric(&format!("node_ipam_controller_pod_cidr_problems{{problem=\"{kind}\"}} {count}"))
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.running.await.unwrap().unwrap();
    }
}
