//! The loop that runs the keys of a queue.

use std::{collections::HashMap, fmt::Display, future::Future, time::Duration};

use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Key, WorkQueue};
use crate::trace;

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
pub async fn run<K, H, F>(queue: WorkQueue<K>, max_in_flight: usize, cancel: CancellationToken, handler: H)
where
    K: Key,
    H: Fn(K) -> F,
    F: Future<Output = Outcome> + Send + 'static,
{
    let mut runs = Runs { queue, tasks: JoinSet::new(), keys: HashMap::new() };
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

struct Runs<K: Key> {
    queue: WorkQueue<K>,
    tasks: JoinSet<Outcome>,
    keys: HashMap<Id, K>,
}

impl<K: Key> Runs<K> {
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
