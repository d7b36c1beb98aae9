//! Keeps the balancers of Services of type LoadBalancer in step with the cluster.
//!
//! In: Services, Nodes, and the providers' answers. Out: calls to the provider that owns the Service's class;
//! finalizer, status and Events of the Service. What a balancer is made of is the provider's business;
//! [`crate::cloud`] batches updates.
//!
//! ```text
//! Services ─► needs ─────────────┐
//! Nodes ─► nodes ─► fan_out ─────┼─► queue ─► observe ─► decide (pure) ─► act ─► provider, Service
//! provider's list ─► sweep ──────┘               ▲                         │
//!                                                └───────── lane ◄─────────┘
//! ```
//!
//! Each Service has one lane, so no two workers ever change the same balancer. Reconciles are cheap and practically
//! unlimited; `--concurrent-service-syncs` limits, per provider, only those that create, change or remove balancers.

mod act;
mod backends;
mod decide;
mod events;
mod fan_out;
mod former_classes;
mod lane;
mod metrics;
mod needs;
mod nodes;
mod observe;
mod recovery;
mod settings;
mod state;
mod status;
mod sweep;
mod takeover;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt as _, future::join_all};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::{
    cloud::{Providers, Wishes},
    controllers::{Kept, Parts, Registration, Run},
    kube::{
        cache::{Cache, Change},
        events::Recorder,
        keep::{Keep, KeySet},
        metrics::QueueMetrics,
        node::Node,
        patch::Writer,
        queue::{self, Backoff, Outcome, WorkQueue},
        service::{ObjectKey, SOURCE_RANGES, Service},
    },
};
use act::{Act, Step};
use backends::Backends;
use decide::decide;
use events::Events;
use fan_out::NodeChanges;
use former_classes::FormerClasses;
use lane::Lanes;
use sweep::Orphans;
use takeover::Takeover;

pub use events::COMPONENT;
pub use metrics::Metrics;
pub use settings::Settings;
pub use state::View;

/// The same as upstream's.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(300) };

/// Maximum concurrent reconciles: enough for a whole cluster, so that their calls can be batched.
const AT_ONCE: usize = 8192;

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
    keep: |_| Kept { nodes: keep_nodes(), services: Some(keep_services()), ..Kept::default() },
    served_by: |_| Some(|provider| provider.load_balancers),
    start,
};

fn start(parts: &Parts, registry: &mut Registry) -> Option<Run> {
    let controller = Controller::new(Context {
        services: parts.services.clone(),
        nodes: parts.nodes.clone(),
        writer: parts.writer(&REGISTRATION),
        providers: parts.providers.clone(),
        recorder: parts.events.recorder(COMPONENT),
        metrics: Metrics::register(registry),
        queue_metrics: parts.metrics.queue.clone(),
        settings: parts.settings.services,
    });
    let view = controller.view();
    parts.views.has_services(move || view.services());
    Some(Box::new(|stop| controller.run(stop).boxed()))
}

/// Everything the controller depends on.
#[derive(Debug, Clone)]
pub struct Context {
    /// All Services; the cache keeps what [`REGISTRATION`] asks for.
    pub services: Cache<Service>,
    /// All nodes; the cache keeps what [`REGISTRATION`] asks for.
    pub nodes: Cache<Node>,
    /// Patches Services and reads them live from the API.
    pub writer: Writer,
    pub providers: Providers,
    pub recorder: Recorder,
    pub metrics: Metrics,
    pub queue_metrics: QueueMetrics,
    pub settings: Settings,
}

/// The annotations that the Service cache must keep for this controller, besides those that the providers want.
pub(super) fn keep_services() -> Keep {
    let own = Keep { annotations: KeySet::keys([SOURCE_RANGES]), ..Keep::default() };
    own.union(&Providers::keep_of_services())
}

/// The labels that the Node cache must keep for this controller, besides those that the providers want.
pub(super) fn keep_nodes() -> Keep {
    Keep { labels: KeySet::keys([nodes::EXCLUDE_LABEL]), ..Keep::default() }
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Controller(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    context: Context,
    events: Events,
    queue: WorkQueue<ObjectKey>,
    lanes: Lanes,
    backends: Backends,
    node_changes: NodeChanges,
    former_classes: FormerClasses,
    listed: Listed,
    wishes: Wishes,
    orphans: Orphans,
    takeover: Takeover,
    /// By provider: one permit per balancer being created, changed or removed.
    limits: HashMap<String, Semaphore>,
}

/// Names of the providers whose balancers were listed, or whose first list was given up.
#[derive(Debug, Default)]
struct Listed(Mutex<HashSet<String>>);

impl Listed {
    fn contains(&self, provider: &str) -> bool {
        self.0.lock().contains(provider)
    }

    fn insert(&self, provider: &str) {
        self.0.lock().insert(provider.to_owned());
    }
}

impl Controller {
    /// A controller that does nothing until it runs.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self(Arc::new(Shared {
            events: Events::new(context.recorder.clone()),
            queue: WorkQueue::new("service", BACKOFF, &context.queue_metrics),
            lanes: Lanes::new(context.metrics.pending.clone()),
            backends: Backends::new(context.nodes.clone(), context.providers.clone()),
            node_changes: NodeChanges::default(),
            former_classes: FormerClasses::default(),
            listed: Listed::default(),
            orphans: Orphans::default(),
            takeover: Takeover::default(),
            wishes: Wishes::new(context.providers.clone(), context.nodes.clone(), context.services.clone()),
            limits: (context.providers.all().iter())
                .map(|one| {
                    (one.name().to_owned(), Semaphore::new(context.settings.concurrent_service_syncs.max(1)))
                })
                .collect(),
            context,
        }))
    }

    /// Runs until cancelled. Cancelling aborts calls and writes in flight; nothing is written afterwards.
    pub async fn run(self, cancel: CancellationToken) -> anyhow::Result<()> {
        let shared = self.0;
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = shared.synced() => {}
        }
        shared.follow();
        let looks = queue::run(shared.queue.clone(), AT_ONCE, cancel.clone(), |key| {
            let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
            async move { shared.reconcile(key, &cancel).await }
        });
        let providers = shared.context.providers.all();
        let background = async {
            tokio::join!(
                shared.fan_out_for_ever(),
                join_all(providers.iter().map(|provider| shared.sweep_for_ever(provider))),
                join_all(providers.iter().map(|provider| shared.follow_status(provider))),
            )
        };
        let until_cancelled = async {
            tokio::select! {
                () = cancel.cancelled() => {}
                _ = background => {}
            }
        };
        tokio::join!(looks, until_cancelled);
        Ok(())
    }
}

impl Shared {
    /// Returns once the caches hold everything the providers want at present. With less, a digest could tell a
    /// provider that an annotation, for instance, was removed.
    async fn synced(&self) {
        self.wishes.hand_on();
        self.context.services.synced().await;
        self.context.nodes.synced().await;
    }

    fn follow(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        self.context.services.subscribe(move |change| shared.see_service(change));
        let shared = Arc::clone(self);
        self.context.nodes.subscribe(move |change| shared.see_node(change));
    }

    /// Handles a Service change from the watch. Must not block.
    fn see_service(&self, change: &Change<Service>) {
        self.former_classes.see(change);
        let ours = |service: &Service| observe::may_be_ours(&self.context.providers, service);
        let look = match change {
            Change::Added(service) => needs::is_of_interest(service),
            Change::Updated { old, new } => needs::needs_look(old, new, ours),
            // The lane knows whether it left a balancer.
            Change::Deleted(_) => true,
        };
        if look {
            self.queue.add(change.object().key.clone());
        }
    }

    async fn reconcile(&self, key: ObjectKey, cancel: &CancellationToken) -> Outcome {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Outcome::Done,
            outcome = self.work(&key, cancel) => outcome,
        }
    }

    /// Observes, decides and acts until nothing more can be done right now.
    async fn work(&self, key: &ObjectKey, cancel: &CancellationToken) -> Outcome {
        self.synced().await;
        let Some(mut lane) = self.lanes.take(key) else { return Outcome::RetryAfter(LANE_IS_TAKEN) };
        let mut permit: Option<(String, Option<SemaphorePermit<'_>>)> = None;
        let mut given = None;
        loop {
            let seen = observe::observe(self, key, lane.as_ref(), given.as_ref());
            let action = decide(&seen.facts(lane.as_ref()));
            if let Some(provider) = seen.turn_of(&action)
                && permit.as_ref().is_none_or(|(of, _)| of != provider)
            {
                // Much may happen before a permit is free, so decide again.
                drop(permit.take());
                permit = Some((provider.to_owned(), self.turn_at(provider).await));
                continue;
            }
            let act = Act { shared: self, key, seen: &seen, cancel };
            match act.run(&mut lane, action).await {
                Step::Again => given = seen.given(lane.as_ref()),
                Step::End(outcome) => return outcome,
            }
        }
    }
}

impl Shared {
    /// Waits for a permit to create, change or remove a balancer at that provider.
    async fn turn_at(&self, provider: &str) -> Option<SemaphorePermit<'_>> {
        self.limits.get(provider)?.acquire().await.ok()
    }
}

/// The clock that revisions start from, in microseconds.
fn wall_micros() -> u64 {
    u64::try_from(crate::clock::now().as_microsecond()).unwrap_or_default()
}
