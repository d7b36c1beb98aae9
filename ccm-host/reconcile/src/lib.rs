//! What all controllers share.
//!
//! * [`shell`] is what each is made of beside its decisions and what runs it, [`Registration`] what it declares at start-up, [`Parts`] what
//!   it works with, and [`settings`] has the flags of all.
//! * [`askable`], [`follow_status`], [`Sweeps`], [`at_each_sweep`] and [`resync`] pace the loops that follow a provider.
//! * [`Retry`] maps a provider's error to its retry, by the retry class that the contract assigns to its reason.
//! * [`Reports`] keeps what is wrong with objects, and makes its Event, log line, metric, retry and line in `/state`;
//!   [`explain`] answers what is asked about one object.
//! * [`unwritten`] maps a write that failed.
//! * [`Slots`] divides what providers are asked for at a time among keys.
//! * [`measured`] measures an operation at a provider, and [`pass_on`] records the Events that it attached to its answer.
//! * [`pace`] says how often what a Node says of itself may have the cloud asked.
//! * [`Settings::manages`] decides which nodes this host manages, [`node_instance`] asks the provider that owns one, and
//!   [`taint`] names the taints that several controllers read.
//!
//! Controllers decide what to do, and what is wrong.

mod compared;
pub mod explain;
pub mod node_instance;
#[cfg(any(test, feature = "testing"))]
pub mod node_server;
pub mod pace;
mod report;
pub mod settings;
pub mod shell;
mod slots;
#[cfg(any(test, feature = "testing"))]
pub mod stage;
pub mod taint;

use std::{fmt::Display, future::pending, sync::Arc, time::Duration};

use cloudprovider_proto::v1alpha1::RetryClass;
use futures::future::{BoxFuture, join_all};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use ccm_base::metric::{Buckets, Histograms, OfProvider, of_provider};
use ccm_cloud::{
    CloudError, ErrorReason, Family, InProgress, Listed, Provider, ProviderEvent, ProviderStatus,
};
use ccm_kube::{
    Slim,
    cache::{Cache, Change},
    events::{Recorder, Regarding},
    patch::WriteError,
    queue::Outcome,
};
pub use report::{Report, ReportCounts, Reports, report_counts};
pub use settings::Settings;
pub use shell::{Kept, Parts, Reconciler, Registration, Serves, Shell, run};
pub use slots::{Rank, Slot, Slots};

/// Runs a controller until the token is cancelled and its last key is done.
pub type Run = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// The result of `work`; `None` if it was cancelled, which drops it where it waits.
pub async fn until_cancelled<T>(cancel: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        // Polled first, so that work which is ready to continue cannot write after it is cancelled.
        biased;
        () = cancel.cancelled() => None,
        result = work => Some(result),
    }
}

/// Shows the controller every change in a cache, for as long as it exists. `see` must not block.
pub fn follow<C, T>(controller: &Arc<C>, cache: &Cache<T>, see: fn(&C, &Change<T>))
where
    C: Send + Sync + 'static,
    T: Slim,
{
    let controller = Arc::downgrade(controller);
    cache.subscribe(move |change| {
        if let Some(controller) = controller.upgrade() {
            see(&controller, change);
        }
    });
}

/// Maximum jitter as a share of the period, so that several providers or hosts do not list in step.
const JITTER: f64 = 0.1;

/// The pause until the next sweep: the period plus jitter.
pub fn resync(period: Duration) -> Duration {
    period.mul_f64(1.0 + JITTER * fastrand::f64())
}

/// Returns once the provider has introduced itself and can be asked.
pub async fn askable(provider: &dyn Provider) {
    let mut status = provider.status(Family::Instances);
    while provider.info().is_none() || status.borrow_and_update().is_away() {
        if status.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

/// The sweeps that a provider asks for: at each new connection, and after a gap in its reports. The first is due at once;
/// frequent ones are spaced out further and further, up to the ordinary period.
#[derive(Debug)]
pub struct Sweeps {
    asked: watch::Receiver<u64>,
    due: Option<Instant>,
    /// No sweep before this.
    earliest: Option<Instant>,
    distance: Duration,
}

/// Time between the first two of these sweeps.
const DISTANCE: Duration = Duration::from_secs(10);

impl Sweeps {
    /// Those that the provider asks for from now on.
    pub fn of(provider: &dyn Provider) -> Self {
        Self { asked: provider.sweeps(), due: None, earliest: None, distance: DISTANCE }
    }

    /// Asks for one on another's behalf.
    pub fn wish(&mut self) {
        let now = Instant::now();
        self.due.get_or_insert_with(|| self.earliest.map_or(now, |earliest| earliest.max(now)));
    }

    /// Counts a sweep that begins now, for whatever reason.
    pub fn made(&mut self, period: Duration) {
        let now = Instant::now();
        let is_wished = self.asked.has_changed().unwrap_or(false) || self.due.is_some();
        let is_calm = self.earliest.is_none_or(|earliest| now > earliest + self.distance);
        let longest = period.max(DISTANCE);
        self.distance = if is_wished && !is_calm { self.distance * 2 } else { DISTANCE }.min(longest);
        self.asked.mark_unchanged();
        self.due = None;
        self.earliest = Some(now + self.distance);
    }

    /// Returns when one is due; [`Sweeps::made`] counts it. Dropping the future loses nothing.
    pub async fn due(&mut self) {
        loop {
            if let Some(due) = self.due {
                return sleep_until(due).await;
            }
            if self.asked.changed().await.is_err() {
                // The provider lives as long as the process; nothing more will come.
                pending::<()>().await;
            }
            self.wish();
        }
    }
}

/// Calls `look` whenever all objects of one of the providers should be looked at. With a provider, it never ends.
pub async fn at_each_sweep(providers: &[Arc<dyn Provider>], period: Duration, look: impl Fn()) {
    let follow = async |provider: &Arc<dyn Provider>| {
        let mut sweeps = Sweeps::of(provider.as_ref());
        loop {
            sweeps.due().await;
            sweeps.made(period);
            look();
        }
    };
    join_all(providers.iter().map(follow)).await;
}

/// Calls `tell` with the previous and the current status of a family after each change, for as long as it is polled. Both
/// are the same if it changed and changed back in between.
pub async fn follow_status(
    provider: &dyn Provider,
    of: Family,
    mut tell: impl FnMut(&ProviderStatus, &ProviderStatus),
) {
    let mut status = provider.status(of);
    let mut before = status.borrow_and_update().clone();
    while status.changed().await.is_ok() {
        let now = status.borrow_and_update().clone();
        tell(&before, &now);
        before = now;
    }
    // The provider lives as long as the process; there is nothing left to follow.
    pending::<()>().await;
}

/// The minimum pause where an early retry cannot help.
pub const SLOW_RETRY: Duration = Duration::from_secs(300);

/// When to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// After the object's growing backoff.
    Backoff,
    /// After exactly this long; the backoff neither grows nor resets.
    After(Duration),
    /// When the object changes, or at the next sweep.
    Wait,
}

impl Retry {
    /// The retry that the contract prescribes for the error's reason.
    pub fn of(error: &CloudError) -> Self {
        match error.reason.map(ErrorReason::retry) {
            Some(RetryClass::Wait) => Self::Wait,
            Some(RetryClass::Slow) => Self::After(slow(error)),
            // The same message would be too large again.
            None if error.is_too_large() => Self::After(slow(error)),
            _ => error.retry_after.filter(|after| !after.is_zero()).map_or(Self::Backoff, Self::After),
        }
    }

    /// The same for an object that no sweep requeues: where only a change would help, retries slowly.
    pub fn without_sweep(error: &CloudError) -> Self {
        match Self::of(error) {
            Self::Wait => Self::After(slow(error)),
            retry => retry,
        }
    }

    /// The retry of a write that failed; `None` if the watch will show why, or this process must not write.
    pub fn of_write(error: &WriteError) -> Option<Self> {
        match error {
            WriteError::NotFound | WriteError::Gone | WriteError::NotLeading => None,
            WriteError::HeldBack(again) => Some(Self::After(*again)),
            WriteError::Conflict | WriteError::Invalid(_) | WriteError::Other(_) => Some(Self::Backoff),
        }
    }

    /// The outcome for the work queue.
    pub fn outcome(self, why: impl Display) -> Outcome {
        match self {
            Self::Backoff => Outcome::retry(why),
            Self::After(delay) => Outcome::RetryAfter(delay),
            Self::Wait => Outcome::Done,
        }
    }

    /// The delay, given the current backoff; `None` means until something changes.
    pub fn delay(self, backoff: Duration) -> Option<Duration> {
        match self {
            Self::Backoff => Some(backoff),
            Self::After(delay) => Some(delay),
            Self::Wait => None,
        }
    }
}

/// The outcome of a write that failed. What the watch will show needs no retry.
pub fn unwritten(error: WriteError) -> Outcome {
    Retry::of_write(&error).map_or(Outcome::Done, |retry| retry.outcome(anyhow::Error::from(error)))
}

fn slow(error: &CloudError) -> Duration {
    error.retry_after.unwrap_or_default().max(SLOW_RETRY)
}

/// How long operations at providers take, by how they ended.
pub type Operations = Histograms<OfProvider<2>>;

/// Buckets of [`Operations`]: from an answer served from memory to the longest deadline.
pub const OPERATION: Buckets =
    Buckets(&[0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0]);

/// Makes a call to a provider and measures it; `result` is that of a success, an error has its own label.
pub async fn measured<T>(
    operations: &Operations,
    provider: &dyn Provider,
    operation: &'static str,
    call: impl Future<Output = Result<T, CloudError>>,
    result: impl FnOnce(&T) -> &'static str,
) -> Result<T, CloudError> {
    let begun = Instant::now();
    let answer = call.await;
    let result = match &answer {
        Ok(answer) => result(answer),
        Err(error) => error.label(),
    };
    let labels = of_provider(provider.name(), [("operation", operation), ("result", result)]);
    operations.get_or_create(&labels).observe(begun.elapsed().as_secs_f64());
    answer
}

/// The result of an operation that a provider finished, or goes on with.
pub fn result(in_progress: &Option<InProgress>) -> &'static str {
    if in_progress.is_some() { "in_progress" } else { "ok" }
}

/// The result of a list.
pub fn listed<I>(list: &Listed<I>) -> &'static str {
    if list.complete { "ok" } else { "incomplete" }
}

/// Records the Events that a provider attached to its answer.
pub fn pass_on(recorder: &Recorder, object: impl Into<Regarding>, events: &[ProviderEvent]) {
    let object = object.into();
    for ProviderEvent { kind, reason, message } in events {
        recorder.record(&object, *kind, reason.clone(), message.as_str());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;
    use ccm_cloud::{
        ErrorReason as R,
        fake::{FakeProvider, error, method},
    };

    #[tokio::test(start_paused = true)]
    async fn an_operation_counts_by_how_it_ended() {
        let operations = Operations::new_with_constructor(OPERATION);
        let provider = FakeProvider::new("a");
        let refused = error(method::ENSURE_ROUTE, Some(R::QuotaExceeded));
        for answer in [Ok(()), Err(refused.clone())] {
            let call = async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                answer.clone()
            };
            let ended = measured(&operations, &*provider, "ensure", call, |()| "ok").await;
            assert_eq!(ended, answer);
        }
        let mut registry = Registry::default();
        registry.register("took", "How long", operations);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for result in ["ok", "QUOTA_EXCEEDED"] {
            let sum = format!("took_sum{{provider=\"a\",operation=\"ensure\",result=\"{result}\"}} 2.0");
            assert!(text.contains(&sum), "{sum} is not in\n{text}");
        }
    }

    /// The contract's table of retry classes.
    #[test]
    fn each_class_of_errors_has_its_pace() {
        let seconds = Duration::from_secs;
        let rows = [
            (Some(R::InstanceNotFound), None, Retry::Backoff, Retry::Backoff),
            (Some(R::CloudCredentialsInvalid), None, Retry::Backoff, Retry::Backoff),
            (Some(R::CloudPermissionDenied), None, Retry::Backoff, Retry::Backoff),
            (Some(R::QuotaExceeded), None, Retry::Backoff, Retry::Backoff),
            (Some(R::InvalidConfiguration), None, Retry::Backoff, Retry::Backoff),
            (Some(R::RouteTableFull), None, Retry::Backoff, Retry::Backoff),
            (Some(R::InstanceAmbiguous), None, Retry::After(SLOW_RETRY), Retry::After(SLOW_RETRY)),
            (Some(R::InstanceAmbiguous), Some(900), Retry::After(seconds(900)), Retry::After(seconds(900))),
            (Some(R::OwnedByOtherCluster), None, Retry::Wait, Retry::After(SLOW_RETRY)),
            (Some(R::OwnedByOtherCluster), Some(900), Retry::Wait, Retry::After(seconds(900))),
            (Some(R::MethodNotSupported), None, Retry::Wait, Retry::After(SLOW_RETRY)),
            (Some(R::RateLimited), Some(7), Retry::After(seconds(7)), Retry::After(seconds(7))),
            (Some(R::InternalError), None, Retry::Backoff, Retry::Backoff),
            (None, None, Retry::Backoff, Retry::Backoff),
        ];
        for (reason, wait, want, without_sweep) in rows {
            let error = CloudError { retry_after: wait.map(seconds), ..error(method::ENSURE_ROUTE, reason) };
            assert_eq!(Retry::of(&error), want, "{reason:?} {wait:?}");
            assert_eq!(Retry::without_sweep(&error), without_sweep, "{reason:?} {wait:?}");
        }
    }
}
