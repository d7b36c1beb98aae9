//! Fields of objects: what a write would set, and how two values compare. Pure.

use serde_json::{Map, Value, json};

/// One field that a write would set.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// A JSON pointer; a condition goes by its type.
    pub path: String,
    /// The value that it replaces; `None` if the write does not say.
    pub old: Option<Value>,
    /// Null removes.
    pub new: Value,
}

/// What a condition says, without its times.
#[must_use]
pub fn condition(one: &Value) -> Value {
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
