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
//! checks.

mod kinds;
mod named;
#[cfg(test)]
mod tests;
mod writer;

use serde_json::{Value, json};

use super::keep::Pairs;
use crate::shadow::{Field, condition};
pub use kinds::{
    Decision, NodeChange, WantedCondition, certificate_decision, node_addresses, node_condition, node_main,
    node_pod_cidrs, service_annotations, service_condition, service_finalizer, service_ingress,
    volume_admission, volume_topology, without_service_condition,
};
pub use named::{Called, NodeLease, RecordKey, Secret, StoredRecord, WebhookConfiguration};
pub use writer::{WriteError, WritePressure, Writer, Written};

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
    #[must_use]
    pub fn value(&self) -> &Value {
        match self {
            Self::Json(value) | Self::Merge(value) | Self::Strategic(value) => value,
        }
    }
}

impl Patch {
    /// One write of several to the same part of an object; none without any. JSON patches cannot be joined.
    #[must_use]
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

    /// Fails if anything at all was written to the object since this version.
    fn unchanged_since(&mut self, resource_version: &str) {
        self.test("/metadata/resourceVersion", json!(resource_version));
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
    fn set_pairs<'a>(
        &mut self,
        path: &str,
        old: &Pairs,
        wanted: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) {
        let changed: Vec<_> = wanted.filter(|(key, value)| old.get(key) != *value).collect();
        if changed.is_empty() {
            return;
        }
        if old.total() == 0 {
            let map = changed
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), json!(value?))))
                .collect();
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
