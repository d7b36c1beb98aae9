//! Builds JSON patches in which every change is preceded by a test of what it replaces.

use serde_json::{Value, json};

use super::{Body, Patch, Target};
use crate::kube::pairs::Pairs;

/// The operations so far. An operation that changes nothing adds no test either.
#[derive(Debug)]
pub(super) struct Operations {
    list: Vec<Value>,
    changes: usize,
}

impl Operations {
    /// Starts with the identity: the patch fails if the object was recreated.
    pub(super) fn on(uid: &str) -> Self {
        let mut operations = Self { list: Vec::new(), changes: 0 };
        operations.test("/metadata/uid", json!(uid));
        operations
    }

    /// Fails if anything at all was written to the object since this version.
    pub(super) fn unchanged_since(&mut self, resource_version: &str) {
        self.test("/metadata/resourceVersion", json!(resource_version));
    }

    /// Changes the value at `path` from `old` to `new`; null means absent. The parent must exist.
    pub(super) fn set(&mut self, path: &str, old: Value, new: Value) {
        if old == new {
            return;
        }
        self.test(path, old);
        self.changes += 1;
        self.list.push(if new.is_null() {
            json!({"op": "remove", "path": path})
        } else {
            json!({"op": "add", "path": path, "value": new})
        });
    }

    /// Sets keys of the string map at `path`; `None` removes the key.
    ///
    /// An object without such a map gets the whole map at once, since a JSON patch cannot create parents.
    pub(super) fn set_pairs<'a>(
        &mut self,
        path: &str,
        old: &Pairs,
        wanted: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) {
        let changed: Vec<_> = wanted.filter(|(key, value)| old.get(key) != *value).collect();
        if changed.is_empty() {
            return;
        }
        if old.total() == 0 {
            let map = changed
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), json!(value?))))
                .collect();
            return self.set(path, Value::Null, Value::Object(map));
        }
        for (key, value) in changed {
            let path = format!("{path}/{}", escape(key));
            self.set(&path, json!(old.get(key)), json!(value));
        }
    }

    /// The patch, if it changes anything.
    pub(super) fn finish(self, target: Target) -> Option<Patch> {
        (self.changes > 0).then_some(Patch { target, body: Body::Json(Value::Array(self.list)) })
    }

    /// The server treats a test against null as a test for absence.
    fn test(&mut self, path: &str, value: Value) {
        self.list.push(json!({"op": "test", "path": path, "value": value}));
    }
}

/// A list as the object holds it: an empty one is absent.
pub(super) fn list_or_absent<T: serde::Serialize>(list: &[T]) -> Value {
    if list.is_empty() { Value::Null } else { json!(list) }
}

pub(super) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
