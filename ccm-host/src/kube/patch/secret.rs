//! A Secret that a flag names. Only that one may be read.

use std::collections::BTreeMap;

use ::kube::Api;
use k8s_openapi::{ByteString, api::core::v1::Secret as Wire};
use serde_json::{Value, json};

use super::{Body, Patch, Target, WriteError, Writer, Written};
use crate::kube::{events::Regarding, service::ObjectKey};

/// Its `Debug` output has no data.
pub struct Secret {
    pub version: String,
    pub regarding: Regarding,
    pub data: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("regarding", &self.regarding).finish_non_exhaustive()
    }
}

impl Writer {
    /// Reads a Secret from the apiserver; `None` if it does not exist.
    pub async fn get_secret(&self, key: &ObjectKey) -> Result<Option<Secret>, WriteError> {
        let _held = self.pressure().hold();
        let api = Api::<Wire>::namespaced(self.client(), &key.namespace);
        let secret = api.get_opt(&key.name).await.map_err(WriteError::of_request)?;
        Ok(secret.map(|secret| Secret {
            version: secret.metadata.resource_version.unwrap_or_default(),
            regarding: Regarding {
                api_version: "v1",
                kind: "Secret",
                namespace: Some(key.namespace.to_string()),
                name: key.name.to_string(),
                uid: secret.metadata.uid.unwrap_or_default(),
            },
            data: secret.data.unwrap_or_default().into_iter().map(|(name, bytes)| (name, bytes.0)).collect(),
        }))
    }

    /// Replaces its data. A conflict if it has changed since it was read.
    pub async fn replace_secret(
        &self,
        key: &ObjectKey,
        seen: &Secret,
        data: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Written, WriteError> {
        let gone = seen.data.keys().filter(|name| !data.contains_key(*name)).map(|name| (name, Value::Null));
        let kept = data.iter().map(|(name, bytes)| (name, json!(ByteString(bytes.clone()))));
        let data: BTreeMap<_, _> = gone.chain(kept).collect();
        let body = json!({"metadata": {"resourceVersion": seen.version}, "data": data});
        let patch = Patch { target: Target::Main, body: Body::Merge(body) };
        self.patch::<Wire>(Some(&key.namespace), &key.name, &patch).await
    }
}
