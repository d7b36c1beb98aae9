//! Metrics: deletions, nodes held back by rule, and whether a provider contradicts itself.

use std::collections::HashMap;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::{guard::Guard, rule::Rule};
use ccm_base::metric::{Buckets, Declare, OfProvider, gauge, of_provider};

/// Upstream's buckets: powers of two, from a millisecond.
const PASS: Buckets = Buckets(&[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
]);

/// The metrics of this controller. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct LifecycleMetrics {
    contradicted: Family<OfProvider, Gauge>,
    held_back: Family<OfProvider<1>, Gauge>,
    absent: Family<OfProvider, Gauge>,
    pub(super) deletions: Family<OfProvider, Counter>,
    pub(super) deletion_failures: Family<OfProvider, Counter>,
    stopped: Family<OfProvider, Gauge>,
    pub(super) given_up: Family<OfProvider, Counter>,
    given_up_blocked: Family<OfProvider<1>, Gauge>,
    /// How long a pass takes, from what it asks to what it does.
    pub(super) passes: Histogram,
}

impl LifecycleMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            contradicted: registry.metric(
                "node_lifecycle_provider_contradicted",
                "Whether deletions are blocked (1), in a zone or altogether, because a provider denies instances whose kubelets are alive",
            ),
            held_back: registry.metric(
                "node_lifecycle_deletions_blocked",
                "Nodes with an absent instance that are not deleted yet, by the rule that blocks it",
            ),
            absent: registry.metric(
                "node_lifecycle_absent_nodes",
                "Nodes that are not ready and whose instance is reported absent, confirmed or not",
            ),
            deletions: registry
                .metric("node_lifecycle_deletions", "Nodes deleted because their instance is gone"),
            deletion_failures: registry
                .metric("node_lifecycle_deletion_failures", "Node deletions that failed at the apiserver"),
            stopped: registry.metric(
                "node_lifecycle_stopped_nodes",
                "Nodes that are not ready and whose instance is reported stopped",
            ),
            given_up: registry.metric(
                "node_lifecycle_given_up",
                "Nodes that --node-shutdown-policy gave up because their instance stayed stopped",
            ),
            given_up_blocked: registry.metric(
                "node_lifecycle_giving_up_blocked",
                "Nodes with a stopped instance that are not given up yet, by the rule that blocks it",
            ),
            passes: registry.histogram(
                "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
                "Duration of a pass over the silent nodes of a provider",
                PASS,
            ),
        }
    }

    /// Records the end of a pass over a provider's nodes, and which of those that are absent are held back.
    pub(super) fn passed(
        &self,
        provider: &str,
        guard: &Guard,
        absent: usize,
        held_back: &HashMap<String, Rule>,
    ) {
        for (rule, nodes) in by_rule(held_back) {
            self.held_back.get_or_create(&of_rule(provider, rule)).set(nodes);
        }
        let label = of_provider(provider, []);
        self.contradicted.get_or_create(&label).set(i64::from(guard.is_contradicted()));
        self.absent.get_or_create(&label).set(gauge(absent));
    }

    pub(super) fn stopped(&self, provider: &str, nodes: usize) {
        self.stopped.get_or_create(&of_provider(provider, [])).set(gauge(nodes));
        // Counts from zero, not from the first.
        drop(self.given_up.get_or_create(&of_provider(provider, [])));
    }

    pub(super) fn given_up_blocked(&self, provider: &str, held_back: &HashMap<String, Rule>) {
        for (rule, nodes) in by_rule(held_back) {
            self.given_up_blocked.get_or_create(&of_rule(provider, rule)).set(nodes);
        }
    }
}

/// How many nodes each rule holds back: none, too, so that a gauge falls.
fn by_rule(held_back: &HashMap<String, Rule>) -> impl Iterator<Item = (Rule, i64)> {
    Rule::ALL.into_iter().map(|rule| (rule, gauge(held_back.values().filter(|held| **held == rule).count())))
}

fn of_rule(provider: &str, rule: Rule) -> OfProvider<1> {
    of_provider(provider, [("rule", rule.label())])
}
