//! Rules of Nodes.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::meta::{is_label_value, is_qualified};
use crate::refusal::Cause;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// What the admission of new Nodes does.
pub(super) fn taint_not_ready(node: &mut Value) {
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    match node["spec"]["taints"].as_array_mut() {
        Some(taints) => {
            if !taints.iter().any(|one| one["key"] == NOT_READY && one["effect"] == "NoSchedule") {
                taints.push(taint);
            }
        }
        None => node["spec"]["taints"] = json!([taint]),
    }
}

pub(super) fn default(node: &mut Value) {
    // The first of the list also has a field of its own, which wins if they differ.
    let spec = &mut node["spec"];
    let first = spec["podCIDRs"][0].clone();
    if spec["podCIDR"].is_null() && !first.is_null() {
        spec["podCIDR"] = first;
    } else if spec["podCIDR"] != first {
        spec["podCIDRs"] = json!([spec["podCIDR"]]);
    }
}

pub(super) fn wrong(of_status: bool, node: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = duplicate_addresses(&node["status"]["addresses"]);
    // A status update cannot correct them.
    causes.extend(if of_status { Vec::new() } else { pod_cidrs(&node["spec"]) });
    causes.extend(taints(&node["spec"]["taints"]));
    if let Some(old) = old {
        let changes_to = |field: &str| {
            let (old, new) = (&old["spec"][field], &node["spec"][field]);
            (!old.is_null() && old != new).then_some(new)
        };
        if changes_to("podCIDRs").is_some() {
            let message = "node updates may not change podCIDR except from \"\" to valid";
            causes.push(Cause::forbidden("spec.podCIDRs", message));
        }
        if let Some(new) = changes_to("providerID") {
            let done = if new.is_null() { "cleared" } else { "modified" };
            let message = format!("field cannot be {done} once set");
            causes.push(Cause::invalid("spec.providerID", &Value::Null, &message));
        }
    }
    causes
}

fn duplicate_addresses(addresses: &Value) -> Vec<Cause> {
    let all = addresses.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .enumerate()
        .filter(|(at, one)| all[..*at].contains(one))
        .map(|(at, one)| {
            let message = format!("Duplicate value: {one}");
            Cause::new("FieldValueDuplicate", format!("status.addresses[{at}]"), message)
        })
        .collect()
}

fn pod_cidrs(spec: &Value) -> Vec<Cause> {
    let all = spec["podCIDRs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut causes = Vec::new();
    let mut families = Vec::new();
    for (at, one) in all.iter().enumerate() {
        match cidr(one.as_str().unwrap_or_default()) {
            Some(address) => families.push(address.is_ipv4()),
            None => causes.push(Cause::invalid(
                format!("spec.podCIDRs[{at}]"),
                one,
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            )),
        }
    }
    if families.len() > 2 || (families.len() == 2 && families[0] == families[1]) {
        let message = "may specify no more than one CIDR for each IP family";
        causes.push(Cause::invalid("spec.podCIDRs", &spec["podCIDRs"], message));
    }
    causes
}

fn cidr(text: &str) -> Option<IpAddr> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (bits.parse::<u8>().ok()? <= most).then_some(address)
}

/// The apiserver says `metadata.taints`, although they are in the spec.
fn taints(taints: &Value) -> Vec<Cause> {
    let all = taints.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut causes = Vec::new();
    for (at, taint) in all.iter().enumerate() {
        let field = |name: &str| format!("metadata.taints[{at}]{name}");
        let key = taint["key"].as_str().unwrap_or_default();
        if !is_qualified(key) {
            causes.push(Cause::invalid(field(".key"), &json!(key), "name part must be non-empty"));
        }
        if !is_label_value(taint["value"].as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(
                field(".value"),
                &taint["value"],
                "a valid label must be an empty string or consist of alphanumeric characters",
            ));
        }
        match taint["effect"].as_str().unwrap_or_default() {
            "" => causes.push(Cause::required(field(".effect"), "")),
            effect if !EFFECTS.contains(&effect) => {
                causes.push(Cause::unsupported(field(".effect"), effect, &EFFECTS));
            }
            _ => {}
        }
        let same = |one: &&Value| one["key"] == taint["key"] && one["effect"] == taint["effect"];
        if all[..at].iter().any(|one| same(&one)) {
            let message = format!("Duplicate value: {taint}: taints must be unique by key and effect pair");
            causes.push(Cause::new("FieldValueDuplicate", field(""), message));
        }
    }
    causes
}
