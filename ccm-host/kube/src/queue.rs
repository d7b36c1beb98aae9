//! A keyed work queue with the guarantees of client-go's, and the loop that runs its keys.
//!
//! In: keys, from watch handlers and from the outcomes of earlier runs. Out: one run per key at a time. Duplicates
//! collapse; a key added while it runs is run again afterwards; failures back off per key. There is **one schedule per
//! key**: an ordinary add runs the key at once and replaces a pending delay (the failure count stays), and of several
//! delays the earliest counts. A run yet to start replaces every delay requested before it, since it sees the current
//! state and requests its own next run. The handler decides what a run does.

mod metrics;
mod schedule;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt::{Debug, Display},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    task::{Id, JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use ccm_base::trace;
pub use metrics::QueueMetrics;
use metrics::{InFlight, QueueSeries};
use schedule::{Next, Schedule};

/// The bounds of a queue's keys.
pub trait Key: Clone + Eq + Hash + Ord + Display + Debug + Send + Sync + 'static {}
impl<K: Clone + Eq + Hash + Ord + Display + Debug + Send + Sync + 'static> Key for K {}

/// Exponential backoff: `base`, doubled with each failure, at most `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub base: Duration,
    pub max: Duration,
}

impl Backoff {
    /// The delay after a failure that was preceded by `failures` others.
    pub fn delay(&self, failures: u32) -> Duration {
        2_u32
            .checked_pow(failures)
            .and_then(|factor| self.base.checked_mul(factor))
            .map_or(self.max, |d| d.min(self.max))
    }
}

/// A pause without up to half of it, so that not all who failed at once try again at once; `random` is in 0..1.
pub fn jittered(pause: Duration, random: f64) -> Duration {
    pause.mul_f64(1.0 - random.clamp(0.0, 1.0) / 2.0)
}

/// The queue.
#[derive(Debug)]
pub struct WorkQueue<K: Key> {
    name: &'static str,
    backoff: Backoff,
    schedule: Mutex<Schedule<K>>,
    /// Wakes one waiting [`WorkQueue::take`] for a new key, an earlier delay or the end.
    changed: Notify,
    series: QueueSeries,
}

impl<K: Key> WorkQueue<K> {
    /// An empty queue. `name` is the label of its metrics.
    pub fn new(name: &'static str, backoff: Backoff, metrics: &QueueMetrics) -> Arc<Self> {
        let queue = Arc::new(Self {
            name,
            backoff,
            schedule: Mutex::new(Schedule::default()),
            changed: Notify::new(),
            series: metrics.of_queue(name),
        });
        let in_flight: Arc<dyn InFlight> = Arc::<Self>::clone(&queue);
        metrics.watch(&in_flight);
        queue
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the key as soon as possible. Replaces a pending delay; keeps the failure count.
    pub fn add(&self, key: K) {
        if self.schedule.lock().add(key, Instant::now()) {
            self.series.adds.inc();
            self.changed.notify_one();
        }
    }

    /// Runs the key as soon as possible, unless it waits for a delay, which stays. Returns whether it runs.
    pub fn add_unless_delayed(&self, key: K) -> bool {
        let mut schedule = self.schedule.lock();
        let runs = !schedule.is_delayed(&key);
        if runs && schedule.add(key, Instant::now()) {
            self.series.adds.inc();
            self.changed.notify_one();
        }
        runs
    }

    /// Runs the key after a delay, unless it runs earlier for another reason.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let now = Instant::now();
        // A delay beyond the clock's range means never; a day is as good as any.
        let due = now.checked_add(delay).unwrap_or(now + Duration::from_secs(86_400));
        self.series.retries.inc();
        if self.schedule.lock().add_at(key, due) {
            self.changed.notify_one();
        }
    }

    /// Counts a failure and runs the key after its backoff, which is returned.
    pub fn add_rate_limited(&self, key: K) -> Duration {
        let failures = self.schedule.lock().fail(&key, Instant::now());
        let delay = self.backoff.delay(failures);
        self.add_after(key, delay);
        delay
    }

    /// Clears the key's failure count.
    pub fn forget(&self, key: &K) {
        self.schedule.lock().forget(key);
    }

    /// The number of failures since the key was last forgotten.
    pub fn retries(&self, key: &K) -> u32 {
        self.schedule.lock().failures(key)
    }

    /// How long ago the first of these failures was; zero without one.
    pub fn failing_for(&self, key: &K) -> Duration {
        self.schedule.lock().failing_since(key).map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The delay that another failure of the key would bring.
    pub fn backoff(&self, key: &K) -> Duration {
        self.backoff.delay(self.retries(key))
    }

    /// When the key runs next; `None` if only a change brings it back. In the past while it waits for a worker or runs.
    pub fn due(&self, key: &K) -> Option<Instant> {
        self.schedule.lock().due(key)
    }

    /// The number of keys that wait for a delay.
    pub fn delayed(&self) -> usize {
        self.schedule.lock().delayed(Instant::now())
    }

    /// Ignores further adds and drops delayed keys. Waiting keys are still handed out.
    fn shut_down(&self) {
        self.schedule.lock().shut_down();
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    /// The next key, which belongs to the caller until [`WorkQueue::done`], and the time that it has waited. `None` once
    /// the queue is shut down and drained. Dropping the future loses nothing.
    async fn take(&self) -> Option<(K, Duration)> {
        loop {
            let changed = self.changed.notified();
            let (promoted, next) = {
                let (now, mut schedule) = (Instant::now(), self.schedule.lock());
                (schedule.promote_due(now), schedule.next(now))
            };
            self.series.adds.inc_by(promoted);
            match next {
                Next::Run { key, waited, more } => {
                    if more {
                        self.changed.notify_one();
                    }
                    self.series.queue_duration.observe(waited.as_secs_f64());
                    return Some((key, waited));
                }
                Next::WaitUntil(due) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
                Next::Wait => changed.await,
                Next::End => {
                    self.changed.notify_one();
                    return None;
                }
            }
        }
    }

    /// Marks the run of a key from [`WorkQueue::take`] as ended.
    fn done(&self, key: &K) {
        let Some((ran, again)) = self.schedule.lock().done(key, Instant::now()) else { return };
        self.series.work_duration.observe(ran.as_secs_f64());
        if again {
            self.changed.notify_one();
        }
    }
}

impl<K: Key> InFlight for WorkQueue<K> {
    fn sample(&self) -> ccm_state::Queue {
        let now = Instant::now();
        let schedule = self.schedule.lock();
        let running =
            || schedule.running_since().map(|since| now.saturating_duration_since(since).as_secs_f64());
        ccm_state::Queue {
            name: self.name.to_owned(),
            depth: schedule.waiting(now),
            delayed: schedule.delayed(now),
            adds: self.series.adds.get(),
            retries: self.series.retries.get(),
            // Not sum(): the sum of nothing is minus zero.
            unfinished_seconds: running().fold(0.0, |sum, seconds| sum + seconds),
            longest_seconds: running().fold(0.0, f64::max),
        }
    }
}

/// The outcome of one run of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do. Clears the failure count.
    Done,
    /// Failed: retry after the key's backoff, which grows. Holds the reason, for the log.
    Retry(String),
    /// Retry after exactly this delay, which another party asked for. The failure count stays.
    RetryAfter(Duration),
    /// Waits for an event that requeues it. The failure count stays.
    Parked,
    /// Succeeded, and runs again after exactly this delay. Clears the failure count.
    Slow(Duration),
}

impl Outcome {
    /// A failure with its reason; `{:#}` includes an error's causes.
    pub fn retry(reason: impl Display) -> Self {
        Self::Retry(format!("{reason:#}"))
    }
}

/// Runs the keys of the queue, at most `max_in_flight` at a time.
///
/// A run that panics is logged and retried like a failed one; no key is lost. When cancelled, it hands out no more
/// keys, shuts the queue down and waits for the runs in flight. The caller bounds that wait; dropping the future aborts
/// the runs.
pub async fn run<K, H, F>(
    queue: Arc<WorkQueue<K>>,
    max_in_flight: usize,
    cancel: CancellationToken,
    handler: H,
) where
    K: Key,
    H: Fn(K) -> F,
    F: Future<Output = Outcome> + Send + 'static,
{
    let mut runs = ActiveRuns { queue, tasks: JoinSet::new(), keys: HashMap::new() };
    loop {
        let free = runs.tasks.len() < max_in_flight.max(1);
        tokio::select! {
            biased;
            () = cancel.cancelled() => break,
            Some(ended) = runs.tasks.join_next_with_id() => runs.end(ended),
            next = runs.queue.take(), if free => match next {
                Some((key, waited)) => {
                    let running = trace::reconcile(runs.queue.name(), &key, waited, handler(key.clone()));
                    runs.start(key, running);
                }
                None => break,
            },
        }
    }
    runs.queue.shut_down();
    while let Some(ended) = runs.tasks.join_next_with_id().await {
        runs.end(ended);
    }
}

struct ActiveRuns<K: Key> {
    queue: Arc<WorkQueue<K>>,
    tasks: JoinSet<Outcome>,
    keys: HashMap<Id, K>,
}

impl<K: Key> ActiveRuns<K> {
    fn start(&mut self, key: K, running: impl Future<Output = Outcome> + Send + 'static) {
        let task = self.tasks.spawn(running.in_current_span());
        self.keys.insert(task.id(), key);
    }

    fn end(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, outcome),
            Err(error) => (error.id(), Outcome::Retry(format!("run ended abnormally: {error}"))),
        };
        let Some(key) = self.keys.remove(&id) else { return };
        self.settle(&key, outcome);
        self.queue.done(&key);
    }

    fn settle(&self, key: &K, outcome: Outcome) {
        let queue = &self.queue;
        match outcome {
            Outcome::Done => queue.forget(key),
            Outcome::Parked => {}
            Outcome::RetryAfter(delay) => queue.add_after(key.clone(), delay),
            Outcome::Slow(delay) => {
                queue.forget(key);
                queue.add_after(key.clone(), delay);
            }
            Outcome::Retry(reason) => {
                let delay = queue.add_rate_limited(key.clone());
                tracing::warn!(queue = queue.name(), %key, reason, ?delay, "will try again");
            }
        }
    }
}
