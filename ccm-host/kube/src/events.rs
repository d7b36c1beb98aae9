//! Events: what people see in `kubectl describe`. They never hold up other work.
//!
//! In: calls of [`Recorder::record`], which never wait. Out: core/v1 Events, written one at a time by
//! [`EventWriter::run`] while no important write is in flight or about to come. Repeats become a count, floods of similar ones are
//! combined, and one object cannot fill the log: the same rules as client-go's. When the queue is full, or a namespace has
//! its share of it, the newest event is dropped and counted.

mod correlate;
#[cfg(test)]
mod tests;
mod write;

use std::{borrow::Cow, collections::VecDeque, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};

use super::{
    metrics::EventMetrics,
    node::Node,
    patch::WritePressure,
    persistent_volume::PersistentVolume,
    service::{ObjectKey, Service},
};
use ccm_base::text;
pub use write::EventWriter;

/// Maximum events waiting.
const CAPACITY: usize = 1000;

/// Maximum events waiting about the objects of one namespace: who may edit those leaves room for all others.
const SHARE: usize = CAPACITY / 4;

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regarding {
    pub api_version: &'static str,
    pub kind: &'static str,
    /// The namespace; `None` for a cluster-scoped object, whose events go to `default`.
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
}

impl Regarding {
    /// An object of the core group.
    pub fn core(kind: &'static str, namespace: Option<&str>, name: &str, uid: &str) -> Self {
        let namespace = namespace.map(str::to_owned);
        Self { api_version: "v1", kind, namespace, name: name.to_owned(), uid: uid.to_owned() }
    }

    pub fn node(name: &str, uid: &str) -> Self {
        Self::core("Node", None, name, uid)
    }

    /// A Service, which may no longer exist.
    pub fn service(key: &ObjectKey, uid: &str) -> Self {
        Self::core("Service", Some(&key.namespace), &key.name, uid)
    }
}

impl From<&PersistentVolume> for Regarding {
    fn from(volume: &PersistentVolume) -> Self {
        Self::core("PersistentVolume", None, &volume.name, &volume.uid)
    }
}

impl From<&Node> for Regarding {
    fn from(node: &Node) -> Self {
        Self::node(&node.name, &node.uid)
    }
}

impl From<&Service> for Regarding {
    fn from(service: &Service) -> Self {
        Self::service(&service.key, &service.uid)
    }
}

impl From<&Self> for Regarding {
    fn from(regarding: &Self) -> Self {
        regarding.clone()
    }
}

/// The severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Information.
    Normal,
    /// A problem.
    Warning,
}

impl EventType {
    /// The value of the `type` field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event that was recorded and waits to be written.
#[derive(Debug, Clone)]
struct Raised {
    component: &'static str,
    regarding: Regarding,
    type_: EventType,
    reason: Cow<'static, str>,
    message: String,
    at: Timestamp,
    since: Instant,
}

/// The queue of events of the process.
#[derive(Debug)]
pub struct Events {
    queue: Mutex<VecDeque<Raised>>,
    raised: Notify,
    /// Queued, or being written.
    pending: watch::Sender<usize>,
    /// Set while the queue is flushed: pressure is then ignored.
    flushing: watch::Sender<bool>,
    metrics: EventMetrics,
}

/// Records events of one component. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Recorder {
    component: &'static str,
    events: Arc<Events>,
}

impl Events {
    /// A queue, and the writer that empties it.
    pub fn new(client: Client, pressure: WritePressure, metrics: EventMetrics) -> (Arc<Self>, EventWriter) {
        let events = Self::detached(metrics);
        let writer = EventWriter::new(client, pressure, Arc::clone(&events));
        (events, writer)
    }

    /// A queue without a writer yet.
    pub(super) fn detached(metrics: EventMetrics) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            raised: Notify::new(),
            pending: watch::Sender::new(0),
            flushing: watch::Sender::new(false),
            metrics,
        })
    }

    /// A recorder for one component: a controller, by its name.
    pub fn recorder(self: &Arc<Self>, component: &'static str) -> Recorder {
        Recorder { component, events: Arc::clone(self) }
    }

    /// Waits, at most `limit`, until everything recorded so far is written. Returns whether it was.
    pub async fn flush(&self, limit: Duration) -> bool {
        self.flushing.send_replace(true);
        let mut pending = self.pending.subscribe();
        let done = timeout(limit, pending.wait_for(|pending| *pending == 0)).await;
        self.flushing.send_replace(false);
        matches!(done, Ok(Ok(_)))
    }

    /// Takes everything that waits, so that tests can check what was recorded.
    #[cfg(any(test, feature = "testing"))]
    pub fn take(&self) -> Vec<(EventType, &'static str, String)> {
        let taken = std::mem::take(&mut *self.queue.lock());
        self.pending.send_modify(|pending| *pending -= taken.len());
        let reason = |reason| match reason {
            Cow::Borrowed(reason) => reason,
            Cow::Owned(reason) => String::leak(reason),
        };
        taken.into_iter().map(|raised| (raised.type_, reason(raised.reason), raised.message)).collect()
    }

    fn push(&self, raised: Raised) {
        let mut queue = self.queue.lock();
        if queue.len() >= CAPACITY || (queue.len() >= SHARE && has_its_share(&queue, &raised)) {
            self.metrics.discard("overflow");
            return;
        }
        queue.push_back(raised);
        self.metrics.queued.inc();
        self.pending.send_modify(|pending| *pending += 1);
        drop(queue);
        self.raised.notify_one();
    }

    /// Takes the oldest event, which stays pending until the second value is dropped.
    fn pop(&self) -> Option<(Raised, Unsettled<'_>)> {
        let raised = self.queue.lock().pop_front()?;
        self.metrics.queued.dec();
        Some((raised, Unsettled(self)))
    }
}

impl Recorder {
    /// Queues an event. Never waits; drops the event if the queue is full, and cuts a message that is too long: tenants and
    /// providers choose some of its words.
    pub fn record(
        &self,
        regarding: impl Into<Regarding>,
        type_: EventType,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let raised = Raised {
            component: self.component,
            regarding: regarding.into(),
            type_,
            reason: reason.into(),
            message: text::cut(&message.into(), text::MESSAGE).into_owned(),
            at: ccm_base::clock::now(),
            since: Instant::now(),
        };
        self.events.push(raised);
    }
}

/// Whether as many of its like wait as may: those of its namespace, or the Normal ones about the cluster, of which
/// thousands of nodes that join raise one each.
fn has_its_share(queue: &VecDeque<Raised>, raised: &Raised) -> bool {
    let namespace = raised.regarding.namespace.as_deref();
    let is_normal = |one: &Raised| one.type_ == EventType::Normal;
    let most = match namespace {
        Some(_) => SHARE,
        None if is_normal(raised) => 3 * SHARE,
        None => return false,
    };
    let of_same = |one: &&Raised| {
        one.regarding.namespace.as_deref() == namespace && (namespace.is_some() || is_normal(one))
    };
    queue.iter().filter(of_same).count() >= most
}

/// A taken event that is neither written nor discarded yet.
struct Unsettled<'a>(&'a Events);

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        self.0.pending.send_modify(|pending| *pending = pending.saturating_sub(1));
    }
}
