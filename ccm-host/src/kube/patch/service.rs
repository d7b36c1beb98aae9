//! Patches of a Service. All of them go to the status subresource, which takes metadata too, so that the host needs no
//! permission to change a Service's spec.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{
    Body, Patch, Target, WantedCondition,
    json::{Operations, list_or_absent},
};
use crate::kube::service::{Ingress, Service};

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

/// Sets one condition and leaves the others. The transition time changes only with the status.
#[must_use]
pub fn service_condition(before: &Service, wanted: &WantedCondition<'_>, now: Timestamp) -> Option<Patch> {
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
        "lastTransitionTime": Time(since),
    });
    let body = json!({"metadata": {"uid": before.uid}, "status": {"conditions": [condition]}});
    Some(Patch { target: Target::Status, body: Body::Strategic(body) })
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
