//! Labels PersistentVolumes with the zone and region of their disk, and binds them to nodes there.
//!
//! In: PersistentVolumes whose source is a disk of a cloud, and what providers know of it. Out: labels, and the node
//! affinity of a volume that has none, Events on the volume. Volumes of CSI drivers are left alone: their driver says
//! where they are. No label of a user is ever overwritten. [`crate::cloud`] batches the questions.
//!
//! What is new is labelled while it is made, by `webhook`, if that is on; the controller labels all others.
//!
//! ```text
//! PersistentVolume ─► queue ─► basis (pure) ─► providers ─► verdict (pure) ─► plan (pure) ─► act: one patch
//!        a provider connects ─┘      └── labels that are trusted ─────────────────┘
//! ```

mod act;
mod decide;
mod metrics;
mod observe;
#[cfg(test)]
mod tests;
mod webhook;

use std::{sync::Arc, time::Duration};

use futures::{FutureExt as _, future::join_all};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::{
    cloud::Providers,
    controllers::{Kept, Parts, Registration, Run},
    kube::{
        cache::Cache,
        events::Recorder,
        patch::Writer,
        persistent_volume::PersistentVolume,
        queue::{self, Backoff, WorkQueue},
    },
    reconcile::ToldOnce,
};
use metrics::VolumeMetrics;

/// The component that Events are recorded under.
const COMPONENT: &str = "persistent-volume-label-controller";

/// Maximum volumes at once, so that questions to a provider share calls.
const AT_ONCE: usize = 512;

/// The disk of a volume that was made first may appear any time.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(300) };

/// The controller, to the rest of the host. Runs only if it is named: it needs rights over PersistentVolumes, and most
/// clusters have volumes of CSI drivers only.
pub const REGISTRATION: Registration = Registration {
    name: "persistent-volume-label-controller",
    short_name: "persistent-volume-label",
    alias: None,
    account: Some("persistent-volume-label-controller"),
    by_default: false,
    admit: Some(webhook::router),
    keep: |_| Kept { volumes: true, ..Kept::default() },
    served_by: |_| Some(|provider| provider.volumes),
    start: |parts, registry| Some(start(parts, registry)),
};

fn start(parts: &Parts, registry: &mut Registry) -> Run {
    let controller = Controller::new(Context {
        volumes: parts.volumes.clone(),
        writer: parts.writer(&REGISTRATION),
        providers: parts.providers.clone(),
        recorder: parts.events.recorder(COMPONENT),
        metrics: VolumeMetrics::register(registry),
        queue: WorkQueue::new("persistent_volume_label", BACKOFF, &parts.metrics.queue),
    });
    Box::new(|stop| controller.run(stop).boxed())
}

/// Everything the controller depends on.
#[derive(Debug)]
struct Context {
    volumes: Cache<PersistentVolume>,
    writer: Writer,
    providers: Providers,
    recorder: Recorder,
    metrics: VolumeMetrics,
    /// By name.
    queue: WorkQueue<String>,
}

#[derive(Debug)]
struct Controller(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    context: Context,
    /// By uid.
    told: Mutex<ToldOnce<decide::Notice>>,
}

impl Controller {
    /// A controller that does nothing until it runs.
    fn new(context: Context) -> Self {
        Self(Arc::new(Shared { context, told: Mutex::default() }))
    }

    /// Runs until cancelled. Cancelling aborts calls and writes in flight.
    async fn run(self, cancel: CancellationToken) -> anyhow::Result<()> {
        let shared = self.0;
        if cancel.run_until_cancelled(shared.context.volumes.synced()).await.is_none() {
            return Ok(());
        }
        shared.follow();
        let connections =
            shared.context.providers.all().iter().map(|one| shared.follow_provider(one.as_ref()));
        let worked = queue::run(shared.context.queue.clone(), AT_ONCE, cancel.clone(), |name| {
            let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
            async move {
                let labelled = Box::pin(shared.label(&name, &cancel));
                cancel.run_until_cancelled(labelled).await.unwrap_or(queue::Outcome::Done)
            }
        });
        tokio::join!(worked, cancel.run_until_cancelled(join_all(connections)));
        Ok(())
    }
}
