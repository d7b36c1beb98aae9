//! The loop that works a queue off.

use std::{collections::HashMap, fmt::Display, future::Future, time::Duration};

use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Key, WorkQueue};
use crate::trace;

/// What became of one run of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do. Clears the failure count.
    Done,
    /// It failed: again after the key's backoff, which grows. Holds the reason, for the log.
    Retry(String),
    /// Somebody said when: again after exactly this long. The failure count neither grows nor is cleared.
    RetryAfter(Duration),
    /// It went well and wants to be looked at again after exactly this long. Clears the failure count.
    Slow(Duration),
}

impl Outcome {
    /// A failure with its reason; an error with its causes if it is formatted with `{:#}`.
    pub fn retry(reason: impl Display) -> Self {
        Self::Retry(format!("{reason:#}"))
    }
}

/// Works the queue off with at most `max_in_flight` runs at a time.
///
/// A run that panics is logged and tried again like a failed one; no key is lost. When cancelled it hands
/// out nothing more, shuts the queue down and waits for the runs in flight: how long is for the caller to
/// bound; dropping the future aborts them.
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
