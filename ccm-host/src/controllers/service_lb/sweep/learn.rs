//! Applies what a list says about one balancer to its lane. Pure.

use crate::{
    cloud::{LoadBalancer, LoadBalancerState, Ownership, SyncState},
    controllers::service_lb::{
        lane::{Applied, Difference, Lane, Presence},
        status::published,
    },
    kube::service::Ingress,
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

/// Updates the lane. Returns whether to reconcile the Service.
pub(super) fn learn(lane: &mut Lane, lesson: &Lesson<'_>) -> bool {
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
    let Some(digest) = balancer.applied_digest.as_ref().filter(|_| !lane.is_released()) else { return false };
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
    let among = |entries: &[Ingress], one: &Ingress| {
        entries.iter().any(|other| (&other.ip, &other.hostname) == (&one.ip, &one.hostname))
    };
    listed.iter().all(|one| among(published, one)) && !published.iter().all(|one| among(listed, one))
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
        kube::{fixtures::service, service::ObjectKey},
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
