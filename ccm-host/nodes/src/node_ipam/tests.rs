//! The whole controller against an in-memory apiserver and provider, on a paused clock.

mod cloud;
mod ranges;
mod uncertain;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use ccm_base::cidr;
use ccm_cloud::fake::FakeProvider;
use ccm_kube::{events::EventType, fixtures::node, node::Node};
use ccm_reconcile::{
    node_server::NodeServer,
    settings::cidrs::{CidrSettings, NodeRange},
    stage::{self, Stage},
};

#[derive(derive_more::Deref)]
struct Scene(Stage);

/// Ranges written as `cluster>mask`.
fn ranges(texts: &[&str]) -> CidrSettings {
    let range = |text: &&str| {
        let (cluster, mask) = text.split_once('>').unwrap();
        NodeRange { cluster: cidr::parse(cluster).unwrap(), node_mask: mask.parse().unwrap() }
    };
    let ranges: Vec<_> = texts.iter().map(range).collect();
    let cluster = ranges.iter().map(|range| range.cluster).collect();
    CidrSettings { cluster, allocation: Some(Allocation::Ranges { ranges, reserved: Vec::new() }) }
}

impl Scene {
    async fn start(cidrs: CidrSettings, nodes: impl IntoIterator<Item = Node>) -> Self {
        Self::start_with(cidrs, "", nodes, |_| {}).await
    }

    /// Returns when the controller has settled.
    async fn start_with(
        cidrs: CidrSettings,
        selector: &str,
        nodes: impl IntoIterator<Item = Node>,
        prepare: impl FnOnce(&Self),
    ) -> Self {
        Self::start_on(NodeServer::new(nodes), cidrs, selector, prepare).await
    }

    async fn start_on(
        server: NodeServer,
        cidrs: CidrSettings,
        selector: &str,
        prepare: impl FnOnce(&Self),
    ) -> Self {
        let mut settings = stage::settings();
        settings.cidrs = cidrs;
        settings.nodes.concurrent_node_syncs = 4;
        settings.nodes.node_selector = selector.parse().unwrap();
        let scene = Self(Stage::set(&REGISTRATION, server, &[FakeProvider::new("fake")], settings).await);
        prepare(&scene);
        let scene = Self(scene.0.run());
        scene.rest().await;
        scene
    }

    /// `spec.podCIDRs` in the apiserver.
    fn cidrs(&self, name: &str) -> Value {
        self.server.part(name, "/spec/podCIDRs")
    }

    /// Whether exactly that many nodes are blocked for this reason.
    fn problems(&self, reason: &str, count: u32) -> bool {
        let labels = format!("controller=\"node-ipam-controller\",standing=\"Blocked\",reason=\"{reason}\"");
        self.has_metric(&format!("ccm_reports{{{labels}}} {count}"))
    }
}
