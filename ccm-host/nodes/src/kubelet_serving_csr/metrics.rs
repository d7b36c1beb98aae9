//! Metrics: the decisions that were written. What the open requests wait for is in `ccm_reports`.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use ccm_base::metric::Declare;

#[derive(Debug)]
pub(super) struct CsrMetrics {
    decisions: Family<Decided, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    result: &'static str,
    reason: &'static str,
}

impl CsrMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            decisions: registry.metric(
                "kubelet_serving_csr_controller_requests",
                "Requests of kubelets for serving certificates that were approved or denied, by reason",
            ),
        }
    }

    pub(super) fn decided(&self, result: &'static str, reason: &'static str) {
        self.decisions.get_or_create(&Decided { result, reason }).inc();
    }
}
