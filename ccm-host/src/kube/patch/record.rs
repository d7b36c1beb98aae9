//! Small texts that have to outlive the process: keys of ConfigMaps.
//!
//! In: where, and what was seen there. Out: the text, or a write that fails if anybody wrote in between. What the texts say
//! is decided by the controllers.

use ::kube::{Api, Resource};
use http::{Request, header};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Body, Patch, Target, WriteError, Writer, Written};

/// Where a record stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordKey {
    /// Namespace of the ConfigMap.
    pub namespace: &'static str,
    pub name: &'static str,
    /// The key within it.
    pub key: String,
}

/// A record as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Resource version of the ConfigMap; none if there is no ConfigMap yet.
    pub version: Option<String>,
    /// The text; empty if there is none.
    pub text: String,
}

impl std::fmt::Display for RecordKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ConfigMap {}/{}, key {}", self.namespace, self.name, self.key)
    }
}

impl Writer {
    /// Reads a record afresh.
    pub async fn read_record(&self, at: &RecordKey) -> Result<Record, WriteError> {
        let _held = self.pressure().hold();
        let api = Api::<ConfigMap>::namespaced(self.client(), at.namespace);
        let map = api.get_opt(at.name).await.map_err(WriteError::of_request)?;
        Ok(map.map_or_else(Record::default, |map| Record {
            version: map.metadata.resource_version,
            text: map.data.unwrap_or_default().remove(&at.key).unwrap_or_default(),
        }))
    }

    /// Replaces the record that was `seen`; out comes its new version. A conflict if the ConfigMap is another one by now.
    pub async fn replace_record(
        &self,
        at: &RecordKey,
        seen: Option<&str>,
        text: &str,
        cancel: &CancellationToken,
    ) -> Result<Written, WriteError> {
        let collection = ConfigMap::url_path(&(), Some(at.namespace));
        let data = json!({ (at.key.as_str()): text });
        match seen {
            Some(version) => {
                let body = Body::Merge(json!({"metadata": {"resourceVersion": version}, "data": data}));
                self.patch(&collection, at.name, &Patch { target: Target::Main, body }, cancel).await
            }
            None => {
                let map = Body::Merge(json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": at.name}, "data": data,
                }));
                let request = Request::post(collection).header(header::CONTENT_TYPE, "application/json");
                self.send(request, &map, cancel).await
            }
        }
    }
}
