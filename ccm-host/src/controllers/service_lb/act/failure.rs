//! What follows from an error of a provider: when it is tried again, and whether anybody is told.

use std::time::Duration;

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
        if error.is(ErrorReason::StaleRevision) {
            lane.forget_sent_state();
        }
        let (wait, outcome) = match class(&intent, error) {
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
        // What another controller looks after is as it shall be.
        lane.settled = error.is(ErrorReason::ImplementedElsewhere);
        self.hold_back(lane, intent, wait);
        outcome
    }

    /// Nothing of the kind is tried again before that; none: before the Service changes or the next sweep.
    pub(super) fn hold_back(&self, lane: &mut Lane, intent: Intent, wait: Option<Duration>) {
        let until = wait.map(|wait| tokio::time::Instant::now() + wait);
        lane.attempt = Some(Attempt { intent, until });
    }
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
