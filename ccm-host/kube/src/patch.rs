//! The smallest writes that make the apiserver's copy match a decision, each with its preconditions.
//!
//! In: the object as last seen and the desired changes. Out: a [`Patch`], or none if nothing differs. The functions are
//! pure; [`Writer`] sends. The controllers decide on the changes.
//!
//! | Write | Kind | Guard |
//! |---|---|---|
//! | a node's provider ID, labels, annotations, taints | JSON patch | `test` of the uid and of every old value |
//! | a node's pod CIDRs | JSON patch | `test` of the uid, and that there are none |
//! | a node's addresses | JSON patch | `test` of the uid and of the whole list |
//! | a Service's ingress and annotations | merge patch (replaces lists) | `metadata.uid` |
//! | a condition | strategic merge patch (merges by type) | `metadata.uid` |
//! | a Service's finalizers | JSON patch | `test` of the uid and of the whole list |
//! | the decision about a certificate request | JSON patch | `test` of the uid, of the resource version, and that there is none |
//! | labels of a volume, and the node affinity of one that has none | JSON patch | `test` of the uid and of every old value |
//! | deletion of a node | DELETE | uid precondition |
//! | the certificate of the webhooks in its Secret | merge patch | resource version |
//! | the authorities of a webhook configuration | JSON patch | `test` of the resource version |
//! | a record in a ConfigMap | merge patch | resource version |
//!
//! Taints and finalizers use a JSON patch with `test` instead of a resource version, because it fails only if somebody
//! else changed the value itself: heartbeats, and our own write of the addresses just before, do not make it fail. The
//! price: a failed `test` differs from an invalid value only in that its 422 names no field, which [`WriteError`]
//! checks. All patches of a Service go to the status subresource, which takes metadata too, so that the host needs no
//! permission to change a Service's spec.

mod named;
#[cfg(test)]
mod tests;
mod writer;

pub use named::{Called, NodeLease, RECORDS, RecordKey, Secret, StoredRecord, WebhookConfiguration};
pub use writer::{WriteError, WritePressure, Writer};

use std::{borrow::Cow, collections::BTreeMap};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::VolumeNodeAffinity, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::{Value, json};

use super::keep::Pairs;
use crate::{
    certificate_request::CertificateRequest,
    node::{Node, NodeAddress, Taint},
    persistent_volume::PersistentVolume,
    service::{Ingress, Service},
    shadow::{Field, condition},
    wire::Condition,
};
use ccm_base::text;

/// The parts of a patch that guard it and change nothing.
const GUARDS: [&str; 2] = ["/metadata/uid", "/metadata/resourceVersion"];

/// One write to one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    pub target: Target,
    pub body: Body,
}

/// The part of an object that a patch addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The object itself, without its status.
    Main,
    /// The status subresource. For Services it also takes metadata, and needs fewer rights.
    Status,
    /// The approval subresource of a CertificateSigningRequest.
    Approval,
}

/// The body of a patch, by patch type.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// RFC 6902: a list of operations, all or nothing.
    Json(Value),
    /// RFC 7386: lists are replaced.
    Merge(Value),
    /// Kubernetes' own: lists with a merge key are merged.
    Strategic(Value),
}

impl Body {
    fn content_type(&self) -> &'static str {
        match self {
            Self::Json(_) => "application/json-patch+json",
            Self::Merge(_) => "application/merge-patch+json",
            Self::Strategic(_) => "application/strategic-merge-patch+json",
        }
    }

    /// The JSON that is sent.
    pub fn value(&self) -> &Value {
        match self {
            Self::Json(value) | Self::Merge(value) | Self::Strategic(value) => value,
        }
    }
}

impl Patch {
    /// One write of several to the same part of an object; none without any. JSON patches cannot be joined.
    pub fn joined<'a>(patches: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let mut patches = patches.into_iter();
        let Self { target, body } = patches.next()?.clone();
        let mut whole = body.value().clone();
        patches.for_each(|patch| merge(&mut whole, patch.body.value()));
        Some(Self { target, body: Body::Strategic(whole) })
    }

    /// The uid that the patch is for, and what it sets.
    pub fn fields(&self) -> (String, Vec<Field>) {
        match &self.body {
            Body::Json(operations) => of_operations(operations),
            Body::Merge(body) | Body::Strategic(body) => {
                let uid = body["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let mut fields = Vec::new();
                leaves(String::new(), body, None, &mut fields);
                fields.retain(|field| !GUARDS.contains(&field.path.as_str()));
                (uid, fields)
            }
        }
    }
}

/// Lists are joined: those of conditions merge by type.
fn merge(whole: &mut Value, part: &Value) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (key, value) in part {
                merge(whole.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(whole), Value::Array(part)) => whole.extend(part.iter().cloned()),
        (whole, part) => *whole = part.clone(),
    }
}

fn of_operations(operations: &Value) -> (String, Vec<Field>) {
    let (mut uid, mut fields, mut tested) = (String::new(), Vec::new(), None);
    for operation in operations.as_array().into_iter().flatten() {
        let (path, value) = (operation["path"].as_str().unwrap_or_default(), &operation["value"]);
        match operation["op"].as_str() {
            Some("test") if path == "/metadata/uid" => {
                value.as_str().unwrap_or_default().clone_into(&mut uid);
            }
            Some("test") => tested = Some((path, value.clone())),
            _ => {
                let old = tested.take().filter(|(of, _)| *of == path).map(|(_, old)| old);
                leaves(path.to_owned(), value, old, &mut fields);
            }
        }
    }
    (uid, fields)
}

/// Maps are taken apart, lists are not, but for conditions.
fn leaves(path: String, value: &Value, old: Option<Value>, into: &mut Vec<Field>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}/{}", escape(key));
                leaves(path, value, old.clone(), into);
            }
        }
        Value::Array(conditions) if path == "/status/conditions" => {
            into.extend(conditions.iter().map(|one| Field {
                path: format!("{path}/{}", one["type"].as_str().unwrap_or_default()),
                old: old.clone(),
                new: condition(one),
            }));
        }
        value => into.push(Field { path, old, new: value.clone() }),
    }
}

/// A JSON patch in the making: every change is preceded by a test of what it replaces. An operation that changes nothing adds no test either.
#[derive(Debug)]
struct Operations {
    list: Vec<Value>,
    changes: usize,
}

impl Operations {
    /// Starts with the identity: the patch fails if the object was recreated.
    fn on(uid: &str) -> Self {
        let mut operations = Self { list: Vec::new(), changes: 0 };
        operations.test("/metadata/uid", json!(uid));
        operations
    }

    /// Changes the value at `path` from `old` to `new`; null means absent. The parent must exist.
    fn set(&mut self, path: &str, old: Value, new: Value) {
        if old == new {
            return;
        }
        self.test(path, old);
        self.changes += 1;
        self.list.push(if new.is_null() {
            json!({"op": "remove", "path": path})
        } else {
            json!({"op": "add", "path": path, "value": new})
        });
    }

    /// Sets keys of the string map at `path`; `None` removes the key.
    ///
    /// An object without such a map gets the whole map at once, since a JSON patch cannot create parents.
    fn set_pairs(&mut self, path: &str, old: &Pairs, wanted: &BTreeMap<String, Option<String>>) {
        let changed: Vec<_> = wanted.iter().filter(|(key, value)| old.get(key) != value.as_deref()).collect();
        if changed.is_empty() {
            return;
        }
        if old.total() == 0 {
            let set = changed.into_iter().filter(|(_, value)| value.is_some());
            let map = set.map(|(key, value)| (key.clone(), json!(value))).collect();
            return self.set(path, Value::Null, Value::Object(map));
        }
        for (key, value) in changed {
            let path = format!("{path}/{}", escape(key));
            self.set(&path, json!(old.get(key)), json!(value));
        }
    }

    /// The patch, if it changes anything.
    fn finish(self, target: Target) -> Option<Patch> {
        (self.changes > 0).then_some(Patch { target, body: Body::Json(Value::Array(self.list)) })
    }

    /// The server treats a test against null as a test for absence.
    fn test(&mut self, path: &str, value: Value) {
        self.list.push(json!({"op": "test", "path": path, "value": value}));
    }
}

/// A list as the object holds it: an empty one is absent.
fn list_or_absent<T: serde::Serialize>(list: &[T]) -> Value {
    if list.is_empty() { Value::Null } else { json!(list) }
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Changes of a Node outside of its status. The default changes nothing.
///
/// The cache must keep the keys written here ([`crate::keep::Keep`]): other keys look absent, and the patch then
/// fails with a conflict if the key exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// The provider ID to set.
    pub provider_id: Option<String>,
    /// Labels to set; `None` removes.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set; `None` removes.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The complete list of taints, if it changes.
    pub taints: Option<Vec<Taint>>,
}

/// One atomic write of everything outside the status, guarded by the uid and by each value it replaces.
pub fn node_main(before: &Node, change: &NodeChange) -> Option<Patch> {
    let NodeChange { provider_id, labels, annotations, taints } = change;
    let mut operations = Operations::on(&before.uid);
    if let Some(provider_id) = provider_id {
        operations.set("/spec/providerID", json!(before.provider_id), json!(provider_id));
    }
    operations.set_pairs("/metadata/labels", &before.labels, labels);
    operations.set_pairs("/metadata/annotations", &before.annotations, annotations);
    if let Some(taints) = taints {
        operations.set("/spec/taints", list_or_absent(&before.taints), list_or_absent(taints));
    }
    operations.finish(Target::Main)
}

/// Assigns pod CIDRs to a node that has none; both fields are written. The apiserver never lets them change.
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
pub fn node_addresses(before: &Node, addresses: &[NodeAddress]) -> Option<Patch> {
    let mut operations = Operations::on(&before.uid);
    operations.set("/status/addresses", list_or_absent(&before.addresses), list_or_absent(addresses));
    operations.finish(Target::Status)
}

/// Sets one condition and leaves the others. The transition time changes only with the status.
pub fn node_condition(before: &Node, wanted: &WantedCondition<'_>, now: Timestamp) -> Option<Patch> {
    let mut condition = changed_condition(before.condition(wanted.type_), wanted, now)?;
    condition["lastHeartbeatTime"] = json!(Time(now));
    Some(with_condition(&before.uid, condition))
}

/// As [`node_condition`]; a condition of a Service has no heartbeat.
pub fn service_condition(before: &Service, wanted: &WantedCondition<'_>, now: Timestamp) -> Option<Patch> {
    let condition = changed_condition(before.condition(wanted.type_), wanted, now)?;
    Some(with_condition(&before.uid, condition))
}

/// Removes a condition.
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
    pub message: Cow<'a, str>,
}

fn changed_condition(old: Option<&Condition>, wanted: &WantedCondition<'_>, now: Timestamp) -> Option<Value> {
    let WantedCondition { type_, status, reason, ref message } = *wanted;
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
pub fn volume_topology(
    before: &PersistentVolume,
    labels: &BTreeMap<String, String>,
    affinity: Option<&VolumeNodeAffinity>,
) -> Option<Patch> {
    let mut operations = Operations::on(&before.uid);
    let labels = labels.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    operations.set_pairs("/metadata/labels", &before.labels, &labels);
    if let (Some(affinity), None) = (affinity, &before.affinity_keys) {
        operations.set("/spec/nodeAffinity", Value::Null, json!(affinity));
    }
    operations.finish(Target::Main)
}

/// The same as a patch of a volume that is being created, which no other writer can have changed; here, an affinity is replaced.
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
    operations.test("/metadata/resourceVersion", json!(before.resource_version));
    operations.set("/status/conditions", Value::Null, json!([condition]));
    operations.finish(Target::Approval)
}
