//! Metrics. The first one, with its labels, is upstream's; the library appends `_total` to counters.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{
        MetricType,
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::Registry,
};

use super::RouteKey;
use ccm_base::metric::{Declare, OfProvider};
use ccm_kube::queue::WorkQueue;
use ccm_reconcile::{OPERATION, Operations};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SyncLabels {
    outcome: &'static str,
    trigger: &'static str,
}

/// What made the host compare routes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trigger {
    /// A sweep of all routes of a provider.
    Periodic,
    /// A node, or what is known of its routes.
    NodeChange,
}

/// How that ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Synced {
    /// Something was, or is to be, made or removed.
    Changed,
    Noop,
    Error,
}

impl Trigger {
    fn label(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::NodeChange => "node_change",
        }
    }
}

impl Synced {
    fn label(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Noop => "noop",
            Self::Error => "error",
        }
    }
}

/// The series of this controller. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct RouteMetrics {
    syncs: Family<SyncLabels, Counter>,
    pub(super) operations: Operations,
    known: Family<OfProvider, Gauge>,
}

impl RouteMetrics {
    /// Registers all series.
    #[must_use]
    pub(super) fn register(queue: &WorkQueue<RouteKey>, registry: &mut Registry) -> Self {
        registry.register_collector(Box::new(Waiting(queue.clone())));
        Self {
            syncs: registry.metric(
                "route_controller_route_sync",
                "Comparisons of routes by outcome (changed, noop, error) and trigger: periodic for sweeps of all routes of a provider, node_change for runs of one node",
            ),
            operations: registry.histograms(
                "ccm_route_operation_duration_seconds",
                "Operations on routes by result: ok, incomplete, in_progress or the reason of an error",
                OPERATION,
            ),
            known: registry.metric("ccm_route_known", "Known routes per provider"),
        }
    }

    pub(super) fn synced(&self, trigger: Trigger, outcome: Synced) {
        let labels = SyncLabels { outcome: outcome.label(), trigger: trigger.label() };
        self.syncs.get_or_create(&labels).inc();
    }

    /// Sets the number of known routes.
    pub(super) fn known(&self, provider: &str, routes: usize) {
        let labels = OfProvider::new(provider);
        self.known.get_or_create(&labels).set(i64::try_from(routes).unwrap_or(i64::MAX));
    }
}

/// Counts the delayed keys of a queue when it is asked.
#[derive(Debug)]
struct Waiting(WorkQueue<RouteKey>);

impl Collector for Waiting {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let waiting = ConstGauge::new(i64::try_from(self.0.delayed()).unwrap_or(i64::MAX));
        waiting.encode(encoder.encode_descriptor(
            "ccm_route_waiting",
            "Nodes and routes waiting for a retry",
            None,
            MetricType::Gauge,
        )?)
    }
}
