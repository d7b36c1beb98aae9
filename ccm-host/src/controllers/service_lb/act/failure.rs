//! What follows from an error of a provider: when it is tried again, and whether anybody is told.

use std::time::Duration;

use tokio::time::Instant;

use super::Act;
use crate::{
    cloud::{CloudError, ErrorReason, RetryClass, SLOW_RETRY},
    controllers::service_lb::{
        BACKOFF,
        lane::{Attempt, Intent, Lane},
    },
    kube::queue::Outcome,
};

impl Act<'_> {
    /// Notes the attempt in the lane, so that nothing repeats it before its time, and says when that is.
    pub(super) fn failed(&self, lane: &mut Lane, intent: Intent, error: &CloudError) -> Outcome {
        let (wait, outcome) = self.pace(lane, &intent, error);
        // Another implementation looks after this Service, so there is nothing left to do here.
        lane.settled = error.is(ErrorReason::ImplementedElsewhere);
        lane.attempt = Some(attempt(intent, wait));
        outcome
    }

    /// When it may be tried again; none: once the Service changes, or at the next sweep.
    pub(super) fn pace(
        &self,
        lane: &mut Lane,
        intent: &Intent,
        error: &CloudError,
    ) -> (Option<Duration>, Outcome) {
        if error.is(ErrorReason::StaleRevision) {
            lane.forget_sent_state();
        }
        let (wait, outcome) = match class(intent, error) {
            RetryClass::Backoff => {
                let failures = self.shared.queue.retries(self.key);
                (Some(BACKOFF.delay(failures)), Outcome::retry(error))
            }
            RetryClass::After(delay) => (Some(delay), Outcome::RetryAfter(delay)),
            RetryClass::Slow => {
                let delay = error.retry_after.unwrap_or_default().max(SLOW_RETRY);
                (Some(delay), Outcome::RetryAfter(delay))
            }
            RetryClass::Wait => (None, Outcome::Done),
        };
        tracing::debug!(service = %self.key, error = %error, ?wait, "a provider could not do it");
        (wait, outcome)
    }
}

/// An attempt that failed and waits for so long.
pub(super) fn attempt(intent: Intent, wait: Option<Duration>) -> Attempt {
    Attempt { intent, until: wait.map(|wait| Instant::now() + wait), in_progress: false }
}

/// What shall go never changes, so it is never left waiting for a change.
fn class(intent: &Intent, error: &CloudError) -> RetryClass {
    match (intent, error.retry_class()) {
        (Intent::Remove, RetryClass::Wait) => RetryClass::Slow,
        (_, class) => class,
    }
}

/// Errors that tell the owner of a Service nothing: another look, another leader or a moment's patience is the remedy.
pub(super) fn is_quiet(error: &CloudError) -> bool {
    use ErrorReason as R;
    matches!(
        error.reason,
        Some(
            R::StaleRevision
                | R::StaleLeader
                | R::ImplementedElsewhere
                | R::ConcurrentOperation
                | R::ShuttingDown
        )
    )
}
