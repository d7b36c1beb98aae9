//! Metrics: how long nodes wait, and why. The names of the first two are upstream's.

use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::is_new;
use ccm_base::metric::{Buckets, Declare};
use ccm_kube::node::Node;

/// Upstream's buckets, and two more: its last one ends at 17 minutes.
const DELAYS: Buckets = Buckets(&[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0]);

/// The metrics of this controller. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct CloudNodeMetrics {
    taint_removal: Histogram,
    initial_sync: Histogram,
    failures: Family<FailureLabels, Counter>,
    unmatched: Gauge,
    contested: Gauge,
    reordered: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    stage: &'static str,
    reason: &'static str,
}

impl CloudNodeMetrics {
    #[must_use]
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            taint_removal: registry.histogram(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "Seconds from the creation of a node to the removal of its uninitialized taint",
                DELAYS,
            ),
            initial_sync: registry.histogram(
                "node_controller_initial_node_sync_delay_seconds",
                "Seconds from the creation of a node to the end of its initialisation",
                DELAYS,
            ),
            failures: registry.metric(
                "node_controller_failures",
                "Failed attempts to initialise or refresh a node, by reason",
            ),
            unmatched: registry.metric(
                "node_controller_unmatched_nodes",
                "Nodes whose provider ID matches no provider of this host",
            ),
            contested: registry.metric(
                "node_controller_contested_nodes",
                "Nodes whose provider ID several providers of this host claim",
            ),
            reordered: registry.metric(
                "node_controller_reordered_addresses",
                "Answers with the addresses of an initialised node in a different order; the existing order is kept",
            ),
        }
    }

    /// Records that a node lost its taint.
    pub(super) fn initialised(&self, node: &Node, now: Timestamp) {
        let Some(created) = node.created else { return };
        let delay = Duration::try_from(now.duration_since(created)).unwrap_or_default().as_secs_f64();
        // One write removes the taint and ends the initialisation; the addresses were written before.
        self.taint_removal.observe(delay);
        self.initial_sync.observe(delay);
    }

    /// Counts a failed attempt to initialise or refresh the node.
    pub(super) fn failed(&self, node: &Node, reason: &'static str) {
        let stage = if is_new(node) { "initialise" } else { "refresh" };
        self.failures.get_or_create(&FailureLabels { stage, reason }).inc();
    }

    /// Counts an answer with an initialised node's addresses in another order.
    pub(super) fn reordered(&self) {
        self.reordered.inc();
    }

    /// Sets the number of nodes that no provider owns, and of those that several claim.
    pub(super) fn ownerless(&self, unmatched: usize, contested: usize) {
        self.unmatched.set(i64::try_from(unmatched).unwrap_or(i64::MAX));
        self.contested.set(i64::try_from(contested).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use ccm_kube::fixtures::node;

    #[test]
    fn delays_count_from_the_creation_of_the_node() {
        let mut registry = Registry::default();
        let metrics = CloudNodeMetrics::register(&mut registry);
        metrics.initialised(&node("n"), Timestamp::from_second(2000).unwrap());
        metrics.initialised(&node("from the future"), Timestamp::from_second(-5).unwrap());
        metrics.failed(&node("n").tainted_uninitialized(), "RATE_LIMITED");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le="1024.0"} 1"#,
            r#"node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le="4096.0"} 2"#,
            "node_controller_initial_node_sync_delay_seconds_sum 2000.0",
            r#"node_controller_failures_total{stage="initialise",reason="RATE_LIMITED"} 1"#,
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
    }
}
