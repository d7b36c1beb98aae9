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

use futures::future::join_all;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::{
    controllers::{Kept, Parts, Registration},
    kube::{
        events::Recorder,
        queue::{Backoff, Outcome, WorkQueue},
    },
    reconcile::{self, Reconciler, ToldOnce},
};
use metrics::Results;

/// The component that Events are recorded under.
const COMPONENT: &str = "persistent-volume-label-controller";

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
    start: |parts, registry| Some(reconcile::run(Arc::new(Controller::new(parts, registry)))),
};

#[derive(Debug)]
struct Controller {
    parts: Parts,
    recorder: Recorder,
    metrics: Results,
    /// By name.
    queue: WorkQueue<String>,
    /// By uid.
    told: Mutex<ToldOnce<decide::Notice>>,
    /// One permit for each volume being written: the others must not stand before all other requests of the host.
    writing: Semaphore,
}

impl Controller {
    fn new(parts: Parts, registry: &mut Registry) -> Self {
        Self {
            recorder: parts.events.recorder(COMPONENT),
            metrics: Results::of_volumes(registry),
            queue: WorkQueue::new("persistent_volume_label", BACKOFF, &parts.metrics.queue),
            told: Mutex::default(),
            writing: Semaphore::new(parts.settings.nodes.concurrent_node_syncs),
            parts,
        }
    }
}

impl Reconciler for Controller {
    type Key = String;
    /// Questions to a provider share calls.
    const AT_ONCE: usize = 512;

    fn queue(&self) -> &WorkQueue<String> {
        &self.queue
    }

    async fn begin(self: &Arc<Self>) {
        self.parts.volumes.synced().await;
        reconcile::follow(self, &self.parts.volumes, Self::volume_changed);
    }

    async fn background(&self) {
        let period = self.parts.settings.nodes.node_status_update_frequency;
        let providers = self.parts.providers.all().iter();
        join_all(providers.map(|one| reconcile::at_each_sweep(one.as_ref(), period, || self.look_at_all())))
            .await;
    }

    async fn reconcile(&self, name: &String) -> Outcome {
        Box::pin(self.label(name)).await
    }
}
