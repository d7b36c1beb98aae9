//! Keeps the balancers of Services of type LoadBalancer in step with the cluster.
//!
//! In: Services, Nodes, and the providers' answers. Out: calls to the provider that owns the Service's class;
//! finalizer, status and Events of the Service. What a balancer is made of is the provider's business;
//! [`ccm_cloud`] batches updates.
//!
//! ```text
//! Services ─► service ───────┐                ┌─► plan (pure) ─► run ────┐
//! Nodes ─► nodes ────────────┼─► queue ─► observe                        ├─► provider, Service
//! provider's list ─► sweep ──┘      ▲         └─► fate (pure) ─► remove ─┘
//!                                   └────────────── rows ◄───────────┘
//! ```
//!
//! What is known of each balancer is a `row`, by the uid of its Service and by its provider. The queue has two kinds of
//! keys: a Service, whose run creates or changes its balancer, and a balancer, whose run removes it where nothing wants it.
//! Runs are cheap and practically unlimited; [`Slots`](ccm_reconcile::Slots) limit, per provider, those that create, change or remove
//! balancers. Files, from what is known to what is done: `row`, `rows`, `record`, `observe`, `plan`, `fate`, `run`,
//! `remove`, `publish`, `events`; beside them `service`, `nodes`, `sweep`, `state`.

mod events;
mod fate;
mod nodes;
mod observe;
mod plan;
mod publish;
mod record;
mod remove;
mod row;
mod rows;
mod run;
mod service;
mod state;
mod sweep;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;

use ccm_base::metric::{Buckets, Declare, OfProvider};
use ccm_cloud::{Provider, Providers};
use ccm_kube::{
    keep::{Keep, KeySet},
    patch::WriteError,
    queue::{Backoff, Outcome},
    service::{ObjectKey, SOURCE_RANGES, Service},
};
use ccm_reconcile::{
    Kept, OPERATION, Operations, Parts, Rank, Reconciler, Registration, Run, Shell, Slot, run,
};
use nodes::{Backends, NodeChanges};
use observe::Listing;
use record::Sets;
use row::RowKey;
use rows::Rows;
use service::FormerClasses;

/// The controller, to the rest of the host.
pub const REGISTRATION: Registration = Registration {
    alias: Some("service-controller"),
    account: Some("service-controller"),
    by_default: true,
    keep: |_| {
        let services =
            Keep { annotations: KeySet::keys([SOURCE_RANGES, service::IP_MODE]), ..Keep::default() };
        Kept {
            nodes: Keep { labels: KeySet::keys([nodes::EXCLUDE_LABEL]), ..Keep::default() },
            services: Some(services.union(&Providers::keep_of_services())),
            ..Kept::default()
        }
    },
    served_by: |_| Some(|provider| provider.load_balancers),
    ..Registration::of::<Controller>("service", start)
};

fn start(parts: Parts, registry: &mut Registry) -> Option<Run> {
    let controller = Arc::new(Controller::new(parts, registry));
    controller.shell.parts.views.explains(Arc::<Controller>::clone(&controller));
    Some(run(controller))
}

/// What a run is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunKey {
    /// A Service, and its balancer at its owner.
    Service(ObjectKey),
    /// A balancer that may have to go.
    Balancer(RowKey),
}

impl fmt::Display for RunKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(key) => key.fmt(out),
            Self::Balancer(at) => write!(out, "balancer of {at}"),
        }
    }
}

#[derive(Debug)]
pub struct Controller {
    shell: Shell<RunKey>,
    metrics: ServiceMetrics,
    rows: Rows,
    backends: Backends,
    sets: Sets,
    node_changes: NodeChanges,
    former_classes: FormerClasses,
    /// By provider, once its balancers were listed, or could not be.
    listed: Mutex<HashMap<String, Listing>>,
}

impl Controller {
    pub fn new(parts: Parts, registry: &mut Registry) -> Self {
        let metrics = ServiceMetrics::register(registry);
        let shell = Shell::of::<Self>(parts);
        let Parts { providers, nodes, settings, .. } = &shell.parts;
        Self {
            rows: Rows::default(),
            backends: Backends::new(
                nodes.clone(),
                providers.clone(),
                settings.services.exclude_draining_nodes,
            ),
            sets: Sets::default(),
            node_changes: NodeChanges::default(),
            former_classes: FormerClasses::default(),
            listed: Mutex::default(),
            metrics,
            shell,
        }
    }
}

impl Reconciler for Controller {
    type Key = RunKey;
    const NAME: &'static str = "service-lb-controller";
    /// Upstream's.
    const COMPONENT: &'static str = "service-controller";
    const QUEUE: &'static str = "service";
    /// Upstream's.
    const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(300) };
    /// Enough for a whole cluster, so that their calls can be batched.
    const AT_ONCE: usize = 8192;

    fn shell(&self) -> &Shell<RunKey> {
        &self.shell
    }

    async fn begin(self: &Arc<Self>) {
        self.synced().await;
        join_all(self.shell.parts.providers.all().iter().map(|one| self.kept(one.as_ref()))).await;
        ccm_reconcile::follow(self, &self.shell.parts.services, Self::service_changed);
        ccm_reconcile::follow(self, &self.shell.parts.nodes, Self::node_changed);
    }

    async fn background(&self) {
        let providers = self.shell.parts.providers.all();
        tokio::join!(
            self.fan_out_for_ever(),
            self.keep_sets(),
            join_all(providers.iter().map(|provider| self.sweep_for_ever(provider))),
            join_all(providers.iter().map(|provider| self.follow_status(provider))),
        );
    }

    async fn reconcile(&self, key: &RunKey) -> Outcome {
        match key {
            RunKey::Service(key) => self.sync(key).await,
            RunKey::Balancer(at) => self.remove(at).await,
        }
    }
}

impl Controller {
    /// Returns once complete lists were seen of all Services and Nodes.
    async fn synced(&self) {
        self.shell.parts.services.synced().await;
        self.shell.parts.nodes.synced().await;
    }

    /// Takes one of the provider's places for runs of this kind, or stands in line for it: a call that waits within the
    /// provider's limits would hold up everything else that is to be done about its balancer.
    fn slot(&self, provider: &dyn Provider, key: &RunKey, rank: Rank) -> Option<Slot<'_, RunKey>> {
        let most = provider.info().map_or(1, |info| info.balancers_at_once);
        let limit = most.min(self.shell.parts.settings.services.concurrent_service_syncs);
        // A cloud in which creating hangs may well delete.
        let what = match key {
            RunKey::Service(_) => "balancer",
            RunKey::Balancer(_) => "removal",
        };
        self.shell.slots.take((provider.name(), what), limit, key, rank)
    }

    /// Returns once the caches hold what this provider wants to know of Nodes and Services, and whether that had to be waited
    /// for.
    async fn kept(&self, provider: &dyn Provider) -> bool {
        let Parts { nodes, services, .. } = &self.shell.parts;
        let mut waited = false;
        while let Some(info) = provider.info() {
            let (nodes, services) = tokio::join!(
                nodes.kept(provider.name(), &info.keep_of_nodes),
                services.kept(provider.name(), &info.keep_of_services),
            );
            if !nodes && !services {
                break;
            }
            // Another process may have taken its place meanwhile, and want to know more.
            waited = true;
        }
        waited
    }

    /// The Service as the API has it now.
    async fn live(&self, key: &ObjectKey) -> Result<Option<Service>, WriteError> {
        self.shell.parts.writer.get(key, &self.shell.parts.services.keep()).await
    }
}

/// The clock that revisions start from, in microseconds.
fn wall_micros() -> u64 {
    u64::try_from(ccm_base::clock::now().as_microsecond()).unwrap_or_default()
}

/// Upstream's: 1 s to 16384 s, each twice the one before.
const UPSTREAM: Buckets = Buckets(&[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
]);

/// Upstream's series by their names, and what upstream does not measure. Cheap to clone.
#[derive(Debug, Clone)]
struct ServiceMetrics {
    update_attempts: Counter,
    update_failures: Counter,
    update_latency: Histogram,
    node_sync_latency: Histogram,
    operations: Operations,
    pending: Gauge,
    orphans: Family<OfProvider, Gauge>,
}

impl ServiceMetrics {
    /// Registers all series.
    fn register(registry: &mut Registry) -> Self {
        Self {
            update_attempts: registry.metric(
                "service_controller_loadbalancer_sync",
                "Attempts to update the nodes of a load balancer",
            ),
            update_failures: registry.metric(
                "service_controller_nodesync_error",
                "Failed attempts to update the nodes of a load balancer",
            ),
            update_latency: registry.histogram(
                "service_controller_update_loadbalancer_host_latency_seconds",
                "Time to update the nodes of one load balancer",
                UPSTREAM,
            ),
            node_sync_latency: registry.histogram(
                "service_controller_nodesync_latency_seconds",
                "Time from a node change until every load balancer is updated",
                UPSTREAM,
            ),
            operations: registry.histograms(
                "ccm_service_operation_duration_seconds",
                "Operations on load balancers by result: ok, in_progress or the reason of an error",
                OPERATION,
            ),
            pending: registry
                .metric("ccm_service_pending", "Services whose load balancer is not in the desired state"),
            orphans: registry.metric(
                "ccm_service_orphaned_load_balancers",
                "Load balancers of this cluster without a Service, as of the last sweep",
            ),
        }
    }

    /// Starts timing a change of nodes that began at `since`. Dropping the last clone stops the clock.
    fn node_sync(&self, since: Instant) -> Arc<NodeSync> {
        Arc::new(NodeSync { since, latency: self.node_sync_latency.clone() })
    }
}

/// A change of nodes that has not reached all balancers yet.
#[derive(Debug)]
struct NodeSync {
    since: Instant,
    latency: Histogram,
}

impl Drop for NodeSync {
    fn drop(&mut self) {
        self.latency.observe(self.since.elapsed().as_secs_f64());
    }
}
