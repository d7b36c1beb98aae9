//! Does what was decided about one Service, and notes in its lane what came of it.
//!
//! In: an [`Action`], what was observed, and the lane, which nobody else has meanwhile. Out: calls to the provider,
//! patches of the Service, Events, and when to look again. The order of the writes leaves no window: the finalizer stands
//! before the first call, and goes after the last.

pub(super) mod apply;
mod failure;
mod publish;
mod remove;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    decide::{Action, Removal},
    events::Warning,
    lane::{Lane, Taken},
    observe::Observed,
};
use crate::{
    cloud::differ_in_backends_only,
    kube::{
        queue::Outcome,
        service::{ObjectKey, Service},
    },
};

#[derive(Debug)]
pub(super) enum Step {
    /// Look again at once.
    Again,
    /// The run is over.
    End(Outcome),
}

/// One run's hands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Act<'a> {
    pub(super) shared: &'a Shared,
    pub(super) key: &'a ObjectKey,
    pub(super) seen: &'a Observed,
    pub(super) cancel: &'a CancellationToken,
}

impl Act<'_> {
    pub(super) async fn run(self, lane: &mut Taken, action: Action) -> Step {
        self.recognise(lane);
        match action {
            Action::Rest => rest(lane),
            Action::Wait => self.wait(lane, Outcome::Done).await,
            Action::Forget => forget(lane),
            Action::Park(why) => self.park(lane, &why),
            Action::HoldBack(delay) => self.wait(lane, Outcome::RetryAfter(delay)).await,
            Action::Publish => self.publish(lane).await,
            Action::Ensure(wish) => match self.turn_of(lane) {
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

    /// A listed digest that says what the Service says now tells that this is the Service that was applied.
    fn recognise(&self, lane: &mut Taken) {
        if let (Some(service), Some(wanted), Some(lane)) =
            (&self.seen.service, self.seen.wanted(), lane.as_mut())
            && let Some(applied) = &mut lane.applied
            && (applied.digest == wanted.digest || differ_in_backends_only(&applied.digest, &wanted.digest))
        {
            applied.service = Some(Arc::clone(service));
        }
    }

    fn park(&self, lane: &mut Taken, why: &str) -> Step {
        tracing::debug!(service = %self.key, why, "waits");
        if let Some(service) = self.seen.service.as_ref().filter(|_| self.seen.is_ours()) {
            lane_of(lane, service).settled = false;
        }
        Step::End(Outcome::Done)
    }

    fn refuse(&self, lane: &mut Taken, why: &str) {
        let Some(service) = &self.seen.service else { return };
        let lane = lane_of(lane, service);
        lane.settled = false;
        self.shared.events.warn(lane, service, Warning::sync(why));
    }

    /// The finalizer stays, and the end of the freeze is told to the queue.
    fn frozen(&self, lane: &mut Taken, removal: Removal, why: &str) -> Step {
        let Some(subject) = self.subject(lane, removal) else { return Step::End(Outcome::Done) };
        let lane = lane.get_or_insert_with(|| Lane::new(Arc::clone(&subject)));
        lane.settled = false;
        let warning = remove::warning(removal, format_args!("the deletion is held back: {why}"));
        self.shared.events.warn(lane, &subject, warning);
        Step::End(Outcome::Done)
    }

    /// The Service whose balancer goes.
    fn subject(&self, lane: &Taken, removal: Removal) -> Option<Arc<Service>> {
        match removal {
            Removal::Unwanted | Removal::Handover => self.seen.service.clone(),
            Removal::Former | Removal::Vanished => lane.as_ref().map(|lane| Arc::clone(&lane.last)),
        }
    }
}

fn rest(lane: &mut Taken) -> Step {
    if let Some(lane) = lane.as_mut() {
        lane.settled = true;
        lane.node_sync = None;
        lane.attempt = None;
        lane.upkeep = None;
        lane.warned = None;
    }
    Step::End(Outcome::Done)
}

/// The lane, opened if there is none, with the Service as it is now.
fn lane_of<'a>(lane: &'a mut Taken, service: &Arc<Service>) -> &'a mut Lane {
    let lane = lane.get_or_insert_with(|| Lane::new(Arc::clone(service)));
    lane.last = Arc::clone(service);
    lane
}

/// A Service that took the place of the forgotten one deserves a look of its own.
fn forget(lane: &mut Taken) -> Step {
    match lane.take() {
        Some(_) => Step::Again,
        None => Step::End(Outcome::Done),
    }
}
