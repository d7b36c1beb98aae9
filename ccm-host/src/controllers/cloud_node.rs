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
mod attention;
mod decide;
mod explain;
mod labels;
mod metrics;
mod observe;
mod owned_labels;
mod provided_ip;
mod said;
mod settings;
#[cfg(test)]
mod tests;
mod triggers;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::join_all};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};
use tokio_util::sync::CancellationToken;

use crate::{
    cloud::{CloudMetrics, Provider, Providers},
    controllers::{Kept, Parts, Registration, Run, node_scope::NodeScope, taint},
    kube::{
        cache::Cache,
        events::Recorder,
        keep::{Keep, KeySet},
        metrics::QueueMetrics,
        node::Node,
        patch::Writer,
        queue::{self, Backoff, Outcome, WorkQueue},
    },
};
use attention::{Attention, Question};
use explain::Obstacles;
pub use metrics::CloudNodeMetrics;
use observe::Observed;
use said::Said;
pub use settings::Settings;

/// The component that Events are recorded under.
pub const COMPONENT: &str = "cloud-node-controller";

/// Maximum nodes observed at once: enough for a whole cluster, since waiting costs little.
const OBSERVED_AT_ONCE: usize = 8192;

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
    keep: |settings| Kept::of_nodes(keep(&settings.nodes)),
    served_by: |_| Some(|provider| provider.instances),
    start,
};

fn start(parts: &Parts, registry: &mut Registry) -> Option<Run> {
    let controller = Controller::new(Context {
        nodes: parts.nodes.clone(),
        writer: parts.writer(&REGISTRATION),
        providers: parts.providers.clone(),
        recorder: parts.events.recorder(COMPONENT),
        metrics: CloudNodeMetrics::register(registry),
        cloud_metrics: parts.cloud_metrics.clone(),
        queue_metrics: parts.metrics.queue.clone(),
        settings: parts.settings.nodes.clone(),
    });
    parts.views.explains(controller.explains());
    Some(Box::new(|stop| controller.run(stop).boxed()))
}

/// Everything the controller depends on.
#[derive(Debug, Clone)]
pub struct Context {
    /// All nodes; the cache keeps what [`REGISTRATION`] asks for.
    pub nodes: Cache<Node>,
    /// Patches nodes.
    pub writer: Writer,
    pub providers: Providers,
    pub recorder: Recorder,
    pub metrics: CloudNodeMetrics,
    /// Of the calls to providers; counts the changes that their watches missed and a sweep found.
    pub cloud_metrics: CloudMetrics,
    pub queue_metrics: QueueMetrics,
    pub settings: Settings,
}

/// The labels and annotations that the Node cache must keep for this controller.
pub(super) fn keep(settings: &Settings) -> Keep {
    let own = Keep {
        labels: KeySet::keys(labels::keys()),
        annotations: KeySet::keys([provided_ip::ANNOTATION, owned_labels::ANNOTATION]),
    };
    own.union(&NodeScope::new(settings.node_selector.clone()).keep())
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Controller(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    scope: NodeScope,
    queue: WorkQueue<String>,
    attention: Mutex<Attention>,
    said: Mutex<Said>,
    obstacles: Mutex<Obstacles>,
    /// [`OBSERVED_AT_ONCE`] in equal parts, by provider: one that hangs leaves the others their share.
    places: HashMap<String, Semaphore>,
    /// One permit for each node written for the first time.
    initialising: Semaphore,
    /// One permit for each node written later.
    refreshing: Semaphore,
    context: Context,
}

impl Controller {
    /// A controller that does nothing until it runs.
    #[must_use]
    pub fn new(context: Context) -> Self {
        let providers = context.providers.all();
        let part = OBSERVED_AT_ONCE / providers.len().max(1);
        let place = |provider: &Arc<dyn Provider>| (provider.name().to_owned(), Semaphore::new(part));
        Self(Arc::new(Shared {
            places: providers.iter().map(place).collect(),
            scope: NodeScope::new(context.settings.node_selector.clone()),
            queue: WorkQueue::new("Nodes", BACKOFF, &context.queue_metrics),
            attention: Mutex::default(),
            said: Mutex::default(),
            obstacles: Mutex::default(),
            initialising: Semaphore::new(context.settings.concurrent_node_syncs),
            refreshing: Semaphore::new(context.settings.status_workers()),
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
        let providers = shared.context.providers.clone();
        let told = providers.all().iter().map(|provider| shared.follow_provider(provider, &cancel));
        let worked = queue::run(shared.queue.clone(), OBSERVED_AT_ONCE, cancel.clone(), |name| {
            let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
            async move { shared.reconcile(name, &cancel).await }
        });
        tokio::join!(join_all(told), worked);
        Ok(())
    }
}

impl Shared {
    async fn reconcile(&self, name: String, cancel: &CancellationToken) -> Outcome {
        let Some(node) = self.ours(&name) else {
            self.forget(&name);
            return Outcome::Done;
        };
        let Ok(_place) = self.place(&node) else { return Outcome::RetryAfter(NEXT_TURN) };
        let question = self.attention.lock().question(&node);
        let answer = match question {
            Question::Wait => return Outcome::Done,
            Question::Labels => None,
            Question::Ask(freshness) => match self.observe(&node, freshness, cancel).await {
                Observed::Answer(answer) => Some(answer),
                Observed::Nothing(outcome) => return outcome,
            },
        };
        // Beyond this point only as many nodes continue as may write; those that wait hold no further resources.
        let permits = if is_new(&node) { &self.initialising } else { &self.refreshing };
        let Ok(_permit) = permits.acquire().await else { return Outcome::Done };
        Box::pin(self.settle(&node, answer.as_deref(), cancel)).await
    }

    /// A place among the provider's nodes that are observed at once; a node without a provider needs none.
    fn place(&self, node: &Node) -> Result<Option<SemaphorePermit<'_>>, TryAcquireError> {
        let places = self.owner_of(node).and_then(|owner| self.places.get(owner.name()));
        places.map(Semaphore::try_acquire).transpose()
    }

    /// The node, if it exists and is managed by this host.
    fn ours(&self, name: &str) -> Option<Arc<Node>> {
        self.context.nodes.get(name).filter(|node| self.is_ours(node))
    }

    fn is_ours(&self, node: &Node) -> bool {
        !node.is_deleting() && self.scope.contains(node)
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
