//! ConfigMaps, with the optimistic lock of their resource version.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kube::fixtures::{Call, Reply};

const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";

/// All of them, by name.
#[derive(Default)]
pub(super) struct Records {
    maps: BTreeMap<String, Value>,
    version: u64,
    pub(super) refused: bool,
}

pub(super) fn is_record(call: &Call) -> bool {
    call.path.starts_with(CONFIG_MAPS)
}

impl Records {
    pub(super) fn get(&self, name: &str) -> Value {
        self.maps.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn put(&mut self, name: &str, data: Value) -> Value {
        self.version += 1;
        let metadata = json!({"name": name, "resourceVersion": self.version.to_string()});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        self.maps.insert(name.to_owned(), map.clone());
        map
    }

    pub(super) fn answer(&mut self, call: &Call) -> Reply {
        if self.refused {
            return Reply::status(403, "Forbidden");
        }
        let name = call.path.strip_prefix(CONFIG_MAPS).unwrap().trim_start_matches('/');
        match call.method.as_str() {
            "GET" => self.maps.get(name).cloned().map_or_else(|| Reply::status(404, "NotFound"), Reply::ok),
            "POST" => {
                let name = call.body["metadata"]["name"].as_str().unwrap();
                if self.maps.contains_key(name) {
                    return Reply::status(409, "AlreadyExists");
                }
                Reply::ok(self.put(name, call.body["data"].clone()))
            }
            "PATCH" => {
                let Some(map) = self.maps.get(name) else { return Reply::status(404, "NotFound") };
                if map["metadata"]["resourceVersion"] != call.body["metadata"]["resourceVersion"] {
                    return Reply::status(409, "Conflict");
                }
                let mut data = map["data"].clone();
                data.as_object_mut().unwrap().extend(call.body["data"].as_object().unwrap().clone());
                Reply::ok(self.put(name, data))
            }
            other => panic!("not known here: {other}"),
        }
    }
}
