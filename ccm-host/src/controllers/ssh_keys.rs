//! Makes the public keys of a Secret valid on all instances.
//!
//! In: the Secret that `--ssh-keys-secret` names, with a user's keys under the user's name. Out: calls to each provider
//! that spreads SSH keys, Events on the Secret. No key is ever logged, only its fingerprint; whatever is no public key
//! never leaves the cluster. How a provider spreads a key is its own business; it cannot take one back.
//!
//! ```text
//! Secret ─► observe ─► decide (pure) ─┬─► refused: Event
//!                                     └─► queue, one subject for each key and provider ─► act ─► provider
//! ```

mod act;
mod decide;
mod metrics;
mod observe;
mod settings;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use crate::{
    controllers::{Kept, Parts, Registration},
    kube::{
        events::Recorder,
        queue::{Backoff, Outcome, WorkQueue},
        service::ObjectKey,
    },
    reconcile::{self, Reconciler, Run},
};
use metrics::SshKeyMetrics;
use observe::Known;

pub use settings::Settings;

/// The component that Events are recorded under.
const COMPONENT: &str = "ssh-keys-controller";

const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(300) };

/// The controller, to the rest of the host. Off unless it is named: who may write the Secret may log in everywhere.
pub const REGISTRATION: Registration = Registration {
    name: "ssh-keys-controller",
    short_name: "ssh-keys",
    alias: None,
    account: None,
    by_default: false,
    admit: None,
    keep: |_| Kept::default(),
    served_by: |_| Some(|provider| provider.ssh_keys),
    start,
};

fn start(parts: Parts, registry: &mut Registry) -> Option<Run> {
    let Some(secret) = parts.settings.ssh_keys.ssh_keys_secret.clone().0 else {
        tracing::warn!(
            controller = REGISTRATION.name,
            "not started: --ssh-keys-secret is empty; give the NAMESPACE/NAME of the Secret with the keys"
        );
        return None;
    };
    Some(reconcile::run(Arc::new(Controller::new(parts, secret, registry))))
}

#[derive(Debug)]
struct Controller {
    parts: Parts,
    secret: ObjectKey,
    recorder: Recorder,
    metrics: SshKeyMetrics,
    queue: WorkQueue<Subject>,
    known: Mutex<Known>,
}

/// A key to spread, and who is to spread it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Subject {
    provider: String,
    user: String,
    fingerprint: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.provider, self.user, self.fingerprint)
    }
}

impl Controller {
    fn new(parts: Parts, secret: ObjectKey, registry: &mut Registry) -> Self {
        Self {
            secret,
            recorder: parts.events.recorder(COMPONENT),
            metrics: SshKeyMetrics::register(registry),
            queue: WorkQueue::new("ssh_keys", BACKOFF, &parts.metrics.queue),
            known: Mutex::default(),
            parts,
        }
    }
}

impl Reconciler for Controller {
    type Key = Subject;
    /// Each call may take minutes.
    const AT_ONCE: usize = 16;

    fn queue(&self) -> &WorkQueue<Subject> {
        &self.queue
    }

    async fn background(&self) {
        self.follow_secret().await;
    }

    async fn reconcile(&self, subject: &Subject) -> Outcome {
        self.spread(subject).await
    }
}
