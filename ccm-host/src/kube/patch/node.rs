//! Patches of a Node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{
    Body, Patch, Target, WantedCondition,
    json::{Operations, list_or_absent},
};
use crate::kube::node::{Node, NodeAddress, Taint};

/// Changes of a Node outside of its status. The default changes nothing.
///
/// The cache must keep the keys written here ([`crate::kube::keep::Keep`]): other keys look absent, and the patch then
/// fails with a conflict if the key exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// The provider ID to set.
    pub provider_id: Option<String>,
    pub set_labels: BTreeMap<String, String>,
    pub remove_labels: BTreeSet<String>,
    /// Annotations to set; `None` removes.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The complete list of taints, if it changes.
    pub taints: Option<Vec<Taint>>,
}

/// One atomic write of everything outside the status, guarded by the uid and by each value it replaces.
#[must_use]
pub fn node_main(before: &Node, change: &NodeChange) -> Option<Patch> {
    let NodeChange { provider_id, set_labels, remove_labels, annotations, taints } = change;
    let mut operations = Operations::on(&before.uid);
    if let Some(provider_id) = provider_id {
        operations.set("/spec/providerID", json!(before.provider_id), json!(provider_id));
    }
    let removed =
        remove_labels.iter().filter(|key| !set_labels.contains_key(*key)).map(|key| (key.as_str(), None));
    let set = set_labels.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())));
    operations.set_pairs("/metadata/labels", &before.labels, set.chain(removed));
    let annotations = annotations.iter().map(|(key, value)| (key.as_str(), value.as_deref()));
    operations.set_pairs("/metadata/annotations", &before.annotations, annotations);
    if let Some(taints) = taints {
        operations.set("/spec/taints", list_or_absent(&before.taints), list_or_absent(taints));
    }
    operations.finish(Target::Main)
}

/// Assigns pod CIDRs to a node that has none; both fields are written. The apiserver never lets them change.
#[must_use]
pub fn node_pod_cidrs(before: &Node, cidrs: &[String]) -> Option<Patch> {
    if !before.pod_cidrs.is_empty() {
        return None;
    }
    let mut operations = Operations::on(&before.uid);
    operations.set("/spec/podCIDR", Value::Null, json!(cidrs.first()));
    operations.set("/spec/podCIDRs", Value::Null, list_or_absent(cidrs));
    operations.finish(Target::Main)
}

/// Replaces the list of addresses, guarded by the uid and by the old list: an address that a kubelet wrote meanwhile
/// causes a conflict instead of being lost.
#[must_use]
pub fn node_addresses(before: &Node, addresses: &[NodeAddress]) -> Option<Patch> {
    let mut operations = Operations::on(&before.uid);
    operations.set("/status/addresses", list_or_absent(&before.addresses), list_or_absent(addresses));
    operations.finish(Target::Status)
}

/// Sets one condition and leaves the others. The transition time changes only with the status.
#[must_use]
pub fn node_condition(before: &Node, wanted: &WantedCondition<'_>, now: Timestamp) -> Option<Patch> {
    let WantedCondition { type_, status, reason, message } = *wanted;
    let old = before.condition(type_);
    if old.is_some_and(|old| old.status == status && old.reason == reason && old.message == message) {
        return None;
    }
    let since =
        old.filter(|old| old.status == status).and_then(|old| old.last_transition_time).unwrap_or(now);
    let condition = json!({
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": Time(now),
        "lastTransitionTime": Time(since),
    });
    let body = json!({"metadata": {"uid": before.uid}, "status": {"conditions": [condition]}});
    Some(Patch { target: Target::Status, body: Body::Strategic(body) })
}
