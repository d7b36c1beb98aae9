//! One watch per kind for the whole process, and a read-only slim copy of what it saw.
//!
//! In: the apiserver's lists and watch events. Out: lookups and [`Change`]s. Every object is projected to a [`Slim`]
//! type before it is stored, and an update that touches nothing kept is not a change: heartbeats pass unnoticed. Lists
//! are replaced entry by entry, so a re-list never holds two copies of the map, and objects that vanished while the
//! watch was lost are reported as deleted when the list ends. An object that cannot be read is named in the log, counted,
//! and keeps its last known state.

mod follow;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod read;
mod store;
#[cfg(test)]
mod tests;

use std::{borrow::Borrow, collections::HashMap, fmt, hash::Hash, sync::Arc};

use kube::{Api, Client, Resource};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    keep::{Interner, Keep},
    metrics::{CacheMetrics, KindCacheMetrics},
};
use ccm_base::{outage::Outage, text};
use follow::Follower;
pub(crate) use read::Named;
use read::{Read, Unreadable};
use store::Store;

/// The start of an error that may quote an object.
const LONGEST_ERROR: usize = 200;

/// A slim object that a [`Cache`] can hold.
pub trait Slim: PartialEq + Send + Sync + Sized + 'static {
    /// Names an object of this kind.
    type Key: Clone + Eq + Hash + Ord + fmt::Display + fmt::Debug + Send + Sync;
    /// The kind as Kubernetes knows it.
    type Kind: Resource<DynamicType = ()>;
    /// The shape in which the object arrives.
    type Wire: DeserializeOwned + Send + 'static;
    /// The kind, for logs and metrics.
    const KIND: &'static str;
    /// A field selector: only objects that it selects are listed and watched.
    const FIELDS: Option<&'static str> = None;

    fn key(&self) -> Self::Key;
    /// The key of the object with this name; `namespace` is empty for a cluster-scoped one.
    fn key_of(namespace: &str, name: &str) -> Self::Key;
    /// `metadata.uid`
    fn uid(&self) -> &str;
    /// `metadata.resourceVersion`
    fn resource_version(&self) -> &str;
    fn resource_version_mut(&mut self) -> &mut String;
    /// The value of the second index, if the object has one: a node's provider ID, a request's node.
    fn index(&self) -> Option<&str> {
        None
    }
    /// The API and the name to read the object with.
    fn place(key: &Self::Key, client: &Client) -> (Api<Self::Kind>, String);
    /// Keeps the fields that are read and drops the rest.
    fn project(wire: Self::Wire, keep: &Keep, interner: &Interner) -> Self;
}

/// What a [`Slim`] with these two fields says of itself.
macro_rules! versioned {
    () => {
        fn uid(&self) -> &str {
            &self.uid
        }

        fn resource_version(&self) -> &str {
            &self.resource_version
        }

        fn resource_version_mut(&mut self) -> &mut String {
            &mut self.resource_version
        }
    };
}

/// The same, and what names it: one of no namespace.
macro_rules! cluster_scoped {
    () => {
        $crate::cache::versioned!();

        fn key(&self) -> String {
            self.name.clone()
        }

        fn key_of(_: &str, name: &str) -> String {
            name.to_owned()
        }

        fn place(name: &String, client: &::kube::Client) -> (::kube::Api<Self::Kind>, String) {
            (::kube::Api::all(client.clone()), name.clone())
        }
    };
}
pub(crate) use {cluster_scoped, versioned};

/// Maximum label and annotation keys for the sake of one provider, however often it asks for others: each new key costs a
/// new list.
const MOST_KEYS: usize = 4096;

/// A change of an object.
#[derive(Debug, Clone)]
pub enum Change<T> {
    /// Seen for the first time. An object that was replaced under its name is deleted and then added.
    Added(Arc<T>),
    /// Something kept differs.
    Updated {
        /// The state before.
        old: Arc<T>,
        /// The state now.
        new: Arc<T>,
    },
    /// Deleted, perhaps while the watch was lost. Holds the last known state.
    Deleted(Arc<T>),
}

impl<T> Change<T> {
    /// The object as last known.
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
    /// Read-locked while a change is stored and handed out, so that a late subscriber misses none.
    handlers: RwLock<Vec<Handler<T>>>,
    wanted: watch::Sender<WantedKeys>,
    listed: watch::Sender<Listed>,
    lost: Mutex<Outage>,
    interner: Interner,
    metrics: KindCacheMetrics,
}

/// What is to be listed, and which keys are to be kept of it.
#[derive(Clone)]
struct WantedKeys {
    /// How often a new list was asked for that everybody waits for.
    round: u64,
    keep: Arc<Keep>,
    /// What each provider has wished for so far.
    by: HashMap<String, Wishes>,
}

#[derive(Clone, Default)]
struct Wishes {
    keep: Keep,
    /// Whether the last ones were too many.
    is_full: bool,
}

/// The last complete list.
struct Listed {
    /// The round that it was for; 0 before the first list.
    round: u64,
    keep: Arc<Keep>,
}

impl<T: Slim> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Slim> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("kind", &T::KIND)
            .field("objects", &self.0.store.read().len())
            .finish_non_exhaustive()
    }
}

impl<T: Slim> Cache<T> {
    /// An empty cache. [`Cache::run`] fills it.
    pub fn new(keep: Keep, metrics: &CacheMetrics) -> Self {
        Self(Arc::new(Inner {
            store: RwLock::new(Store::default()),
            handlers: RwLock::default(),
            wanted: watch::Sender::new(WantedKeys { round: 1, by: HashMap::new(), keep: Arc::new(keep) }),
            listed: watch::Sender::new(Listed { round: 0, keep: Arc::default() }),
            lost: Mutex::default(),
            interner: Interner::default(),
            metrics: metrics.of_kind(T::KIND),
        }))
    }

    /// The object with this key.
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<T>>
    where
        T::Key: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.0.store.read().get(key)
    }

    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.0.store.read().list()
    }

    /// All objects with this value of the second index; see [`Slim::index`].
    pub fn by_index(&self, value: &str) -> Vec<Arc<T>> {
        self.0.store.read().by_index(value)
    }

    /// Whether a complete list was seen since one was asked for, with whatever keys.
    pub fn is_synced(&self) -> bool {
        self.0.listed.borrow().round >= self.0.wanted.borrow().round
    }

    /// Whether a complete list was seen with at least these keys.
    pub fn holds(&self, keep: &Keep) -> bool {
        self.is_synced() && self.0.listed.borrow().keep.covers(keep)
    }

    /// Returns once [`Cache::is_synced`].
    pub async fn synced(&self) {
        self.listed_until(|| self.is_synced()).await;
    }

    /// Keeps these keys for the sake of this provider, as [`Cache::set_keep`] does. Returns once it [`Cache::holds`] them,
    /// or as many as it keeps for one provider; and whether that had to be waited for.
    pub async fn kept(&self, provider: &str, keep: &Keep) -> bool {
        self.set_keep(provider, keep);
        let holds_all =
            || self.is_synced() && Arc::ptr_eq(&self.0.listed.borrow().keep, &self.0.wanted.borrow().keep);
        let is_enough = || self.holds(keep) || holds_all();
        if is_enough() {
            return false;
        }
        self.listed_until(is_enough).await;
        true
    }

    async fn listed_until(&self, is_enough: impl Fn() -> bool) {
        let mut listed = self.0.listed.subscribe();
        while !is_enough() {
            // The sender lives in self, so the channel cannot be closed here.
            if listed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Calls `handler` for every change, in order, from the watch's own task: it must neither block nor subscribe.
    /// Objects already known are first handed to it as added.
    pub fn subscribe(&self, handler: impl Fn(&Change<T>) + Send + Sync + 'static) {
        let mut handlers = self.0.handlers.write();
        for object in self.list() {
            handler(&Change::Added(object));
        }
        handlers.push(Box::new(handler));
    }

    /// The keys kept now.
    pub fn keep(&self) -> Arc<Keep> {
        Arc::clone(&self.0.wanted.borrow().keep)
    }

    /// Keeps these keys, too, for the sake of this provider. If that adds any, everything is listed again; nobody else
    /// waits for that list, and objects stay readable meanwhile.
    pub fn set_keep(&self, provider: &str, keep: &Keep) {
        self.0.wanted.send_if_modified(|wanted| {
            if wanted.keep.covers(keep) {
                return false;
            }
            let its = wanted.by.entry(provider.to_owned()).or_default();
            let wishes = its.keep.union(keep);
            if wishes.len() > MOST_KEYS {
                let (kind, keys) = (T::KIND, wishes.len());
                if !its.is_full {
                    tracing::error!(
                        provider,
                        kind,
                        keys,
                        "too many labels and annotations: no more are kept for it"
                    );
                }
                its.is_full = true;
                return false;
            }
            *its = Wishes { keep: wishes, is_full: false };
            wanted.keep = Arc::new(wanted.keep.union(keep));
            true
        });
    }

    /// Lists everything once more, and is not synced until that list is complete. For what depends on all objects: the
    /// cache of a standby may be older than its term.
    pub fn list_anew(&self) {
        self.0.wanted.send_modify(|wanted| wanted.round += 1);
    }

    /// Whether the cache is reliable: a complete list was seen, and the watch has not been lost for long.
    ///
    /// # Errors
    /// Why it is not, and since when, for people.
    pub fn health(&self) -> Result<(), String> {
        let lost = self.0.lost.lock();
        match (self.is_synced(), lost.why()) {
            (false, None) => Err("the list is not complete".to_owned()),
            (false, Some(why)) => Err(format!("the list is not complete: {why}")),
            (true, _) => lost.lasting().map_or(Ok(()), |lost| Err(format!("changes are not seen {lost}"))),
        }
    }

    /// Watches until cancelled. One call per cache.
    pub async fn run(&self, client: Client, cancel: CancellationToken) {
        let mut wanted = self.0.wanted.subscribe();
        loop {
            let now = wanted.borrow_and_update().clone();
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.outdated(&now) => tracing::debug!(kind = T::KIND, "listing anew"),
                never = Follower::new(self, &client, &now).run() => match never {},
            }
        }
    }

    /// Returns once a list of what was `wanted` is of no use any more. A provider may wish for more only between lists:
    /// however often it does, they come to their end.
    async fn outdated(&self, then: &WantedKeys) {
        let (mut wanted, mut listed) = (self.0.wanted.subscribe(), self.0.listed.subscribe());
        loop {
            let is_listed = Arc::ptr_eq(&listed.borrow_and_update().keep, &then.keep);
            let now = wanted.borrow_and_update().clone();
            let has_newcomer = now.by.len() > then.by.len();
            let has_grown = !Arc::ptr_eq(&now.keep, &then.keep) && (is_listed || has_newcomer);
            if now.round > then.round || has_grown {
                return;
            }
            // Both senders live in self, so no channel can be closed here.
            tokio::select! {
                _ = wanted.changed() => {}
                _ = listed.changed() => {}
            }
        }
    }

    fn begin_list(&self) {
        self.0.store.write().begin_list();
    }

    /// Returns the version of the object.
    fn put(&self, object: Read<T::Wire>, wanted: &WantedKeys) -> String {
        match object {
            Ok(wire) => {
                let object = T::project(wire, &wanted.keep, &self.0.interner);
                let version = object.resource_version().to_owned();
                self.change(|store| store.put(object));
                version
            }
            Err(unreadable) => {
                self.put_unreadable(&unreadable);
                unreadable.metadata.resource_version
            }
        }
    }

    fn put_unreadable(&self, Unreadable { metadata, why }: &Unreadable) {
        let mut is_new = false;
        self.change(|store| {
            let changed;
            (is_new, changed) =
                store.put_unreadable(&T::key_of(&metadata.namespace, &metadata.name), &metadata.uid);
            [changed, None]
        });
        if is_new {
            let (kind, why) = (T::KIND, why.to_string());
            let (namespace, name, error) =
                (&metadata.namespace, &metadata.name, &*text::cut(&why, LONGEST_ERROR));
            tracing::error!(
                kind,
                namespace,
                name,
                error,
                "an object cannot be read: its last known state stays"
            );
        }
    }

    /// Returns the version of the object.
    fn remove(&self, object: Read<T::Wire>, wanted: &WantedKeys) -> String {
        let (key, version, last) = match object {
            Ok(wire) => {
                let last = T::project(wire, &wanted.keep, &self.0.interner);
                (last.key(), last.resource_version().to_owned(), Some(last))
            }
            Err(Unreadable { metadata, .. }) => {
                (T::key_of(&metadata.namespace, &metadata.name), metadata.resource_version, None)
            }
        };
        self.change(|store| [store.remove(&key, last), None]);
        version
    }

    /// Objects that the list has not contained so far.
    fn missing(&self) -> Vec<Arc<T>> {
        self.0.store.read().missing()
    }

    /// Ends a complete list: objects that it did not contain are gone.
    fn end_list(&self, wanted: &WantedKeys) {
        self.change(|store| store.end_list().into_iter().map(Some));
        self.0.metrics.lists.inc();
        self.0.listed.send_replace(Listed { round: wanted.round, keep: Arc::clone(&wanted.keep) });
    }

    /// Stores a change, then hands it out.
    fn change<C>(&self, change: impl FnOnce(&mut Store<T>) -> C)
    where
        C: IntoIterator<Item = Option<Change<T>>>,
    {
        let handlers = self.0.handlers.read();
        let changes = change(&mut self.0.store.write());
        changes.into_iter().flatten().for_each(|change| handlers.iter().for_each(|handler| handler(&change)));
        let store = self.0.store.read();
        self.0.metrics.seen(store.len(), store.unreadable());
    }

    /// Notes that the watch is open.
    fn found(&self) {
        self.0.metrics.watching.set(1);
        if let Some(after) = self.0.lost.lock().ended() {
            tracing::info!(kind = T::KIND, ?after, "watching again");
        }
    }

    /// Notes that the watch is lost, and why.
    fn lost(&self, why: String) {
        self.0.metrics.errors.inc();
        self.0.metrics.watching.set(0);
        self.0.lost.lock().failed(why);
    }
}
