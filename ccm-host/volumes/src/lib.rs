//! Labels PersistentVolumes with the zone and region of their disk, and binds them to nodes there.
//!
//! In: PersistentVolumes whose source is a disk of a cloud, and what providers know of it. Out: labels, and the node
//! affinity of a volume that has none, Events on the volume. Volumes of CSI drivers are left alone: their driver says
//! where they are. No label of a user is ever overwritten. [`ccm_cloud`] batches the questions.
//!
//! What is new is labelled while it is made, by `webhook`, if that is on; the controller labels all others.
//!
//! ```text
//! PersistentVolume ─► queue ─► basis (pure) ─► providers ─► verdict (pure) ─► plan (pure) ─► act: one patch
//!        a provider connects ─┘      └── labels that are trusted ─────────────────┘
//! ```

mod act;
mod decide;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
#[cfg(test)]
mod tests;
mod webhook;

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use ccm_base::metric::{Declare, MetricLabels};
use ccm_kube::queue::{Backoff, Outcome};
use ccm_reconcile::{Kept, Parts, Reconciler, Registration, Shell, run};

/// The controller, to the rest of the host. Runs only if it is named: it needs rights over PersistentVolumes, and most
/// clusters have volumes of CSI drivers only.
pub const REGISTRATION: Registration = Registration {
    admit: Some(webhook::router),
    keep: |_| Kept { volumes: true, ..Kept::default() },
    served_by: |_| Some(|provider| provider.volumes),
    ..Registration::of::<Controller>("persistent-volume-label", |parts, registry| {
        Some(run(Controller::new(parts, registry)))
    })
};

#[derive(Debug)]
struct Controller {
    shell: Shell<String>,
    results: Results,
}

impl Controller {
    fn new(parts: Parts, registry: &mut Registry) -> Arc<Self> {
        let shell = Shell::of::<Self>(parts);
        let results = registry.metric(
            "persistent_volume_label_controller_volumes",
            "PersistentVolumes that were labelled; ccm_reports has those that were not, and why",
        );
        Arc::new(Self { shell, results })
    }
}

impl Reconciler for Controller {
    /// The name of a volume.
    type Key = String;
    const NAME: &'static str = "persistent-volume-label-controller";
    const QUEUE: &'static str = "persistent_volume_label";
    /// The disk of a volume that was made first may appear any time.
    const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(300) };
    /// Questions to a provider share calls.
    const AT_ONCE: usize = 512;

    fn shell(&self) -> &Shell<String> {
        &self.shell
    }

    async fn begin(self: &Arc<Self>) {
        let volumes = &self.shell.parts.volumes;
        volumes.synced().await;
        ccm_reconcile::follow(self, volumes, |controller, change| controller.add(change.object()));
    }

    /// A provider that has just connected may know volumes that no other provider did.
    async fn background(&self) {
        let period = self.shell.parts.settings.nodes.node_status_update_frequency;
        let look_at_all = || self.shell.parts.volumes.list().iter().for_each(|volume| self.add(volume));
        let providers = self.shell.parts.providers.all();
        ccm_reconcile::at_each_sweep(providers, period, look_at_all).await;
    }

    async fn reconcile(&self, name: &String) -> Outcome {
        Box::pin(self.label(name)).await
    }
}

/// One counter by result: of the controller, or of its webhook. Cheap to clone.
type Results = Family<MetricLabels<1>, Counter>;

fn count(results: &Results, result: &'static str) {
    results.get_or_create(&[("result", result)]).inc();
}
