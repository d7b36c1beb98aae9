//! The keys of the work queue, when each is reconciled again, and which of them wait for that.

use std::{collections::HashMap, fmt, time::Duration};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use crate::{
    cloud::CloudError,
    kube::queue::{Outcome, WorkQueue},
    reconcile::Retry,
};

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

/// When to reconcile again; by default, only on a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Again {
    after: Option<Duration>,
    failure: Option<String>,
}

impl Again {
    /// Retries after exactly this delay, or earlier.
    pub(super) fn after(&mut self, delay: Duration) {
        self.after = Some(self.after.map_or(delay, |known| known.min(delay)));
    }

    /// Retries with the subject's backoff.
    pub(super) fn failed(&mut self, reason: impl fmt::Display) {
        self.failure.get_or_insert_with(|| format!("{reason:#}"));
    }

    /// Adds the other's retries.
    pub(super) fn join(&mut self, other: Self) {
        if let Some(delay) = other.after {
            self.after(delay);
        }
        if let Some(reason) = other.failure {
            self.failed(reason);
        }
    }

    /// Retries as the error's class requires.
    pub(super) fn error(&mut self, error: &CloudError) {
        match Retry::of(error) {
            Retry::Backoff => self.failed(error),
            Retry::After(delay) => self.after(delay),
            // The next sweep retries.
            Retry::Wait => {}
        }
    }

    /// The outcome for the queue. A failure backs off, even if something else is due at a fixed time.
    pub(super) fn outcome(self) -> Outcome {
        match (self.after, self.failure) {
            (Some(delay), None) => Outcome::RetryAfter(delay),
            (_, Some(reason)) => Outcome::Retry(reason),
            (None, None) => Outcome::Done,
        }
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
        let delay = match outcome {
            Outcome::Done | Outcome::Parked => None,
            Outcome::Retry(_) => Some(queue.backoff(subject)),
            Outcome::RetryAfter(delay) | Outcome::Slow(delay) => Some(*delay),
        };
        let why = if let Outcome::Retry(why) = outcome { Some(why.clone()) } else { None };
        self.note(subject, delay, why);
    }

    fn note(&self, subject: &Subject, delay: Option<Duration>, why: Option<String>) {
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
    use super::*;

    #[test]
    fn of_several_times_the_earliest_counts_and_failures_back_off() {
        let mut again = Again::default();
        again.after(Duration::from_secs(9));
        again.after(Duration::from_secs(3));
        assert_eq!(again.outcome(), Outcome::RetryAfter(Duration::from_secs(3)));
        let mut again = Again::default();
        again.after(Duration::from_secs(9));
        again.failed("first");
        again.failed("second");
        assert_eq!(again.outcome(), Outcome::Retry("first".to_owned()));
    }
}
