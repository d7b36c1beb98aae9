//! A Secret that a flag names. Only that one may be read.

use std::collections::BTreeMap;

use ::kube::Api;
use k8s_openapi::api::core::v1::Secret as Wire;

use super::{WriteError, Writer};
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
}
