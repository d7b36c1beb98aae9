//! Has a provider spread a key.
//!
//! In: a subject of the queue. Out: one call, and when to make the next: the provider is asked again now and then, as
//! upstream's caller did, since a call that succeeded promises nothing for instances that are created later. One that
//! spreads no keys is not asked, and nothing is wrong with it.

use std::time::Duration;

use super::{Controller, KeyTarget, observe::POLL};
use ccm_base::metric::{gauge, of_provider};
use ccm_cloud::{Family, ProviderStatus};
use ccm_kube::{events::EventType, queue::Outcome};
use ccm_reconcile::{Report, Retry};

/// Time between two calls for a key that is on all instances.
const AGAIN: Duration = Duration::from_secs(300);

impl Controller {
    pub(super) async fn spread(&self, subject: &KeyTarget) -> Outcome {
        let reports = &self.shell.reports;
        let (key, regarding) = {
            let known = self.known.lock();
            (known.key(subject).cloned(), known.regarding.clone())
        };
        let provider = self.shell.parts.providers.by_name(&subject.provider);
        let (Some(key), Some(provider)) = (key, provider) else { return reports.clear(subject) };
        let KeyTarget { provider: name, user, fingerprint } = subject;
        let what = format!("key {fingerprint} of user {user:?} is not on all instances of provider {name:?}");
        let why = |why: &str| format!("{what}: {why}");
        let info = provider.info();
        if info.as_ref().is_some_and(|info| !info.ssh_keys) {
            reports.clear(subject);
            return Outcome::Slow(POLL);
        }
        let report =
            if info.is_none() || *provider.status(Family::Instances).borrow() != ProviderStatus::Serving {
                Report::waiting(
                    "ProviderNotServing",
                    why("the provider does not serve them now"),
                    Retry::After(POLL),
                )
            } else {
                match provider.add_ssh_key(&key.user, &key.line).await {
                    Ok(None) => {
                        self.done(subject);
                        reports.clear(subject);
                        return Outcome::Slow(AGAIN);
                    }
                    Ok(Some(progress)) => {
                        let again = Retry::After(progress.retry_after);
                        Report::waiting("InProgress", why("the provider is still working on it"), again)
                    }
                    Err(error) => Report::failed("ProviderFailed", what, &error).warning("SshKeyNotSpread"),
                }
            };
        reports.set(subject, regarding, vec![report])
    }

    fn done(&self, subject: &KeyTarget) {
        let mut known = self.known.lock();
        let Some(regarding) = known.regarding.clone() else { return };
        if known.key(subject).is_none() {
            // It left the Secret while the provider was asked.
            self.not_revoked(&regarding, subject);
        } else if known.spread.insert(subject.clone()) {
            let count = known.spread.iter().filter(|other| other.provider == subject.provider).count();
            self.metrics.spread.get_or_create(&of_provider(subject.provider.as_str(), [])).set(gauge(count));
            let KeyTarget { provider, user, fingerprint } = subject;
            tracing::info!(user, fingerprint, provider, "SSH key spread");
            let message =
                format!("key {fingerprint} of user {user:?} is on all instances of provider {provider:?}");
            self.shell.recorder.record(regarding, EventType::Normal, "SshKeySpread", message);
        }
    }
}
