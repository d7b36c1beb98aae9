//! The process: its life, and what its parts see of it: settings, checks, metrics, and a place to run tasks.
//!
//! 1. signals are caught, so that nothing is ever cut off in the middle;
//! 2. health and metrics are served: `/livez` answers, `/readyz` says what the process waits for;
//! 3. the parts start, in the order that the caller's `start` lists;
//! 4. the process runs until it is asked to stop or a task fails;
//! 5. work is drained, then its support ends, then serving. A second signal ends all of that at once.
//!
//! In: [`Settings`] and the list of parts. Out: `Ok` for a clean end, otherwise the first failure.
//!
//! Tasks belong to one of two groups that end in turn: *work* (controllers and what feeds them) is asked to stop and
//! drained first; *support* (caches, event writer, connections) outlives it, so that the last results can still be
//! written. A task that ends before it is asked to ends the whole process.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{anyhow, bail};
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{
    flags::Settings,
    health::{CheckResult, Checks, Probe},
    metrics::Metrics,
    serving::{self, Serving, access::Access, pages::Door},
};
use ccm_reconcile::Registration;

/// The check of `/readyz` that says what the start still waits for.
pub const STARTUP: &str = "startup";

/// Time for the controllers to finish their current keys. With [`FLUSH`] and [`LAST_ANSWERS`] it stays below a pod's
/// default of 30 seconds.
const DRAIN: Duration = Duration::from_secs(25);

/// Time for events and connections after that.
const FLUSH: Duration = Duration::from_secs(3);

/// Time for scrapes still being answered.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Process {
    pub(crate) settings: Arc<Settings>,
    pub(crate) checks: Checks,
    pub metrics: Metrics,
    /// What the check [`STARTUP`] says.
    startup: Arc<Mutex<CheckResult>>,
    work: Group,
    support: Group,
    serving: Group,
    access: OnceLock<Arc<Access>>,
    /// Where the state of the host is shown.
    pub(crate) state: Door,
    failures: mpsc::UnboundedSender<anyhow::Error>,
}

/// The first failure ends the process.
type Failures = mpsc::UnboundedReceiver<anyhow::Error>;

/// Tasks that stop together.
#[derive(Clone, Debug, Default)]
struct Group {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Process {
    fn new(settings: Settings) -> (Self, Failures) {
        let checks = Checks::default();
        checks.add(Probe::Live, "ping", || Ok(()));
        let startup = Arc::new(Mutex::new(Err("starting".to_owned())));
        let asked = Arc::clone(&startup);
        checks.add(Probe::Ready, STARTUP, move || asked.lock().clone());
        let (failures, received) = mpsc::unbounded_channel();
        let process = Self {
            settings: Arc::new(settings),
            checks,
            metrics: Metrics::default(),
            startup,
            work: Group::default(),
            support: Group::default(),
            serving: Group::default(),
            access: OnceLock::new(),
            state: Door::default(),
            failures,
        };
        (process, received)
    }

    /// Reports in `/readyz` and in the log what the start is waiting for.
    pub fn waiting_for(&self, what: &str) {
        tracing::info!(what, "waiting");
        *self.startup.lock() = Err(format!("waiting for {what}"));
    }

    /// Starts a controller once it is `due`: from then on it appears in `running_managed_controllers` and, by name, in
    /// `/livez` and `/readyz`, where it may install a check of its own. `run` returns once its token is cancelled and
    /// its last key is done.
    pub fn spawn_controller<F>(
        &self,
        controller: &'static Registration,
        due: impl Future<Output = ()> + Send + 'static,
        run: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let (checks, metrics) = (self.checks.clone(), self.metrics.clone());
        let stop = self.work.stop.child_token();
        let future = run(stop.clone());
        self.spawn(&self.work, controller.name, async move {
            tokio::select! {
                // Polled first, so that controllers due at once start in the order of the calls.
                biased;
                () = due => {}
                () = stop.cancelled() => return Ok(()),
            }
            for probe in [Probe::Live, Probe::Ready] {
                if checks.ask(probe, controller.name).is_none() {
                    checks.add(probe, controller.name, || Ok(()));
                }
            }
            let _running = metrics.running(controller);
            future.await
        });
    }

    /// Starts a task that the controllers need until they end. It returns once its token is cancelled and its remaining
    /// data is written.
    pub fn spawn_support<F>(&self, name: &'static str, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.spawn(&self.support, name, run(self.support.stop.child_token()));
    }

    /// A token that is cancelled once the controllers are done: for everything they need until they end.
    pub fn connections(&self) -> CancellationToken {
        self.support.stop.child_token()
    }

    /// Binds the port, if one is configured, and serves from now on.
    async fn serve(&self) -> anyhow::Result<()> {
        let Some(serving) = Serving::bind(&self.settings.serving).await? else {
            tracing::info!("health and metrics are not served");
            return Ok(());
        };
        tracing::info!(address = %serving.address(), "serving health and metrics");
        let access = Access::new(&self.settings.serving.access, &self.metrics)?;
        let access = self.access.get_or_init(|| access).clone();
        let (checks, metrics) = (self.checks.clone(), self.metrics.clone());
        let router = serving::router(checks, metrics, &self.settings, self.state.clone(), access);
        let answers = serving.serve(router, self.serving.stop.child_token());
        self.spawn(&self.serving, "serving", answers);
        Ok(())
    }

    /// The access rules of the serving port; `None` if nothing is served.
    pub fn access(&self) -> Option<&Arc<Access>> {
        self.access.get()
    }

    /// Marks the process as ready to take over from the leader.
    pub fn standing_by(&self) {
        tracing::info!("standing by until it leads");
        *self.startup.lock() = Ok(());
    }

    /// Marks every part as started.
    fn started(&self) {
        tracing::info!("started");
        *self.startup.lock() = Ok(());
    }

    /// Ends the groups in order, each within its time limit.
    async fn shut_down(&self) {
        *self.startup.lock() = Err("shutting down".to_owned());
        self.work.end("controllers", DRAIN).await;
        self.support.end("support", FLUSH).await;
        self.serving.end("serving", LAST_ANSWERS).await;
    }

    fn spawn(
        &self,
        group: &Group,
        name: &'static str,
        future: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let failures = self.failures.clone();
        let stop = group.stop.clone();
        group.tasks.spawn(async move {
            let error = match AssertUnwindSafe(future).catch_unwind().await {
                Ok(Ok(())) if stop.is_cancelled() => return,
                Ok(Ok(())) => anyhow!("{name} ended unexpectedly"),
                Ok(Err(error)) => error.context(format!("{name} failed")),
                Err(_) => anyhow!("{name} panicked"),
            };
            if let Err(unheard) = failures.send(error) {
                tracing::error!(error = format!("{:#}", unheard.0), "failed while the process was ending");
            }
        });
    }
}

impl Group {
    async fn end(&self, what: &str, limit: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "{what} did not end within {limit:?}");
        }
    }
}

/// Runs the process to its end.
///
/// `start` starts the parts in turn, announces each with [`Process::waiting_for`], and returns when all run; a signal
/// or a failing task ends it early.
pub async fn run(
    settings: Settings,
    start: impl AsyncFnOnce(&Process) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Caught from now on, they no longer end the process by themselves.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async || {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    until(settings, start, stop).await
}

/// Like [`run`], with other reasons to stop: `stop` names the first, and its next return ends the draining.
///
/// # Errors
/// As [`run`].
pub async fn until(
    settings: Settings,
    start: impl AsyncFnOnce(&Process) -> anyhow::Result<()>,
    stop: impl AsyncFnMut() -> &'static str,
) -> anyhow::Result<()> {
    let (process, failures) = Process::new(settings);
    process.serve().await?;
    supervise(&process, failures, start, stop).await
}

async fn supervise(
    process: &Process,
    mut failures: Failures,
    start: impl AsyncFnOnce(&Process) -> anyhow::Result<()>,
    mut signal: impl AsyncFnMut() -> &'static str,
) -> anyhow::Result<()> {
    let end = tokio::select! {
        error = keep_running(process, start) => Err(error),
        Some(error) = failures.recv() => Err(error),
        name = signal() => Ok(name),
    };
    let result = match end {
        Ok(name) => {
            tracing::info!(signal = name, "asked to stop, draining");
            Ok(())
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "ending because a part failed");
            Err(error)
        }
    };
    tokio::select! {
        () = process.shut_down() => result,
        name = signal() => bail!("{name} while draining: ending at once"),
    }
}

/// Starts the parts; returns only with the error if that fails.
async fn keep_running(
    process: &Process,
    start: impl AsyncFnOnce(&Process) -> anyhow::Result<()>,
) -> anyhow::Error {
    match start(process).await {
        Ok(()) => {
            process.started();
            std::future::pending().await
        }
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests;
