//! The server: its options, its clients, its journal, its stops and starts.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::Client;
use parking_lot::{Mutex, RwLock};
use tokio::{sync::watch, time::Instant};

use crate::{
    asked::{Asked, Verb},
    faults::Faults,
    journal::Write,
    kind::{self, Kind},
    serve::Endpoint,
    store::{Event, Store},
    world::World,
};

/// The options of a server. The defaults suit most uses.
#[derive(Clone)]
pub struct Options {
    /// The time at which the server starts; from there it follows tokio's clock.
    pub start: Timestamp,
    /// A clock to use instead.
    pub clock: Option<Arc<dyn Fn() -> Timestamp + Send + Sync>>,
    /// For generated names, and for the length of watches that do not set it.
    pub seed: u64,
    /// How many changes of each kind are kept for watches that resume; older ones expire.
    pub history: usize,
    /// How many writes the journal keeps.
    pub journal: usize,
    /// Whether requests are kept for [`ApiServer::take_requests`].
    pub keep_requests: bool,
    /// Kinds in addition to the built-in ones.
    pub kinds: Vec<Kind>,
    /// The interval of bookmarks.
    pub bookmarks: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start: Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH),
            clock: None,
            seed: 0,
            history: 10_000,
            journal: 100_000,
            keep_requests: true,
            kinds: Vec::new(),
            bookmarks: Duration::from_secs(60),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("start", &self.start)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// What a restart keeps of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Watches resume where they were.
    Kept,
    /// Watches that are behind expire.
    Compacted,
}

/// The server. Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub struct ApiServer(pub(crate) Arc<Inner>);

type Hook = Arc<dyn Fn(&Write) + Send + Sync>;

pub(crate) struct Inner {
    pub(crate) store: Mutex<Store>,
    pub(crate) options: Options,
    born: Instant,
    pub(crate) all: Faults,
    clients: Mutex<BTreeMap<Arc<str>, Faults>>,
    hooks: RwLock<Vec<Hook>>,
    journal: Mutex<VecDeque<Arc<Write>>>,
    requests: Mutex<Vec<Asked>>,
    counts: Mutex<BTreeMap<(Arc<str>, String), u64>>,
    life: Mutex<Life>,
    pub(crate) random: Mutex<fastrand::Rng>,
    /// Signals changes of faults and of the server's life.
    pub(crate) switched: watch::Sender<()>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Life {
    /// Counts the lives of the server.
    number: u64,
    down_until: Option<Instant>,
    down: bool,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl ApiServer {
    /// A server with the namespaces `default`, `kube-system`, `kube-public` and `kube-node-lease`.
    pub fn new(options: Options) -> Self {
        let kinds = kind::builtin().into_iter().chain(options.kinds.iter().cloned().map(Arc::new));
        let switched = watch::Sender::new(());
        let server = Self(Arc::new(Inner {
            store: Mutex::new(Store::new(kinds, options.history)),
            born: Instant::now(),
            all: Faults::new(switched.clone()),
            clients: Mutex::default(),
            hooks: RwLock::default(),
            journal: Mutex::default(),
            requests: Mutex::default(),
            counts: Mutex::default(),
            life: Mutex::default(),
            random: Mutex::new(fastrand::Rng::with_seed(options.seed)),
            switched,
            options,
        }));
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            server.world().namespace(name);
        }
        server.take_journal();
        server
    }

    /// A client with this name. Call it within a tokio runtime.
    pub fn client(&self, name: &str) -> Client {
        Client::new(self.endpoint(name), "default")
    }

    /// The service that a client consists of, for callers that wrap it.
    pub fn endpoint(&self, name: &str) -> Endpoint {
        Endpoint::new(self.clone(), name, self.faults_of(name))
    }

    /// The faults that all clients have.
    pub fn faults(&self) -> Faults {
        self.0.all.clone()
    }

    /// The faults of one client.
    pub fn faults_of(&self, client: &str) -> Faults {
        let mut clients = self.0.clients.lock();
        clients.entry(client.into()).or_insert_with(|| Faults::new(self.0.switched.clone())).clone()
    }

    /// The objects themselves, bypassing HTTP and all faults.
    pub fn world(&self) -> World {
        World::new(self.clone())
    }

    /// The server's time.
    pub fn now(&self) -> Timestamp {
        match &self.0.options.clock {
            Some(clock) => clock(),
            None => self.0.options.start.checked_add(self.0.born.elapsed()).unwrap_or(Timestamp::MAX),
        }
    }

    /// The resource version of the last write.
    pub fn version(&self) -> u64 {
        self.0.store.lock().version
    }

    /// Calls `hook` after each write, when it is visible but not yet answered. It may read the world, and write.
    pub fn on_write(&self, hook: impl Fn(&Write) + Send + Sync + 'static) {
        self.0.hooks.write().push(Arc::new(hook));
    }

    /// The writes since the last call, as far as they were kept.
    pub fn take_journal(&self) -> Vec<Arc<Write>> {
        std::mem::take(&mut *self.0.journal.lock()).into()
    }

    /// The requests since the last call, unless [`Options::keep_requests`] is off.
    pub fn take_requests(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.0.requests.lock())
    }

    /// How many requests of each kind (`patch nodes/status`) a client has sent.
    pub fn counts(&self, client: &str) -> BTreeMap<String, u64> {
        let counts = self.0.counts.lock();
        counts
            .iter()
            .filter(|((who, _), _)| **who == *client)
            .map(|((_, what), n)| (what.clone(), *n))
            .collect()
    }

    /// Drops the history: resuming from it fails as expired.
    pub fn compact(&self) {
        self.0.store.lock().compact();
    }

    /// Stops: requests in flight get no answer, watches end, and connections are refused until [`ApiServer::start`].
    pub fn stop(&self) {
        let mut life = self.0.life.lock();
        life.number += 1;
        life.down = true;
        drop(life);
        self.0.switched.send_replace(());
    }

    /// Starts again after [`ApiServer::stop`].
    pub fn start(&self, history: History) {
        if history == History::Compacted {
            self.compact();
        }
        let mut life = self.0.life.lock();
        life.down = false;
        life.down_until = None;
    }

    /// Stops, and starts again after this long.
    pub fn restart(&self, after: Duration, history: History) {
        self.stop();
        self.start(history);
        self.0.life.lock().down_until = Some(Instant::now() + after);
    }

    /// The number of the current life; none while the server is down.
    pub(crate) fn life(&self) -> Option<u64> {
        let life = *self.0.life.lock();
        let down = life.down || life.down_until.is_some_and(|until| Instant::now() < until);
        (!down).then_some(life.number)
    }

    pub(crate) fn note(&self, asked: &Asked) {
        let mut counts = self.0.counts.lock();
        *counts.entry((Arc::clone(&asked.client), asked.word())).or_default() += 1;
        if self.0.options.keep_requests {
            self.0.requests.lock().push(asked.clone());
        }
    }

    /// Runs work on the store, then calls the hooks for its writes.
    pub(crate) fn work<R>(&self, by: &By<'_>, work: impl FnOnce(&mut Store) -> R) -> R {
        let (result, expired, written) = {
            let mut store = self.0.store.lock();
            store.expire();
            let expired = std::mem::take(&mut store.written);
            let result = work(&mut store);
            (result, expired, std::mem::take(&mut store.written))
        };
        let itself = By { client: &Arc::from("apiserver"), verb: Verb::Delete, subresource: "" };
        expired.iter().for_each(|event| self.tell(&itself, event));
        written.iter().for_each(|event| self.tell(by, event));
        result
    }

    fn tell(&self, by: &By<'_>, event: &Event) {
        let write = Arc::new(Write {
            at: self.now(),
            client: Arc::clone(by.client),
            verb: by.verb,
            subresource: by.subresource,
            resource: event.object.kind().plural(),
            key: event.object.key().clone(),
            uid: event.object.uid().to_owned(),
            version: event.version,
            before: event.before.clone(),
            after: (!event.gone).then(|| Arc::clone(&event.object)),
        });
        if self.0.options.journal > 0 {
            let mut journal = self.0.journal.lock();
            if journal.len() == self.0.options.journal {
                journal.pop_front();
            }
            journal.push_back(Arc::clone(&write));
        }
        let hooks = self.0.hooks.read().clone();
        hooks.iter().for_each(|hook| hook(&write));
    }
}

/// The writer, and how it writes.
#[derive(Debug)]
pub(crate) struct By<'a> {
    pub(crate) client: &'a Arc<str>,
    pub(crate) verb: Verb,
    pub(crate) subresource: &'static str,
}
