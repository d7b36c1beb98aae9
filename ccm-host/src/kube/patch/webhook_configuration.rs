//! A MutatingWebhookConfiguration that a flag names: where it calls, and whom it trusts. Only that one may be read.

use ::kube::Api;
use k8s_openapi::{ByteString, api::admissionregistration::v1 as wire};
use serde_json::{Value, json};

use super::{Body, Patch, Target, WriteError, Writer, Written};

/// What is read of it.
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

impl From<wire::WebhookClientConfig> for Called {
    fn from(config: wire::WebhookClientConfig) -> Self {
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
        let _held = self.pressure().hold();
        let api = Api::<wire::MutatingWebhookConfiguration>::all(self.client());
        let found = api.get_opt(name).await.map_err(WriteError::of_request)?;
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
    ) -> Result<Written, WriteError> {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": seen.version});
        let add = |number: usize| {
            let path = format!("/webhooks/{number}/clientConfig/caBundle");
            json!({"op": "add", "path": path, "value": ByteString(authorities.to_vec())})
        };
        let operations: Vec<Value> = [test].into_iter().chain((0..seen.webhooks.len()).map(add)).collect();
        let patch = Patch { target: Target::Main, body: Body::Json(Value::Array(operations)) };
        self.patch::<wire::MutatingWebhookConfiguration>(None, name, &patch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_what_a_certificate_names() {
        let host = |config: Value| {
            let config: wire::WebhookClientConfig = serde_json::from_value(config).unwrap();
            Called::from(config).host
        };
        assert_eq!(host(json!({"service": {"name": "n", "namespace": "s", "path": "/p"}})), "n.s.svc");
        assert_eq!(host(json!({"url": "https://example.com:8443/p"})), "example.com");
        assert_eq!(host(json!({"url": "https://127.0.0.1:8443/p"})), "127.0.0.1");
        assert_eq!(host(json!({"url": "https://[::1]/p"})), "::1");
        assert_eq!(host(json!({})), "");
    }
}
