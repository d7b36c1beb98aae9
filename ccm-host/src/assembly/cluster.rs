//! The cluster's identity for clouds: the uid of its namespace `kube-system`.

use std::time::Duration;

use ::kube::{Api, Client, api::PartialObjectMeta};
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Namespace;

use crate::{cloud::ClusterRef, outage::Outage};

const NAMESPACE: &str = "kube-system";
const PAUSE: Duration = Duration::from_secs(2);

/// Asks until the apiserver answers. A refusal that lasts is final: only a person can change that.
pub(super) async fn identify(client: &Client, name: &str) -> Result<ClusterRef> {
    let api = Api::<Namespace>::all(client.clone());
    let mut refusals = Outage::default();
    loop {
        match api.get_metadata(NAMESPACE).await {
            Ok(namespace) => return Ok(ClusterRef { uid: uid(namespace), name: name.to_owned() }),
            Err(::kube::Error::Api(status))
                if matches!(status.code, 401 | 403) && !refusals.failed(status.message.clone()) =>
            {
                tracing::warn!(message = status.message, "the apiserver refuses this process so far");
            }
            Err(::kube::Error::Api(status)) if status.code == 401 => bail!(
                "the apiserver does not know who this process is ({}): the token or certificate of the kubeconfig has expired, or \
                 is of another cluster",
                status.message
            ),
            Err(::kube::Error::Api(status)) if status.code == 403 => bail!(
                "the apiserver does not let this process read the namespace {NAMESPACE} ({}): apply deploy/rbac.yaml, \
                 or check the kubeconfig's user",
                status.message
            ),
            Err(error) => {
                refusals.ended();
                let error = anyhow::Error::from(error);
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the apiserver does not answer yet: does it run where the kubeconfig, or --master, says?"
                );
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn uid(namespace: PartialObjectMeta<Namespace>) -> String {
    namespace.metadata.uid.unwrap_or_default()
}
