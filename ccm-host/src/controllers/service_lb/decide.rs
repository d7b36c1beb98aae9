//! Decides what to do about one Service: a pure function of what was observed.
//!
//! In: the Service, its lane, its owner, that provider's standing, and how far the wanted state is from the applied
//! one. Out: one [`Action`]. Carrying it out, and handling the answer, is up to [`super::act`].

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    lane::{Attempt, Difference, Intent, Lane, Presence},
    services::{has_finalizer, is_load_balancer},
};
use crate::{cloud::is_for_another_class, kube::service::Service};

/// Everything a decision depends on, besides the lane.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// As it is in the cache.
    pub(super) service: Option<Arc<Service>>,
    /// The owner of the Service.
    pub(super) claim: Claim,
    /// The provider that would be asked to make or change the balancer.
    pub(super) maker: Standing,
    /// The worst standing among the providers that would be asked to remove it.
    pub(super) holders: Standing,
    /// The state to bring about; `None` while it cannot be determined.
    pub(super) wanted: Option<Wanted>,
    /// The finalizer and the status match what is applied.
    pub(super) published: bool,
    pub(super) now: Instant,
}

/// The owner of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    /// This provider, by name. For a Service that wants no balancer, any provider that has balancers.
    Ours(String),
    /// No provider of this host: the class belongs to another implementation.
    Others,
    /// Its annotation names no provider that could serve it.
    Misnamed {
        /// Whether some provider has its balancer, and looks after it meanwhile.
        kept: bool,
        /// The problem and the remedy.
        why: String,
    },
    /// A provider has not reported its classes yet.
    Undecided,
}

/// The calls that a provider may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    Ready,
    /// Anything that does not destroy. Holds the reason.
    Frozen(String),
    /// Nothing. Holds the reason. The provider's return requeues the Service.
    Away(String),
}

/// How far the wanted state is from what was applied and tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Digest over Service and backends.
    pub(super) digest: String,
    /// From what was last applied.
    pub(super) since_applied: Difference,
    /// From what was last tried.
    pub(super) since_tried: Difference,
    /// Why no provider may be asked for this state at all.
    pub(super) refusal: Option<String>,
    /// Digest of what is applied, but with the current nodes; `None` if it has them already.
    pub(super) upkeep: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Everything is as wanted.
    Rest,
    /// The provider refused this state, and would refuse it again until the Service changes.
    Wait,
    /// The Service is none of our business: forget its lane.
    Forget,
    /// A provider has to come back or be listed first; either requeues the Service.
    Park(String),
    /// The last attempt was too recent.
    HoldBack(Duration),
    /// Nothing to do in the cloud; finalizer or status must be written.
    Publish,
    /// Make or change the balancer.
    Ensure(Wish),
    /// Give the balancer other backends.
    Update(Wish),
    Remove(Removal),
    /// A balancer should be removed, but the provider is frozen.
    Frozen(Removal, String),
    /// Only the balancer's owner may clean up: ask the providers.
    AskOwner,
    /// The Service is invalid: warn its owner, and wait for a change.
    Refuse(String),
}

/// The state to give a balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// As the Service says.
    Wanted,
    /// As it was last applied, but with the current nodes: what the Service says has to wait, or was refused.
    Upkeep,
}

/// Why a balancer is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// The Service is being deleted, or is no longer of type LoadBalancer.
    Unwanted,
    /// The balancer was made for a class of ours, and the class now belongs to another implementation.
    Handover,
    /// The balancer belongs to a former Service of the same name, or is at a former provider.
    Former,
    /// The Service vanished before its balancer was cleaned up.
    Vanished,
}

/// Picks the next action, given the state known about the balancer.
pub(super) fn decide(facts: &Facts, lane: Option<&Lane>) -> Action {
    let Some(service) = facts.service.as_deref() else {
        return match lane {
            Some(lane) if may_have_left_a_balancer(lane) => remove(facts, Some(lane), Removal::Vanished),
            _ => Action::Forget,
        };
    };
    if let Some(known) = lane {
        if !known.is_of(&service.uid) {
            let left = may_have_left_a_balancer(known);
            return if left { remove(facts, lane, Removal::Former) } else { Action::Forget };
        }
        if has_moved(service, known, &facts.claim) {
            return remove(facts, lane, Removal::Former);
        }
    }
    match &facts.claim {
        Claim::Undecided => Action::Park("a provider has not introduced itself".to_owned()),
        Claim::Others => of_others(service, facts, lane),
        Claim::Ours(_) | Claim::Misnamed { .. } if service.is_deleting() || !is_load_balancer(service) => {
            unwanted(service, facts, lane)
        }
        Claim::Misnamed { kept: false, why } => Action::Refuse(why.clone()),
        Claim::Misnamed { kept: true, why } => match wanted(facts, lane) {
            Action::Rest => Action::Refuse(why.clone()),
            needed => needed,
        },
        Claim::Ours(_) => wanted(facts, lane),
    }
}

/// Whether the Service may have left a balancer that a restarted host could not find by a finalizer.
fn may_have_left_a_balancer(lane: &Lane) -> bool {
    match lane.presence {
        Presence::Present => true,
        Presence::Unknown => has_finalizer(&lane.last),
        Presence::Absent => false,
    }
}

/// Whether the balancer is at a provider that no longer owns the Service.
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

/// Touches another implementation's Service only for a balancer that is known to be ours.
fn of_others(service: &Service, facts: &Facts, lane: Option<&Lane>) -> Action {
    let class = service.spec.load_balancer_class.as_deref();
    // A provider that no longer owns a class is no reason to destroy what it made.
    let handed_over = lane.is_some_and(|lane| {
        lane.presence == Presence::Present
            && lane.made_as.as_ref().is_some_and(|digest| is_for_another_class(digest, class))
    });
    if handed_over {
        return remove(facts, lane, Removal::Handover);
    }
    if !(service.is_deleting() && has_finalizer(service)) {
        return Action::Forget;
    }
    match &facts.holders {
        Standing::Away(why) | Standing::Frozen(why) => Action::Park(why.clone()),
        Standing::Ready => Action::AskOwner,
    }
}

fn unwanted(service: &Service, facts: &Facts, lane: Option<&Lane>) -> Action {
    let known = lane.is_some_and(|lane| lane.presence == Presence::Present);
    if known || has_finalizer(service) { remove(facts, lane, Removal::Unwanted) } else { Action::Forget }
}

fn wanted(facts: &Facts, lane: Option<&Lane>) -> Action {
    if let Standing::Away(why) = &facts.maker {
        return Action::Park(why.clone());
    }
    let Some(wanted) = &facts.wanted else {
        return Action::Park("the load balancers have not been listed yet".to_owned());
    };
    if wanted.since_applied == Difference::Nothing {
        return if facts.published { Action::Rest } else { Action::Publish };
    }
    match delay(facts, wanted, lane) {
        Some(delay) => upkeep(facts, wanted, lane, delay),
        None if wanted.since_applied == Difference::Backends => Action::Update(Wish::Wanted),
        None => Action::Ensure(Wish::Wanted),
    }
}

/// The action to take instead while the wanted state must not be requested.
fn delay(facts: &Facts, wanted: &Wanted, lane: Option<&Lane>) -> Option<Action> {
    if let Some(why) = &wanted.refusal {
        return Some(Action::Refuse(why.clone()));
    }
    // Only a change of the Service permits a new attempt; a change of nodes waits with it.
    let attempt = lane?.attempt.as_ref().filter(|attempt| matches!(attempt.intent, Intent::Apply(_)))?;
    if wanted.since_tried == Difference::Service { None } else { attempt.wait(facts.now) }
}

/// Keeps a failing change of the Service from pinning deleted nodes to the balancer, or keeping new ones out.
fn upkeep(facts: &Facts, wanted: &Wanted, lane: Option<&Lane>, delay: Action) -> Action {
    let Some(lane) = lane else { return delay };
    let under_way = lane.attempt.as_ref().is_some_and(|attempt| attempt.in_progress);
    let (Some(applied), Some(_), false) = (&lane.applied, &wanted.upkeep, under_way) else { return delay };
    // If only the nodes differ, their own update is what failed.
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
    /// `None` if the attempt may be repeated now.
    fn wait(&self, now: Instant) -> Option<Action> {
        match self.until {
            None => Some(Action::Wait),
            Some(until) if until > now => Some(Action::HoldBack(until - now)),
            Some(_) => None,
        }
    }
}

fn remove(facts: &Facts, lane: Option<&Lane>, removal: Removal) -> Action {
    match &facts.holders {
        Standing::Away(why) => return Action::Park(why.clone()),
        Standing::Frozen(why) => return Action::Frozen(removal, why.clone()),
        Standing::Ready => {}
    }
    let tried = lane.and_then(|lane| lane.attempt.as_ref());
    match tried.filter(|attempt| matches!(attempt.intent, Intent::Remove)) {
        Some(Attempt { until: Some(until), .. }) if *until > facts.now => {
            Action::HoldBack(*until - facts.now)
        }
        _ => Action::Remove(removal),
    }
}

#[cfg(test)]
mod tests;
