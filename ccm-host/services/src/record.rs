//! What outlives the process, where a provider cannot keep it: who has a Service's balancer, and what is applied to it.
//!
//! In: rows. Out: a condition of the Service's status, which the role `edit` cannot write; after a restart, the
//! row that it describes. The condition holds the Service's part of the digest; that of the backends is the same for all
//! balancers of a provider, so it is kept once: a key per provider in a ConfigMap, with the digest of the set that every
//! balancer had. It is taken away before any balancer gets another set, or soon after if the apiserver fails or takes longer
//! than a second, since nodes are not to wait for it: a leader that ends in between leaves one that says too much, until
//! nodes change again. Without it, each balancer is updated once after a restart. A list of a provider that keeps digests
//! itself overrules both. A condition that was edited, cut, or copied from another Service does not match its check, and
//! says nothing.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::{sleep, timeout};

use super::{
    Controller,
    row::{Applied, Doubt, Known, Row, UNKNOWN_BACKENDS},
};
use ccm_cloud::{Provider, joined, service_part};
use ccm_kube::{
    patch::{RECORDS, RecordKey, WantedCondition},
    service::Service,
};

/// The condition's type.
pub(super) const CONDITION: &str = "cloudprovider.ccm/LoadBalancer";

/// The content of the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) provider: String,
    /// The Service's part of the digest of what is applied; `None` if the provider keeps it, or nothing is applied.
    applied: Option<String>,
    /// Something else was asked for since.
    doubt: bool,
}

impl Record {
    /// Of a row; `None` if there is nothing to remember.
    pub(super) fn of_row(row: &Row, is_durable: bool) -> Option<Self> {
        let (applied, doubt) = match (&row.known, is_durable) {
            (Known::Applied(Applied { digest, doubt, .. }), false) => {
                (service_part(digest).map(str::to_owned), doubt.service)
            }
            (Known::Applied(_) | Known::Asked { .. }, _) => (None, false),
            (Known::Unsure | Known::Absent | Known::Removed, _) => return None,
        };
        Some(Self { provider: row.at.provider.to_string(), applied, doubt })
    }

    /// Of a Service, if its condition is genuine.
    pub(super) fn of(service: &Service) -> Option<Self> {
        let mut record = Self { provider: String::new(), applied: None, doubt: false };
        let mut check = "";
        for word in service.condition(CONDITION)?.message.split(' ') {
            match word.split_once('=')? {
                ("provider", name) => name.clone_into(&mut record.provider),
                ("applied", part) => record.applied = Some(part.to_owned()),
                ("doubt", "true") => record.doubt = true,
                ("check", text) => check = text,
                _ => return None,
            }
        }
        (check == record.check(&service.uid)).then_some(record)
    }

    /// What it says of the balancer. `set`: digest of the backends that all balancers of the provider had.
    pub(super) fn known(&self, set: Option<&str>) -> Known {
        let Some(part) = &self.applied else { return Known::Asked { made_as: None } };
        let digest = joined(part, set.unwrap_or(UNKNOWN_BACKENDS));
        let doubt = Doubt { service: self.doubt, ..Doubt::default() };
        Known::Applied(Applied { digest, service: None, needs_ensure: false, doubt })
    }

    /// The condition for the Service of this uid.
    pub(super) fn condition(&self, uid: &str) -> WantedCondition<'static> {
        let message = format!("{} check={}", self.content(), self.check(uid)).into();
        WantedCondition { type_: CONDITION, status: "True", reason: "Recorded", message }
    }

    fn content(&self) -> String {
        let Self { provider, applied, doubt } = self;
        let applied = applied.as_ref().map(|part| format!(" applied={part}")).unwrap_or_default();
        format!("provider={provider}{applied}{}", if *doubt { " doubt=true" } else { "" })
    }

    fn check(&self, uid: &str) -> String {
        let hash = Sha256::digest(format!("{uid} {}", self.content()));
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The ConfigMap; the RBAC rules in `deploy/` name it.
const NAME: &str = "service-lb-backends";

/// How often to look whether all balancers have the current set.
const LOOK: Duration = Duration::from_secs(5);

/// The pause after a write that failed.
const AGAIN: Duration = Duration::from_secs(60);

/// How long the nodes of balancers may wait for the ConfigMap.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the ConfigMap says.
#[derive(Debug, Default)]
pub(super) struct Sets {
    state: Mutex<State>,
    /// One decides and writes at a time: what is taken away was not about to be written.
    turns: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// As it was found at the start.
    recalled: HashMap<String, String>,
    asked: HashSet<String>,
    /// As this process wrote it, or found it; no set's digest while that is not known.
    written: HashMap<String, String>,
}

impl Sets {
    /// The set that all balancers of the provider had when the last process ended.
    pub(super) fn recalled(&self, provider: &str) -> Option<String> {
        self.state.lock().recalled.get(provider).cloned()
    }

    /// Reads, once, what the last process left.
    pub(super) async fn recall(&self, controller: &Controller, provider: &dyn Provider) {
        if is_durable(provider) || !self.state.lock().asked.insert(provider.name().to_owned()) {
            return;
        }
        match controller.shell.parts.writer.read_record(&key(provider)).await {
            Ok(record) if !record.text.is_empty() => {
                controller.rows.for_each(|row| {
                    if *row.at.provider == *provider.name() {
                        row.recalls_backends(&record.text);
                    }
                });
                let mut state = self.state.lock();
                state.recalled.insert(provider.name().to_owned(), record.text.clone());
                state.written.insert(provider.name().to_owned(), record.text);
            }
            Ok(_) => {}
            Err(error) => {
                // It may say something: take it away before it is wrong.
                self.state.lock().written.insert(provider.name().to_owned(), UNKNOWN_BACKENDS.to_owned());
                tracing::warn!(provider = provider.name(), %error, "{} cannot be read", key(provider));
            }
        }
    }

    /// Balancers are about to get other nodes.
    pub(super) async fn forget(&self, controller: &Controller) {
        self.state.lock().recalled.clear();
        let gone = async {
            let _turn = self.turns.lock().await;
            for provider in controller.shell.parts.providers.all() {
                if self.state.lock().written.contains_key(provider.name()) {
                    self.write(controller, provider.as_ref(), None).await;
                }
            }
        };
        if timeout(PATIENCE, gone).await.is_err() {
            tracing::warn!("ConfigMap {RECORDS}/{NAME} is slow: not waited for");
        }
    }

    /// Records the current set of the provider once all of its balancers have it, and takes away what could not be taken
    /// away in time. Returns whether that is done.
    async fn keep(&self, controller: &Controller, provider: &dyn Provider) -> bool {
        let _turn = self.turns.lock().await;
        let set = controller.backends.of(provider).digest.clone();
        let right = Some(set).filter(|set| controller.all_have(provider.name(), set));
        let known = self.state.lock().written.get(provider.name()).cloned();
        known == right || self.write(controller, provider, right.as_deref()).await
    }

    /// Returns whether it is written.
    async fn write(&self, controller: &Controller, provider: &dyn Provider, set: Option<&str>) -> bool {
        let (at, writer) = (key(provider), &controller.shell.parts.writer);
        // Whatever becomes of it, there may be something to take away.
        self.state.lock().written.insert(provider.name().to_owned(), UNKNOWN_BACKENDS.to_owned());
        let written = async {
            let before = writer.read_record(&at).await?;
            writer.replace_record(&at, before.version.as_deref(), set.unwrap_or_default()).await
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "{at} cannot be written");
            return false;
        }
        let mut state = self.state.lock();
        match set {
            Some(set) => _ = state.written.insert(provider.name().to_owned(), set.to_owned()),
            None => _ = state.written.remove(provider.name()),
        }
        true
    }
}

impl Controller {
    /// Keeps the record of each provider's set, for as long as it is polled.
    pub(super) async fn keep_sets(&self) {
        loop {
            sleep(LOOK).await;
            let mut are_kept = true;
            for provider in
                self.shell.parts.providers.all().iter().filter(|provider| !is_durable(provider.as_ref()))
            {
                are_kept &= self.sets.keep(self, provider.as_ref()).await;
            }
            if !are_kept {
                sleep(AGAIN).await;
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
    RecordKey { name: NAME, key: provider.name().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_kube::{Condition, fixtures::service};

    fn with(message: &str) -> Service {
        let mut service = service("web");
        let message = message.to_owned();
        service.conditions = vec![Condition { type_: CONDITION.to_owned(), message, ..Condition::default() }];
        service
    }

    #[test]
    fn only_a_genuine_record_is_believed() {
        let record = Record { provider: "edge".to_owned(), applied: Some("0a-1b".to_owned()), doubt: true };
        let message = record.condition("web-uid").message.into_owned();
        assert_eq!(Record::of(&with(&message)), Some(record.clone()));
        let rows = [
            ("copied from another Service", record.condition("other-uid").message.into_owned()),
            ("edited", message.replace("edge", "aws")),
            ("edited", message.replace("1b", "1c")),
            ("its doubt removed", message.replace(" doubt=true", "")),
            ("cut", message[..message.len() - 1].to_owned()),
            ("cut", message.split(' ').next().unwrap().to_owned()),
            ("empty", String::new()),
            ("of somebody else", "all is well".to_owned()),
        ];
        for (how, message) in rows {
            assert_eq!(Record::of(&with(&message)), None, "{how}: {message}");
        }
        assert_eq!(Record::of(&service("web")), None);
    }
}
