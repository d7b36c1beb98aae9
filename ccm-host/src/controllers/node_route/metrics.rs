//! Metrics. The first name is upstream's; the library appends `_total` to counters.

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

use super::Subject;
use crate::{
    kube::queue::WorkQueue,
    metric::Declare,
    reconcile::{OPERATION, Operations},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProvider {
    provider: String,
}

/// The series of this controller. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct RouteMetrics {
    syncs: Counter,
    pub(super) operations: Operations,
    known: Family<OfProvider, Gauge>,
}

impl RouteMetrics {
    /// Registers all series.
    #[must_use]
    pub(super) fn register(queue: &WorkQueue<Subject>, registry: &mut Registry) -> Self {
        registry.register_collector(Box::new(Waiting(queue.clone())));
        Self {
            syncs: registry.metric(
                "route_controller_route_sync",
                "Sweeps of all routes of a provider, including failed ones",
            ),
            operations: registry.histograms(
                "ccm_route_operation_duration_seconds",
                "Operations on routes by result: ok, incomplete, in_progress or the reason of an error",
                OPERATION,
            ),
            known: registry.metric("ccm_route_known", "Known routes per provider"),
        }
    }

    /// Counts the start of a list of all routes.
    pub(super) fn sync_begins(&self) {
        self.syncs.inc();
    }

    /// Sets the number of known routes.
    pub(super) fn known(&self, provider: &str, routes: usize) {
        let labels = OfProvider { provider: provider.to_owned() };
        self.known.get_or_create(&labels).set(i64::try_from(routes).unwrap_or(i64::MAX));
    }
}

/// Counts the delayed keys of a queue when it is asked.
#[derive(Debug)]
struct Waiting(WorkQueue<Subject>);

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
