//! What a list says about one balancer: a pure change of its lane.

use crate::{
    cloud::{LoadBalancer, LoadBalancerState, Ownership, SyncState},
    controllers::service_lb::{
        lane::{Lane, Presence, Target},
        status::published,
    },
};

/// What a list says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lesson<'a> {
    /// Whose list it is.
    pub(super) provider: &'a str,
    /// The balancer, if it is listed.
    pub(super) listed: Option<&'a LoadBalancer>,
    /// What is not listed does not exist.
    pub(super) complete: bool,
}

/// Notes it in the lane. Whether the Service deserves a look.
pub(super) fn learn(lane: &mut Lane, lesson: &Lesson<'_>) -> bool {
    let news = match lesson.listed {
        Some(balancer) => learn_of(lane, lesson.provider, balancer),
        None if lesson.complete => learn_absence(lane),
        None => false,
    };
    // The slow resync is the second chance of what was refused.
    let refused = lane.attempt.as_ref().is_some_and(|attempt| attempt.until.is_none());
    if refused {
        lane.attempt = None;
    }
    news || refused
}

fn learn_of(lane: &mut Lane, provider: &str, balancer: &LoadBalancer) -> bool {
    match (balancer.state, balancer.ownership) {
        // Not known, or none of ours: nothing is concluded.
        (LoadBalancerState::Unknown | LoadBalancerState::NotOwned, _) => false,
        (LoadBalancerState::Absent, _) => learn_absence(lane),
        (_, Ownership::Unknown) => false,
        (_, Ownership::ByLegacyName) => std::mem::take(&mut lane.applied).is_some(),
        (state, Ownership::ByUid) => {
            lane.presence = Presence::Present;
            lane.holder = Some(provider.to_owned());
            let whole = state == LoadBalancerState::Active && balancer.sync_state != SyncState::Drifted;
            if whole { learn_applied(lane, balancer) } else { forget_applied(lane) }
        }
    }
}

/// It serves, with what the provider says it applied last.
fn learn_applied(lane: &mut Lane, balancer: &LoadBalancer) -> bool {
    let Some(digest) = &balancer.applied_digest else { return false };
    lane.ingress = Some(published(balancer));
    let known = lane.applied.as_ref().is_some_and(|applied| applied.digest == *digest);
    lane.in_doubt = false;
    if !known {
        lane.applied = Some(Target { digest: digest.clone(), backends: None });
    }
    !known
}

/// It drifted, or is being made or removed: only Ensure tells more.
fn forget_applied(lane: &mut Lane) -> bool {
    let in_hand = lane.attempt.as_ref().is_some_and(|attempt| attempt.until.is_some());
    lane.applied.take().is_some() && !in_hand
}

fn learn_absence(lane: &mut Lane) -> bool {
    let before = std::mem::replace(&mut lane.presence, Presence::Absent);
    lane.applied = None;
    before == Presence::Present
}
