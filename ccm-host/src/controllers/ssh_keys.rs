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

use futures::FutureExt as _;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::{
    cloud::Providers,
    controllers::{Kept, Parts, Registration, Run},
    kube::{
        events::Recorder,
        patch::Writer,
        queue::{self, Backoff, WorkQueue},
        service::ObjectKey,
    },
};
use metrics::SshKeyMetrics;
use observe::Known;

pub use settings::Settings;

/// The component that Events are recorded under.
const COMPONENT: &str = "ssh-keys-controller";

/// Maximum calls at once; each may take minutes.
const AT_ONCE: usize = 16;

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

fn start(parts: &Parts, registry: &mut Registry) -> Option<Run> {
    let Some(secret) = parts.settings.ssh_keys.ssh_keys_secret.clone().0 else {
        tracing::warn!(
            controller = REGISTRATION.name,
            "not started: --ssh-keys-secret is empty; give the NAMESPACE/NAME of the Secret with the keys"
        );
        return None;
    };
    let controller = Controller::new(Context {
        secret,
        writer: parts.writer.clone(),
        providers: parts.providers.clone(),
        recorder: parts.events.recorder(COMPONENT),
        metrics: SshKeyMetrics::register(registry),
        queue: WorkQueue::new("ssh_keys", BACKOFF, &parts.metrics.queue),
    });
    Some(Box::new(|stop| controller.run(stop).boxed()))
}

/// Everything the controller depends on.
#[derive(Debug)]
struct Context {
    secret: ObjectKey,
    /// Reads the Secret; nothing is written.
    writer: Writer,
    providers: Providers,
    recorder: Recorder,
    metrics: SshKeyMetrics,
    queue: WorkQueue<Subject>,
}

#[derive(Debug)]
struct Controller(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    context: Context,
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
    /// A controller that does nothing until it runs.
    fn new(context: Context) -> Self {
        Self(Arc::new(Shared { context, known: Mutex::default() }))
    }

    /// Runs until cancelled. Cancelling aborts calls in flight.
    async fn run(self, cancel: CancellationToken) -> anyhow::Result<()> {
        let shared = self.0;
        let worked = queue::run(shared.context.queue.clone(), AT_ONCE, cancel.clone(), |subject| {
            let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
            async move {
                cancel.run_until_cancelled(shared.spread(&subject)).await.unwrap_or(queue::Outcome::Done)
            }
        });
        let followed = cancel.run_until_cancelled(shared.follow());
        tokio::join!(worked, followed);
        Ok(())
    }
}
