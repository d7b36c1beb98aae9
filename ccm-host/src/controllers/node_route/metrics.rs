//! Metrics. The first name is upstream's; the library appends `_total` to counters.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::buckets::Buckets;

/// From an answer served from memory to the longest deadline.
const OPERATION: Buckets = Buckets(&[0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0]);

/// An operation on routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Create a route, or correct one.
    Ensure,
    Delete,
    List,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ensure => "ensure",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    provider: String,
    operation: &'static str,
    result: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProvider {
    provider: String,
}

/// The series of this controller. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct RouteMetrics {
    syncs: Counter,
    operations: Family<Ended, Histogram, Buckets>,
    known: Family<OfProvider, Gauge>,
    pub(super) waiting: Gauge,
}

impl RouteMetrics {
    /// Registers all series.
    #[must_use]
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            syncs: Counter::default(),
            operations: Family::new_with_constructor(OPERATION),
            known: Family::default(),
            waiting: Gauge::default(),
        };
        registry.register(
            "route_controller_route_sync",
            "Sweeps of all routes of a provider, including failed ones",
            metrics.syncs.clone(),
        );
        registry.register(
            "ccm_route_operation_duration_seconds",
            "Operations on routes by result: ok, incomplete, in_progress or the reason of an error",
            metrics.operations.clone(),
        );
        registry.register("ccm_route_known", "Known routes per provider", metrics.known.clone());
        registry.register(
            "ccm_route_waiting",
            "Nodes and routes waiting for a retry",
            metrics.waiting.clone(),
        );
        metrics
    }

    /// Counts the start of a list of all routes.
    pub(super) fn sync_begins(&self) {
        self.syncs.inc();
    }

    /// Records the end of an operation. `result` is `ok`, `incomplete`, `in_progress` or the label of an error.
    pub(super) fn ended(&self, provider: &str, operation: Operation, result: String, took: Duration) {
        let labels = Ended { provider: provider.to_owned(), operation: operation.as_str(), result };
        self.operations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Sets the number of known routes.
    pub(super) fn known(&self, provider: &str, routes: usize) {
        let labels = OfProvider { provider: provider.to_owned() };
        self.known.get_or_create(&labels).set(i64::try_from(routes).unwrap_or(i64::MAX));
    }
}
