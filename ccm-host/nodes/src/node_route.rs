//! Keeps the cloud's routes in step with the pod CIDRs of nodes, and shows on each node whether its network is
//! available.
//!
//! In: Nodes, and the routes that providers list. Out: routes created and removed, the condition
//! `NetworkUnavailable`, Events on Nodes. Other controllers assign pod CIDRs; [`ccm_cloud`] batches changes.
//!
//! ```text
//! Nodes ─► claims ──────────┐
//!                           ├─► queue ─► observe ─► decide (pure) ─► act ─► provider, condition
//! provider's list ─► sweep ─┘               ▲                        │
//!                                           └──────── table ◄────────┘
//! ```
//!
//! One list, and every answer since, tell what the cloud has; so a changed node costs no call unless its routes must
//! change. Each node waits only for its own routes.

mod act;
mod condition;
mod decide;
mod observe;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{
        MetricType,
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::Registry,
};
use tokio::sync::{Notify, Semaphore};

use ccm_base::metric::{Declare, MetricLabels, OfProvider, gauge};
use ccm_cloud::Provider;
use ccm_kube::{
    keep::Keep,
    queue::{Backoff, Outcome, WorkQueue},
};
use ccm_reconcile::{
    Kept, OPERATION, Operations, Parts, Reconciler, Registration, Shell, pace::NodePaces, run,
};
use condition::Overwritten;
use observe::{Claims, Runs};
use table::Table;

/// Maximum concurrent removals of strays at a provider, which lists as many as it likes, and nobody waits for them.
const STRAYS_AT_ONCE: usize = 1024;
/// When the others come.
const STRAYS_AGAIN: Duration = Duration::from_secs(30);

/// The controller, to the rest of the host.
pub const REGISTRATION: Registration = Registration {
    alias: Some("route-controller"),
    account: Some("route-controller"),
    by_default: true,
    keep: |settings| Kept::of_managed_nodes(settings, &Keep::default()),
    served_by: |_| Some(|provider| provider.routes),
    ..Registration::of::<Controller>("route", |parts, registry| Controller::new(parts, registry).map(run))
};

#[derive(Debug)]
pub struct Controller {
    shell: Shell<RouteKey>,
    metrics: RouteMetrics,
    claims: Mutex<Claims>,
    runs: Runs,
    clouds: Vec<Cloud>,
    shown: Overwritten,
    /// How often a node's changes may have its routes made anew.
    paces: NodePaces,
}

/// A key of the work queue: a node with its routes at its provider, or a route that no node has there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteKey {
    /// By name.
    Node(String),
    Stray {
        /// The provider that listed it.
        provider: String,
        id: String,
    },
}

impl fmt::Display for RouteKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(out, "node {name}"),
            Self::Stray { provider, id } => write!(out, "route {id} of {provider}"),
        }
    }
}

/// A provider, and its known routes.
#[derive(Debug)]
struct Cloud {
    provider: Arc<dyn Provider>,
    table: Mutex<Table>,
    /// The table is in doubt: something else changed a route. Triggers a new list.
    doubted: Notify,
    strays_at_once: Semaphore,
}

impl Controller {
    /// Unlike upstream, a missing cluster CIDR disables only this controller, not the whole process.
    pub fn new(parts: Parts, registry: &mut Registry) -> Option<Arc<Self>> {
        let shell = Shell::of::<Self>(parts);
        let (settings, controller) = (&shell.parts.settings, Self::NAME);
        if !settings.routes.configure_cloud_routes {
            tracing::info!(controller, "not started: --configure-cloud-routes=false");
            return None;
        }
        if settings.cidrs.cluster.is_empty() {
            tracing::warn!(
                controller,
                "not started: --cluster-cidr is empty; give the networks of the pods, or --configure-cloud-routes=false"
            );
            return None;
        }
        let providers = shell.parts.providers.all().iter();
        Some(Arc::new(Self {
            metrics: RouteMetrics::register(&shell.queue, registry),
            claims: Mutex::default(),
            runs: Runs::default(),
            clouds: providers.map(|provider| Cloud::new(Arc::clone(provider))).collect(),
            shown: Overwritten::default(),
            paces: NodePaces::default(),
            shell,
        }))
    }
}

impl Reconciler for Controller {
    type Key = RouteKey;
    const NAME: &'static str = "node-route-controller";
    /// Upstream's, underscore included.
    const COMPONENT: &'static str = "route_controller";
    const QUEUE: &'static str = "Routes";
    /// The maximum bounds the wait, however long a route fails.
    const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(300) };
    /// Enough for a whole cluster, so that their calls can be batched.
    const AT_ONCE: usize = 8192;

    fn shell(&self) -> &Shell<RouteKey> {
        &self.shell
    }

    async fn begin(self: &Arc<Self>) {
        let parts = &self.shell.parts;
        parts.views.explains(Arc::<Self>::clone(self));
        parts.nodes.synced().await;
        ccm_reconcile::follow(self, &parts.nodes, Self::node_changed);
    }

    async fn background(&self) {
        tokio::join!(
            join_all(self.clouds.iter().map(|cloud| self.sweep_for_ever(cloud))),
            join_all(self.clouds.iter().map(|cloud| self.follow_status(cloud))),
        );
    }

    fn provider_of(&self, subject: &RouteKey) -> Option<Arc<dyn Provider>> {
        let cloud = match subject {
            RouteKey::Node(name) => self.owner(&*self.shell.parts.nodes.get(name)?),
            RouteKey::Stray { provider, .. } => self.cloud(provider),
        };
        Some(Arc::clone(&cloud?.provider))
    }

    async fn reconcile(&self, subject: &RouteKey) -> Outcome {
        match subject {
            RouteKey::Node(name) => Box::pin(self.look_at_node(name)).await,
            RouteKey::Stray { provider, id } => self.look_at_stray(provider, id).await,
        }
    }
}

impl Controller {
    fn cloud(&self, provider: &str) -> Option<&Cloud> {
        self.clouds.iter().find(|cloud| cloud.name() == provider)
    }
}

impl Cloud {
    fn new(provider: Arc<dyn Provider>) -> Self {
        Self {
            provider,
            table: Mutex::default(),
            doubted: Notify::new(),
            strays_at_once: Semaphore::new(STRAYS_AT_ONCE),
        }
    }

    fn name(&self) -> &str {
        self.provider.name()
    }
}

/// The series of this controller; the first, with its labels, is upstream's. Cheap to clone.
#[derive(Debug, Clone)]
struct RouteMetrics {
    syncs: Family<MetricLabels<2>, Counter>,
    operations: Operations,
    known: Family<OfProvider, Gauge>,
}

impl RouteMetrics {
    /// Registers all series.
    fn register(queue: &Arc<WorkQueue<RouteKey>>, registry: &mut Registry) -> Self {
        registry.register_collector(Box::new(Waiting(Arc::clone(queue))));
        Self {
            syncs: registry.metric(
                "route_controller_route_sync",
                "Comparisons of routes by outcome (changed, noop, error) and trigger: periodic for sweeps of all routes of a provider, node_change for runs of one node",
            ),
            operations: registry.histograms(
                "ccm_route_operation_duration_seconds",
                "Operations on routes by result: ok, incomplete, in_progress or the reason of an error",
                OPERATION,
            ),
            known: registry.metric("ccm_route_known", "Known routes per provider"),
        }
    }

    /// Whether something was, or is to be, made or removed (`changed`), or not (`noop`, `error`).
    fn synced(&self, trigger: &'static str, outcome: &'static str) {
        self.syncs.get_or_create(&[("outcome", outcome), ("trigger", trigger)]).inc();
    }
}

/// Counts the delayed keys of a queue when it is asked.
#[derive(Debug)]
struct Waiting(Arc<WorkQueue<RouteKey>>);

impl Collector for Waiting {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let waiting = ConstGauge::new(gauge(self.0.delayed()));
        waiting.encode(encoder.encode_descriptor(
            "ccm_route_waiting",
            "Nodes and routes waiting for a retry",
            None,
            MetricType::Gauge,
        )?)
    }
}
