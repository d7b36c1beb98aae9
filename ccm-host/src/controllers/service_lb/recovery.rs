//! Resumes what waits for a provider once it comes back or thaws.
//!
//! In: the status of each provider. Out: keys in the queue. [`decide`](mod@super::decide) decides what each status
//! permits.

use std::sync::Arc;

use super::{Controller, needs::is_of_interest};
use crate::{cloud::Provider, reconcile::follow_status};

impl Controller {
    /// Requeues everything whenever the provider is back or thawed, for as long as it is polled.
    pub(super) async fn follow_status(&self, provider: &Arc<dyn Provider>) {
        follow_status(provider.as_ref(), |before, now| {
            if before.is_away() {
                self.release(provider.name());
            }
            if !now.is_away() && now != before {
                self.look_at_all();
            }
        })
        .await;
    }

    /// Clears the backoff of what failed for the first time when the provider went away. What fails repeatedly keeps
    /// its backoff: it may be the reason why the provider goes away.
    fn release(&self, provider: &str) {
        let _taken = self.lanes.for_each_idle(|key, lane| {
            let timed = lane.attempt.as_ref().is_some_and(|attempt| attempt.until.is_some());
            if timed && lane.holder.as_deref() == Some(provider) && self.queue.retries(key) == 1 {
                lane.attempt = None;
            }
        });
    }

    /// Requeues every Service that may concern us; most reconciles will find nothing to do.
    pub(super) fn look_at_all(&self) {
        let services = self.parts.services.list();
        let of_interest = services.iter().filter(|service| is_of_interest(service));
        for key in of_interest.map(|service| service.key.clone()).chain(self.lanes.keys()) {
            self.queue.add(key);
        }
    }
}
