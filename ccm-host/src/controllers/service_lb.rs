//! Keeps the balancers of Services of type LoadBalancer in step with the cluster.
//!
//! In: Services, Nodes, and the providers' answers. Out: calls to the provider that owns the Service's class;
//! finalizer, status and Events of the Service. What a balancer is made of is the provider's business;
//! [`crate::cloud`] batches updates.
//!
//! ```text
//! Services ─► services ──────┐
//! Nodes ─► backends ─────────┼─► queue ─► observe ─► decide (pure) ─► act ─► provider, Service
//! provider's list ─► sweep ──┘               ▲                         │
//!                                            └───────── lane ◄─────────┘
//! ```
//!
//! Each Service has one lane, so no two workers ever change the same balancer. Reconciles are cheap and practically
//! unlimited; `--concurrent-service-syncs` limits, per provider, only those that create, change or remove balancers.

mod act;
mod backends;
mod decide;
mod events;
mod lane;
mod metrics;
mod observe;
mod services;
mod settings;
mod state;
mod sweep;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    cloud::{Provider, Providers, Wishes},
    controllers::{Kept, Parts, Registration},
    kube::{
        keep::{Keep, KeySet},
        patch::WriteError,
        queue::{Backoff, Outcome, WorkQueue},
        service::{ObjectKey, SOURCE_RANGES, Service},
    },
    reconcile::{self, Reconciler, Run},
};
use act::{Act, Step, Takeover};
use backends::{Backends, NodeChanges};
use decide::decide;
use events::{COMPONENT, Events};
use lane::Lanes;
use metrics::Metrics;
use services::FormerClasses;
pub use settings::Settings;

/// The same as upstream's.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(300) };

/// Delay before a reconcile retries a lane that another worker holds for a moment.
const LANE_IS_TAKEN: Duration = Duration::from_millis(50);

/// The controller, to the rest of the host.
pub const REGISTRATION: Registration = Registration {
    name: "service-lb-controller",
    short_name: "service",
    alias: Some("service-controller"),
    account: Some("service-controller"),
    by_default: true,
    admit: None,
    keep: |_| {
        let services = Keep { annotations: KeySet::keys([SOURCE_RANGES]), ..Keep::default() };
        Kept {
            nodes: Keep { labels: KeySet::keys([backends::EXCLUDE_LABEL]), ..Keep::default() },
            services: Some(services.union(&Providers::keep_of_services())),
            ..Kept::default()
        }
    },
    served_by: |_| Some(|provider| provider.load_balancers),
    start,
};

fn start(parts: Parts, registry: &mut Registry) -> Option<Run> {
    let controller = Arc::new(Controller::new(parts, registry));
    controller.parts.views.explains(Arc::<Controller>::clone(&controller));
    Some(reconcile::run(controller))
}

#[derive(Debug)]
pub(super) struct Controller {
    parts: Parts,
    metrics: Metrics,
    events: Events,
    queue: WorkQueue<ObjectKey>,
    lanes: Lanes,
    backends: Backends,
    node_changes: NodeChanges,
    former_classes: FormerClasses,
    /// Names of the providers whose balancers were listed, or whose first list was given up.
    listed: Mutex<HashSet<String>>,
    wishes: Wishes,
    /// By provider: the uids of the missing Services whose balancers the last sweep found.
    orphans: Mutex<HashMap<String, HashSet<String>>>,
    /// By provider.
    takeovers: Mutex<HashMap<String, Takeover>>,
    /// By provider: one permit per balancer being created or changed, and others for those being removed: a cloud in
    /// which creating hangs may well delete.
    limits: HashMap<(String, Turn), Semaphore>,
}

/// What a permit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Turn {
    Change,
    Remove,
}

impl Controller {
    pub(super) fn new(parts: Parts, registry: &mut Registry) -> Self {
        let metrics = Metrics::register(registry);
        let Parts { providers, nodes, services, .. } = &parts;
        let at_once = parts.settings.services.concurrent_service_syncs.max(1);
        let limit = |one: &Arc<dyn Provider>| {
            [Turn::Change, Turn::Remove].map(|turn| ((one.name().to_owned(), turn), Semaphore::new(at_once)))
        };
        Self {
            events: Events::new(parts.events.recorder(COMPONENT)),
            queue: WorkQueue::new("service", BACKOFF, &parts.metrics.queue),
            lanes: Lanes::new(metrics.pending.clone()),
            backends: Backends::new(nodes.clone(), providers.clone()),
            node_changes: NodeChanges::default(),
            former_classes: FormerClasses::default(),
            listed: Mutex::default(),
            orphans: Mutex::default(),
            takeovers: Mutex::default(),
            wishes: Wishes::new(providers.clone(), nodes.clone(), services.clone()),
            limits: providers.all().iter().flat_map(limit).collect(),
            metrics,
            parts,
        }
    }
}

impl Reconciler for Controller {
    type Key = ObjectKey;
    /// Enough for a whole cluster, so that their calls can be batched.
    const AT_ONCE: usize = 8192;

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn begin(self: &Arc<Self>) {
        self.synced().await;
        reconcile::follow(self, &self.parts.services, Self::service_changed);
        reconcile::follow(self, &self.parts.nodes, Self::node_changed);
    }

    async fn background(&self) {
        let providers = self.parts.providers.all();
        tokio::join!(
            self.fan_out_for_ever(),
            join_all(providers.iter().map(|provider| self.sweep_for_ever(provider))),
            join_all(providers.iter().map(|provider| self.follow_status(provider))),
        );
    }

    /// Observes, decides and acts until nothing more can be done right now.
    async fn reconcile(&self, key: &ObjectKey) -> Outcome {
        self.synced().await;
        let Some(mut taken) = self.lanes.take(key) else { return Outcome::RetryAfter(LANE_IS_TAKEN) };
        let lane = &mut taken.lane;
        let mut permit: Option<((String, Turn), Option<SemaphorePermit<'_>>)> = None;
        let mut given = None;
        loop {
            let seen = observe::observe(self, key, lane.as_ref(), given.as_ref());
            let action = decide(&seen.facts, lane.as_ref());
            if let Some(turn) = seen.turn_of(&action)
                && permit.as_ref().is_none_or(|(held, _)| *held != turn)
            {
                // Much may happen before a permit is free, so decide again.
                drop(permit.take());
                let granted = self.wait_for(&turn).await;
                permit = Some((turn, granted));
                continue;
            }
            let act = Act { controller: self, key, seen: &seen };
            match act.run(lane, action).await {
                Step::Again => given = seen.given(lane.as_ref()),
                Step::End(outcome) => return outcome,
            }
        }
    }
}

impl Controller {
    /// Returns once the caches hold everything the providers want at present. With less, a digest could tell a
    /// provider that an annotation, for instance, was removed.
    async fn synced(&self) {
        self.wishes.hand_on();
        self.parts.services.synced().await;
        self.parts.nodes.synced().await;
    }

    /// Waits for a permit to do this to a balancer at that provider.
    async fn wait_for(&self, turn: &(String, Turn)) -> Option<SemaphorePermit<'_>> {
        self.limits.get(turn)?.acquire().await.ok()
    }

    /// The Service as the API has it now.
    async fn live(&self, key: &ObjectKey) -> Result<Option<Service>, WriteError> {
        self.parts.writer.get(key, &self.parts.services.keep()).await
    }
}

/// The clock that revisions start from, in microseconds.
fn wall_micros() -> u64 {
    u64::try_from(crate::clock::now().as_microsecond()).unwrap_or_default()
}
