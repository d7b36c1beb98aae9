//! Makes the public keys of a Secret valid on all instances.
//!
//! In: the Secret that `--ssh-keys-secret` names, with a user's keys under the user's name. Out: calls to each provider
//! that spreads SSH keys, Events on the Secret. No key is ever logged, only its fingerprint; whatever is not a public key
//! never leaves the cluster. How a provider spreads a key is its own business; it cannot take one back.
//!
//! ```text
//! Secret ─► observe ─► decide (pure) ─┬─► refused: Event
//!                                     └─► queue, one subject for each key and provider ─► act ─► provider
//! ```

mod act;
mod decide;
mod observe;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use ccm_base::metric::{Declare, OfProvider};
use ccm_cloud::Provider;
use ccm_kube::{
    queue::{Backoff, Outcome},
    service::ObjectKey,
};
use ccm_reconcile::{Parts, Reconciler, Registration, Shell, run};
use observe::KnownSecret;

/// The controller, to the rest of the host. Off unless it is named: who may write the Secret may log in everywhere.
pub const REGISTRATION: Registration = Registration {
    account: None,
    served_by: |_| Some(|provider| provider.ssh_keys),
    ..Registration::of::<Controller>("ssh-keys", |parts, registry| Controller::new(parts, registry).map(run))
};

#[derive(Debug)]
struct Controller {
    shell: Shell<KeyTarget>,
    secret: ObjectKey,
    metrics: SshKeyMetrics,
    known: Mutex<KnownSecret>,
}

/// A key to spread, and who is to spread it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct KeyTarget {
    provider: String,
    user: String,
    fingerprint: String,
}

impl fmt::Display for KeyTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.provider, self.user, self.fingerprint)
    }
}

impl Controller {
    /// `None` if the settings turn it off, which it logs.
    fn new(parts: Parts, registry: &mut Registry) -> Option<Arc<Self>> {
        let shell = Shell::of::<Self>(parts);
        let Some(secret) = shell.parts.settings.ssh_keys.ssh_keys_secret.clone() else {
            tracing::warn!(
                controller = Self::NAME,
                "not started: --ssh-keys-secret is empty; give the NAMESPACE/NAME of the Secret with the keys"
            );
            return None;
        };
        Some(Arc::new(Self {
            shell,
            secret,
            metrics: SshKeyMetrics::register(registry),
            known: Mutex::default(),
        }))
    }
}

impl Reconciler for Controller {
    type Key = KeyTarget;
    const NAME: &'static str = "ssh-keys-controller";
    const QUEUE: &'static str = "ssh_keys";
    const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(300) };
    /// Each call may take minutes.
    const AT_ONCE: usize = 16;

    fn shell(&self) -> &Shell<KeyTarget> {
        &self.shell
    }

    async fn background(&self) {
        self.follow_secret().await;
    }

    fn provider_of(&self, subject: &KeyTarget) -> Option<Arc<dyn Provider>> {
        self.shell.parts.providers.by_name(&subject.provider).cloned()
    }

    async fn reconcile(&self, subject: &KeyTarget) -> Outcome {
        self.spread(subject).await
    }
}

#[derive(Debug, Clone)]
struct SshKeyMetrics {
    wanted: Gauge,
    refused: Gauge,
    unreadable: Gauge,
    spread: Family<OfProvider, Gauge>,
}

impl SshKeyMetrics {
    fn register(registry: &mut Registry) -> Self {
        Self {
            wanted: registry.metric("ssh_keys_wanted", "Public keys in the Secret"),
            refused: registry.metric(
                "ssh_keys_refused",
                "Lines of the Secret that are not a public key, or whose user is not a login name",
            ),
            unreadable: registry
                .metric("ssh_keys_secret_unreadable", "Whether the Secret cannot be read (1)"),
            spread: registry
                .metric("ssh_keys_spread", "Public keys that a provider has made valid on all instances"),
        }
    }
}
