//! Events are stored in the form of core/v1; `events.k8s.io/v1` is another view of them.

use serde_json::Value;

const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) fn from_core(event: Value) -> Value {
    let mut event = event;
    if let Some(fields) = event.as_object_mut() {
        fields.retain(|_, value| *value != "");
    }
    renamed(event, "events.k8s.io/v1", |name| NAMES.iter().find(|(old, _)| *old == name).map(|(_, new)| *new))
}

pub(super) fn to_core(event: Value) -> Value {
    renamed(event, "v1", |name| NAMES.iter().find(|(_, new)| *new == name).map(|(old, _)| *old))
}

fn renamed(event: Value, version: &str, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = event else { return event };
    let mut event: Value = fields
        .into_iter()
        .map(|(field, value)| (name(&field).map_or(field, str::to_owned), value))
        .collect::<serde_json::Map<_, _>>()
        .into();
    event["apiVersion"] = version.into();
    event
}
