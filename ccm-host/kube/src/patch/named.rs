//! Objects that are read by name when they are needed, and not watched: Leases of kubelets, records in ConfigMaps, and the
//! Secrets and the webhook configuration that flags name. No other Secret and no other configuration may be read.

use std::{collections::BTreeMap, time::Duration};

use http::{Request, header};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, WebhookClientConfig},
        coordination::v1::Lease,
        core::v1::{self as core, ConfigMap},
    },
};
use kube::Api;
use serde_json::{Value, json};

use super::{Body, Patch, Target, WriteError, Writer};
use crate::{events::Regarding, service::ObjectKey};

/// The namespace of the Leases that kubelets renew for their nodes.
const NODE_LEASES: &str = "kube-node-lease";
/// A kubelet's default.
const LEASE_DURATION: Duration = Duration::from_secs(40);

/// The Lease that a kubelet renews for its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLease {
    /// The time of the last renewal as the kubelet wrote it: a value that changes, and no time to anybody, since it may be
    /// one that only Go can read.
    pub renewed: Option<String>,
    /// How long the Lease is valid; a kubelet renews it four times as often.
    pub duration: Duration,
}

impl Writer {
    /// Reads the Lease of a node from the apiserver.
    pub async fn get_node_lease(&self, node: &str) -> Result<Option<NodeLease>, WriteError> {
        let leases = Api::<Lease>::namespaced(self.client(), NODE_LEASES);
        // Not decoded as a Lease: its times, those of its managed fields too, could be such as jiff cannot read.
        let lease: Option<Value> = self.get_in(&leases, node).await?;
        Ok(lease.map(|lease| {
            let spec = &lease["spec"];
            let seconds = spec["leaseDurationSeconds"].as_u64().filter(|seconds| *seconds > 0);
            NodeLease {
                renewed: spec["renewTime"].as_str().map(str::to_owned),
                duration: seconds.map_or(LEASE_DURATION, Duration::from_secs),
            }
        }))
    }
}

/// The namespace of the ConfigMaps with records.
pub const RECORDS: &str = "kube-system";

/// The place of a record: a small text that outlives the process, in a key of a ConfigMap. Controllers define the texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordKey {
    /// Name of the ConfigMap, in [`RECORDS`].
    pub name: &'static str,
    /// The key within the ConfigMap.
    pub key: String,
}

/// A record as read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredRecord {
    /// Resource version of the ConfigMap; `None` if it does not exist.
    pub version: Option<String>,
    /// The text; empty if there is none.
    pub text: String,
}

impl std::fmt::Display for RecordKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ConfigMap {RECORDS}/{}, key {}", self.name, self.key)
    }
}

impl Writer {
    /// Reads a record from the apiserver.
    pub async fn read_record(&self, at: &RecordKey) -> Result<StoredRecord, WriteError> {
        let maps = Api::<ConfigMap>::namespaced(self.client(), RECORDS);
        let map: Option<ConfigMap> = self.get_in(&maps, at.name).await?;
        let kept = self.shadow().and_then(|shadow| shadow.record(&at.to_string()));
        if let Some(text) = kept {
            return Ok(StoredRecord { version: map.and_then(|map| map.metadata.resource_version), text });
        }
        Ok(map.map_or_else(StoredRecord::default, |map| StoredRecord {
            version: map.metadata.resource_version,
            text: map.data.unwrap_or_default().remove(&at.key).unwrap_or_default(),
        }))
    }

    /// Replaces the record and returns its new version; in shadow mode only in memory. A conflict if the ConfigMap has
    /// changed since version `seen`.
    pub async fn replace_record(
        &self,
        at: &RecordKey,
        seen: Option<&str>,
        text: &str,
    ) -> Result<String, WriteError> {
        if let Some(shadow) = self.shadow() {
            shadow.keep_record(at.to_string(), text.to_owned());
            return Ok(seen.unwrap_or_default().to_owned());
        }
        let maps = Api::<ConfigMap>::namespaced(self.client(), RECORDS);
        let data = json!({ (at.key.as_str()): text });
        match seen {
            Some(version) => {
                let body = Body::Merge(json!({"metadata": {"resourceVersion": version}, "data": data}));
                let patch = Patch { target: Target::Main, body };
                self.patch_in(&maps, at.name, &patch).await
            }
            None => {
                let map = Body::Merge(json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": at.name}, "data": data,
                }));
                let request =
                    Request::post(maps.resource_url()).header(header::CONTENT_TYPE, "application/json");
                self.send(request, &map).await
            }
        }
    }
}

/// A Secret. Its `Debug` output has no data.
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
        let secrets = Api::<core::Secret>::namespaced(self.client(), &key.namespace);
        let secret: Option<core::Secret> = self.get_in(&secrets, &key.name).await?;
        Ok(secret.map(|secret| Secret {
            version: secret.metadata.resource_version.unwrap_or_default(),
            regarding: Regarding::core(
                "Secret",
                Some(&key.namespace),
                &key.name,
                &secret.metadata.uid.unwrap_or_default(),
            ),
            data: secret.data.unwrap_or_default().into_iter().map(|(name, bytes)| (name, bytes.0)).collect(),
        }))
    }

    /// Replaces its data. A conflict if it has changed since it was read.
    pub async fn replace_secret(
        &self,
        key: &ObjectKey,
        seen: &Secret,
        data: &BTreeMap<String, Vec<u8>>,
    ) -> Result<String, WriteError> {
        let gone = seen.data.keys().filter(|name| !data.contains_key(*name)).map(|name| (name, Value::Null));
        let kept = data.iter().map(|(name, bytes)| (name, json!(ByteString(bytes.clone()))));
        let data: BTreeMap<_, _> = gone.chain(kept).collect();
        let body = json!({"metadata": {"resourceVersion": seen.version}, "data": data});
        let patch = Patch { target: Target::Main, body: Body::Merge(body) };
        let secrets = Api::<core::Secret>::namespaced(self.client(), &key.namespace);
        self.patch_in(&secrets, &key.name, &patch).await
    }
}

/// What is read of a MutatingWebhookConfiguration: where it calls, and whom it trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookConfiguration {
    pub version: String,
    pub webhooks: Vec<Called>,
}

/// One webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Called {
    /// The name or address that its certificate must be for; empty if there is none.
    pub host: String,
    /// In PEM.
    pub authorities: Vec<u8>,
}

impl From<WebhookClientConfig> for Called {
    fn from(config: WebhookClientConfig) -> Self {
        let of_service = config.service.map(|it| format!("{}.{}.svc", it.name, it.namespace));
        let of_url = || {
            let url = config.url.as_deref()?.parse::<http::Uri>().ok()?;
            Some(url.host()?.trim_start_matches('[').trim_end_matches(']').to_owned())
        };
        let authorities = config.ca_bundle.clone().unwrap_or_default().0;
        Self { host: of_service.or_else(of_url).unwrap_or_default(), authorities }
    }
}

impl Writer {
    /// Reads it from the apiserver; `None` if it does not exist.
    pub async fn get_webhook_configuration(
        &self,
        name: &str,
    ) -> Result<Option<WebhookConfiguration>, WriteError> {
        let configurations = Api::<MutatingWebhookConfiguration>::all(self.client());
        let found: Option<MutatingWebhookConfiguration> = self.get_in(&configurations, name).await?;
        Ok(found.map(|found| WebhookConfiguration {
            version: found.metadata.resource_version.unwrap_or_default(),
            webhooks: found.webhooks.into_iter().flatten().map(|one| one.client_config.into()).collect(),
        }))
    }

    /// Makes all webhooks of it trust these authorities. A conflict if it has changed since it was read.
    pub async fn announce_webhooks(
        &self,
        name: &str,
        seen: &WebhookConfiguration,
        authorities: &[u8],
    ) -> Result<String, WriteError> {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": seen.version});
        let add = |number: usize| {
            let path = format!("/webhooks/{number}/clientConfig/caBundle");
            json!({"op": "add", "path": path, "value": ByteString(authorities.to_vec())})
        };
        let operations: Vec<Value> = [test].into_iter().chain((0..seen.webhooks.len()).map(add)).collect();
        let patch = Patch { target: Target::Main, body: Body::Json(Value::Array(operations)) };
        let configurations = Api::<MutatingWebhookConfiguration>::all(self.client());
        self.patch_in(&configurations, name, &patch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_what_a_certificate_names() {
        let host = |config: Value| {
            let config: WebhookClientConfig = serde_json::from_value(config).unwrap();
            Called::from(config).host
        };
        assert_eq!(host(json!({"service": {"name": "n", "namespace": "s", "path": "/p"}})), "n.s.svc");
        assert_eq!(host(json!({"url": "https://example.com:8443/p"})), "example.com");
        assert_eq!(host(json!({"url": "https://127.0.0.1:8443/p"})), "127.0.0.1");
        assert_eq!(host(json!({"url": "https://[::1]/p"})), "::1");
        assert_eq!(host(json!({})), "");
    }
}
