//! One version of one object, serialised once.

use std::{fmt, sync::Arc};

use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kind::Kind;

/// An object's namespace and name. Keys sort as etcd's keys do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    path: Box<str>,
    /// Where the name starts.
    name: usize,
}

impl Key {
    /// A key; an empty namespace means none.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            Self { path: name.into(), name: 0 }
        } else {
            Self { path: format!("{namespace}/{name}").into(), name: namespace.len() + 1 }
        }
    }

    /// Empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.path[..self.name.saturating_sub(1)]
    }

    pub fn name(&self) -> &str {
        &self.path[self.name..]
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.path, f)
    }
}

/// One version of one object.
#[derive(Debug, Clone)]
pub struct Object {
    kind: Arc<Kind>,
    key: Key,
    uid: String,
    version: u64,
    /// The length of the head of `body`, which names the kind.
    head: usize,
    body: Bytes,
}

impl Object {
    /// Creates a version from a value that is complete except for the kind.
    pub(crate) fn new(kind: &Arc<Kind>, key: Key, version: u64, mut value: Value) -> Self {
        let head = format!(r#"{{"kind":"{}","apiVersion":"{}","#, kind.name, kind.api_version());
        if let Some(map) = value.as_object_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let rest = value.to_string();
        Self {
            kind: Arc::clone(kind),
            key,
            uid,
            version,
            head: head.len(),
            body: Bytes::from(head + &rest[1..]),
        }
    }

    /// The object's kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The object's namespace and name.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// `metadata.uid`
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// `metadata.resourceVersion`
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The object as sent, kind included.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The object as JSON, parsed on each call.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Decodes part of the object: `T` may have only the fields of interest.
    ///
    /// # Errors
    /// `T` does not fit.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// Appends the object as an item of a list, without the kind.
    pub(crate) fn push_item(&self, list: &mut Vec<u8>) {
        list.push(b'{');
        list.extend_from_slice(&self.body[self.head..]);
    }
}
