//! Tracks subjects that wait for a retry, so that a sweep does not cut their backoff short.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::subject::Subject;
use crate::kube::queue::{Outcome, WorkQueue};

/// The waiting subjects, and the gauge of their number.
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
            Outcome::Done => None,
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
