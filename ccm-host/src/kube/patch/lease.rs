//! The Lease that a kubelet renews for its node.

use std::time::Duration;

use ::kube::Api;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use super::{WriteError, Writer};

const NAMESPACE: &str = "kube-node-lease";
/// A kubelet's default.
const DURATION: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLease {
    /// The last renewal, by the kubelet's clock.
    pub renewed: Option<Timestamp>,
    /// How long the Lease is valid; a kubelet renews it four times as often.
    pub duration: Duration,
}

impl Writer {
    /// Reads the Lease of a node from the apiserver.
    pub async fn get_node_lease(&self, node: &str) -> Result<Option<NodeLease>, WriteError> {
        let _held = self.pressure().hold();
        let api = Api::<Lease>::namespaced(self.client(), NAMESPACE);
        let lease = api.get_opt(node).await.map_err(WriteError::of_request)?;
        Ok(lease.and_then(|lease| lease.spec).map(|spec| NodeLease {
            renewed: spec.renew_time.map(|time| time.0),
            duration: spec
                .lease_duration_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0)
                .map_or(DURATION, Duration::from_secs),
        }))
    }
}
