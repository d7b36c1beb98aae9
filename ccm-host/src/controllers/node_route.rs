//! Keeps the cloud's routes in step with the pod CIDRs of nodes, and shows on each node whether its network is
//! available.
//!
//! In: Nodes, and the routes that providers list. Out: routes created and removed, the condition
//! `NetworkUnavailable`, Events on Nodes. Other controllers assign pod CIDRs; [`crate::cloud`] batches changes.
//!
//! ```text
//! Nodes ─► triggers, claims ──┐
//!                             ├─► queue ─► observe ─► decide (pure) ─► act ─► provider, condition
//! provider's list ─► sweep ───┘               ▲                        │
//!                                             └──────── table ◄────────┘
//! ```
//!
//! One list, and every answer since, tell what the cloud has; so a changed node costs no call unless its routes must
//! change. Each node waits only for its own routes.

mod act;
mod claims;
mod condition;
mod decide;
mod events;
mod metrics;
mod observe;
mod outcome;
mod responsible;
mod settings;
mod state;
mod strays;
mod subject;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod triggers;
mod waiting;

use std::{sync::Arc, time::Duration};

use futures::{FutureExt as _, future::join_all};
use ipnet::IpNet;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    cloud::{Provider, Providers},
    controllers::{Kept, Parts, Registration, Run, node_scope::NodeScope},
    kube::selector::LabelSelector,
    kube::{
        cache::Cache,
        events::Recorder,
        keep::Keep,
        metrics::QueueMetrics,
        node::Node,
        patch::Writer,
        queue::{self, Backoff, Outcome, WorkQueue},
    },
};
use act::Shown;
use claims::Claims;
use events::Events;
use responsible::ClusterCidrs;
use subject::Subject;
use table::Table;
use waiting::Waiting;

pub use events::COMPONENT;
pub use metrics::RouteMetrics;
pub use settings::Settings;
pub use state::View;

/// Maximum concurrent reconciles: enough for a whole cluster, so that their calls can be batched.
const AT_ONCE: usize = 8192;

/// Maximum concurrent reads and writes of Nodes.
const NODES_AT_ONCE: usize = 32;

/// The maximum bounds the wait, however long a route fails.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(300) };

/// The controller, to the rest of the host.
pub const REGISTRATION: Registration = Registration {
    name: "node-route-controller",
    short_name: "route",
    alias: Some("route-controller"),
    account: Some("route-controller"),
    by_default: true,
    admit: None,
    keep: |settings| Kept::of_nodes(keep(&settings.nodes.node_selector)),
    served_by: |_| Some(|provider| provider.routes),
    start,
};

/// Unlike upstream, a missing cluster CIDR disables only this controller, not the whole process.
fn start(parts: &Parts, registry: &mut Registry) -> Option<Run> {
    let (settings, controller) = (&parts.settings, REGISTRATION.name);
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
    let controller = Controller::new(Context {
        nodes: parts.nodes.clone(),
        writer: parts.writer(&REGISTRATION),
        providers: parts.providers.clone(),
        recorder: parts.events.recorder(COMPONENT),
        metrics: RouteMetrics::register(registry),
        queue_metrics: parts.metrics.queue.clone(),
        cluster_cidrs: settings.cidrs.cluster.clone(),
        selector: settings.nodes.node_selector.clone(),
        settings: settings.routes,
    });
    let view = controller.view();
    parts.views.explains(Arc::new(view.clone()));
    parts.views.has_routes(move || view.routes());
    Some(Box::new(|stop| controller.run(stop).boxed()))
}

/// Everything the controller depends on.
#[derive(Debug, Clone)]
pub struct Context {
    /// All nodes; the cache keeps what [`REGISTRATION`] asks for.
    pub nodes: Cache<Node>,
    /// Patches nodes and reads them live from the API.
    pub writer: Writer,
    pub providers: Providers,
    pub recorder: Recorder,
    pub metrics: RouteMetrics,
    pub queue_metrics: QueueMetrics,
    /// One, or one of each family: only routes inside these are ours.
    pub cluster_cidrs: Vec<IpNet>,
    /// Selects the nodes that this host manages.
    pub selector: LabelSelector,
    pub settings: Settings,
}

/// The labels that the Node cache must keep for this controller, besides those that the providers want.
fn keep(selector: &LabelSelector) -> Keep {
    NodeScope::new(selector.clone()).keep()
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Controller(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    context: Context,
    scope: NodeScope,
    cluster: ClusterCidrs,
    events: Events,
    queue: WorkQueue<Subject>,
    claims: Mutex<Claims>,
    clouds: Vec<Cloud>,
    waiting: Waiting,
    shown: Shown,
    /// One permit for each read or write of a Node.
    nodes_at_once: Semaphore,
}

/// A provider, and its known routes.
#[derive(Debug)]
struct Cloud {
    provider: Arc<dyn Provider>,
    table: Mutex<Table>,
    /// The table is in doubt: something else changed a route. Triggers a new list.
    doubted: Notify,
}

impl Controller {
    /// A controller that does nothing until it runs.
    #[must_use]
    pub fn new(context: Context) -> Self {
        let clouds = context.providers.all().iter().map(|provider| Cloud::new(Arc::clone(provider)));
        Self(Arc::new(Shared {
            scope: NodeScope::new(context.selector.clone()),
            cluster: ClusterCidrs::new(context.cluster_cidrs.clone()),
            events: Events::new(context.recorder.clone()),
            queue: WorkQueue::new("Routes", BACKOFF, &context.queue_metrics),
            claims: Mutex::default(),
            clouds: clouds.collect(),
            waiting: Waiting::new(context.metrics.waiting.clone()),
            shown: Shown::default(),
            nodes_at_once: Semaphore::new(NODES_AT_ONCE),
            context,
        }))
    }

    /// Runs until cancelled. Cancelling aborts calls and writes in flight; nothing is written afterwards.
    pub async fn run(self, cancel: CancellationToken) -> anyhow::Result<()> {
        let shared = self.0;
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = shared.context.nodes.synced() => {}
        }
        shared.follow_nodes();
        let worked = queue::run(shared.queue.clone(), AT_ONCE, cancel.clone(), |subject| {
            let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
            async move { shared.reconcile(subject, &cancel).await }
        });
        let background = async {
            tokio::join!(
                join_all(shared.clouds.iter().map(|cloud| shared.sweep_for_ever(cloud))),
                join_all(shared.clouds.iter().map(|cloud| shared.follow_status(cloud))),
            )
        };
        let until_cancelled = async {
            tokio::select! {
                () = cancel.cancelled() => {}
                _ = background => {}
            }
        };
        tokio::join!(worked, until_cancelled);
        Ok(())
    }
}

impl Cloud {
    fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider, table: Mutex::default(), doubted: Notify::new() }
    }

    fn name(&self) -> &str {
        self.provider.name()
    }
}

impl Shared {
    async fn reconcile(&self, subject: Subject, cancel: &CancellationToken) -> Outcome {
        let look = async {
            match &subject {
                Subject::Node(name) => Box::pin(self.look_at_node(name, cancel)).await,
                Subject::Stray { provider, id } => self.look_at_stray(provider, id).await,
            }
        };
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => return Outcome::Done,
            outcome = look => outcome,
        };
        self.waiting.ended(&subject, &outcome, &self.queue);
        outcome
    }
}
