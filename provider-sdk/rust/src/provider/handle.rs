//! The life of a served provider: whether it accepts work, whether it is stopping, and which mutations still
//! run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::Metrics;

/// Whether a service accepts work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serving {
    Yes,
    No,
}

/// Shared between the handle, the server and every RPC.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// Fires when the provider begins to stop: no new work, streams end.
    pub(crate) stop: CancellationToken,
    /// Fires when the time for a graceful stop is over: mutations are abandoned.
    pub(crate) give_up: CancellationToken,
    /// Fires when nobody needs the server any more, at the latest with `give_up`: it accepts no connection, and
    /// those without a call end.
    pub(crate) leave: CancellationToken,
    /// Fires when every connection must be closed.
    pub(crate) cut: CancellationToken,
    /// Running mutations.
    pub(crate) mutations: TaskTracker,
    /// The leaders' terms, each until it ends.
    pub(crate) terms: TaskTracker,
    health: BTreeMap<String, watch::Sender<Serving>>,
    /// The provider's own statement, by service; a stop of the process overrides it.
    wanted: Mutex<BTreeMap<String, bool>>,
}

impl Lifecycle {
    pub(crate) fn new(services: &[&'static str]) -> Self {
        let names = std::iter::once("").chain(services.iter().copied()).map(str::to_owned);
        let health: BTreeMap<_, _> = names.map(|name| (name, watch::Sender::new(Serving::Yes))).collect();
        let give_up = CancellationToken::new();
        Self {
            stop: CancellationToken::new(),
            leave: give_up.child_token(),
            give_up,
            cut: CancellationToken::new(),
            mutations: TaskTracker::new(),
            terms: TaskTracker::new(),
            wanted: Mutex::new(health.keys().map(|name| (name.clone(), true)).collect()),
            health,
        }
    }

    /// The health of a service ("" for the provider as a whole); `None` if it is not served.
    pub(crate) fn health(&self, service: &str) -> Option<watch::Receiver<Serving>> {
        self.health.get(service).map(watch::Sender::subscribe)
    }

    /// Begins to stop: health first, so that callers learn of it before their streams end.
    pub(crate) fn begin_stop(&self) {
        let wanted = self.wanted.lock();
        for sender in self.health.values() {
            sender.send_replace(Serving::No);
        }
        drop(wanted);
        self.stop.cancel();
    }

    fn set(&self, service: Option<&str>, serving: bool) -> bool {
        let mut wanted = self.wanted.lock();
        let mut found = false;
        for (name, state) in wanted.iter_mut() {
            if service.is_none_or(|service| service == name) {
                *state = serving;
                found = true;
            }
        }
        if !self.stop.is_cancelled() {
            for (name, sender) in &self.health {
                let accepts = wanted.get(name).copied().unwrap_or_default();
                let now = if accepts { Serving::Yes } else { Serving::No };
                sender.send_if_modified(|before| std::mem::replace(before, now) != now);
            }
        }
        found
    }
}

/// Controls the provider while it is served. Cheap to clone.
#[derive(Clone)]
pub struct ProviderHandle {
    lifecycle: Arc<Lifecycle>,
    metrics: Arc<Metrics>,
}

impl ProviderHandle {
    pub(super) fn new(lifecycle: Arc<Lifecycle>, metrics: Arc<Metrics>) -> Self {
        Self { lifecycle, metrics }
    }

    /// Sets whether the provider accepts work at all: the health of "" and of every service.
    ///
    /// A cloud that is down or rejects the credentials is a condition of `GetStatus`, not a reason to call
    /// this.
    pub fn set_serving(&self, serving: bool) {
        self.lifecycle.set(None, serving);
    }

    /// Sets whether one service accepts work, by its fully qualified name. Returns false if the service is
    /// not served.
    pub fn set_service_serving(&self, service: &str, serving: bool) -> bool {
        self.lifecycle.set(Some(service), serving)
    }

    /// Stops gracefully, like SIGTERM: health turns to not serving, streams end, running mutations finish, and
    /// leaders are heard to the end.
    pub fn stop(&self) {
        self.lifecycle.begin_stop();
    }

    /// Closes every connection at once without a response, like a kill. For tests of callers.
    pub fn cut_connections(&self) {
        self.lifecycle.cut.cancel();
    }

    /// All metrics as OpenMetrics text.
    ///
    /// # Errors
    /// If one of the provider's own metrics cannot be encoded.
    pub fn metrics_text(&self) -> Result<String, fmt::Error> {
        self.metrics.text()
    }
}

impl fmt::Debug for ProviderHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ProviderHandle").field("lifecycle", &self.lifecycle).finish_non_exhaustive()
    }
}
