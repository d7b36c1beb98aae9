//! The patches of each kind: what an object is to become, as the smallest write. Pure.
//!
//! All patches of a Service go to the status subresource, which takes metadata too, so that the host needs no permission
//! to change a Service's spec.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::VolumeNodeAffinity, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::{Value, json};

use super::{Body, Operations, Patch, Target, escape, list_or_absent};
use crate::{
    certificate_request::CertificateRequest,
    node::{Node, NodeAddress, Taint},
    persistent_volume::PersistentVolume,
    service::{Ingress, Service},
    wire::Condition,
};
use ccm_base::text;

/// Changes of a Node outside of its status. The default changes nothing.
///
/// The cache must keep the keys written here ([`crate::keep::Keep`]): other keys look absent, and the patch then
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
    let mut condition = condition(before.condition(wanted.type_), wanted, now)?;
    condition["lastHeartbeatTime"] = json!(Time(now));
    Some(with_condition(&before.uid, condition))
}

/// As [`node_condition`]; a condition of a Service has no heartbeat.
#[must_use]
pub fn service_condition(before: &Service, wanted: &WantedCondition<'_>, now: Timestamp) -> Option<Patch> {
    let condition = condition(before.condition(wanted.type_), wanted, now)?;
    Some(with_condition(&before.uid, condition))
}

/// Removes a condition.
#[must_use]
pub fn without_service_condition(before: &Service, type_: &str) -> Option<Patch> {
    before.condition(type_)?;
    Some(with_condition(&before.uid, json!({"type": type_, "$patch": "delete"})))
}

/// The desired state of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCondition<'a> {
    pub type_: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
}

fn condition(old: Option<&Condition>, wanted: &WantedCondition<'_>, now: Timestamp) -> Option<Value> {
    let WantedCondition { type_, status, reason, message } = *wanted;
    let message = text::cut(message, text::MESSAGE);
    if old.is_some_and(|old| old.status == status && old.reason == reason && old.message == message) {
        return None;
    }
    let since =
        old.filter(|old| old.status == status).and_then(|old| old.last_transition_time).unwrap_or(now);
    Some(json!({
        "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": Time(since),
    }))
}

fn with_condition(uid: &str, condition: Value) -> Patch {
    let body = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    Patch { target: Target::Status, body: Body::Strategic(body) }
}

/// Adds (last) or removes one finalizer. It fails with a conflict if anybody changed the list since, so that others'
/// finalizers are never lost.
#[must_use]
pub fn service_finalizer(before: &Service, finalizer: &str, present: bool) -> Option<Patch> {
    if before.has_finalizer(finalizer) == present {
        return None;
    }
    let mut wanted: Vec<&str> =
        before.finalizers.iter().map(String::as_str).filter(|found| *found != finalizer).collect();
    if present {
        wanted.push(finalizer);
    }
    let mut operations = Operations::on(&before.uid);
    operations.set("/metadata/finalizers", list_or_absent(&before.finalizers), list_or_absent(&wanted));
    operations.finish(Target::Status)
}

/// Replaces the published entries; an empty list clears them.
///
/// The apiserver defaults the mode of an entry with an address to `VIP`, so an entry without a mode equals one with it.
#[must_use]
pub fn service_ingress(before: &Service, ingress: &[Ingress]) -> Option<Patch> {
    let same = before.ingress.len() == ingress.len()
        && before.ingress.iter().zip(ingress).all(|(stored, wanted)| is_stored_as(stored, wanted));
    (!same).then(|| {
        let body = json!({
            "metadata": {"uid": before.uid},
            "status": {"loadBalancer": {"ingress": list_or_absent(ingress)}},
        });
        Patch { target: Target::Status, body: Body::Merge(body) }
    })
}

fn is_stored_as(stored: &Ingress, wanted: &Ingress) -> bool {
    let Ingress { ip, hostname, ip_mode, ports } = wanted;
    let defaulted = if ip.is_empty() { None } else { Some("VIP") };
    stored.ip == *ip
        && stored.hostname == *hostname
        && stored.ports == *ports
        && (stored.ip_mode == *ip_mode || (ip_mode.is_none() && stored.ip_mode.as_deref() == defaulted))
}

/// Sets annotations; `None` removes. The cache must keep the keys.
#[must_use]
pub fn service_annotations(before: &Service, wanted: &BTreeMap<String, Option<String>>) -> Option<Patch> {
    let changed: BTreeMap<_, _> =
        wanted.iter().filter(|(key, value)| before.annotations.get(key) != value.as_deref()).collect();
    (!changed.is_empty()).then(|| Patch {
        target: Target::Status,
        body: Body::Merge(json!({"metadata": {"uid": before.uid, "annotations": changed}})),
    })
}

/// Sets labels, and the node affinity of a volume that has none: the apiserver never lets one change. Fails with a
/// conflict if anybody wrote one of these meanwhile.
#[must_use]
pub fn volume_topology(
    before: &PersistentVolume,
    labels: &BTreeMap<String, String>,
    affinity: Option<&VolumeNodeAffinity>,
) -> Option<Patch> {
    let mut operations = Operations::on(&before.uid);
    let wanted = labels.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())));
    operations.set_pairs("/metadata/labels", &before.labels, wanted);
    if let (Some(affinity), None) = (affinity, &before.affinity_keys) {
        operations.set("/spec/nodeAffinity", Value::Null, json!(affinity));
    }
    operations.finish(Target::Main)
}

/// The same as a patch of a volume that is being created, which no other writer can have changed; here, an affinity is replaced.
#[must_use]
pub fn volume_admission(
    before: &PersistentVolume,
    labels: &BTreeMap<String, String>,
    affinity: Option<&VolumeNodeAffinity>,
) -> Option<Value> {
    let mut operations = Vec::new();
    let mut add =
        |path: String, value: Value| operations.push(json!({"op": "add", "path": path, "value": value}));
    if before.labels.total() > 0 {
        labels.iter().for_each(|(key, value)| add(format!("/metadata/labels/{}", escape(key)), json!(value)));
    } else if !labels.is_empty() {
        add("/metadata/labels".to_owned(), json!(labels));
    }
    if let Some(affinity) = affinity {
        add("/spec/nodeAffinity".to_owned(), json!(affinity));
    }
    (!operations.is_empty()).then_some(Value::Array(operations))
}

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Approved,
    Denied,
}

/// Approves or denies exactly the request that was looked at, in the version that was looked at. `None` if it is
/// decided already, or carries conditions of another signer: then that one decides.
#[must_use]
pub fn certificate_decision(
    before: &CertificateRequest,
    decision: Decision,
    reason: &str,
    message: &str,
) -> Option<Patch> {
    if before.is_decided || before.is_issued || before.has_conditions {
        return None;
    }
    let type_ = match decision {
        Decision::Approved => "Approved",
        Decision::Denied => "Denied",
    };
    let message = text::cut(message, text::MESSAGE);
    let condition = json!({"type": type_, "status": "True", "reason": reason, "message": message});
    let mut operations = Operations::on(&before.uid);
    operations.unchanged_since(&before.resource_version);
    operations.set("/status/conditions", Value::Null, json!([condition]));
    operations.finish(Target::Approval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_affinity_is_only_ever_added() {
        let before = PersistentVolume { uid: "u".into(), ..PersistentVolume::default() };
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let affinity = VolumeNodeAffinity::default();
        let body = |before: &PersistentVolume| {
            let patch = volume_topology(before, &labels, Some(&affinity)).unwrap();
            assert_eq!(patch.target, Target::Main);
            let Body::Json(body) = patch.body else { panic!("{patch:?}") };
            body
        };
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        let labelling = [
            json!({"op": "test", "path": "/metadata/labels", "value": null}),
            json!({"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}),
        ];
        let [none, add] = labelling;
        let binding = [
            json!({"op": "test", "path": "/spec/nodeAffinity", "value": null}),
            json!({"op": "add", "path": "/spec/nodeAffinity", "value": {}}),
        ];
        let [unset, set] = binding;
        assert_eq!(body(&before), json!([uid, none, add, unset, set]));
        let bound = PersistentVolume { affinity_keys: Some(Vec::new()), ..before };
        assert_eq!(body(&bound), json!([uid, none, add]));
        let labelled = PersistentVolume { labels: [("a", "1")].into_iter().collect(), ..bound };
        assert_eq!(volume_topology(&labelled, &labels, Some(&affinity)), None);
    }

    #[test]
    fn a_decision_is_for_one_version_of_one_request() {
        let open = CertificateRequest {
            uid: "u".to_owned(),
            resource_version: "7".to_owned(),
            ..CertificateRequest::default()
        };
        for (decision, type_) in [(Decision::Approved, "Approved"), (Decision::Denied, "Denied")] {
            let patch = certificate_decision(&open, decision, "R", "m").unwrap();
            let condition = json!([{"type": type_, "status": "True", "reason": "R", "message": "m"}]);
            let body = json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "test", "path": "/status/conditions", "value": null},
                {"op": "add", "path": "/status/conditions", "value": condition},
            ]);
            assert_eq!((patch.target, patch.body), (Target::Approval, Body::Json(body)));
        }
        for taken in [
            CertificateRequest { is_decided: true, ..open.clone() },
            CertificateRequest { is_issued: true, ..open.clone() },
            CertificateRequest { has_conditions: true, ..open },
        ] {
            assert_eq!(certificate_decision(&taken, Decision::Approved, "R", "m"), None, "{taken:?}");
        }
    }
}
