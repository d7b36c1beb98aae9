//! The keys of the work queue, when each is reconciled again, and which of them wait for that.

use std::{collections::HashMap, fmt};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use crate::kube::queue::{Outcome, WorkQueue};

/// A node with all its routes, or a route that leads to none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::controllers) enum Subject {
    /// By name, whether it exists or not.
    Node(String),
    /// A route that cannot be traced to a node.
    Stray {
        /// The provider that listed it.
        provider: String,
        id: String,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(out, "node {name}"),
            Self::Stray { provider, id } => write!(out, "route {id} of {provider}"),
        }
    }
}

/// The earlier of two retries. A failure backs off, even if something else is due at a fixed time; of several failures,
/// the first is told.
pub(super) fn earlier(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Retry(why), _) | (_, Outcome::Retry(why)) => Outcome::Retry(why),
        (Outcome::RetryAfter(one), Outcome::RetryAfter(other)) => Outcome::RetryAfter(one.min(other)),
        (again, Outcome::Done) | (_, again) => again,
    }
}

/// The subjects that wait for a retry, and the gauge of their number. A sweep does not cut their backoff short.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Until when, and why if it failed.
    until: Mutex<HashMap<Subject, (Instant, Option<String>)>>,
    shown: Gauge,
}

impl Waiting {
    pub(super) fn new(shown: Gauge) -> Self {
        Self { until: Mutex::default(), shown }
    }

    /// Records the outcome of a run.
    pub(super) fn ended(&self, subject: &Subject, outcome: &Outcome, queue: &WorkQueue<Subject>) {
        let (delay, why) = match outcome {
            Outcome::Done | Outcome::Parked => (None, None),
            Outcome::Retry(why) => (Some(queue.backoff(subject)), Some(why.clone())),
            Outcome::RetryAfter(delay) | Outcome::Slow(delay) => (Some(*delay), None),
        };
        let mut until = self.until.lock();
        match delay {
            Some(delay) => drop(until.insert(subject.clone(), (Instant::now() + delay, why))),
            None => drop(until.remove(subject)),
        };
        self.shown.set(i64::try_from(until.len()).unwrap_or(i64::MAX));
    }

    /// Whether the subject has a retry pending.
    pub(super) fn contains(&self, subject: &Subject) -> bool {
        self.until.lock().get(subject).is_some_and(|(until, _)| *until > Instant::now())
    }

    /// Why the subject's last run failed, if it did.
    pub(super) fn why(&self, subject: &Subject) -> Option<String> {
        self.until.lock().get(subject)?.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn of_several_times_the_earliest_counts_and_failures_back_off() {
        let after = |seconds| Outcome::RetryAfter(Duration::from_secs(seconds));
        let failed = |why: &str| Outcome::Retry(why.to_owned());
        assert_eq!(earlier(earlier(Outcome::Done, after(9)), after(3)), after(3));
        assert_eq!(earlier(earlier(after(9), failed("first")), failed("second")), failed("first"));
        assert_eq!(earlier(earlier(failed("first"), Outcome::Done), after(3)), failed("first"));
        assert_eq!(earlier(after(3), Outcome::Done), after(3));
    }
}
