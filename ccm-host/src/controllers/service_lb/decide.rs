//! What shall be done about one Service: a pure function of what was observed.
//!
//! In: the Service, its lane, who looks after it, how that provider is, and how far the wanted state is from the one
//! applied. Out: one [`Action`]. How it is done, and what follows from an answer, is in [`super::act`].

use std::time::Duration;

use tokio::time::Instant;

use super::{
    lane::{Attempt, Intent, Lane, Presence},
    needs::{has_finalizer, is_load_balancer},
};
use crate::{cloud::is_for_another_class, kube::service::Service};

/// Everything a decision depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    /// As the cache has it.
    pub(super) service: Option<&'a Service>,
    /// What is known of its balancer.
    pub(super) lane: Option<&'a Lane>,
    /// Who looks after it.
    pub(super) claim: &'a Claim,
    /// The provider that would be asked to make or change the balancer.
    pub(super) maker: &'a Standing,
    /// The worst of those that would be asked to remove it.
    pub(super) holders: &'a Standing,
    /// What the provider shall bring about; none while it cannot be said.
    pub(super) wanted: Option<&'a Wanted>,
    /// The finalizer and the status are as wanted for what is applied.
    pub(super) published: bool,
    pub(super) now: Instant,
}

/// Who looks after a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    /// This provider, by name. Any for a Service that wants no balancer.
    Ours(String),
    /// No provider of this host: another implementation, by its class.
    Others,
    /// A provider has not said yet which classes it looks after.
    Undecided,
}

/// What may be asked of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    Ready,
    /// Nothing that destroys. Holds why.
    Frozen(String),
    /// Nothing. Holds why. Its return is told to the queue.
    Away(String),
}

/// How far the wanted state is from what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Digest over Service and backends.
    pub(super) digest: String,
    /// From what was last applied.
    pub(super) since_applied: Difference,
    /// From what was last tried.
    pub(super) since_tried: Difference,
    /// Why no provider may be asked for this at all.
    pub(super) refusal: Option<String>,
    /// What is applied, with the nodes of now; none if it has them already.
    pub(super) upkeep: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    Nothing,
    /// Only the nodes behind the balancer.
    Backends,
    /// The Service, or nobody knows what.
    Service,
}

/// What shall be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Everything is as wanted.
    Rest,
    /// The provider refused this, and would again until the Service changes.
    Wait,
    /// It is no concern of ours: what is known of it is dropped.
    Forget,
    /// A provider has to come back or to be listed first; that is told to the queue.
    Park(String),
    /// It was tried too short a time ago.
    HoldBack(Duration),
    /// Nothing for the cloud; finalizer or status have to be written.
    Publish,
    /// Make or change the balancer.
    Ensure(Wish),
    /// Give the balancer other backends.
    Update(Wish),
    Remove(Removal),
    /// A balancer would have to be removed, but nothing may be destroyed now.
    Frozen(Removal, String),
    /// Only whoever owns the balancer may clean up: the providers have to be asked.
    AskOwner,
    /// The Service makes no sense; it is told to its owner, and waits for a change.
    Refuse(String),
}

/// What a balancer shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// As the Service says.
    Wanted,
    /// As it was last applied, but with the nodes of now: what the Service says has to wait, or is refused.
    Upkeep,
}

/// Why a balancer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// The Service is being deleted or is no balancer's any more.
    Unwanted,
    /// It was made for a class of ours, and now the class is somebody else's.
    Handover,
    /// It is a former Service's of the same name, or at a former provider.
    Former,
    /// The Service vanished without a chance to clean up.
    Vanished,
}

/// What shall be done.
pub(super) fn decide(facts: &Facts<'_>) -> Action {
    let Some(service) = facts.service else {
        return match facts.lane {
            Some(lane) if may_have_left_a_balancer(lane) => remove(facts, Removal::Vanished),
            _ => Action::Forget,
        };
    };
    if let Some(lane) = facts.lane {
        if !lane.is_of(&service.uid) {
            let left = may_have_left_a_balancer(lane);
            return if left { remove(facts, Removal::Former) } else { Action::Forget };
        }
        if has_moved(service, lane, facts.claim) {
            return remove(facts, Removal::Former);
        }
    }
    match facts.claim {
        Claim::Undecided => Action::Park("a provider has not introduced itself".to_owned()),
        Claim::Others => of_others(service, facts),
        Claim::Ours(_) if service.is_deleting() || !is_load_balancer(service) => unwanted(service, facts),
        Claim::Ours(_) => wanted(facts),
    }
}

/// A balancer that the next run of this process could not find by a finalizer.
fn may_have_left_a_balancer(lane: &Lane) -> bool {
    match lane.presence {
        Presence::Present => true,
        Presence::Unknown => has_finalizer(&lane.last),
        Presence::Absent => false,
    }
}

/// The balancer is at another provider than the one that looks after the Service now.
fn has_moved(service: &Service, lane: &Lane, claim: &Claim) -> bool {
    match (claim, &lane.holder) {
        (Claim::Ours(name), Some(holder)) => {
            lane.presence == Presence::Present
                && is_load_balancer(service)
                && !service.is_deleting()
                && holder != name
        }
        _ => false,
    }
}

/// Another implementation's Service is touched only for a balancer that is known to be ours.
fn of_others(service: &Service, facts: &Facts<'_>) -> Action {
    let class = service.spec.load_balancer_class.as_deref();
    // That a provider no longer looks after a class is no reason to destroy what it made.
    let handed_over = facts.lane.is_some_and(|lane| {
        lane.presence == Presence::Present
            && lane.made_as.as_ref().is_some_and(|digest| is_for_another_class(digest, class))
    });
    if handed_over {
        return remove(facts, Removal::Handover);
    }
    if !(service.is_deleting() && has_finalizer(service)) {
        return Action::Forget;
    }
    match facts.holders {
        Standing::Away(why) | Standing::Frozen(why) => Action::Park(why.clone()),
        Standing::Ready => Action::AskOwner,
    }
}

fn unwanted(service: &Service, facts: &Facts<'_>) -> Action {
    let known = facts.lane.is_some_and(|lane| lane.presence == Presence::Present);
    if known || has_finalizer(service) { remove(facts, Removal::Unwanted) } else { Action::Forget }
}

fn wanted(facts: &Facts<'_>) -> Action {
    if let Standing::Away(why) = facts.maker {
        return Action::Park(why.clone());
    }
    let Some(wanted) = facts.wanted else {
        return Action::Park("the balancers were not listed yet".to_owned());
    };
    if wanted.since_applied == Difference::Nothing {
        return if facts.published { Action::Rest } else { Action::Publish };
    }
    match delay(facts, wanted) {
        Some(delay) => upkeep(facts, wanted, delay),
        None if wanted.since_applied == Difference::Backends => Action::Update(Wish::Wanted),
        None => Action::Ensure(Wish::Wanted),
    }
}

/// What there is to do instead while the wanted state must not be asked for.
fn delay(facts: &Facts<'_>, wanted: &Wanted) -> Option<Action> {
    if let Some(why) = &wanted.refusal {
        return Some(Action::Refuse(why.clone()));
    }
    // Only a change of the Service makes an attempt anew; a change of nodes waits with it.
    let attempt = facts.lane.and_then(|lane| lane.attempt.as_ref());
    let attempt = attempt.filter(|attempt| matches!(attempt.intent, Intent::Apply(_)))?;
    if wanted.since_tried == Difference::Service { None } else { attempt.wait(facts.now) }
}

/// A change of the Service that fails keeps no node behind the balancer that is gone, and none away that has come.
fn upkeep(facts: &Facts<'_>, wanted: &Wanted, delay: Action) -> Action {
    let Some(lane) = facts.lane else { return delay };
    let under_way = lane.attempt.as_ref().is_some_and(|attempt| attempt.in_progress);
    let (Some(applied), Some(_), false) = (&lane.applied, &wanted.upkeep, under_way) else { return delay };
    // Where only the nodes differ, it is their update that failed.
    let failed_itself = wanted.since_applied != Difference::Service && wanted.refusal.is_none();
    if failed_itself || (applied.needs_ensure && applied.service.is_none()) {
        return delay;
    }
    match (lane.upkeep.as_ref().and_then(|attempt| attempt.wait(facts.now)), delay) {
        (None, _) if applied.needs_ensure => Action::Ensure(Wish::Upkeep),
        (None, _) => Action::Update(Wish::Upkeep),
        (Some(Action::HoldBack(one)), Action::HoldBack(other)) => Action::HoldBack(one.min(other)),
        (Some(hold @ Action::HoldBack(_)), Action::Wait | Action::Refuse(_)) => hold,
        (Some(_), delay) => delay,
    }
}

impl Attempt {
    /// None if it may be repeated now.
    fn wait(&self, now: Instant) -> Option<Action> {
        match self.until {
            None => Some(Action::Wait),
            Some(until) if until > now => Some(Action::HoldBack(until - now)),
            Some(_) => None,
        }
    }
}

fn remove(facts: &Facts<'_>, removal: Removal) -> Action {
    let attempt = facts.lane.and_then(|lane| lane.attempt.as_ref());
    match facts.holders {
        Standing::Away(why) => return Action::Park(why.clone()),
        Standing::Frozen(why) => return Action::Frozen(removal, why.clone()),
        Standing::Ready => {}
    }
    match attempt {
        Some(attempt) if matches!(attempt.intent, Intent::Remove) => match attempt.until {
            Some(until) if until > facts.now => Action::HoldBack(until - facts.now),
            _ => Action::Remove(removal),
        },
        _ => Action::Remove(removal),
    }
}

#[cfg(test)]
mod tests;
