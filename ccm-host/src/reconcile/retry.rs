//! Maps a provider's error to its retry. Pure.
//!
//! In: the error, with the retry class that the contract assigns to its reason. Out: the outcome for the work queue.

use std::{fmt::Display, time::Duration};

use cloudprovider_proto::v1alpha1::RetryClass;

use crate::{
    cloud::{CloudError, ErrorReason},
    kube::queue::Outcome,
};

/// The minimum pause where an early retry cannot help.
pub const SLOW_RETRY: Duration = Duration::from_secs(300);

/// About as long as it takes to replace a container.
const REPLACEMENT: Duration = Duration::from_secs(10);

/// Whether an error deserves no Event yet. While a provider is being replaced, its next process answers soon. An object
/// that has been `failing_for` longer shows that the provider stays away, or fails on this very object.
#[must_use]
pub fn passes_by_itself(error: &CloudError, failing_for: Duration) -> bool {
    error.is_of_replacement() && failing_for < REPLACEMENT
}

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
    #[must_use]
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
    #[must_use]
    pub fn without_sweep(error: &CloudError) -> Self {
        match Self::of(error) {
            Self::Wait => Self::After(slow(error)),
            retry => retry,
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

fn slow(error: &CloudError) -> Duration {
    error.retry_after.unwrap_or_default().max(SLOW_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::{
        ErrorReason as R,
        fake::{error, method},
    };

    #[test]
    fn a_provider_that_is_replaced_is_waited_for_in_silence() {
        let soon = Duration::from_secs(5);
        let unanswered = CloudError { is_unanswered: true, ..error(method::ENSURE_ROUTE, None) };
        let ending = error(method::ENSURE_ROUTE, Some(R::ShuttingDown));
        for error in [unanswered, ending] {
            assert!(passes_by_itself(&error, soon), "{error}");
            assert!(!passes_by_itself(&error, REPLACEMENT), "{error}");
        }
        assert!(!passes_by_itself(&error(method::ENSURE_ROUTE, None), soon), "its own word");
    }

    /// The contract's table of retry classes.
    #[test]
    fn each_class_of_errors_has_its_pace() {
        let seconds = Duration::from_secs;
        let rows = [
            (Some(R::InstanceNotFound), None, Retry::Backoff, Retry::Backoff),
            (Some(R::RouteTableFull), None, Retry::After(SLOW_RETRY), Retry::After(SLOW_RETRY)),
            (Some(R::RouteTableFull), Some(900), Retry::After(seconds(900)), Retry::After(seconds(900))),
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
