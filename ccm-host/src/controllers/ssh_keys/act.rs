//! Has a provider spread a key.
//!
//! In: a subject of the queue. Out: one call, and when to make the next: the provider is asked again now and then, as
//! upstream's caller did, since a call that succeeded is no promise for instances that are made later.

use std::time::Duration;

use super::{Controller, Subject, observe::POLL};
use crate::{
    cloud::{Family, ProviderStatus},
    kube::{events::EventType, queue::Outcome},
    reconcile::{Retry, passes_by_itself},
};

/// Time between two calls for a key that is on all instances.
const AGAIN: Duration = Duration::from_secs(300);

impl Controller {
    pub(super) async fn spread(&self, subject: &Subject) -> Outcome {
        let Some(key) = self.known.lock().key(subject).cloned() else { return Outcome::Done };
        let Some(provider) = self.parts.providers.by_name(&subject.provider) else { return Outcome::Done };
        let serves = provider.info().is_some_and(|info| info.ssh_keys);
        if !serves || *provider.status(Family::Instances).borrow() != ProviderStatus::Serving {
            return Outcome::RetryAfter(POLL);
        }
        match provider.add_ssh_key(&key.user, &key.line).await {
            Ok(Some(in_progress)) => Outcome::RetryAfter(in_progress.retry_after),
            Ok(None) => {
                self.done(subject);
                Outcome::Slow(AGAIN)
            }
            Err(error) => {
                if !passes_by_itself(&error, self.queue.failing_for(subject)) {
                    let (user, fingerprint) = (&subject.user, &subject.fingerprint);
                    let message = format!(
                        "key {fingerprint} of user {user:?} is not on all instances of provider {:?}: {error}",
                        subject.provider
                    );
                    self.tell(EventType::Warning, "SshKeyNotSpread", message);
                }
                Retry::without_sweep(&error).outcome(&error)
            }
        }
    }

    fn done(&self, subject: &Subject) {
        let (is_new, count) = {
            let mut known = self.known.lock();
            if known.key(subject).is_none() {
                // It left the Secret while the provider was asked.
                known.regarding.iter().for_each(|regarding| self.not_revoked(regarding, subject));
                return;
            }
            let is_new = known.spread.insert(subject.clone());
            (is_new, known.spread.iter().filter(|other| other.provider == subject.provider).count())
        };
        self.metrics.spread(&subject.provider, count);
        if is_new {
            let Subject { provider, user, fingerprint } = subject;
            tracing::info!(user, fingerprint, provider, "SSH key spread");
            let message =
                format!("key {fingerprint} of user {user:?} is on all instances of provider {provider:?}");
            self.tell(EventType::Normal, "SshKeySpread", message);
        }
    }

    fn tell(&self, kind: EventType, reason: &'static str, message: String) {
        let regarding = self.known.lock().regarding.clone();
        if let Some(regarding) = regarding {
            self.recorder.record(&regarding, kind, reason, message);
        }
    }
}
