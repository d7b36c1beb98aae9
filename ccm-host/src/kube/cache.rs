//! One watch per kind for the whole process, and a read-only slim copy of what it saw.
//!
//! In comes the watch stream; out come lookups and [`Change`]s. Every object is projected to a [`Slim`]
//! type before it is stored, and a change that touches nothing kept is no change: heartbeats pass
//! unnoticed. Lists are replaced entry by entry, so a re-list never holds two copies of the map, and what
//! vanished while the watch was away is reported as deleted when the list ends.

mod store;
#[cfg(test)]
mod tests;

use std::{borrow::Borrow, fmt, hash::Hash, pin::pin, sync::Arc, time::Duration};

use ::kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use futures::{Stream, StreamExt};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    keep::Keep,
    metrics::{CacheMetrics, KindCacheMetrics},
    pairs::Interner,
};
use store::Store;

/// A streaming list that stays silent for so long is taken for one the server does not know.
const SILENT_LIST: Duration = Duration::from_secs(60);

/// A slim object that a [`Cache`] can hold.
pub trait Slim: Send + Sync + Sized + 'static {
    /// What names an object of this kind.
    type Key: Clone + Eq + Hash + Ord + fmt::Display + fmt::Debug + Send + Sync;
    /// The shape in which it arrives.
    type Wire: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + 'static;
    /// The kind, for logs and metrics.
    const KIND: &'static str;

    /// The object's name.
    fn key(&self) -> Self::Key;
    /// `metadata.uid`
    fn uid(&self) -> &str;
    /// `metadata.resourceVersion`
    fn resource_version(&self) -> &str;
    /// The value of the second index, if the object has one: a node's provider ID.
    fn index(&self) -> Option<&str>;
    /// Whether nothing but the resource version differs.
    fn same_but_version(&self, other: &Self) -> bool;
    /// Keeps what is read and drops the rest.
    fn project(wire: Self::Wire, keep: &Keep, interner: &Interner) -> Self;
}

/// What happened to an object.
#[derive(Debug, Clone)]
pub enum Change<T> {
    /// Seen for the first time. An object that was replaced under its name is deleted and then added.
    Added(Arc<T>),
    /// Something kept differs.
    Updated {
        /// As it was known before.
        old: Arc<T>,
        /// As it is now.
        new: Arc<T>,
    },
    /// Gone, perhaps while nobody was watching. Holds the last known state.
    Deleted(Arc<T>),
}

impl<T> Change<T> {
    /// The object, as last known.
    pub fn object(&self) -> &Arc<T> {
        match self {
            Self::Added(object) | Self::Deleted(object) | Self::Updated { new: object, .. } => object,
        }
    }
}

type Handler<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;

/// The cache of one kind. Cheap to clone; all clones are the same cache.
pub struct Cache<T: Slim>(Arc<Inner<T>>);

struct Inner<T: Slim> {
    store: RwLock<Store<T>>,
    /// Held for reading while a change is stored and handed out, so that a late subscriber misses none.
    handlers: RwLock<Vec<Handler<T>>>,
    wanted: watch::Sender<Wanted>,
    /// The generation of [`Wanted`] with which a whole list was seen; 0 before the first.
    listed: watch::Sender<u64>,
    interner: Interner,
    metrics: KindCacheMetrics,
}

/// What to keep, numbered: every growth starts a new list.
#[derive(Clone)]
struct Wanted {
    generation: u64,
    keep: Arc<Keep>,
}

impl<T: Slim> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Slim> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("kind", &T::KIND).field("objects", &self.len()).finish_non_exhaustive()
    }
}

impl<T: Slim> Cache<T> {
    /// An empty cache. It fills once [`Cache::run`] runs.
    #[must_use]
    pub fn new(keep: Keep, metrics: &CacheMetrics) -> Self {
        Self(Arc::new(Inner {
            store: RwLock::new(Store::default()),
            handlers: RwLock::default(),
            wanted: watch::Sender::new(Wanted { generation: 1, keep: Arc::new(keep) }),
            listed: watch::Sender::new(0),
            interner: Interner::default(),
            metrics: metrics.of_kind(T::KIND),
        }))
    }

    /// The object of that name.
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<T>>
    where
        T::Key: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.0.store.read().get(key)
    }

    /// All objects, in no order.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<T>> {
        self.0.store.read().list()
    }

    /// All objects with that value of the second index; see [`Slim::index`].
    #[must_use]
    pub fn by_index(&self, value: &str) -> Vec<Arc<T>> {
        self.0.store.read().by_index(value)
    }

    /// How many objects are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.store.read().len()
    }

    /// Whether no object is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a whole list was seen with everything that is wanted now.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.0.listed.borrow() >= self.0.wanted.borrow().generation
    }

    /// Whether a whole list was seen with at least these keys.
    #[must_use]
    pub fn holds(&self, keep: &Keep) -> bool {
        let wanted = self.0.wanted.borrow();
        *self.0.listed.borrow() >= wanted.generation && wanted.keep.covers(keep)
    }

    /// Returns once [`Cache::is_synced`].
    pub async fn synced(&self) {
        let mut listed = self.0.listed.subscribe();
        while !self.is_synced() {
            // The sender lives in self, so the channel cannot be closed here.
            if listed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Calls `handler` for every change, in order, from the watch's own task: it must not block, and not
    /// subscribe. What is already known is handed to it first, as added.
    pub fn subscribe(&self, handler: impl Fn(&Change<T>) + Send + Sync + 'static) {
        let mut handlers = self.0.handlers.write();
        for object in self.list() {
            handler(&Change::Added(object));
        }
        handlers.push(Box::new(handler));
    }

    /// What is kept now.
    #[must_use]
    pub fn keep(&self) -> Arc<Keep> {
        Arc::clone(&self.0.wanted.borrow().keep)
    }

    /// Keeps these keys too. If that is more than before, everything is listed anew and the cache counts as
    /// not synced until the list is whole; objects stay readable meanwhile.
    pub fn set_keep(&self, keep: &Keep) {
        self.0.wanted.send_if_modified(|wanted| {
            let union = wanted.keep.union(keep);
            let grew = union != *wanted.keep;
            if grew {
                *wanted = Wanted { generation: wanted.generation + 1, keep: Arc::new(union) };
            }
            grew
        });
    }

    /// Watches until cancelled. One call per cache.
    pub async fn run(&self, client: Client, cancel: CancellationToken) {
        let mut wanted = self.0.wanted.subscribe();
        let mut config = watcher::Config::default().streaming_lists();
        loop {
            let now = wanted.borrow_and_update().clone();
            let events = watcher(Api::<T::Wire>::all(client.clone()), config.clone()).default_backoff();
            tokio::select! {
                () = cancel.cancelled() => return,
                grown = wanted.changed() => {
                    if grown.is_err() {
                        return;
                    }
                    tracing::debug!(kind = T::KIND, "more keys are wanted, listing anew");
                }
                () = self.follow(&now, events) => {
                    tracing::info!(kind = T::KIND, "streaming lists are not available, listing by pages");
                    config = watcher::Config::default();
                }
            }
        }
    }

    /// Follows one watch. Returns only when the server does not know streaming lists.
    async fn follow(
        &self,
        wanted: &Wanted,
        events: impl Stream<Item = watcher::Result<Event<T::Wire>>> + Send,
    ) {
        let mut events = pin!(events);
        let mut whole = false;
        loop {
            let next =
                if whole { Ok(events.next().await) } else { timeout(SILENT_LIST, events.next()).await };
            match next {
                Ok(Some(Ok(event))) => {
                    whole |= matches!(event, Event::InitDone);
                    self.see(wanted, event);
                }
                Ok(Some(Err(error))) => {
                    self.0.metrics.errors.inc();
                    tracing::warn!(kind = T::KIND, error = %chain(&error), "watch failed, trying again");
                    if !whole && is_unknown_to_server(&error) {
                        return;
                    }
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn see(&self, wanted: &Wanted, event: Event<T::Wire>) {
        let handlers = self.0.handlers.read();
        let hand_out = |change: Change<T>| handlers.iter().for_each(|handler| handler(&change));
        let inner = &*self.0;
        match event {
            Event::Init => inner.store.write().begin_list(),
            Event::InitApply(wire) | Event::Apply(wire) => {
                let object = T::project(wire, &wanted.keep, &inner.interner);
                let changes = inner.store.write().put(object);
                changes.into_iter().flatten().for_each(hand_out);
            }
            Event::Delete(wire) => {
                let object = T::project(wire, &wanted.keep, &inner.interner);
                let change = inner.store.write().remove(object);
                change.into_iter().for_each(hand_out);
            }
            Event::InitDone => {
                let vanished = inner.store.write().end_list();
                vanished.into_iter().for_each(hand_out);
                inner.interner.prune();
                inner.metrics.lists.inc();
                inner.listed.send_replace(wanted.generation);
            }
        }
        inner.metrics.seen(self.len());
    }
}

/// Whether the server refused the request itself: it does not know streaming lists.
fn is_unknown_to_server(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(::kube::Error::Api(status)) if matches!(status.code, 400 | 422))
}

/// An error with everything beneath it on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Several layers of the client repeat their source in their own text.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
