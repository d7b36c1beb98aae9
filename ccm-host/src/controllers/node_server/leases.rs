//! Leases of kubelets: a living one has renewed whenever somebody looks.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::kube::fixtures::{Call, Reply};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/";

/// All of them, by node: none for a kubelet that is alive, else when it renewed last.
#[derive(Default)]
pub(super) struct Leases {
    pub(super) renewed: BTreeMap<String, Option<Timestamp>>,
    pub(super) refused: bool,
}

pub(super) fn is_lease(call: &Call) -> bool {
    call.path.starts_with(LEASES)
}

impl Leases {
    pub(super) fn answer(&self, call: &Call) -> Reply {
        let name = call.path.trim_start_matches(LEASES);
        match self.renewed.get(name) {
            _ if self.refused => Reply::status(403, "Forbidden"),
            None => Reply::status(404, "NotFound"),
            Some(renewed) => {
                let renewed = renewed.unwrap_or_else(|| Timestamp::now() + SignedDuration::from_millis(1));
                Reply::ok(json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                    "spec": {"renewTime": format!("{renewed:.6}"), "leaseDurationSeconds": 40},
                }))
            }
        }
    }
}
