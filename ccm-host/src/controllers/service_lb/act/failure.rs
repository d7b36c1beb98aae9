//! What follows from an error of a provider: when it is tried again, and whether anybody is told.

use std::time::Duration;

use tokio::time::Instant;

use super::Act;
use crate::{
    cloud::{CloudError, ErrorReason},
    controllers::service_lb::{
        BACKOFF,
        lane::{Attempt, Intent, Lane},
    },
    kube::queue::Outcome,
    reconcile::Retry,
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
        // What shall go never changes, so it is never left waiting for a change.
        let retry = match intent {
            Intent::Apply(_) => Retry::of(error),
            Intent::Remove => Retry::without_sweep(error),
        };
        let wait = retry.delay(BACKOFF.delay(self.shared.queue.retries(self.key)));
        tracing::debug!(service = %self.key, error = %error, ?wait, "a provider could not do it");
        (wait, retry.outcome(error))
    }
}

/// An attempt that failed and waits for so long.
pub(super) fn attempt(intent: Intent, wait: Option<Duration>) -> Attempt {
    Attempt { intent, until: wait.map(|wait| Instant::now() + wait), in_progress: false }
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
