//! The fields that a patch would set. Pure.

use serde_json::{Map, Value, json};

use crate::kube::patch::{Body, Patch};

/// One field of a patch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    /// A JSON pointer; a condition goes by its type, as in [`super::objects`].
    pub(super) path: String,
    /// The value that it replaces; `None` if the patch does not say.
    pub(super) old: Option<Value>,
    /// Null removes.
    pub(super) new: Value,
}

/// The parts of a patch that guard it and change nothing.
const GUARDS: [&str; 2] = ["/metadata/uid", "/metadata/resourceVersion"];

/// The uid that the patch is for, and its fields.
pub(super) fn of(patch: &Patch) -> (String, Vec<Field>) {
    match &patch.body {
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
                let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
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

/// What a condition says, without its times.
pub(super) fn condition(one: &Value) -> Value {
    let said = ["status", "reason", "message"];
    Value::Object(said.map(|key| (key.to_owned(), one[key].clone())).into_iter().collect())
}

/// Lists as they are compared: an empty one is absent, the order of taints does not matter, and what the apiserver adds
/// does not count.
pub(super) fn comparable(path: &str, value: &Value) -> Value {
    let Value::Array(list) = value else { return value.clone() };
    if list.is_empty() {
        return Value::Null;
    }
    let mut list = list.clone();
    for one in list.iter_mut().filter_map(Value::as_object_mut) {
        normalise(path, one);
    }
    if path == "/spec/taints" {
        list.sort_by_key(|taint| format!("{} {}", taint["key"], taint["effect"]));
    }
    Value::Array(list)
}

fn normalise(path: &str, one: &mut Map<String, Value>) {
    match path {
        "/spec/taints" => _ = one.remove("timeAdded"),
        "/status/loadBalancer/ingress" => {
            // A read of a balancer need not know its ports.
            _ = one.remove("ports");
            if one.get("ipMode") == Some(&json!("VIP")) {
                _ = one.remove("ipMode");
            }
        }
        _ => {}
    }
}

/// The path for people.
pub(super) fn shown(path: &str) -> String {
    let parts =
        path.trim_start_matches('/').split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
    match &parts.collect::<Vec<_>>()[..] {
        [_, map, key] if map == "labels" => format!("the label {key}"),
        [_, map, key] if map == "annotations" => format!("the annotation {key}"),
        [_, map, type_] if map == "conditions" => format!("the condition {type_}"),
        parts => parts.join("."),
    }
}
