//! Initialises new nodes with what only the cloud knows about them, and keeps it fresh.
//!
//! In: Nodes, and what their provider reports about their instances. Out: provider ID, addresses, labels, and the
//! removal of the `uninitialized` taint. [`crate::controllers::cloud_node_lifecycle`] decides when an instance is
//! gone.
//!
//! ```text
//! triggers ──► queue ──► observe: ask the provider ──► decide (pure) ──► act: addresses, then the rest
//! ```
//!
//! Any number of nodes may be observed at once, so that their questions share calls; only writes are limited. A write
//! permit is taken after the answer, and the decision is then made on the current node.

mod act;
mod addresses;
mod decide;
mod explain;
mod labels;
mod metrics;
mod observe;
mod settings;
#[cfg(test)]
mod tests;
mod triggers;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

use crate::{
    cloud::Provider,
    controllers::{Kept, Parts, Registration, taint},
    kube::{
        events::Recorder,
        keep::{Keep, KeySet},
        node::Node,
        queue::{Backoff, Outcome, WorkQueue},
    },
    reconcile::{self, Reconciler, Run},
};
use act::Said;
use explain::Obstacles;
use metrics::CloudNodeMetrics;
use observe::{Attention, Question};
pub use settings::Settings;

/// The component that Events are recorded under.
const COMPONENT: &str = "cloud-node-controller";

/// Delay before a node retries when its provider has no place left for it.
const NEXT_TURN: Duration = Duration::from_secs(1);

/// The maximum bounds the wait, however long a node fails.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(120) };

/// The controller, to the rest of the host.
pub const REGISTRATION: Registration = Registration {
    name: "cloud-node-controller",
    short_name: "cloud-node",
    alias: None,
    account: Some("node-controller"),
    by_default: true,
    admit: None,
    keep: |settings| {
        let annotations = KeySet::keys([addresses::PROVIDED_NODE_IP, labels::OWNED_LABELS]);
        Kept::of_managed_nodes(settings, &Keep { labels: KeySet::keys(labels::keys()), annotations })
    },
    served_by: |_| Some(|provider| provider.instances),
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
    recorder: Recorder,
    metrics: CloudNodeMetrics,
    queue: WorkQueue<String>,
    attention: Mutex<Attention>,
    said: Mutex<Said>,
    obstacles: Mutex<Obstacles>,
    /// [`Controller::AT_ONCE`] in equal parts, by provider: one that hangs leaves the others their share.
    places: HashMap<String, Semaphore>,
    /// One permit for each node written for the first time.
    initialising: Semaphore,
    /// One permit for each node written later.
    refreshing: Semaphore,
}

impl Controller {
    pub(super) fn new(parts: Parts, registry: &mut Registry) -> Self {
        let providers = parts.providers.all();
        let part = Self::AT_ONCE / providers.len().max(1);
        let place = |provider: &Arc<dyn Provider>| (provider.name().to_owned(), Semaphore::new(part));
        let settings = &parts.settings.nodes;
        Self {
            recorder: parts.events.recorder(COMPONENT),
            metrics: CloudNodeMetrics::register(registry),
            queue: WorkQueue::new("Nodes", BACKOFF, &parts.metrics.queue),
            attention: Mutex::default(),
            said: Mutex::default(),
            obstacles: Mutex::default(),
            places: providers.iter().map(place).collect(),
            initialising: Semaphore::new(settings.concurrent_node_syncs),
            refreshing: Semaphore::new(settings.status_workers()),
            parts,
        }
    }
}

impl Reconciler for Controller {
    type Key = String;
    /// Enough for a whole cluster, since waiting costs little.
    const AT_ONCE: usize = 8192;

    fn queue(&self) -> &WorkQueue<String> {
        &self.queue
    }

    async fn begin(self: &Arc<Self>) {
        self.parts.nodes.synced().await;
        reconcile::follow(self, &self.parts.nodes, Self::node_changed);
    }

    async fn background(&self) {
        join_all(self.parts.providers.all().iter().map(|provider| self.follow_provider(provider))).await;
    }

    async fn reconcile(&self, name: &String) -> Outcome {
        let Some(node) = self.ours(name) else {
            self.forget(name);
            return Outcome::Done;
        };
        let Ok(_place) = self.place(&node) else { return Outcome::RetryAfter(NEXT_TURN) };
        let outcome = self.look_at(&node).await;
        if self.ours(name).is_none_or(|now| now.uid != node.uid) {
            // Gone meanwhile: what was found out is not about its successor.
            self.forget(name);
        }
        outcome
    }
}

impl Controller {
    async fn look_at(&self, node: &Arc<Node>) -> Outcome {
        let question = self.attention.lock().question(node);
        let answer = match question {
            Question::Wait => return Outcome::Done,
            Question::Labels => None,
            Question::Ask(freshness) => match self.observe(node, freshness).await {
                Ok(answer) => Some(answer),
                Err(outcome) => return outcome,
            },
        };
        // Beyond this point only as many nodes continue as may write; those that wait hold no further resources.
        let permits = if is_new(node) { &self.initialising } else { &self.refreshing };
        let Ok(_permit) = permits.acquire().await else { return Outcome::Done };
        Box::pin(self.settle(node, answer.as_deref())).await
    }

    /// A place among the provider's nodes that are observed at once; a node without a provider needs none.
    fn place(&self, node: &Node) -> Result<Option<SemaphorePermit<'_>>, TryAcquireError> {
        let places = self.parts.provider_of(node).and_then(|owner| self.places.get(owner.name()));
        places.map(Semaphore::try_acquire).transpose()
    }

    /// The node, if it exists and is managed by this host.
    fn ours(&self, name: &str) -> Option<Arc<Node>> {
        self.parts.nodes.get(name).filter(|node| self.parts.is_ours(node))
    }

    fn forget(&self, name: &str) {
        self.attention.lock().forget(name);
        self.said.lock().forget(name);
        self.obstacles.lock().clear(name);
    }
}

fn is_new(node: &Node) -> bool {
    node.has_taint(taint::UNINITIALIZED)
}
