//! Combines the results for one subject into the time of its next reconcile. Pure.

use std::time::Duration;

use crate::{cloud::CloudError, kube::queue::Outcome, reconcile::Retry};

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
    pub(super) fn failed(&mut self, reason: impl std::fmt::Display) {
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
