//! Starts the providers of the command line and waits for their handshakes.

use std::{sync::Arc, time::Duration};

use futures::future::{join_all, select_all};

use crate::{
    cloud::{
        CloudMetrics, ClusterRef, Dialer, Provider, ProviderConfig, ProviderStatus, Providers, RemoteProvider,
    },
    election::Leadership,
    manager::{health::Probe, process::Process},
    shadow::Shadow,
};

/// Starts connecting to all providers, with a readiness check for each.
pub(super) fn start(
    process: &Process,
    cluster: ClusterRef,
    (leadership, shadow): (&Leadership, Option<&Shadow>),
    metrics: &CloudMetrics,
    dialer: Option<Dialer>,
) -> (Providers, Vec<Arc<RemoteProvider>>) {
    let started: Vec<_> = process
        .settings()
        .providers
        .iter()
        .map(|settings| {
            let config = ProviderConfig {
                dialer: dialer.clone(),
                leadership: leadership.clone(),
                shadow: shadow.cloned(),
                ..ProviderConfig::new(settings.clone(), cluster.clone())
            };
            let provider = RemoteProvider::spawn(config, metrics, process.connections());
            let status = provider.status();
            process.checks().add(Probe::Ready, format!("provider-{}", settings.name), move || {
                match &*status.borrow() {
                    // A frozen provider answers; its metric and Events show what is frozen.
                    ProviderStatus::Serving | ProviderStatus::Frozen(_) => Ok(()),
                    ProviderStatus::Disconnected(why) => Err(format!("not connected: {why}")),
                }
            });
            provider
        })
        .collect();
    let all = started.iter().map(|provider| -> Arc<dyn Provider> { Arc::<RemoteProvider>::clone(provider) });
    (Providers::new(all.collect()).divided(process.settings().division.clone()), started)
}

/// Waits for the first handshake and then, at most `patience`, for the others.
pub(super) async fn introduced(providers: &Providers, patience: Duration) {
    let met = || providers.all().iter().map(|provider| Box::pin(connected(provider)));
    select_all(met()).await;
    if tokio::time::timeout(patience, join_all(met())).await.is_err() {
        for provider in providers.all().iter().filter(|provider| provider.info().is_none()) {
            let why = format!("{:?}", *provider.status().borrow());
            tracing::warn!(provider = provider.name(), why, "starting without this provider");
        }
    }
}

async fn connected(provider: &Arc<dyn Provider>) {
    let mut status = provider.status();
    // The sender lives in the provider, which outlives this call.
    let _ = status.wait_for(|status| !status.is_away()).await;
}
