//! The cluster's identity for clouds: the uid of its namespace `kube-system`.

use std::time::Duration;

use ::kube::{Api, Client, api::PartialObjectMeta, core::Status};
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{cloud::ClusterRef, outage::Outage};

const NAMESPACE: &str = "kube-system";
const PAUSE: Duration = Duration::from_secs(2);
/// How often [`stay_known`] asks, and for how long it forgives.
const LOOK: Duration = Duration::from_secs(20);
const FORGIVEN: Duration = Duration::from_secs(60);

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
            Err(::kube::Error::Api(status)) if status.code == 401 => return unknown(&status),
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

/// Ends with an error when the apiserver has not known this process for a minute. A kubeconfig's certificate is read at
/// the start: after its rotation, only a restart helps.
pub(super) async fn stay_known(client: Client, stop: CancellationToken) -> Result<()> {
    let api = Api::<Namespace>::all(client);
    let mut unknown_since = None;
    while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        match api.get_metadata(NAMESPACE).await {
            Err(::kube::Error::Api(status)) if status.code == 401 => {
                if unknown_since.get_or_insert_with(Instant::now).elapsed() >= FORGIVEN {
                    return unknown(&status);
                }
            }
            Ok(_) | Err(_) => unknown_since = None,
        }
    }
    Ok(())
}

fn unknown<T>(status: &Status) -> Result<T> {
    bail!(
        "the apiserver does not know who this process is ({}): the token or certificate of the kubeconfig has expired, or \
         is of another cluster",
        status.message
    )
}

fn uid(namespace: PartialObjectMeta<Namespace>) -> String {
    namespace.metadata.uid.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ::apiserver::{ApiServer, Fault, Refusal, Verb};
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_the_apiserver_no_longer_knows_ends() {
        for (code, ends) in [(401, true), (403, false), (500, false)] {
            let server = ApiServer::default();
            let refused = Fault::Refuse(Refusal::new(code, "Refused", "no"));
            let fault = server.faults_of("one").every(|asked| asked.verb == Some(Verb::Get), refused);
            let task = tokio::spawn(stay_known(server.client("one"), CancellationToken::new()));
            sleep(FORGIVEN).await;
            drop(fault);
            sleep(FORGIVEN).await;
            assert!(!task.is_finished(), "a moment is forgiven: {code}");
            let refused = Fault::Refuse(Refusal::new(code, "Refused", "no"));
            server.faults_of("one").every(|asked| asked.verb == Some(Verb::Get), refused).stay();
            sleep(FORGIVEN * 3).await;
            assert_eq!(task.is_finished(), ends, "{code}");
        }
    }
}
