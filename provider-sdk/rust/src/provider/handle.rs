//! The life of a served provider: whether it accepts work, whether it is stopping, and which mutations still
//! run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::Metrics;

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
    /// Whether each service accepts work, as the provider says; a stop of the process overrides it.
    health: BTreeMap<String, watch::Sender<bool>>,
}

impl Lifecycle {
    pub(crate) fn new(services: &[&'static str]) -> Self {
        let names = std::iter::once("").chain(services.iter().copied()).map(str::to_owned);
        let give_up = CancellationToken::new();
        Self {
            stop: CancellationToken::new(),
            leave: give_up.child_token(),
            give_up,
            cut: CancellationToken::new(),
            mutations: TaskTracker::new(),
            terms: TaskTracker::new(),
            health: names.map(|name| (name, watch::Sender::new(true))).collect(),
        }
    }

    /// The health of a service ("" for the provider as a whole); `None` if it is not served.
    pub(crate) fn health(&self, service: &str) -> Option<watch::Receiver<bool>> {
        self.health.get(service).map(watch::Sender::subscribe)
    }

    fn set(&self, service: Option<&str>, serving: bool) -> bool {
        let named = |name: &str| service.is_none_or(|service| service == name);
        let mut found = false;
        for (_, sender) in self.health.iter().filter(|(name, _)| named(name)) {
            sender.send_if_modified(|before| std::mem::replace(before, serving) != serving);
            found = true;
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
        self.lifecycle.stop.cancel();
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
