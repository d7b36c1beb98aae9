//! Follows the Secret.
//!
//! In: the Secret, read again and again: the right to get one Secret by name is less than that to watch Secrets. Out:
//! the keys to spread, subjects for the queue, and Events about lines that are refused and keys that are gone.

use std::{collections::HashSet, time::Duration};

use tokio::time::sleep;

use super::{
    Controller, KeyTarget,
    decide::{Plan, UserKey, plan},
};
use ccm_base::metric::gauge;
use ccm_kube::events::{EventType, Regarding};

/// Time between two reads of the Secret.
pub(super) const POLL: Duration = Duration::from_secs(30);

/// While it cannot be read.
const RETRY: Duration = Duration::from_secs(5);

/// What is known of the Secret.
#[derive(Debug, Default)]
pub(super) struct KnownSecret {
    version: String,
    /// Where Events go; `None` before the first read.
    pub(super) regarding: Option<Regarding>,
    pub(super) plan: Plan,
    /// Subjects whose keys are on all instances.
    pub(super) spread: HashSet<KeyTarget>,
}

impl KnownSecret {
    pub(super) fn key(&self, subject: &KeyTarget) -> Option<&UserKey> {
        let is_it = |key: &&UserKey| key.user == subject.user && key.fingerprint == subject.fingerprint;
        self.plan.keys.iter().find(is_it)
    }
}

impl Controller {
    /// Runs forever.
    pub(super) async fn follow_secret(&self) {
        let mut told = String::new();
        loop {
            let read = self.shell.parts.writer.get_secret(&self.secret).await;
            let problem = match read {
                Ok(Some(secret)) => {
                    self.update(&secret.version, plan(&secret.data), Some(secret.regarding));
                    String::new()
                }
                Ok(None) => {
                    self.update("", Plan::default(), None);
                    "it does not exist: create it, or drop ssh-keys from --controllers".to_owned()
                }
                Err(error) => {
                    format!("{:#}; the host needs the right to get this Secret", anyhow::Error::from(error))
                }
            };
            self.metrics.unreadable.set((!problem.is_empty()).into());
            if problem != told && !problem.is_empty() {
                tracing::warn!(secret = %self.secret, problem, "the Secret with SSH keys cannot be read");
            }
            sleep(if problem.is_empty() { POLL } else { RETRY }).await;
            told = problem;
        }
    }

    /// A Secret that does not exist has no version; while it cannot be read, the keys stay as they were.
    fn update(&self, version: &str, plan: Plan, regarding: Option<Regarding>) {
        let mut known = self.known.lock();
        if known.version == version {
            return;
        }
        known.regarding = regarding.or(known.regarding.take());
        let Some(regarding) = known.regarding.clone() else { return };
        for refusal in plan.refused.iter().filter(|refusal| !known.plan.refused.contains(refusal)) {
            tracing::warn!(secret = %self.secret, "{refusal}");
            self.shell.recorder.record(&regarding, EventType::Warning, "SshKeyRefused", refusal.as_str());
        }
        version.clone_into(&mut known.version);
        let before = std::mem::replace(&mut known.plan, plan);
        self.metrics.wanted.set(gauge(known.plan.keys.len()));
        self.metrics.refused.set(gauge(known.plan.refused.len()));
        let gone: Vec<_> =
            known.spread.iter().filter(|subject| known.key(subject).is_none()).cloned().collect();
        for subject in gone {
            known.spread.remove(&subject);
            self.not_revoked(&regarding, &subject);
        }
        for provider in self.shell.parts.providers.all() {
            // Also those that are gone: nothing more is to be reported about them.
            for key in before.keys.iter().chain(&known.plan.keys) {
                self.shell.queue.add(KeyTarget {
                    provider: provider.name().to_owned(),
                    user: key.user.clone(),
                    fingerprint: key.fingerprint.clone(),
                });
            }
        }
    }

    /// Says that a key is gone from the Secret, but not from the instances.
    pub(super) fn not_revoked(&self, regarding: &Regarding, subject: &KeyTarget) {
        let message = format!(
            "key {} of user {:?} is gone from the Secret, but stays on the instances of provider {:?}: remove it there",
            subject.fingerprint, subject.user, subject.provider
        );
        self.shell.recorder.record(regarding, EventType::Warning, "SshKeyNotRevoked", message);
    }
}
