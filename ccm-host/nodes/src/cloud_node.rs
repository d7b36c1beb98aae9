//! Initialises new nodes with what only the cloud knows about them, and keeps it fresh.
//!
//! In: Nodes, and what their provider reports about their instances. Out: provider ID, addresses, labels, and the
//! removal of the `uninitialized` taint. [`crate::cloud_node_lifecycle`] decides when an instance is
//! gone.
//!
//! ```text
//!             ┌─► new nodes ───┐
//! triggers ───┤                ├──► observe: ask the provider ──► decide (pure) ──► act: addresses, then the rest
//!             └─► known nodes ─┘
//! ```
//!
//! There are two queues, so that no new node waits for a sweep of all known ones. Any number of nodes may be observed
//! at once, so that their questions share calls; only writes are limited. A write permit is taken after the answer, and
//! the decision is then made on the current node.

mod act;
mod addresses;
mod decide;
mod labels;
mod observe;
mod problem;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use ccm_state::{Explanation, Standing};
use futures::{FutureExt as _, future::join_all};
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::sync::Semaphore;

use ccm_base::{
    clock,
    metric::{Buckets, Declare, MetricLabels},
};
use ccm_cloud::{Freshness, NodeOwner, Provider};
use ccm_kube::{
    Node,
    keep::{Keep, KeySet},
    node::PROVIDED_NODE_IP,
    queue::{Backoff, Outcome},
};
use ccm_reconcile::{
    Kept, Parts, Reconciler, Registration, Report, Run, Shell,
    explain::{Explain, explanation},
    pace::NodePaces,
    taint,
};
use observe::Memory;

/// The controller, to the rest of the host.
pub const REGISTRATION: Registration = Registration {
    account: Some("node-controller"),
    by_default: true,
    keep: |settings| {
        let annotations = KeySet::keys([PROVIDED_NODE_IP, labels::OWNED_LABELS]);
        Kept::of_managed_nodes(settings, &Keep { labels: KeySet::keys(labels::keys()), annotations })
    },
    served_by: |_| Some(|provider| provider.instances),
    ..Registration::of::<Worker<true>>("cloud-node", start)
};

fn start(parts: Parts, registry: &mut Registry) -> Option<Run> {
    let controller = Arc::new(Controller::new(parts, registry));
    controller.parts.views.explains(Arc::<Controller>::clone(&controller));
    Some(run(controller))
}

/// Works both queues.
pub fn run(controller: Arc<Controller>) -> Run {
    let new = ccm_reconcile::run(Arc::new(Worker::<true>(Arc::clone(&controller))));
    let known = ccm_reconcile::run(Arc::new(Worker::<false>(controller)));
    Box::new(|cancel| async { tokio::join!(new(cancel.clone()), known(cancel)) }.map(drop).boxed())
}

#[derive(Debug)]
pub struct Controller {
    parts: Parts,
    metrics: CloudNodeMetrics,
    /// Nodes with the taint.
    new: Shell<String>,
    /// All others.
    known: Shell<String>,
    memory: Mutex<Memory>,
    /// How often a node's changes may have its cloud asked.
    paces: NodePaces,
}

impl Controller {
    pub fn new(parts: Parts, registry: &mut Registry) -> Self {
        let workers = parts.settings.nodes.status_workers();
        Self {
            metrics: CloudNodeMetrics::register(registry),
            new: Shell::silent::<Worker<true>>(parts.clone()),
            known: Shell {
                requests: Semaphore::new(workers),
                ..Shell::silent::<Worker<false>>(parts.clone())
            },
            memory: Mutex::default(),
            paces: NodePaces::default(),
            parts,
        }
    }

    fn lane(&self, node: &Node) -> &Shell<String> {
        if is_new(node) { &self.new } else { &self.known }
    }

    /// Works on a node from the queue of this lane.
    async fn work(&self, name: &str, lane: &Shell<String>) -> Outcome {
        let Some(node) = self.ours(name) else {
            self.forget(name);
            return Outcome::Done;
        };
        if !std::ptr::eq(self.lane(&node), lane) {
            lane.reports.clear(&name.to_owned());
            self.lane(&node).queue.add(name.to_owned());
            return Outcome::Done;
        }
        let outcome = self.look_at(&node, lane).await;
        match self.ours(name) {
            Some(now) if now.uid == node.uid => {}
            // What was found out is not about its successor, which may have been reported meanwhile.
            Some(now) => {
                self.forget(name);
                self.ask_again(&now, Freshness::NOW);
            }
            None => self.forget(name),
        }
        outcome
    }

    async fn look_at(&self, node: &Arc<Node>, lane: &Shell<String>) -> Outcome {
        let Some(asked) = self.memory.lock().question(node) else { return Outcome::Done };
        let answer = match asked {
            None => None,
            Some(freshness) => match self.observe(node, freshness).await {
                Ok(answer) => Some((answer, freshness)),
                Err(outcome) => return outcome,
            },
        };
        // Beyond this point only as many nodes continue as may write; those that wait hold no further resources.
        let Ok(_permit) = lane.requests.acquire().await else { return Outcome::Done };
        Box::pin(self.settle(node, answer.as_ref().map(|(answer, asked)| (&**answer, *asked)))).await
    }

    /// The node, if it exists and is managed by this host.
    fn ours(&self, name: &str) -> Option<Arc<Node>> {
        self.parts.nodes.get(name).filter(|node| self.parts.is_ours(node))
    }

    fn forget(&self, name: &str) {
        self.memory.lock().forget(name);
        self.paces.forget(name);
        for lane in [&self.new, &self.known] {
            lane.reports.clear(&name.to_owned());
        }
    }

    /// All that is to be said of the node now, by the lane that it is in from now on.
    fn report(&self, node: &Node, lane: &Shell<String>, reports: Vec<Report>) -> Outcome {
        let other = if std::ptr::eq(lane, &self.new) { &self.known } else { &self.new };
        other.reports.clear(&node.name);
        lane.reports.set(&node.name, Some(node.into()), reports)
    }
}

/// Works the queue of new nodes, or that of known ones.
#[derive(Debug)]
struct Worker<const NEW: bool>(Arc<Controller>);

impl<const NEW: bool> Reconciler for Worker<NEW> {
    type Key = String;
    const NAME: &'static str = "cloud-node-controller";
    const QUEUE: &'static str = if NEW { "Nodes" } else { "NodeRefreshes" };
    /// The maximum bounds the wait, however long a node fails.
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(120) };
    /// Enough for a whole cluster, since waiting costs little.
    const AT_ONCE: usize = 8192;

    fn shell(&self) -> &Shell<String> {
        if NEW { &self.0.new } else { &self.0.known }
    }

    async fn begin(self: &Arc<Self>) {
        let nodes = &self.0.parts.nodes;
        nodes.synced().await;
        if NEW {
            ccm_reconcile::follow(&self.0, nodes, Controller::node_changed);
        }
    }

    async fn background(&self) {
        if !NEW {
            let providers = self.0.parts.providers.all().iter();
            join_all(providers.map(|provider| self.0.follow_provider(provider))).await;
        }
    }

    fn provider_of(&self, name: &String) -> Option<Arc<dyn Provider>> {
        self.0.parts.provider_of_named(name)
    }

    async fn reconcile(&self, name: &String) -> Outcome {
        self.0.work(name, self.shell()).await
    }
}

fn is_new(node: &Node) -> bool {
    node.has_taint(taint::UNINITIALIZED)
}

/// Upstream's buckets, and two more: its last one ends at 17 minutes.
const DELAYS: Buckets = Buckets(&[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0]);

/// How long nodes wait, and why. The names of the first two are upstream's. Cheap to clone.
#[derive(Debug, Clone)]
struct CloudNodeMetrics {
    taint_removal: Histogram,
    initial_sync: Histogram,
    failures: Family<MetricLabels<2>, Counter>,
    unmatched: Gauge,
    contested: Gauge,
    reordered: Counter,
}

impl CloudNodeMetrics {
    fn register(registry: &mut Registry) -> Self {
        Self {
            taint_removal: registry.histogram(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "Seconds from the creation of a node to the removal of its uninitialized taint",
                DELAYS,
            ),
            initial_sync: registry.histogram(
                "node_controller_initial_node_sync_delay_seconds",
                "Seconds from the creation of a node to the end of its initialisation",
                DELAYS,
            ),
            failures: registry.metric(
                "node_controller_failures",
                "Failed attempts to initialise or refresh a node, by reason",
            ),
            unmatched: registry.metric(
                "node_controller_unmatched_nodes",
                "Nodes whose provider ID matches no provider of this host",
            ),
            contested: registry.metric(
                "node_controller_contested_nodes",
                "Nodes whose provider ID several providers of this host claim",
            ),
            reordered: registry.metric(
                "node_controller_reordered_addresses",
                "Answers with the addresses of an initialised node in a different order; the existing order is kept",
            ),
        }
    }

    /// Records that a node lost its taint.
    fn initialised(&self, node: &Node, now: Timestamp) {
        let Some(created) = node.created else { return };
        let delay = clock::between(created, now).as_secs_f64();
        // One write removes the taint and ends the initialisation; the addresses were written before.
        self.taint_removal.observe(delay);
        self.initial_sync.observe(delay);
    }

    /// Counts a failed attempt to initialise or refresh the node.
    fn failed(&self, node: &Node, reason: &'static str) {
        let stage = if is_new(node) { "initialise" } else { "refresh" };
        self.failures.get_or_create(&[("stage", stage), ("reason", reason)]).inc();
    }
}

impl Explain for Controller {
    fn explain(&self, node: &Node) -> Vec<Explanation> {
        let is_nobodys = matches!(self.parts.providers.for_node(node), NodeOwner::Nobody);
        if is_nobodys || !self.parts.is_ours(node) {
            return Vec::new();
        }
        let (lane, owner) = (self.lane(node), self.parts.provider_of(node));
        let provider =
            owner.as_ref().map_or("its provider".to_owned(), |owner| format!("provider {:?}", owner.name()));
        let own = self.parts.settings.nodes.node_status_update_frequency;
        let period = owner.as_ref().map_or(own, |owner| self.period(owner));
        let (standing, reason, why, next) = if is_new(node) {
            let next = format!(
                "the host asks {provider} again; once it describes the instance, the host writes provider ID, addresses \
                 and labels, and removes the uninitialized taint"
            );
            let why = "the node is new, and no provider has answered about it yet";
            (Standing::Waiting, "NotAskedYet", why, next)
        } else {
            let next = format!(
                "the host compares the node with what {provider} says every {period:?}, and when that changes"
            );
            (Standing::Settled, "Initialized", "the node is initialised", next)
        };
        let mut said = lane.reports.about(&node.uid);
        if said.is_empty() {
            said.push(Explanation {
                retries: lane.queue.retries(&node.name),
                last_attempt: self.memory.lock().answered_at(&node.name).map(clock::at),
                next_attempt: lane.queue.due(&node.name).map(clock::at),
                ..explanation(Worker::<true>::NAME, standing, reason, why, "")
            });
        }
        said.iter_mut().for_each(|said| said.next.clone_from(&next));
        said
    }

    fn reports(&self) -> Vec<ccm_state::Report> {
        [&self.new, &self.known].into_iter().flat_map(|lane| lane.reports.all()).collect()
    }
}
