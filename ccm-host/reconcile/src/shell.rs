//! What every controller is made of beside its decisions: the shell around observe, decide and act.
//!
//! In: the shared parts, and a [`Reconciler`] with its names and paces. Out: the future that runs it: it waits for its
//! caches, works its queue, and ends. Each pass over a key ends in its [`Reports`], which make Events, metrics, retries
//! and lines in `/state`.

use std::sync::Arc;

use futures::FutureExt as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{Rank, ReportCounts, Reports, Run, Settings, Slots, explain::Views, until_cancelled};
use ccm_cloud::{CloudMetrics, Provider, Providers};
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
    pub queue: WorkQueue<K>,
    pub reports: Reports<K>,
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
        shell.parts.views.explains(Arc::new(shell.reports.clone()));
        shell
    }

    /// The same of a controller that shows people its reports itself.
    pub fn silent<C: Reconciler<Key = K>>(parts: Parts) -> Self {
        let recorder = parts.events.recorder(C::COMPONENT);
        let queue = WorkQueue::new(C::QUEUE, C::BACKOFF, &parts.metrics.queue);
        let reports = Reports::new(C::NAME, recorder.clone(), queue.clone(), parts.reports.clone());
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
    pub events: Events,
    pub metrics: KubeMetrics,
    pub cloud_metrics: CloudMetrics,
    /// Counts what the controllers report.
    pub reports: ReportCounts,
    /// What the controllers say of themselves to people.
    pub views: Arc<Views>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use prometheus_client::registry::Registry;
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
