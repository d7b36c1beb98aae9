//! Whether something held back is a difference: fields of objects, what a write would set, and how two values compare.
//! Pure.

use std::time::Duration;

use ccm_state::shadow::Standing;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Observed, Write};

/// The minimum time until a wish that is not repeated is dropped: a pass may be slow.
const SLACK: Duration = Duration::from_secs(20);

/// What the host writes for itself: annotations, and conditions.
const NOTES: [&str; 2] =
    ["/metadata/annotations/cloudprovider.ccm~1", "/status/conditions/cloudprovider.ccm/"];

/// What becomes of a write that was held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The other controller did the same.
    Agreed,
    /// Nobody wants it any more, or its object is gone.
    Dropped,
    Stands(Standing),
}

fn is_over(limit: Duration, since: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(since)).is_ok_and(|age| age >= limit)
}

/// Whether something was last asked for too long ago to be still wanted.
fn is_lapsed(grace: Duration, asked: Timestamp, now: Timestamp) -> bool {
    is_over(grace + SLACK, asked, now)
}

fn standing(grace: Duration, since: Timestamp, now: Timestamp) -> Standing {
    if is_over(grace, since, now) { Standing::Differs } else { Standing::Pending }
}

/// Of a call; `None` if it is not wanted any more. One that takes over stays: it is made once.
pub(super) fn of_call(
    takes_over: bool,
    since: Timestamp,
    asked: Timestamp,
    now: Timestamp,
    grace: Duration,
) -> Option<Standing> {
    match takes_over {
        true => Some(Standing::Once),
        false if is_lapsed(grace, asked, now) => None,
        false => Some(standing(grace, since, now)),
    }
}

/// Compares a write with the object as it is.
pub(super) fn judge(
    path: &str,
    write: &Write,
    observed: Option<&Observed>,
    now: Timestamp,
    grace: Duration,
) -> Judgement {
    let is_deletion = path.is_empty();
    let observed = match observed.filter(|observed| observed.uid == write.uid) {
        Some(observed) => observed,
        None if is_deletion => return Judgement::Agreed,
        None => return Judgement::Dropped,
    };
    let value = comparable(path, observed.value.pointer(path).unwrap_or(&Value::Null));
    if !is_deletion && value == comparable(path, &write.new) {
        return Judgement::Agreed;
    }
    if is_lapsed(grace, write.asked, now) {
        return Judgement::Dropped;
    }
    if NOTES.iter().any(|notes| path.starts_with(notes)) {
        return Judgement::Stands(Standing::Once);
    }
    // The basis has changed: the controller is about to decide again.
    let is_overtaken = write.old.as_ref().is_some_and(|old| comparable(path, old) != value);
    Judgement::Stands(if is_overtaken { Standing::Pending } else { standing(grace, write.since, now) })
}

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
