//! Remembers over restarts which nodes all balancers of a provider had, where the provider cannot.
//!
//! In: the sets of backends, and the rows that have them. Out: a key per provider in a ConfigMap, with the digest of the
//! set that every balancer had. It is taken away before any balancer gets another set, so that it never says too much;
//! without it, each balancer is updated once after a restart.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::{Controller, row::Row};
use ccm_cloud::Provider;
use ccm_kube::patch::RecordKey;

/// The ConfigMap; the RBAC rules in `deploy/` name it.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "service-lb-backends";

/// How often to look whether all balancers have the current set.
const LOOK: Duration = Duration::from_secs(5);

/// The pause after a write that failed.
const AGAIN: Duration = Duration::from_secs(60);

/// How long the nodes of balancers may wait for the ConfigMap.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the ConfigMap says.
#[derive(Debug, Default)]
pub(super) struct Sets(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// As it was found at the start.
    recalled: HashMap<String, String>,
    asked: HashSet<String>,
    /// As this process wrote it, or found it.
    written: HashMap<String, String>,
}

impl Sets {
    /// The set that all balancers of the provider had when the last process ended.
    pub(super) fn recalled(&self, provider: &str) -> Option<String> {
        self.0.lock().recalled.get(provider).cloned()
    }

    /// Reads, once, what the last process left.
    pub(super) async fn recall(&self, controller: &Controller, provider: &dyn Provider) {
        if is_durable(provider) || !self.0.lock().asked.insert(provider.name().to_owned()) {
            return;
        }
        match controller.parts.writer.read_record(&key(provider)).await {
            Ok(record) if !record.text.is_empty() => {
                controller.rows.for_each(|row| {
                    if *row.at.provider == *provider.name() {
                        row.recalls_backends(&record.text);
                    }
                });
                let mut state = self.0.lock();
                state.recalled.insert(provider.name().to_owned(), record.text.clone());
                state.written.insert(provider.name().to_owned(), record.text);
            }
            Ok(_) => {}
            Err(error) => {
                // It may say something: take it away before it is wrong.
                self.0.lock().written.insert(provider.name().to_owned(), "unknown".to_owned());
                tracing::warn!(provider = provider.name(), %error, "{} cannot be read", key(provider));
            }
        }
    }

    /// Balancers are about to get other nodes.
    pub(super) async fn forget(&self, controller: &Controller) {
        self.0.lock().recalled.clear();
        for provider in controller.parts.providers.all() {
            if self.0.lock().written.contains_key(provider.name()) {
                let gone = self.write(controller, provider.as_ref(), None);
                if timeout(PATIENCE, gone).await.is_err() {
                    tracing::warn!(
                        provider = provider.name(),
                        "{} is slow: not waited for",
                        key(provider.as_ref())
                    );
                }
            }
        }
    }

    /// Returns whether it is written.
    async fn write(&self, controller: &Controller, provider: &dyn Provider, set: Option<&str>) -> bool {
        let (at, writer) = (key(provider), &controller.parts.writer);
        let written = async {
            let before = writer.read_record(&at).await?;
            writer.replace_record(&at, before.version.as_deref(), set.unwrap_or_default()).await
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "{at} cannot be written");
            return false;
        }
        let mut state = self.0.lock();
        match set {
            Some(set) => _ = state.written.insert(provider.name().to_owned(), set.to_owned()),
            None => _ = state.written.remove(provider.name()),
        }
        true
    }
}

impl Controller {
    /// Records the current set of each provider once all of its balancers have it, for as long as it is polled.
    pub(super) async fn keep_sets(&self) {
        loop {
            sleep(LOOK).await;
            for provider in
                self.parts.providers.all().iter().filter(|provider| !is_durable(provider.as_ref()))
            {
                let set = self.backends.of(provider.as_ref()).digest.clone();
                let known = self.sets.0.lock().written.get(provider.name()).cloned();
                let right = Some(set).filter(|set| self.all_have(provider.name(), set));
                // What could not be taken away in time is taken away now.
                if known != right && !self.sets.write(self, provider.as_ref(), right.as_deref()).await {
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// Whether the provider has balancers, and all have these backends.
    fn all_have(&self, provider: &str, set: &str) -> bool {
        let (mut some, mut all) = (false, true);
        self.rows.for_each(|row: &mut Row| {
            if *row.at.provider == *provider && row.applied().is_some() {
                some = true;
                all &= row.has_backends(set);
            }
        });
        some && all
    }
}

/// Whether the provider keeps digests itself, or has not said yet.
fn is_durable(provider: &dyn Provider) -> bool {
    provider.info().is_none_or(|info| info.durable_digest || !info.load_balancers)
}

fn key(provider: &dyn Provider) -> RecordKey {
    RecordKey { namespace: NAMESPACE, name: NAME, key: provider.name().to_owned() }
}
