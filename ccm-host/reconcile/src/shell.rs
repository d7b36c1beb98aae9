//! What every controller is made of beside its decisions: the shell around observe, decide and act.
//!
//! In: the shared parts, and a [`Reconciler`] with its names and paces. Out: the future that runs it: it waits for its
//! caches, works its queue, and ends. Each pass over a key ends in its [`Reports`], which make Events, metrics, retries
//! and lines in `/state`.

use std::{fmt, sync::Arc};

use axum::Router;
use futures::FutureExt as _;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{Rank, ReportCounts, Reports, Run, Settings, Slots, explain::Views, until_cancelled};
use ccm_cloud::{CloudMetrics, Provider, ProviderInfo, Providers};
use ccm_kube::{
    Cache, CertificateRequest, Events, Keep, KubeMetrics, Node, Patch, PersistentVolume, Service, Slim,
    WriteError, Writer,
    events::Recorder,
    queue::{self, Backoff, Key, Outcome, WorkQueue},
};

/// A controller that works a queue.
pub trait Reconciler: Send + Sync + Sized + 'static {
    /// What it works on.
    type Key: Key;

    /// Its canonical name, under which it reports.
    const NAME: &'static str;

    /// The component that its Events are recorded under.
    const COMPONENT: &'static str = Self::NAME;

    /// The label of its queue in metrics.
    const QUEUE: &'static str;

    const BACKOFF: Backoff;

    /// Maximum keys looked at at once.
    const AT_ONCE: usize;

    fn shell(&self) -> &Shell<Self::Key>;

    /// Returns once the caches hold what it needs and feed its queue. A key is added when its object goes, too.
    fn begin(self: &Arc<Self>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// What runs beside the queue: sweeps, and what providers report.
    fn background(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The provider whose answer the key waits for. Each has an equal part of the places: one that hangs leaves the
    /// others theirs.
    fn provider_of(&self, _: &Self::Key) -> Option<Arc<dyn Provider>> {
        None
    }

    /// One pass over a key.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Outcome> + Send;
}

/// What a controller works with.
#[derive(Debug)]
pub struct Shell<K: Key> {
    pub parts: Parts,
    pub recorder: Recorder,
    pub queue: Arc<WorkQueue<K>>,
    pub reports: Arc<Reports<K>>,
    /// Places for calls of the providers.
    pub slots: Slots<K>,
    /// One permit for each object being read or written: the others must not stand before all other requests of the host.
    pub requests: Semaphore,
}

/// Runs the controller until cancelled. Cancelling aborts calls and writes in flight; nothing is written afterwards.
pub fn run<C: Reconciler>(controller: Arc<C>) -> Run {
    Box::new(|cancel| work(controller, cancel).boxed())
}

async fn work<C: Reconciler>(controller: Arc<C>, cancel: CancellationToken) {
    if until_cancelled(&cancel, controller.begin()).await.is_none() {
        return;
    }
    let Shell { queue, parts, .. } = controller.shell();
    let places = C::AT_ONCE / parts.providers.all().len().max(1);
    let reconciled = queue::run(queue.clone(), C::AT_ONCE, cancel.clone(), |key| {
        let (controller, cancel) = (Arc::clone(&controller), cancel.clone());
        async move {
            let slots = &controller.shell().slots;
            let _running = slots.run(&key);
            let provider = controller.provider_of(&key);
            let slot =
                provider.map(|provider| slots.take((provider.name(), "answer"), places, &key, Rank::First));
            if matches!(slot, Some(None)) {
                return Outcome::Parked;
            }
            until_cancelled(&cancel, controller.reconcile(&key)).await.unwrap_or(Outcome::Done)
        }
    });
    tokio::join!(reconciled, until_cancelled(&cancel, controller.background()));
}

impl<K: Key> Shell<K> {
    /// The shell of this controller, whose reports people see from now on.
    pub fn of<C: Reconciler<Key = K>>(parts: Parts) -> Self {
        let shell = Self::silent::<C>(parts);
        shell.parts.views.explains(Arc::<Reports<K>>::clone(&shell.reports));
        shell
    }

    /// The same of a controller that shows people its reports itself.
    pub fn silent<C: Reconciler<Key = K>>(parts: Parts) -> Self {
        let recorder = parts.events.recorder(C::COMPONENT);
        let queue = WorkQueue::new(C::QUEUE, C::BACKOFF, &parts.metrics.queue);
        let counts = parts.reports.clone();
        let reports = Arc::new(Reports::new(C::NAME, recorder.clone(), queue.clone(), counts));
        let requests = Semaphore::new(parts.settings.nodes.concurrent_node_syncs);
        Self { slots: Slots::new(queue.clone()), parts, recorder, queue, reports, requests }
    }

    /// Sends a patch once its turn has come.
    pub async fn patch<T: Slim>(&self, key: &T::Key, patch: &Patch) -> Result<(), WriteError> {
        let Ok(_permit) = self.requests.acquire().await else { return Err(WriteError::NotLeading) };
        self.parts.writer.patch::<T>(key, patch).await.map(drop)
    }

    /// The object as the API has it now, once its turn has come.
    pub async fn live<T: Slim>(&self, key: &T::Key, keep: &Keep) -> Result<Option<T>, WriteError> {
        let Ok(_permit) = self.requests.acquire().await else { return Err(WriteError::NotLeading) };
        self.parts.writer.get::<T>(key, keep).await
    }
}

/// What a controller works with. All share it but the writer.
#[derive(Debug, Clone)]
pub struct Parts {
    pub settings: Arc<Settings>,
    /// Keeps of each node what the controllers and the providers want.
    pub nodes: Cache<Node>,
    /// Empty unless a controller that reads Services is enabled.
    pub services: Cache<Service>,
    /// Empty unless a controller that reads them is enabled.
    pub certificate_requests: Cache<CertificateRequest>,
    /// Empty unless a controller that reads them is enabled.
    pub volumes: Cache<PersistentVolume>,
    /// Writes as this controller, and only while this process leads.
    pub writer: Writer,
    pub providers: Providers,
    pub events: Arc<Events>,
    pub metrics: KubeMetrics,
    pub cloud_metrics: CloudMetrics,
    /// Counts what the controllers report.
    pub reports: ReportCounts,
    /// What the controllers say of themselves to people.
    pub views: Arc<Views>,
}

impl Parts {
    /// Whether this host manages the node, and its deletion has not been requested.
    pub fn is_ours(&self, node: &Node) -> bool {
        !node.is_deleting() && self.settings.manages(node)
    }

    /// The node's provider. A node with several candidates counts for the first.
    pub fn provider_of(&self, node: &Node) -> Option<Arc<dyn Provider>> {
        self.providers.for_node(node).possible().into_iter().next()
    }

    /// The provider of the node that has this name, if there is one.
    pub fn provider_of_named(&self, node: &str) -> Option<Arc<dyn Provider>> {
        self.provider_of(self.nodes.get(node).as_deref()?)
    }

    /// Our nodes of this provider.
    pub fn nodes_of(&self, provider: &Arc<dyn Provider>) -> Vec<Arc<Node>> {
        let is_its =
            |node: &Node| self.provider_of(node).is_some_and(|owner| owner.name() == provider.name());
        self.nodes.list().into_iter().filter(|node| self.is_ours(node) && is_its(node)).collect()
    }
}

/// One controller.
pub struct Registration {
    /// The canonical name, in flags, logs and health checks.
    pub name: &'static str,
    /// Label `name` of `running_managed_controllers`, and an alias in `--controllers`.
    pub short_name: &'static str,
    /// A further name that `--controllers` accepts; upstream knows it only as an identity.
    pub alias: Option<&'static str>,
    /// The ServiceAccount in `kube-system` that it writes as with `--use-service-account-credentials`; `None`
    /// if it writes nothing.
    pub account: Option<&'static str>,
    /// Whether `*` in `--controllers` enables it.
    pub by_default: bool,
    /// What the caches must keep for it.
    pub keep: fn(&Settings) -> Kept,
    /// Tells whether a provider serves it; `None` if these settings need no provider.
    pub served_by: fn(&Settings) -> Option<Serves>,
    /// Makes the routes of its webhook, which every replica serves if `--webhooks` says so; `None` if it has none.
    pub admit: Option<fn(&Parts, &mut Registry) -> Router>,
    /// Makes the controller; `None` if these settings turn it off, which it logs.
    pub start: fn(Parts, &mut Registry) -> Option<Run>,
}

/// Whether a provider serves the controller.
pub type Serves = fn(&ProviderInfo) -> bool;

/// What a controller reads: labels and annotations, and further kinds.
#[derive(Debug, Default)]
pub struct Kept {
    pub nodes: Keep,
    /// `None` if it reads no Services.
    pub services: Option<Keep>,
    /// Whether it reads the requests of kubelets for serving certificates.
    pub certificate_requests: bool,
    /// Whether it reads PersistentVolumes.
    pub volumes: bool,
}

impl Kept {
    /// Of a controller that reads only the nodes that this host manages, and this of them.
    pub fn of_managed_nodes(settings: &Settings, nodes: &Keep) -> Self {
        Self { nodes: nodes.union(&settings.keep_of_managed_nodes()), ..Self::default() }
    }
}

impl Registration {
    /// The registration of this controller, to be completed with what differs. It runs only if it is named, writes under a
    /// ServiceAccount of its own name, and needs no provider.
    pub const fn of<C: Reconciler>(
        short_name: &'static str,
        start: fn(Parts, &mut Registry) -> Option<Run>,
    ) -> Self {
        Self {
            name: C::NAME,
            short_name,
            alias: None,
            account: Some(C::NAME),
            by_default: false,
            keep: |_| Kept::default(),
            served_by: |_| None,
            admit: None,
            start,
        }
    }

    /// Whether `--controllers` knows it under this name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.short_name == name || self.alias == Some(name)
    }
}

impl PartialEq for Registration {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Registration {}

impl fmt::Debug for Registration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::sleep;

    use super::*;
    use crate::{node_server::NodeServer, stage};
    use ccm_cloud::fake::FakeProvider;

    /// Each key waits a second for the provider that it begins with; then, the first one has a further key.
    struct Hurried {
        shell: Shell<String>,
        seen: Mutex<Vec<String>>,
    }

    impl Reconciler for Hurried {
        type Key = String;
        const NAME: &'static str = "hurried";
        const QUEUE: &'static str = "hurried";
        const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(1) };
        const AT_ONCE: usize = 2;

        fn shell(&self) -> &Shell<String> {
            &self.shell
        }

        fn provider_of(&self, key: &String) -> Option<Arc<dyn Provider>> {
            self.shell.parts.providers.by_name(&key[..1]).cloned()
        }

        async fn reconcile(&self, key: &String) -> Outcome {
            self.seen.lock().push(key.clone());
            sleep(Duration::from_secs(1)).await;
            if key.starts_with('a') {
                self.shell.queue.add(format!("a{}", self.seen.lock().len()));
            }
            Outcome::Done
        }
    }

    /// A provider that is slower than keys come.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_slow_provider_has_its_turn_and_others_do_not_wait() {
        let providers = ["a", "b"].map(|name| FakeProvider::new(name) as Arc<dyn Provider>).to_vec();
        let (server, settings) = (NodeServer::new([]), stage::settings());
        let (parts, _) = stage::parts(&[], server.writer(), providers, settings, &mut Registry::default());
        let controller = Arc::new(Hurried { shell: Shell::of::<Hurried>(parts), seen: Mutex::default() });
        ["a1", "a-old", "b1"].into_iter().for_each(|key| controller.shell.queue.add(key.to_owned()));
        let cancel = CancellationToken::new();
        let running = tokio::spawn(run(Arc::clone(&controller))(cancel.clone()));
        sleep(Duration::from_millis(3_500)).await;
        assert_eq!(*controller.seen.lock(), ["a1", "b1", "a-old", "a2", "a3"]);
        cancel.cancel();
        running.await.unwrap();
    }
}
