//! Carries out the action decided for one Service, and records the result in its lane.
//!
//! In: an [`Action`], what was observed, and the lane, held exclusively. Out: calls to the provider, patches of the
//! Service, Events, and when to reconcile again. The order of writes leaves no window: the finalizer is added before
//! the first call, and removed after the last.

pub(super) mod apply;
mod failure;
mod publish;
mod remove;

use std::sync::Arc;

use super::{
    Controller,
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

    /// If a listed digest matches the current Service, then that is the Service that was applied: records it.
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
            match lane.as_mut() {
                // The former Service's balancer is still to be removed: whose it is must not be forgotten.
                Some(lane) if !lane.is_of(&service.uid) => lane.settled = false,
                _ => lane_of(lane, service).settled = false,
            }
        }
        Step::End(Outcome::Parked)
    }

    fn refuse(&self, lane: &mut Taken, why: &str) {
        let Some(service) = &self.seen.service else { return };
        let lane = lane_of(lane, service);
        lane.settled = false;
        self.controller.events.warn(lane, service, Warning::sync(why));
    }

    /// Keeps the finalizer; the end of the freeze requeues the Service.
    fn frozen(&self, lane: &mut Taken, removal: Removal, why: &str) -> Step {
        let Some(subject) = self.subject(lane, removal) else { return Step::End(Outcome::Done) };
        let lane = lane.get_or_insert_with(|| Lane::new(Arc::clone(&subject)));
        lane.settled = false;
        let warning = remove::warning(removal, format_args!("the deletion is held back: {why}"));
        self.controller.events.warn(lane, &subject, warning);
        Step::End(Outcome::Done)
    }

    /// The Service whose balancer is removed.
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

/// The lane with the current Service, created if there is none.
fn lane_of<'a>(lane: &'a mut Taken, service: &Arc<Service>) -> &'a mut Lane {
    let lane = lane.get_or_insert_with(|| Lane::new(Arc::clone(service)));
    lane.last = Arc::clone(service);
    lane
}

/// If there was a lane, a new Service may have taken the forgotten one's place: observe again.
fn forget(lane: &mut Taken) -> Step {
    match lane.take() {
        Some(_) => Step::Again,
        None => Step::End(Outcome::Done),
    }
}
