//! Identifies the cluster to the providers of the command line, starts them and waits for their handshakes.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};
use futures::future::{join_all, select_all};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use crate::manager::{health::Probe, process::Process};
use ccm_base::outage::Outage;
use ccm_cloud::{
    CloudMetrics, ClusterRef, Dialer, Family, Provider, ProviderConfig, ProviderStatus, Providers,
    RemoteProvider,
};
use ccm_kube::{election::Leadership, shadow::Shadow};

const NAMESPACE: &str = "kube-system";
/// The pause between two questions to an apiserver that does not answer yet.
const PAUSE: Duration = Duration::from_secs(2);

/// The cluster's identity for clouds: the uid of its namespace `kube-system`. Asks until the apiserver answers. A refusal that lasts is final: only a person can change that.
pub(super) async fn identify(client: &Client, name: &str) -> Result<ClusterRef> {
    let api = Api::<Namespace>::all(client.clone());
    let mut refusals = Outage::default();
    loop {
        match api.get_metadata(NAMESPACE).await {
            Ok(namespace) => {
                let uid = namespace.metadata.uid.unwrap_or_default();
                return Ok(ClusterRef { uid, name: name.to_owned() });
            }
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
        sleep(PAUSE).await;
    }
}

/// Starts connecting to all providers, with a readiness check for each.
pub(super) fn start(
    process: &Process,
    cluster: ClusterRef,
    (leadership, shadow): (&Leadership, Option<&Shadow>),
    metrics: &CloudMetrics,
    dialer: Option<Dialer>,
) -> (Providers, Vec<Arc<RemoteProvider>>) {
    let started: Vec<_> = process
        .settings
        .providers
        .iter()
        .map(|settings| {
            let config = ProviderConfig {
                dialer: dialer.clone(),
                leadership: leadership.clone(),
                shadow: shadow.cloned(),
                ..ProviderConfig::new(settings.clone(), cluster.clone())
            };
            RemoteProvider::spawn(config, metrics, process.connections())
        })
        .collect();
    let all = started.iter().map(|provider| -> Arc<dyn Provider> { Arc::<RemoteProvider>::clone(provider) });
    let providers = Providers::new(all.collect()).divided(process.settings.division.clone());
    for provider in providers.all() {
        let (provider, all) = (Arc::clone(provider), providers.clone());
        let name = format!("provider-{}", provider.name());
        process.checks.add(Probe::Ready, name, move || is_met(&provider, &all));
    }
    let asked = providers.clone();
    process.checks.add(Probe::Ready, "provider-id-prefixes", move || {
        let contested = asked.contested_prefixes().into_iter().next();
        contested.map_or(Ok(()), |contested| Err(contested.to_string()))
    });
    (providers, started)
}

/// Whether this process has met the provider. One of several that goes away later concerns its own objects alone: if it made
/// the process unready, an upgrade would replace all replicas at once.
fn is_met(provider: &Arc<dyn Provider>, all: &Providers) -> Result<(), String> {
    let status = provider.status(Family::Instances);
    match &*status.borrow() {
        // A frozen provider answers; its metric and Events show what is frozen.
        ProviderStatus::Serving | ProviderStatus::Frozen(_) => Ok(()),
        ProviderStatus::Disconnected(_)
            if provider.info().is_some()
                && all.all().iter().any(|other| !other.status(Family::Instances).borrow().is_away()) =>
        {
            Ok(())
        }
        ProviderStatus::Disconnected(why) => Err(format!("not connected: {why}")),
    }
}

/// Waits for the first handshake and then, at most `patience`, for the others.
pub(super) async fn introduced(providers: Providers, patience: Duration) {
    let met = || providers.all().iter().map(|provider| Box::pin(connected(provider)));
    select_all(met()).await;
    if timeout(patience, join_all(met())).await.is_err() {
        for provider in providers.all().iter().filter(|provider| provider.info().is_none()) {
            let why = format!("{:?}", *provider.status(Family::Instances).borrow());
            tracing::warn!(provider = provider.name(), why, "starting without this provider");
        }
    }
}

async fn connected(provider: &Arc<dyn Provider>) {
    let mut status = provider.status(Family::Instances);
    // The sender lives in the provider, which outlives this call.
    let _ = status.wait_for(|status| !status.is_away()).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_cloud::fake::FakeProvider;

    #[test]
    fn a_process_is_ready_once_it_has_met_all_providers_and_while_one_answers() {
        let fakes = ["a", "b"].map(FakeProvider::new);
        let all = Providers::new(fakes.iter().map(|fake| Arc::clone(fake) as Arc<dyn Provider>).collect());
        let ready = || all.all().iter().map(|provider| is_met(provider, &all).is_ok()).collect::<Vec<_>>();
        let leaves = |fake: &FakeProvider| fake.set_status(ProviderStatus::Disconnected("gone".to_owned()));
        assert_eq!(ready(), [true, true]);
        leaves(&fakes[1]);
        assert_eq!(ready(), [true, true], "only its own objects wait");
        fakes[1].forget_info();
        assert_eq!(ready(), [true, false], "never met");
        leaves(&fakes[0]);
        assert_eq!(ready(), [false, false], "none answers");
        fakes[0].set_status(ProviderStatus::Frozen("lied".to_owned()));
        assert_eq!(ready(), [true, false], "a frozen one answers");
    }
}
