//! Applies a patch to an object, or refuses it as the apiserver would.

use serde_json::{Value, json};

use crate::kube::fixtures::{Call, Reply};

pub(super) fn patch(object: Value, call: &Call) -> Result<Value, Reply> {
    let patched = match call.content_type.as_str() {
        "application/json-patch+json" => json_patch(object, &call.body)?,
        "application/merge-patch+json" => {
            guard(&object, &call.body)?;
            let mut object = object;
            merge(&mut object, &call.body);
            object
        }
        "application/strategic-merge-patch+json" => {
            guard(&object, &call.body)?;
            conditions(object, &call.body)
        }
        other => panic!("not known here: {other}"),
    };
    Ok(patched)
}

/// Null and absence are the same in what the apiserver stores.
pub(super) fn drop_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

fn guard(object: &Value, patch: &Value) -> Result<(), Reply> {
    let wanted = &patch["metadata"]["uid"];
    if wanted.is_null() || *wanted == object["metadata"]["uid"] {
        return Ok(());
    }
    Err(Reply::invalid("field is immutable", &["metadata.uid"]))
}

fn json_patch(mut object: Value, operations: &Value) -> Result<Value, Reply> {
    for operation in operations.as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        let failed = || Reply::status(422, "Invalid");
        match operation["op"].as_str().unwrap() {
            "test" => {
                let present = object.pointer(path).cloned().unwrap_or_default();
                if present != operation["value"] {
                    return Err(failed());
                }
            }
            "add" => {
                let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).ok_or_else(failed)?;
                parent.insert(key, operation["value"].clone());
            }
            "remove" => {
                let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).ok_or_else(failed)?;
                parent.remove(&key).ok_or_else(failed)?;
            }
            other => panic!("not known here: {other}"),
        }
    }
    Ok(object)
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut object[key], value);
        }
    }
}

fn conditions(mut object: Value, patch: &Value) -> Value {
    let new = patch["status"]["conditions"].as_array().unwrap();
    let old = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let kept = old.into_iter().filter(|old| new.iter().all(|new| new["type"] != old["type"]));
    object["status"]["conditions"] = kept.chain(new.iter().cloned()).collect();
    object
}
