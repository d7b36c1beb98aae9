//! Handles a provider's error: when to retry, and whether to warn the owner.

use std::time::Duration;

use tokio::time::Instant;

use super::Act;
use crate::{
    cloud::{CloudError, ErrorReason},
    controllers::service_lb::lane::{Attempt, Intent, Lane},
    kube::queue::Outcome,
    reconcile::{Retry, passes_by_itself},
};

impl Act<'_> {
    /// Records the failed attempt in the lane, so that nothing repeats it early, and returns when to retry.
    pub(super) fn failed(&self, lane: &mut Lane, intent: Intent, error: &CloudError) -> Outcome {
        let (wait, outcome) = self.pace(lane, &intent, error);
        lane.settled = false;
        if error.is(ErrorReason::ImplementedElsewhere) {
            lane.release();
        }
        lane.attempt = Some(attempt(intent, wait));
        outcome
    }

    /// Whether the error is not worth an Event to the Service's owner.
    pub(super) fn is_quiet(&self, error: &CloudError) -> bool {
        is_internal(error) || passes_by_itself(error, self.controller.queue.failing_for(self.key))
    }

    /// The delay before a retry; `None` means once the Service changes, or at the next sweep.
    pub(super) fn pace(
        &self,
        lane: &mut Lane,
        intent: &Intent,
        error: &CloudError,
    ) -> (Option<Duration>, Outcome) {
        if error.is(ErrorReason::StaleRevision) {
            lane.forget_sent_state();
        }
        // A removal has no change of the Service to wait for, so it is always retried.
        let retry = match intent {
            Intent::Apply(_) => Retry::of(error),
            Intent::Remove => Retry::without_sweep(error),
        };
        let wait = retry.delay(self.controller.queue.backoff(self.key));
        tracing::debug!(service = %self.key, error = %error, ?wait, "a provider failed");
        (wait, retry.outcome(error))
    }
}

/// A failed attempt, not to be retried before `wait` is over.
pub(super) fn attempt(intent: Intent, wait: Option<Duration>) -> Attempt {
    Attempt { intent, until: wait.map(|wait| Instant::now() + wait), in_progress: false }
}

/// Another reconcile, another leader or a moment's patience resolves these errors.
fn is_internal(error: &CloudError) -> bool {
    use ErrorReason as R;
    matches!(
        error.reason,
        Some(R::StaleRevision | R::StaleLeader | R::ImplementedElsewhere | R::ConcurrentOperation)
    )
}
