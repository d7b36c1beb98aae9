//! Small texts that outlive the process, in keys of ConfigMaps.
//!
//! In: the place, and the version last read. Out: the text, or a write that fails if anybody wrote in between. The
//! controllers define the texts.

use ::kube::{Api, Resource};
use http::{Request, header};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::{Body, Patch, Target, WriteError, Writer, Written};

/// The place of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordKey {
    /// Namespace of the ConfigMap.
    pub namespace: &'static str,
    pub name: &'static str,
    /// The key within the ConfigMap.
    pub key: String,
}

/// A record as read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Resource version of the ConfigMap; `None` if it does not exist.
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
    /// Reads a record from the apiserver.
    pub async fn read_record(&self, at: &RecordKey) -> Result<Record, WriteError> {
        let _held = self.pressure().hold();
        let api = Api::<ConfigMap>::namespaced(self.client(), at.namespace);
        let map = api.get_opt(at.name).await.map_err(WriteError::of_request)?;
        let kept = self.shadow().and_then(|shadow| shadow.record(&at.to_string()));
        if let Some(text) = kept {
            return Ok(Record { version: map.and_then(|map| map.metadata.resource_version), text });
        }
        Ok(map.map_or_else(Record::default, |map| Record {
            version: map.metadata.resource_version,
            text: map.data.unwrap_or_default().remove(&at.key).unwrap_or_default(),
        }))
    }

    /// Replaces the record and returns its new version; in shadow mode only in memory. A conflict if the ConfigMap has changed since version `seen`.
    pub async fn replace_record(
        &self,
        at: &RecordKey,
        seen: Option<&str>,
        text: &str,
    ) -> Result<Written, WriteError> {
        if let Some(shadow) = self.shadow() {
            shadow.keep_record(at.to_string(), text.to_owned());
            return Ok(Written { resource_version: seen.unwrap_or_default().to_owned() });
        }
        let data = json!({ (at.key.as_str()): text });
        match seen {
            Some(version) => {
                let body = Body::Merge(json!({"metadata": {"resourceVersion": version}, "data": data}));
                let patch = Patch { target: Target::Main, body };
                self.patch::<ConfigMap>(Some(at.namespace), at.name, &patch).await
            }
            None => {
                let map = Body::Merge(json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": at.name}, "data": data,
                }));
                let collection = ConfigMap::url_path(&(), Some(at.namespace));
                let request = Request::post(collection).header(header::CONTENT_TYPE, "application/json");
                self.send(request, &map).await
            }
        }
    }
}
