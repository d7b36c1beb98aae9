//! What follows from everything that was done for one subject: when it is looked at again. Pure.

use std::time::Duration;

use crate::{cloud::CloudError, kube::queue::Outcome, reconcile::Retry};

/// When to come back; the default is: not before something changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Again {
    after: Option<Duration>,
    failure: Option<String>,
}

impl Again {
    /// Exactly so long, or earlier.
    pub(super) fn after(&mut self, delay: Duration) {
        self.after = Some(self.after.map_or(delay, |known| known.min(delay)));
    }

    /// With the backoff of the subject.
    pub(super) fn failed(&mut self, reason: impl std::fmt::Display) {
        self.failure.get_or_insert_with(|| format!("{reason:#}"));
    }

    /// Also when the other says.
    pub(super) fn join(&mut self, other: Self) {
        if let Some(delay) = other.after {
            self.after(delay);
        }
        if let Some(reason) = other.failure {
            self.failed(reason);
        }
    }

    /// As the error wants it.
    pub(super) fn error(&mut self, error: &CloudError) {
        match Retry::of(error) {
            Retry::Backoff => self.failed(error),
            Retry::After(delay) => self.after(delay),
            // The next sweep looks again.
            Retry::Wait => {}
        }
    }

    /// What the queue is told. What failed backs off, unless something else is due at a time of its own.
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
