//! What a patch would set, field by field: shadow mode compares each by itself. Pure.

use serde_json::Value;

use super::{Body, Patch};
use crate::shadow::{Field, condition};

/// The parts of a patch that guard it and change nothing.
const GUARDS: [&str; 2] = ["/metadata/uid", "/metadata/resourceVersion"];

impl Patch {
    /// The uid that the patch is for, and what it sets.
    pub(crate) fn fields(&self) -> (String, Vec<Field>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::patch::Target;
    use serde_json::json;

    #[test]
    fn guards_of_a_patch_are_no_fields() {
        let body = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "test", "path": "/metadata/annotations", "value": null},
            {"op": "add", "path": "/metadata/annotations", "value": {"x/y": "1"}},
        ]);
        let (uid, fields) = Patch { target: Target::Main, body: Body::Json(body) }.fields();
        let want =
            Field { path: "/metadata/annotations/x~1y".to_owned(), old: Some(Value::Null), new: json!("1") };
        assert_eq!((uid.as_str(), fields), ("u", vec![want]));
    }
}
