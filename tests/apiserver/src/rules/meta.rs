//! Metadata of all kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::refusal::Cause;

/// The maximum size of all annotations of an object together.
const ANNOTATED: usize = 256 << 10;

/// Stamps a new object.
pub(crate) fn new_meta(object: &mut Value, uid: String, now: Timestamp) {
    let meta = &mut object["metadata"];
    meta["uid"] = json!(uid);
    meta["creationTimestamp"] = json!(seconds(now));
    if let Some(meta) = meta.as_object_mut() {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"] {
            meta.remove(field);
        }
    }
}

/// Formats a time as `metav1.Time` does.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(super) fn wrong(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let meta = &object["metadata"];
    let mut causes = Vec::new();
    let name = meta["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if !is_subdomain(name) {
        causes.push(Cause::invalid("metadata.name", &json!(name), "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"));
    }
    for (key, value) in meta["labels"].as_object().into_iter().flatten() {
        if !is_qualified(key) {
            causes.push(Cause::invalid("metadata.labels", &json!(key), "is no qualified name"));
        }
        if !is_label_value(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid("metadata.labels", value, "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"));
        }
    }
    for (key, _) in meta["annotations"].as_object().into_iter().flatten() {
        if !is_qualified(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &json!(key), "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"));
        }
    }
    let annotations = meta["annotations"].as_object().into_iter().flatten();
    let length: usize = annotations.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if length > ANNOTATED {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATED));
    }
    causes.extend(finalizers(meta, old.map(|old| &old["metadata"])));
    if let Some(old) = old {
        causes.extend(immutable(meta, &old["metadata"]));
    }
    causes
}

fn finalizers(meta: &Value, old: Option<&Value>) -> Vec<Cause> {
    let list = |meta: &Value| meta["finalizers"].as_array().cloned().unwrap_or_default();
    let mut causes = Vec::new();
    for (at, finalizer) in list(meta).iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(&name);
        let qualified = name.contains('/') && is_qualified(name);
        if !standard && !qualified {
            let message = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("metadata.finalizers[{at}]"), finalizer, message));
        }
    }
    if let Some(old) = old.filter(|old| !old["deletionTimestamp"].is_null()) {
        let known = list(old);
        let added: Vec<_> =
            list(meta).into_iter().filter(|one| !known.contains(one)).map(|one| one.to_string()).collect();
        if !added.is_empty() {
            let added = added.join(", ");
            causes.push(Cause::forbidden("metadata.finalizers", &format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{added}}}")));
        }
    }
    causes
}

fn immutable(meta: &Value, old: &Value) -> impl Iterator<Item = Cause> {
    ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"]
        .into_iter()
        .filter(|field| meta[field] != old[field])
        .map(|field| Cause::invalid(format!("metadata.{field}"), &meta[field], "field is immutable"))
}

pub(super) fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_label(part: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !part.is_empty() && part.chars().all(inner) && !part.starts_with('-') && !part.ends_with('-')
}

/// A name, optionally after a domain and a slash.
pub(super) fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_name(name),
        None => is_name(key),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && is_label_value(name)
}

pub(super) fn is_label_value(value: &str) -> bool {
    let end = |c: char| c.is_ascii_alphanumeric();
    value.len() <= 63
        && value.chars().all(|c| end(c) || "-_.".contains(c))
        && value.chars().next().is_none_or(end)
        && value.chars().last().is_none_or(end)
}
