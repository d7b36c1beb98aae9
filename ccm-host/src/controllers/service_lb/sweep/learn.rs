//! What a list says about the balancer of one Service: the lane learns it, and the verdict says what follows.

use std::{collections::HashMap, sync::Arc};

use super::is_ours;
use crate::{
    cloud::{LoadBalancer, LoadBalancerState, Ownership, Provider, SyncState},
    controllers::service_lb::{
        Controller,
        lane::{Applied, Difference, Lane, Presence},
        observe::is_published,
        services::{is_load_balancer, published},
    },
    kube::service::{Ingress, ObjectKey, Service},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Lesson<'a> {
    /// The provider that was listed.
    pub(super) provider: &'a str,
    /// The balancer, if the list has it.
    pub(super) listed: Option<&'a LoadBalancer>,
    /// The list is complete: what it lacks does not exist.
    pub(super) complete: bool,
}

/// The consequence of a list for one Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing to do.
    AsKnown,
    /// The lane learnt something, or is not as wanted: reconcile the Service.
    Look,
    /// The Service has its balancer at its owner; the listed one was left behind.
    LeftBehind,
}

impl Controller {
    /// Records in the Service's lane what the list said.
    pub(super) fn teach(
        &self,
        provider: &dyn Provider,
        service: &Arc<Service>,
        lesson: &Lesson<'_>,
        turns: &HashMap<ObjectKey, u64>,
    ) -> Verdict {
        let owner = self.parts.providers.for_service(service);
        // A Service that no longer wants a balancer may have left one anywhere.
        let is_owner = owner.is(provider) || !is_load_balancer(service);
        let is_here = lesson.listed.is_some_and(is_ours);
        if !is_owner && !is_here {
            return Verdict::AsKnown;
        }
        // A worker that holds the lane, or held it after the list began, knows more than the list.
        let Some(mut taken) = self.lanes.take(&service.key) else { return Verdict::AsKnown };
        // A lane created meanwhile without a call, as all are at the start, is still at turn zero.
        let turn = taken.lane.as_ref().map_or(0, |lane| lane.turn);
        if turn != turns.get(&service.key).copied().unwrap_or_default() {
            return Verdict::AsKnown;
        }
        let lane = taken.lane.get_or_insert_with(|| Lane::new(Arc::clone(service)));
        if !lane.is_of(&service.uid) {
            return Verdict::AsKnown;
        }
        let holder = lane.holder.as_deref().filter(|_| lane.presence == Presence::Present);
        let elsewhere = holder.is_some_and(|holder| holder != provider.name());
        let is_served = lane.settled
            && holder
                .and_then(|name| self.parts.providers.by_name(name))
                .is_some_and(|holder| owner.is(holder.as_ref()));
        // Of two balancers of one Service, the one at its owner stays.
        if elsewhere && !(is_here && owner.is(provider)) {
            let is_another = lesson.listed.is_some_and(|listed| is_another(lane, listed));
            return if is_here && is_served && is_another { Verdict::LeftBehind } else { Verdict::AsKnown };
        }
        let news = learn(lane, lesson);
        // Requeues whatever is not as wanted, even while it waits: nothing is stuck for longer than a period.
        let is_wanted =
            lane.settled && is_published(service, Some(lane)) && !self.is_outdated(provider, service, lane);
        if news || !is_wanted { Verdict::Look } else { Verdict::AsKnown }
    }

    /// Whether the applied digest differs from the wanted one, though nothing reported a change.
    fn is_outdated(&self, provider: &dyn Provider, service: &Service, lane: &Lane) -> bool {
        let wanted = || provider.desired_digest(service, &self.backends.of(provider));
        is_load_balancer(service) && lane.applied.as_ref().is_some_and(|applied| applied.digest != wanted())
    }
}

/// Whether the listed balancer is certainly not the one that serves the Service: two providers of one cloud, as while one
/// replaces the other, list the same balancer.
fn is_another(lane: &Lane, listed: &LoadBalancer) -> bool {
    let (ours, theirs) = (lane.ingress.as_deref().unwrap_or_default(), published(listed));
    !ours.is_empty() && !theirs.is_empty() && !theirs.iter().any(|one| is_among(ours, one))
}

/// Updates the lane. Pure. Returns whether to reconcile the Service.
fn learn(lane: &mut Lane, lesson: &Lesson<'_>) -> bool {
    let news = match lesson.listed {
        Some(balancer) => learn_of(lane, lesson.provider, balancer),
        None if lesson.complete => learn_absence(lane),
        None => false,
    };
    // The slow resync gives what was refused a second chance.
    let refused = [&mut lane.attempt, &mut lane.upkeep]
        .map(|attempt| attempt.take_if(|attempt| attempt.until.is_none()).is_some());
    news || refused.contains(&true)
}

fn learn_of(lane: &mut Lane, provider: &str, balancer: &LoadBalancer) -> bool {
    match (balancer.state, balancer.ownership) {
        // Unknown, or not ours: conclude nothing.
        (LoadBalancerState::Unspecified | LoadBalancerState::NotOwned, _) => false,
        (LoadBalancerState::Absent, _) => learn_absence(lane),
        (_, Ownership::Unspecified) => false,
        (_, Ownership::ByLegacyName) => std::mem::take(&mut lane.applied).is_some(),
        (state, Ownership::ByUid) => {
            lane.presence = Presence::Present;
            lane.holder = Some(provider.to_owned());
            if balancer.applied_digest.is_some() {
                lane.made_as.clone_from(&balancer.applied_digest);
            }
            let whole = state == LoadBalancerState::Active && balancer.sync_state != SyncState::Drifted;
            if whole { learn_applied(lane, balancer) } else { forget_applied(lane) }
        }
    }
}

/// The balancer serves, with the state that the provider says it applied last.
fn learn_applied(lane: &mut Lane, balancer: &LoadBalancer) -> bool {
    let Some(digest) = balancer.applied_digest.as_ref().filter(|_| !lane.released) else { return false };
    let listed = published(balancer);
    if !shrinks(lane.ingress.as_deref().unwrap_or(&lane.last.ingress), &listed) {
        lane.ingress = Some(listed);
    }
    let known = lane.applied.as_ref().is_some_and(|applied| applied.digest == *digest);
    lane.doubt = Difference::Nothing;
    if !known {
        lane.applied = Some(Applied::listed(digest.clone()));
    }
    !known
}

/// Whether a list merely omits entries that are published. A list comes from the provider's memory, so only an Ensure
/// may remove entries.
fn shrinks(published: &[Ingress], listed: &[Ingress]) -> bool {
    listed.iter().all(|one| is_among(published, one)) && !published.iter().all(|one| is_among(listed, one))
}

/// Whether one of the entries has the same address.
fn is_among(entries: &[Ingress], one: &Ingress) -> bool {
    entries.iter().any(|other| (&other.ip, &other.hostname) == (&one.ip, &one.hostname))
}

/// The balancer drifted, or is being created or deleted: only an Ensure tells more.
fn forget_applied(lane: &mut Lane) -> bool {
    let in_hand = lane.attempt.as_ref().is_some_and(|attempt| attempt.until.is_some());
    lane.applied.take().is_some() && !in_hand
}

fn learn_absence(lane: &mut Lane) -> bool {
    let before = std::mem::replace(&mut lane.presence, Presence::Absent);
    lane.applied = None;
    before == Presence::Present
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::{
        controllers::service_lb::lane::{Attempt, Intent},
        kube::fixtures::service,
    };

    fn listed() -> LoadBalancer {
        LoadBalancer {
            key: ObjectKey::new("default", "web"),
            service_uid: "web-uid".to_owned(),
            id: String::new(),
            name: String::new(),
            state: LoadBalancerState::Active,
            ingress: Vec::new(),
            applied_digest: Some("d1".to_owned()),
            sync_state: SyncState::InSync,
            ownership: Ownership::ByUid,
            rejected: Vec::new(),
        }
    }

    fn lane(presence: Presence, applied: Option<&str>) -> Lane {
        let mut lane = Lane::new(Arc::new(service("web")));
        lane.presence = presence;
        lane.applied = applied.map(|digest| Applied::listed(digest.to_owned()));
        lane
    }

    /// The lane's state afterwards.
    type Known = (bool, Presence, Option<&'static str>);

    #[test]
    fn a_list_is_believed_as_far_as_it_goes() {
        use LoadBalancerState as S;
        use Presence as P;
        let with = |change: fn(&mut LoadBalancer)| {
            let mut balancer = listed();
            change(&mut balancer);
            Some(balancer)
        };
        let fresh = || lane(P::Unknown, None);
        let same = || lane(P::Present, Some("d1"));
        let rows: [(&str, Lane, Option<LoadBalancer>, bool, Known); 16] = [
            ("SW-18: first seen", fresh(), Some(listed()), true, (true, P::Present, Some("d1"))),
            ("as known", same(), Some(listed()), true, (false, P::Present, Some("d1"))),
            ("as known, list incomplete", same(), Some(listed()), false, (false, P::Present, Some("d1"))),
            (
                "other digest",
                lane(P::Present, Some("d0")),
                Some(listed()),
                true,
                (true, P::Present, Some("d1")),
            ),
            (
                "drifted",
                same(),
                with(|one| one.sync_state = SyncState::Drifted),
                true,
                (true, P::Present, None),
            ),
            (
                "drift not known",
                same(),
                with(|one| one.sync_state = SyncState::Unspecified),
                true,
                (false, P::Present, Some("d1")),
            ),
            (
                "digest not known",
                same(),
                with(|one| one.applied_digest = None),
                true,
                (false, P::Present, Some("d1")),
            ),
            ("pending", fresh(), with(|one| one.state = S::Pending), true, (false, P::Present, None)),
            ("on its way out", same(), with(|one| one.state = S::Deleting), true, (true, P::Present, None)),
            (
                "SW-17: said to be absent",
                same(),
                with(|one| one.state = S::Absent),
                true,
                (true, P::Absent, None),
            ),
            ("SW-17: not in a complete list", same(), None, true, (true, P::Absent, None)),
            ("never made", fresh(), None, true, (false, P::Absent, None)),
            ("not in an incomplete list", same(), None, false, (false, P::Present, Some("d1"))),
            (
                "state not known",
                same(),
                with(|one| one.state = S::Unspecified),
                true,
                (false, P::Present, Some("d1")),
            ),
            (
                "owner not known",
                fresh(),
                with(|one| one.ownership = Ownership::Unspecified),
                true,
                (false, P::Unknown, None),
            ),
            (
                "a former controller's",
                fresh(),
                with(|one| one.ownership = Ownership::ByLegacyName),
                true,
                (false, P::Unknown, None),
            ),
        ];
        for (id, mut lane, listed, complete, want) in rows {
            let lesson = Lesson { provider: "cloud", listed: listed.as_ref(), complete };
            let look = learn(&mut lane, &lesson);
            let applied = lane.applied.as_ref().map(|applied| applied.digest.as_str());
            assert_eq!((look, lane.presence, applied), want, "{id}");
        }
    }

    #[test]
    fn only_what_was_refused_gets_a_second_chance() {
        let lesson = Lesson { provider: "cloud", listed: None, complete: false };
        for (until, want) in [(None, true), (Some(Instant::now()), false)] {
            let mut lane = lane(Presence::Present, None);
            lane.attempt = Some(Attempt { intent: Intent::Remove, until, in_progress: false });
            assert_eq!(learn(&mut lane, &lesson), want);
            assert_eq!(lane.attempt.is_none(), want);
        }
    }
}
