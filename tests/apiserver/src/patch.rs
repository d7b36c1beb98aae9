//! The three kinds of patches.

use json_patch::{AddOperation, PatchOperation};
use serde_json::{Map, Value, json};

use crate::{kind::Kind, refusal::Refusal};

/// Applies a patch of that content type to an object.
pub(crate) fn apply(kind: &Kind, object: &Value, content_type: &str, body: &[u8]) -> Result<Value, Refusal> {
    let patch: Value = serde_json::from_slice(body)
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    let mut patched = object.clone();
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => json(&mut patched, patch)?,
        "application/merge-patch+json" => json_patch::merge(&mut patched, &patch),
        "application/strategic-merge-patch+json" => {
            let Value::Object(patch) = patch else {
                return Err(Refusal::bad_request("error decoding patch: it is no object"));
            };
            strategic(kind, "", &mut patched, &patch)?;
        }
        other => {
            let message = format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json (and not {other:?})"
            );
            return Err(Refusal::new(415, "UnsupportedMediaType", message));
        }
    }
    Ok(patched)
}

fn json(object: &mut Value, patch: Value) -> Result<(), Refusal> {
    let operations: Vec<PatchOperation> = serde_json::from_value(patch)
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    for operation in operations {
        let operation = match operation {
            // The apiserver's library accepts a test against null if the value is absent …
            PatchOperation::Test(test) if test.value.is_null() && is_absent(object, test.path.as_str()) => {
                continue;
            }
            // … and a replacement of an absent value.
            PatchOperation::Replace(replace) if is_absent(object, replace.path.as_str()) => {
                PatchOperation::Add(AddOperation { path: replace.path, value: replace.value })
            }
            other => other,
        };
        json_patch::patch(object, &[operation]).map_err(|_unapplicable| Refusal::patch_failed())?;
    }
    Ok(())
}

/// Whether the value is absent although its parent exists.
fn is_absent(object: &Value, path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(parent, _)| {
        object.pointer(parent).is_some_and(Value::is_object) && object.pointer(path).is_none()
    })
}

/// How a list is merged: by the key of its items, as plain values, or not at all.
enum Merged {
    By(&'static str),
    Plain,
    Replaced,
}

fn merged(kind: &Kind, path: &str) -> Merged {
    let common = [("metadata.finalizers", None), ("metadata.ownerReferences", Some("uid"))];
    match kind.merged_lists.iter().chain(&common).find(|(known, _)| *known == path) {
        Some((_, Some(key))) => Merged::By(key),
        Some((_, None)) => Merged::Plain,
        None => Merged::Replaced,
    }
}

fn strategic(
    kind: &Kind,
    path: &str,
    original: &mut Value,
    patch: &Map<String, Value>,
) -> Result<(), Refusal> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("delete") => {
            *original = json!({});
            return Ok(());
        }
        Some("replace") => {
            let kept = patch.iter().filter(|(key, _)| *key != "$patch");
            *original = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
            return Ok(());
        }
        _ => {}
    }
    if !original.is_object() {
        *original = json!({});
    }
    let Some(object) = original.as_object_mut() else { return Ok(()) };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            remove_plain(object.get_mut(list), value);
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::Null => _ = object.remove(key),
            Value::Object(value) => {
                let into = object.entry(key.clone()).or_insert(Value::Null);
                if !into.is_object() && !into.is_null() {
                    return Err(unmergeable(format!("{inner} is no object")));
                }
                strategic(kind, &inner, into, value)?;
            }
            Value::Array(items) => {
                let order = patch.get(&format!("$setElementOrder/{key}")).and_then(Value::as_array);
                let old = object.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
                object.insert(key.clone(), Value::Array(list(kind, &inner, &old, items, order)?));
            }
            plain => _ = object.insert(key.clone(), plain.clone()),
        }
    }
    Ok(())
}

/// The apiserver reports this as an internal error.
fn unmergeable(message: String) -> Refusal {
    Refusal::new(500, "", message)
}

fn remove_plain(list: Option<&mut Value>, unwanted: &Value) {
    if let (Some(list), Some(unwanted)) = (list.and_then(Value::as_array_mut), unwanted.as_array()) {
        list.retain(|item| !unwanted.contains(item));
    }
}

fn list(
    kind: &Kind,
    path: &str,
    old: &[Value],
    items: &[Value],
    order: Option<&Vec<Value>>,
) -> Result<Vec<Value>, Refusal> {
    let key = match merged(kind, path) {
        Merged::Replaced => return Ok(items.to_vec()),
        Merged::Plain => {
            let left: Vec<_> = old.iter().filter(|item| !items.contains(item)).cloned().collect();
            return Ok(in_order(left, items.to_vec(), old, Value::clone));
        }
        Merged::By(key) => key,
    };
    if items.iter().any(|item| item["$patch"] == "replace") {
        return Ok(items.iter().filter(|item| item["$patch"] != "replace").cloned().collect());
    }
    let mut all = old.to_vec();
    let mut touched = Vec::new();
    for item in items {
        let Some(change) = item.as_object().filter(|_| !item[key].is_null()) else {
            return Err(unmergeable(format!("map: {item} does not contain declared merge key: {key}")));
        };
        if item["$patch"] == "delete" {
            all.retain(|one| one[key] != item[key]);
            continue;
        }
        match all.iter_mut().find(|one| one[key] == item[key]) {
            Some(one) => strategic(kind, path, one, change)?,
            None => all.push(item.clone()),
        }
        touched.push(item[key].clone());
    }
    let wanted = order.map(|order| order.iter().map(|one| one[key].clone()).collect()).unwrap_or(touched);
    let (mut named, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| wanted.contains(&one[key]));
    named.sort_by_key(|one| wanted.iter().position(|name| *name == one[key]));
    Ok(in_order(left, named, old, |item| item[key].clone()))
}

/// Orders the items: those that the patch does not name keep their place before named ones only if they preceded them.
fn in_order(left: Vec<Value>, named: Vec<Value>, old: &[Value], key: impl Fn(&Value) -> Value) -> Vec<Value> {
    let place = |item: &Value| old.iter().position(|one| key(one) == key(item));
    let (mut left, mut named) = (left.into_iter().peekable(), named.into_iter().peekable());
    let mut all = Vec::new();
    while let (Some(one), Some(other)) = (left.peek(), named.peek()) {
        let before = matches!((place(one), place(other)), (Some(one), Some(other)) if one < other);
        all.extend(if before { left.next() } else { named.next() });
    }
    all.extend(named);
    all.extend(left);
    all
}
