//! Carries out the action decided for one Service, and records the result in its lane.
//!
//! In: an [`Action`], what was observed, and the lane, held exclusively. Out: calls to the provider, patches of the
//! Service, Events, and when to reconcile again. The order of writes leaves no window: the finalizer is added before
//! the first call, and removed after the last. [`crate::reconcile`] knows the retry that the contract prescribes for an
//! error; here the lane keeps it, so that nothing repeats a call early.

pub(super) mod apply;
mod publish;
mod remove;

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Controller,
    decide::{Action, Claim, Removal},
    events::Warning,
    lane::{Attempt, Intent, Lane, Presence},
    observe::Observed,
};
use crate::{
    cloud::{CloudError, ErrorReason, differ_in_backends_only},
    kube::{
        queue::Outcome,
        service::{ObjectKey, Service},
    },
    reconcile::{Retry, passes_by_itself},
};

#[derive(Debug)]
pub(super) enum Step {
    /// Observe and decide again at once.
    Again,
    /// The run is over.
    End(Outcome),
}

/// The context of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Act<'a> {
    pub(super) controller: &'a Controller,
    pub(super) key: &'a ObjectKey,
    pub(super) seen: &'a Observed,
}

impl Act<'_> {
    pub(super) async fn run(self, lane: &mut Option<Lane>, action: Action) -> Step {
        self.recognise(lane);
        match action {
            Action::Rest => rest(lane),
            Action::Wait => self.wait(lane, Outcome::Done).await,
            Action::Forget => forget(lane),
            Action::Park(why) => self.park(lane, &why),
            Action::HoldBack(delay) => self.wait(lane, Outcome::RetryAfter(delay)).await,
            Action::Publish => self.publish(lane).await,
            Action::Ensure(wish) => match self.until_takeover(lane.as_ref()) {
                Some(delay) => self.wait(lane, Outcome::RetryAfter(delay)).await,
                None => self.ensure(lane, wish).await,
            },
            Action::Update(wish) => self.update(lane, wish).await,
            Action::Remove(removal) => self.remove(lane, removal).await,
            Action::Frozen(removal, why) => self.frozen(lane, removal, &why),
            Action::AskOwner => self.ask_owner(lane).await,
            Action::Refuse(why) => {
                self.refuse(lane, &why);
                Step::End(Outcome::Done)
            }
        }
    }

    /// If a listed digest matches the current Service, then that is the Service that was applied: records it.
    fn recognise(&self, lane: &mut Option<Lane>) {
        let facts = &self.seen.facts;
        if let (Some(service), Some(wanted), Some(lane)) = (&facts.service, &facts.wanted, lane.as_mut())
            && let Some(applied) = &mut lane.applied
            && (applied.digest == wanted.digest || differ_in_backends_only(&applied.digest, &wanted.digest))
        {
            applied.service = Some(Arc::clone(service));
        }
    }

    fn park(&self, lane: &mut Option<Lane>, why: &str) -> Step {
        tracing::debug!(service = %self.key, why, "waits");
        let facts = &self.seen.facts;
        if let (Some(service), Claim::Ours(_)) = (&facts.service, &facts.claim) {
            match lane.as_mut() {
                // The former Service's balancer is still to be removed: whose it is must not be forgotten.
                Some(lane) if !lane.is_of(&service.uid) => lane.settled = false,
                _ => lane_of(lane, service).settled = false,
            }
        }
        Step::End(Outcome::Parked)
    }

    fn refuse(&self, lane: &mut Option<Lane>, why: &str) {
        let Some(service) = &self.seen.facts.service else { return };
        let lane = lane_of(lane, service);
        lane.settled = false;
        self.controller.events.warn(lane, service, Warning::sync(why));
    }

    /// Keeps the finalizer; the end of the freeze requeues the Service.
    fn frozen(&self, lane: &mut Option<Lane>, removal: Removal, why: &str) -> Step {
        let Some(subject) = self.subject(lane.as_ref(), removal) else { return Step::End(Outcome::Done) };
        let lane = lane.get_or_insert_with(|| Lane::new(Arc::clone(&subject)));
        lane.settled = false;
        let warning = remove::warning(removal, format_args!("the deletion is held back: {why}"));
        self.controller.events.warn(lane, &subject, warning);
        Step::End(Outcome::Done)
    }

    /// The Service whose balancer is removed.
    fn subject(&self, lane: Option<&Lane>, removal: Removal) -> Option<Arc<Service>> {
        match removal {
            Removal::Unwanted | Removal::Handover => self.seen.facts.service.clone(),
            Removal::Former | Removal::Vanished => lane.map(|lane| Arc::clone(&lane.last)),
        }
    }

    /// Records the failed attempt in the lane, so that nothing repeats it early, and returns when to retry.
    fn failed(&self, lane: &mut Lane, intent: Intent, error: &CloudError) -> Outcome {
        let (wait, outcome) = self.pace(lane, &intent, error);
        lane.settled = false;
        if error.is(ErrorReason::ImplementedElsewhere) {
            lane.release();
        }
        lane.attempt = Some(attempt(intent, wait));
        outcome
    }

    /// Whether the error is not worth an Event to the Service's owner.
    fn is_quiet(&self, error: &CloudError) -> bool {
        is_internal(error) || passes_by_itself(error, self.controller.queue.failing_for(self.key))
    }

    /// The delay before a retry; `None` means once the Service changes, or at the next sweep.
    fn pace(&self, lane: &mut Lane, intent: &Intent, error: &CloudError) -> (Option<Duration>, Outcome) {
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

    /// How long an Ensure must wait for its turn; `None` means not at all.
    fn until_takeover(&self, lane: Option<&Lane>) -> Option<Duration> {
        let lane = lane.filter(|lane| is_untold(lane))?;
        let providers = &self.controller.parts.providers;
        let info = providers.by_name(lane.holder.as_deref()?)?.info()?;
        if info.durable_digest {
            return None;
        }
        let mut takeovers = self.controller.takeovers.lock();
        takeovers.entry(info.name.clone()).or_default().wait(self.key, Instant::now())
    }
}

fn rest(lane: &mut Option<Lane>) -> Step {
    if let Some(lane) = lane.as_mut() {
        lane.settled = true;
        lane.node_sync = None;
        lane.attempt = None;
        lane.upkeep = None;
        lane.warned = None;
    }
    Step::End(Outcome::Done)
}

/// The lane with the current Service, created if there is none.
fn lane_of<'a>(lane: &'a mut Option<Lane>, service: &Arc<Service>) -> &'a mut Lane {
    let lane = lane.get_or_insert_with(|| Lane::new(Arc::clone(service)));
    lane.last = Arc::clone(service);
    lane
}

/// If there was a lane, a new Service may have taken the forgotten one's place: observe again.
fn forget(lane: &mut Option<Lane>) -> Step {
    match lane.take() {
        Some(_) => Step::Again,
        None => Step::End(Outcome::Done),
    }
}

/// A failed attempt, not to be retried before `wait` is over.
fn attempt(intent: Intent, wait: Option<Duration>) -> Attempt {
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

/// The balancer exists, but neither a list nor an Ensure of this process reported its state.
fn is_untold(lane: &Lane) -> bool {
    lane.presence == Presence::Present && lane.applied.is_none() && lane.made_as.is_none()
}

/// Time between two turns: a thousand balancers take less than four minutes.
const APART: Duration = Duration::from_millis(200);

/// Spreads the Ensures after a restart of the host, for one provider: where the cloud cannot store a digest, only an
/// Ensure can tell the state of a balancer that exists.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    next: Option<Instant>,
    given: HashMap<ObjectKey, Instant>,
}

impl Takeover {
    /// Time until this Service's turn; `None` means that its turn is now, and is used up.
    fn wait(&mut self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let next = &mut self.next;
        let turn = *self.given.entry(key.clone()).or_insert_with(|| {
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + APART);
            turn
        });
        if turn <= now {
            self.given.remove(key);
            return None;
        }
        Some(turn - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_one_turn_and_keeps_it() {
        let (start, mut turns) = (Instant::now(), Takeover::default());
        let key = |name: &str| ObjectKey::new("ns", name);
        assert_eq!(turns.wait(&key("a"), start), None);
        assert_eq!(turns.wait(&key("b"), start), Some(APART));
        assert_eq!(turns.wait(&key("c"), start), Some(2 * APART));
        assert_eq!(turns.wait(&key("b"), start + APART / 2), Some(APART / 2));
        assert_eq!(turns.wait(&key("b"), start + APART), None);
        let later = start + 10 * APART;
        assert_eq!(turns.wait(&key("c"), later), None);
        assert_eq!((turns.wait(&key("d"), later), turns.given.len()), (None, 0), "after a pause: at once");
    }
}
