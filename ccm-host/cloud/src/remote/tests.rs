//! Tests of a provider behind a real socket.

mod balancers;
mod connection;
mod hostile;
mod instances;
mod isolation;
mod leadership;
mod paces;
mod routes;
mod sets;
mod tls;
mod watch;

use std::{path::Path, time::Duration};

use prometheus_client::registry::Registry;
use tonic::Code;

use super::*;
use crate::{ClusterRef, Dialer, Paces, ProviderSettings};
use crate::{Endpoint, ErrorReason, Freshness, InstanceState, InstanceView, scripted::*};
use ccm_kube::{
    Backoff,
    election::{Leadership, Leading},
    fixtures::node,
};

/// Longer than any condition takes to become true.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host with one provider, at a fast pace.
struct Host {
    provider: Arc<RemoteProvider>,
    registry: Registry,
    leading: tokio::sync::watch::Sender<Leading>,
    leadership: Leadership,
    _stop: tokio_util::sync::DropGuard,
}

impl Host {
    fn at(path: &Path) -> Self {
        Self::with(Endpoint::Unix(path.to_owned()))
    }

    fn with(endpoint: Endpoint) -> Self {
        Self::configured(endpoint, |config| {
            config.paces = Paces {
                status: Duration::from_millis(50),
                status_bad: Duration::from_millis(50),
                reconnect: Backoff { base: Duration::from_millis(10), max: Duration::from_millis(50) },
            };
        })
    }

    /// In one runtime with its provider, at the paces of a real host: for a paused clock.
    fn over(dialer: Dialer) -> Self {
        Self::configured(Endpoint::Unix("/run/p.sock".into()), |config| config.dialer = Some(dialer))
    }

    fn configured(endpoint: Endpoint, change: impl FnOnce(&mut ProviderConfig)) -> Self {
        let mut registry = Registry::default();
        let metrics = CloudMetrics::register(&mut registry);
        let cluster = ClusterRef { uid: "cluster-uid".into(), name: "cluster".into() };
        let settings = ProviderSettings { name: "p".to_owned(), endpoint, allowed_uids: Vec::new() };
        let mut config = ProviderConfig::new(settings, cluster);
        let (leading, leadership) = Leadership::standby();
        leading.send_replace(Leading::Always);
        config.leadership = leadership.clone();
        change(&mut config);
        let stop = CancellationToken::new();
        let provider = RemoteProvider::spawn(config, &metrics, stop.clone());
        Self { provider, registry, leading, leadership, _stop: stop.drop_guard() }
    }

    /// Waits for a status; on failure shows the last one seen.
    async fn until(&self, wanted: impl Fn(&ProviderStatus) -> bool) -> ProviderStatus {
        let mut status = self.provider.status(Family::Instances);
        match tokio::time::timeout(PATIENCE, status.wait_for(|status| wanted(status))).await {
            Ok(status) => status.unwrap().clone(),
            Err(_) => panic!("status stays {:?}", self.provider.status(Family::Instances).borrow()),
        }
    }

    async fn serving(&self) {
        self.until(|status| *status == ProviderStatus::Serving).await;
    }

    /// Waits until the provider is disconnected for a reason with these words.
    async fn disconnected(&self, words: &str) {
        self.until(|status| matches!(status, ProviderStatus::Disconnected(why) if why.contains(words))).await;
    }

    async fn frozen(&self, words: &str) {
        self.until(|status| matches!(status, ProviderStatus::Frozen(why) if why.contains(words))).await;
    }

    async fn ask(&self, name: &str) -> Result<InstanceAnswer, CloudError> {
        self.provider
            .instance(InstanceQuery {
                node: Arc::new(node(name)),
                view: InstanceView::Metadata,
                freshness: Freshness::ReadThrough,
            })
            .await
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// The value of a series, found by the start of its line.
    fn metric(&self, series: &str) -> f64 {
        let text = self.metrics();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{series} is not in\n{text}"))
    }
}

/// Waits until a condition holds.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

/// A host with a provider that serves this script.
async fn served(script: &Arc<Script>) -> (Host, Running, tempfile::TempDir) {
    let (dir, path) = folder();
    let running = Running::at(&path, script);
    let host = Host::at(&path);
    host.serving().await;
    (host, running, dir)
}

/// A host and this script in one runtime, for a paused clock.
async fn piped_host(script: &Arc<Script>) -> Host {
    let host = Host::over(piped(script));
    host.serving().await;
    host
}

/// A status as a provider returns it.
fn refusal(code: Code, reason: &str) -> tonic::Status {
    use tonic_types::StatusExt as _;
    let details = tonic_types::ErrorDetails::with_error_info(
        reason,
        cloudprovider_proto::ERROR_DOMAIN,
        std::collections::HashMap::new(),
    );
    tonic::Status::with_error_details(code, "said so", details)
}
