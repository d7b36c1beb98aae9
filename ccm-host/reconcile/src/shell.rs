//! What every controller is made of beside its decisions: the shell around observe, decide and act.
//!
//! In: the shared parts, and a [`Controller`] with its names and paces. Out: the future that runs it. Each pass over a key
//! ends in its [`Reports`], which make Events, metrics, retries and lines in `/state`.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::{Reconciler, ReportCounts, Reports, Run, Settings, explain::Views, run};
use ccm_cloud::{CloudMetrics, Provider, Providers};
use ccm_kube::{
    Cache, CertificateRequest, Events, Keep, KubeMetrics, Node, Patch, PersistentVolume, Service, Slim,
    WriteError, Writer,
    events::Recorder,
    queue::{Backoff, Key, Outcome, WorkQueue},
};

/// A controller in this shell.
pub trait Controller: Send + Sync + Sized + 'static {
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

    /// Makes it; `None` if the settings turn it off, which it logs.
    fn new(shell: Shell<Self::Key>, registry: &mut Registry) -> Option<Self>;

    fn shell(&self) -> &Shell<Self::Key>;

    /// Returns once the caches hold what it needs and feed its queue. A key is added when its object goes, too.
    fn begin(self: &Arc<Self>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// What runs beside the queue: sweeps, and what providers report.
    fn background(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The provider whose answer the key waits for.
    fn provider_of(&self, _: &Self::Key) -> Option<Arc<dyn Provider>> {
        None
    }

    /// One pass over a key.
    fn look(&self, key: &Self::Key) -> impl Future<Output = Outcome> + Send;
}

/// What a controller works with.
#[derive(Debug)]
pub struct Shell<K: Key> {
    pub parts: Parts,
    pub recorder: Recorder,
    pub queue: WorkQueue<K>,
    pub reports: Reports<K>,
    /// One permit for each object being read or written: the others must not stand before all other requests of the host.
    requests: Semaphore,
}

/// The future that runs the controller; `None` if the settings turn it off.
pub fn start<C: Controller>(parts: Parts, registry: &mut Registry) -> Option<Run> {
    make::<C>(parts, registry).map(run)
}

/// The controller; `None` if the settings turn it off.
pub fn make<C: Controller>(parts: Parts, registry: &mut Registry) -> Option<Arc<C>> {
    let recorder = parts.events.recorder(C::COMPONENT);
    let queue = WorkQueue::new(C::QUEUE, C::BACKOFF, &parts.metrics.queue);
    let reports = Reports::new(C::NAME, recorder.clone(), queue.clone(), parts.reports.clone());
    parts.views.explains(Arc::new(reports.clone()));
    let requests = Semaphore::new(parts.settings.nodes.concurrent_node_syncs);
    C::new(Shell { parts, recorder, queue, reports, requests }, registry).map(Arc::new)
}

impl<K: Key> Shell<K> {
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

impl<C: Controller> Reconciler for C {
    type Key = C::Key;
    const AT_ONCE: usize = C::AT_ONCE;

    fn queue(&self) -> &WorkQueue<C::Key> {
        &self.shell().queue
    }

    fn begin(self: &Arc<Self>) -> impl Future<Output = ()> + Send {
        Controller::begin(self)
    }

    fn background(&self) -> impl Future<Output = ()> + Send {
        Controller::background(self)
    }

    fn providers(&self) -> &Providers {
        &self.shell().parts.providers
    }

    fn provider_of(&self, key: &C::Key) -> Option<Arc<dyn Provider>> {
        Controller::provider_of(self, key)
    }

    fn reconcile(&self, key: &C::Key) -> impl Future<Output = Outcome> + Send {
        self.look(key)
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
