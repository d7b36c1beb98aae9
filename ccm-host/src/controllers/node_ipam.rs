//! Gives each node its pod CIDRs, once.
//!
//! In: Nodes without podCIDRs, and the cluster CIDRs to divide or a provider that allots. Out: `spec.podCIDR` and
//! `spec.podCIDRs`. Existing podCIDRs are never changed; an invalid one that conflicts with nothing is reported and
//! otherwise ignored. [`crate::controllers::node_route`] makes the routes to pods.
//!
//! ```text
//! Node cache ──► observe: the ledger ──► queue ──► decide: which blocks, or what the provider says ──► act: one patch
//!                    ▲                                                                                      │
//!                    └──────────── what the node has now, or has for certain not ◄──────────────────────────┘
//! ```
//!
//! Nothing is assigned before every node of the synced cache is in the ledger.

mod act;
mod cidr_set;
mod decide;
mod explain;
mod ledger;
mod metrics;
mod observe;
mod pool;
mod problem;
pub mod settings;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use ipnet::IpNet;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    cloud::Providers,
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
use ledger::Ledger;
pub use metrics::IpamMetrics;
use problem::Problems;
use settings::Allocation;

/// The component that Events are recorded under.
pub const COMPONENT: &str = "cidrAllocator";

/// Maximum nodes observed at once, so that questions to a provider share calls; only writes are limited.
const OBSERVED_AT_ONCE: usize = 8192;

/// The maximum bounds the wait, however long a node fails.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(120) };

/// Runs only if it is named: upstream's manager has no node-ipam, published manifests say `--allocate-node-cidrs=true`
/// in clusters whose pod CIDRs come from kube-controller-manager, and two allocators would assign one block twice.
pub const REGISTRATION: Registration = Registration {
    name: "node-ipam-controller",
    short_name: "nodeipam",
    alias: None,
    account: Some("node-controller"),
    by_default: false,
    admit: None,
    keep: |settings| Kept::of_nodes(keep(&settings.nodes.node_selector)),
    served_by: |settings| match settings.cidrs.allocation {
        Some(Allocation::Cloud { .. }) => Some(|provider| provider.pod_cidrs),
        Some(Allocation::Ranges { .. }) | None => None,
    },
    start,
};

fn start(parts: &Parts, registry: &mut Registry) -> Option<Run> {
    let settings = &parts.settings;
    let Some(allocation) = settings.cidrs.allocation.clone() else {
        tracing::info!("nodes are given no pod CIDRs: --allocate-node-cidrs is false");
        return None;
    };
    let controller = Controller::new(Context {
        nodes: parts.nodes.clone(),
        writer: parts.writer(&REGISTRATION),
        providers: parts.providers.clone(),
        recorder: parts.events.recorder(COMPONENT),
        metrics: IpamMetrics::register(registry),
        queue_metrics: parts.metrics.queue.clone(),
        allocation,
        workers: settings.nodes.concurrent_node_syncs,
        selector: settings.nodes.node_selector.clone(),
    });
    parts.views.explains(controller.explains());
    Some(Box::new(|stop| controller.run(stop).boxed()))
}

/// Everything the controller depends on.
#[derive(Debug, Clone)]
pub struct Context {
    /// All nodes; the cache keeps what [`REGISTRATION`] asks for.
    pub nodes: Cache<Node>,
    /// Patches nodes and reads them live from the API.
    pub writer: Writer,
    /// Asked for pod CIDRs if the cloud allots them.
    pub providers: Providers,
    pub recorder: Recorder,
    pub metrics: IpamMetrics,
    pub queue_metrics: QueueMetrics,
    /// The source of pod CIDRs.
    pub allocation: Allocation,
    /// Maximum nodes written at once; at least one.
    pub workers: usize,
    /// Selects the nodes that this host may write.
    pub selector: LabelSelector,
}

/// The labels that the Node cache must keep for this controller.
fn keep(selector: &LabelSelector) -> Keep {
    NodeScope::new(selector.clone()).keep()
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Controller(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    scope: NodeScope,
    queue: WorkQueue<String>,
    source: Source,
    problems: Mutex<Problems>,
    /// One permit for each node being written.
    writing: Semaphore,
    context: Context,
}

/// The source of pod CIDRs.
#[derive(Debug)]
enum Source {
    Ranges(Mutex<Ledger>),
    /// With the cluster CIDRs: a node waits for all their families.
    Cloud {
        cluster: Vec<IpNet>,
    },
}

impl Controller {
    /// A controller that does nothing until it runs.
    #[must_use]
    pub fn new(context: Context) -> Self {
        let source = match &context.allocation {
            Allocation::Ranges { ranges, reserved } => {
                Source::Ranges(Mutex::new(Ledger::new(ranges, reserved, &context.metrics)))
            }
            Allocation::Cloud { cluster } => Source::Cloud { cluster: cluster.clone() },
        };
        Self(Arc::new(Shared {
            scope: NodeScope::new(context.selector.clone()),
            queue: WorkQueue::new("cidrallocator_node", BACKOFF, &context.queue_metrics),
            source,
            problems: Mutex::new(Problems::new(context.metrics.clone())),
            writing: Semaphore::new(context.workers),
            context,
        }))
    }

    /// Runs until cancelled. Cancelling aborts calls and writes in flight.
    pub async fn run(self, cancel: CancellationToken) -> anyhow::Result<()> {
        let shared = self.0;
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = shared.context.nodes.synced() => {}
        }
        shared.follow_nodes();
        queue::run(shared.queue.clone(), OBSERVED_AT_ONCE, cancel.clone(), |name| {
            let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
            async move { shared.reconcile(name, &cancel).await }
        })
        .await;
        Ok(())
    }
}

impl Shared {
    async fn reconcile(&self, name: String, cancel: &CancellationToken) -> Outcome {
        let node = self.context.nodes.get(&name).filter(|node| self.scope.contains(node));
        match node {
            Some(node) if decide::wants(&node) => Box::pin(self.settle(&node, cancel)).await,
            _ => Outcome::Done,
        }
    }
}
