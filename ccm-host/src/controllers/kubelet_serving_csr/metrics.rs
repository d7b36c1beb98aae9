//! Metrics: the decisions that were written. What the open requests wait for is in `ccm_reports`.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::metric::Declare;

pub(super) type Decisions = Family<Decided, Counter>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Decided {
    pub(super) result: &'static str,
    pub(super) reason: &'static str,
}

pub(super) fn decisions(registry: &mut Registry) -> Decisions {
    registry.metric(
        "kubelet_serving_csr_controller_requests",
        "Requests of kubelets for serving certificates that were approved or denied, by reason",
    )
}
