//! Metrics. The first name is upstream's; the library appends `_total` to counters.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::{
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
    pub(super) waiting: Gauge,
}

impl RouteMetrics {
    /// Registers all series.
    #[must_use]
    pub(super) fn register(registry: &mut Registry) -> Self {
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
            waiting: registry.metric("ccm_route_waiting", "Nodes and routes waiting for a retry"),
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
