//! Metrics: what became of requests, and what the open ones wait for.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::metric::Declare;

/// The metrics of this controller. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct CsrMetrics {
    requests: Family<Request, Counter>,
    waiting: Family<Waiting, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    result: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Waiting {
    reason: &'static str,
}

impl CsrMetrics {
    #[must_use]
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            requests: registry.metric(
                "kubelet_serving_csr_controller_requests",
                "Requests of kubelets for serving certificates: approved, denied, refused (left undecided) or ignored, by reason",
            ),
            waiting: registry.metric(
                "kubelet_serving_csr_controller_waiting_requests",
                "Requests that cannot be decided yet, by what they wait for",
            ),
        }
    }

    pub(super) fn count(&self, result: &'static str, reason: &'static str) {
        self.requests.get_or_create(&Request { result, reason }).inc();
    }

    /// Adds `more`, which may be negative, to the requests that wait for that.
    pub(super) fn waiting(&self, reason: &'static str, more: i64) {
        self.waiting.get_or_create(&Waiting { reason }).inc_by(more);
    }
}
