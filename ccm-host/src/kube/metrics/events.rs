//! Metrics of the events that the host writes.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Why an event was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::kube) enum Discarded {
    /// The queue was full.
    Overflow,
    /// Too many about one object.
    Spam,
    /// The apiserver refused it, or stayed unreachable.
    Failed,
    /// The process ended first.
    Shutdown,
    /// Shadow mode writes none.
    Shadow,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Metrics of all recorders.
#[derive(Debug, Clone, Default)]
pub struct EventMetrics {
    pub(in crate::kube) queued: Gauge,
    pub(in crate::kube) written: Counter,
    discarded: Family<Reason, Counter>,
}

impl EventMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("ccm_events_queued", "Events waiting to be written", self.queued.clone());
        registry.register("ccm_events_written", "Events written, including repeats", self.written.clone());
        registry.register(
            "ccm_events_discarded",
            "Events dropped before they were written",
            self.discarded.clone(),
        );
    }

    pub(in crate::kube) fn discard(&self, reason: Discarded) {
        let reason = match reason {
            Discarded::Overflow => "overflow",
            Discarded::Spam => "spam",
            Discarded::Failed => "failed",
            Discarded::Shutdown => "shutdown",
            Discarded::Shadow => "shadow",
        };
        self.discarded.get_or_create(&Reason { reason }).inc();
    }
}
