//! Checks answers about balancers.

use cloudprovider_proto::v1alpha1 as pb;

use super::{Findings, effects, ingress::ingress, rule, text};
use crate::{
    cloud::{Ensured, LoadBalancer, LoadBalancerState, Ownership, SyncState},
    kube::ObjectKey,
};

const LONGEST_ID: usize = 1 << 10;
const LONGEST_DIGEST: usize = 128;

/// The balancer of the requested Service. If the answer names another Service, its state is unknown.
pub(in crate::cloud) fn balancer(
    given: Option<pb::LoadBalancer>,
    key: &ObjectKey,
    uid: &str,
    findings: &mut Findings,
) -> LoadBalancer {
    let given = given.unwrap_or_default();
    let answered = given.service.as_ref().map_or("", |service| service.uid.as_str()).to_owned();
    let mut read = read(given, key.clone(), uid.to_owned(), findings);
    if answered != uid {
        findings.reject(
            rule::SERVICE_REF,
            format!("the answer is about the service uid {answered:?}, not {uid:?}"),
        );
        read.state = LoadBalancerState::Unknown;
        read.ownership = Ownership::Unknown;
        read.ingress.clear();
        read.applied_digest = None;
        read.sync_state = SyncState::Unknown;
    }
    read.rejected.append(&mut findings.rejected);
    read
}

/// Whether a former controller made this balancer and its Service cannot be identified. That is not the provider's
/// fault, and the balancer belongs to no Service of ours.
pub(in crate::cloud) fn is_nobodys(given: &pb::LoadBalancer) -> bool {
    given.ownership() == pb::Ownership::ByLegacyName
        && given.service.as_ref().is_none_or(|service| service.uid.is_empty())
}

/// A balancer of a list; `None` if it does not name its Service.
pub(in crate::cloud) fn listed(mut given: pb::LoadBalancer, findings: &mut Findings) -> Option<LoadBalancer> {
    let Some(service) = given.service.take().filter(|service| !service.uid.is_empty()) else {
        findings.count(rule::SERVICE_REF);
        return None;
    };
    let key = ObjectKey::new(service.namespace, service.name);
    let mut read = read(given, key, service.uid, findings);
    read.rejected.append(&mut findings.rejected);
    Some(read)
}

/// The answer of Ensure, reduced to what the provider may write on the Service.
pub(in crate::cloud) fn ensured(
    given: pb::EnsureLoadBalancerResponse,
    key: &ObjectKey,
    uid: &str,
    wants: &pb::Wants,
    findings: &mut Findings,
) -> Ensured {
    let prefixes = &wants.service_annotation_writes;
    let in_progress = given.in_progress.map(|given| effects::in_progress(given, findings));
    let events = effects::events(given.events, findings);
    let annotations = effects::annotations(given.service_annotations, prefixes, findings);
    let removed_annotations =
        effects::removed_annotations(given.removed_service_annotations, prefixes, findings);
    let conditions = effects::conditions(given.service_conditions, &wants.service_condition_writes, findings);
    let load_balancer = balancer(given.load_balancer, key, uid, findings);
    Ensured { load_balancer, in_progress, events, annotations, removed_annotations, conditions }
}

fn read(
    given: pb::LoadBalancer,
    key: ObjectKey,
    service_uid: String,
    findings: &mut Findings,
) -> LoadBalancer {
    let state = state(findings.known(given.state));
    let ownership = match findings.known(given.ownership) {
        pb::Ownership::Unspecified => Ownership::Unknown,
        pb::Ownership::ByUid => Ownership::ByUid,
        pb::Ownership::ByLegacyName => Ownership::ByLegacyName,
    };
    let no_owner = matches!(state, LoadBalancerState::Absent | LoadBalancerState::NotOwned);
    if ownership == Ownership::Unknown && !no_owner {
        findings.count(rule::OWNERSHIP_REQUIRED);
    }
    LoadBalancer {
        key,
        service_uid,
        id: text::shown(&given.id, LONGEST_ID),
        name: text::shown(&given.name, LONGEST_ID),
        state,
        ingress: ingress(given.ingress, findings),
        applied_digest: Some(given.applied_digest)
            .filter(|digest| !digest.is_empty() && digest.len() <= LONGEST_DIGEST),
        sync_state: match findings.known(given.sync_state) {
            pb::SyncState::Unspecified => SyncState::Unknown,
            pb::SyncState::InSync => SyncState::InSync,
            pb::SyncState::Drifted => SyncState::Drifted,
        },
        ownership,
        rejected: Vec::new(),
    }
}

fn state(state: pb::LoadBalancerState) -> LoadBalancerState {
    match state {
        pb::LoadBalancerState::Unspecified => LoadBalancerState::Unknown,
        pb::LoadBalancerState::Pending => LoadBalancerState::Pending,
        pb::LoadBalancerState::Active => LoadBalancerState::Active,
        pb::LoadBalancerState::Deleting => LoadBalancerState::Deleting,
        pb::LoadBalancerState::Absent => LoadBalancerState::Absent,
        pb::LoadBalancerState::NotOwned => LoadBalancerState::NotOwned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(uid: &str, state: i32) -> pb::LoadBalancer {
        pb::LoadBalancer {
            service: Some(pb::ServiceRef { namespace: "ns".into(), name: "web".into(), uid: uid.into() }),
            state,
            applied_digest: "d".into(),
            ownership: pb::Ownership::ByUid.into(),
            ..Default::default()
        }
    }

    #[test]
    fn an_answer_about_another_service_says_nothing() {
        let mut findings = Findings::default();
        let key = ObjectKey::new("ns", "web");
        let read =
            balancer(Some(given("u2", pb::LoadBalancerState::Absent.into())), &key, "u1", &mut findings);
        assert_eq!((read.state, read.ownership), (LoadBalancerState::Unknown, Ownership::Unknown));
        assert_eq!((read.service_uid.as_str(), read.applied_digest), ("u1", None));
        assert_eq!(read.rejected.len(), 1);
        assert_eq!(findings.rules, [rule::SERVICE_REF]);
    }

    #[test]
    fn states_of_a_newer_contract_are_unknown() {
        let mut findings = Findings::default();
        let read = listed(given("u1", 42), &mut findings).unwrap();
        assert_eq!(read.state, LoadBalancerState::Unknown);
        assert_eq!(findings.rules, [rule::UNKNOWN_ENUM]);
    }

    #[test]
    fn a_listed_balancer_says_whose_it_is() {
        let mut findings = Findings::default();
        assert!(listed(pb::LoadBalancer::default(), &mut findings).is_none());
        assert_eq!(findings.rules, [rule::SERVICE_REF]);
    }
}
