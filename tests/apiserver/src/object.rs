//! One version of one object, serialised once.

use std::{fmt, sync::Arc};

use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kind::Kind;

/// What names an object within its kind. They sort as etcd's keys do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    path: Box<str>,
    /// Where the name starts.
    name: usize,
}

impl Key {
    /// An object in a namespace; an empty namespace is none.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            Self { path: name.into(), name: 0 }
        } else {
            Self { path: format!("{namespace}/{name}").into(), name: namespace.len() + 1 }
        }
    }

    /// Empty for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.path[..self.name.saturating_sub(1)]
    }

    /// The name.
    #[must_use]
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
    /// How much of `body` names the kind.
    head: usize,
    body: Bytes,
}

impl Object {
    /// Takes what is complete but for the kind.
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

    /// Of which kind it is.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// What names it.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// `metadata.uid`
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// `metadata.resourceVersion`
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// As it is sent, kind included.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// As JSON, parsed anew with each call.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Some of it: `T` may hold only what is looked at.
    ///
    /// # Errors
    /// `T` does not fit.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// As an item of a list, where the kind is told once.
    pub(crate) fn push_item(&self, list: &mut Vec<u8>) {
        list.push(b'{');
        list.extend_from_slice(&self.body[self.head..]);
    }
}
