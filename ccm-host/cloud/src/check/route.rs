//! Checks answers about routes.

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use super::{effects, instance::addresses};
use crate::findings::{Findings, rule, shown};
use crate::{CloudError, EnsureRoute, EnsuredRoute, InProgress, Route, RouteState, RouteTarget, method};
use ccm_base::cidr;

const LONGEST_ID: usize = 1 << 10;

/// A route as the provider describes it; `None` without a usable id or destination. If routes cannot record an owner, all
/// routes in the cluster's tables are the cluster's.
pub(crate) fn route(given: pb::Route, record_owner: bool, findings: &mut Findings) -> Option<Route> {
    let pb::Route { id, destination_cidr, target, state, ownership } = given;
    if id.is_empty() || id.len() > LONGEST_ID {
        let shown = shown(&destination_cidr, LONGEST_ID);
        findings.reject(rule::ROUTE_REQUIRED, format!("the route to {shown:?} has no usable id"));
        return None;
    }
    let Some(network) = cidr::parse(&destination_cidr) else {
        let shown = shown(&destination_cidr, LONGEST_ID);
        findings.reject(
            rule::ROUTE_CANONICAL,
            format!("the route {id:?} leads to {shown:?}, which is not a CIDR"),
        );
        return None;
    };
    let destination = network.trunc();
    if destination.to_string() != destination_cidr {
        findings.reject(
            rule::ROUTE_CANONICAL,
            format!("the route {id:?} leads to {destination}, written as {destination_cidr:?}"),
        );
    }
    let state = findings.known(state);
    let target = target.map(|given| target_of(given, findings)).filter(|target| !target.is_nothing());
    let ownership = if record_owner { findings.known(ownership) } else { pb::Ownership::ByUid };
    if ownership == pb::Ownership::Unspecified {
        findings.count(rule::ROUTE_OWNERSHIP);
    }
    let ours = ownership == pb::Ownership::ByUid;
    Some(Route { id, destination, target, state, ours })
}

/// The answer to one requested route.
pub(crate) fn ensured_route(
    given: pb::RouteResult,
    wanted: &EnsureRoute,
    record_owner: bool,
    findings: &mut Findings,
) -> Result<EnsuredRoute, CloudError> {
    let method = method::BATCH_ENSURE_ROUTES.name;
    let events = effects::events(given.events, findings);
    if let Some(error) = given.error {
        return Err(CloudError::of_item(method, error, findings));
    }
    let mut in_progress = given.in_progress.map(|given| effects::in_progress(given, findings));
    let answered = given.route.and_then(|given| route(given, record_owner, findings));
    let echoed = answered.filter(|route| leads_as_wanted(route, wanted, findings));
    let Some(route) = echoed else {
        return match in_progress {
            Some(_) => Ok(EnsuredRoute { route: None, in_progress, events }),
            None => {
                let wish = format!("{} to node {:?}", wanted.destination, wanted.node.name);
                Err(CloudError::defect(method, format!("the response contains no route that leads {wish}")))
            }
        };
    };
    match route.state {
        RouteState::Pending if in_progress.is_none() => {
            in_progress = Some(InProgress {
                retry_after: defaults::IN_PROGRESS_RETRY_AFTER,
                reason: String::new(),
                message: "the route is being made".to_owned(),
            });
        }
        RouteState::Unspecified if in_progress.is_none() => {
            return Err(CloudError::defect(method, "the provider does not report whether the route works"));
        }
        RouteState::Active | RouteState::Pending | RouteState::Blackhole | RouteState::Unspecified => {}
    }
    Ok(EnsuredRoute { route: Some(route), in_progress, events })
}

/// An answer about another destination or another node does not answer the request.
fn leads_as_wanted(route: &Route, wanted: &EnsureRoute, findings: &mut Findings) -> bool {
    let node = &wanted.node;
    let asked = node.provider_id.as_deref().unwrap_or_default();
    let echoes = |target: &RouteTarget| {
        target.name == node.name
            && (asked.is_empty() || target.provider_id.is_empty() || target.provider_id == asked)
    };
    let echoed = route.destination == wanted.destination && route.target.as_ref().is_some_and(echoes);
    if !echoed {
        findings.count(rule::ROUTE_ECHO_TARGET);
    }
    echoed
}

fn target_of(given: pb::NodeRef, findings: &mut Findings) -> RouteTarget {
    RouteTarget {
        name: shown(&given.name, LONGEST_ID),
        uid: shown(&given.uid, LONGEST_ID),
        provider_id: shown(&given.provider_id, LONGEST_ID),
        addresses: addresses(given.addresses, findings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_kube::fixtures::node;
    use std::sync::Arc;

    fn given(id: &str, cidr: &str, target: Option<&str>) -> pb::Route {
        pb::Route {
            id: id.into(),
            destination_cidr: cidr.into(),
            target: target.map(|name| pb::NodeRef { name: name.into(), ..Default::default() }),
            state: pb::RouteState::Active.into(),
            ownership: pb::Ownership::ByUid.into(),
        }
    }

    /// ROUTE-26, RESP-16, RESP-17: networks are compared, never texts; an invalid network is no route.
    #[test]
    fn a_destination_is_read_as_a_network() {
        let rows = [
            ("canonical", "10.0.1.0/24", Some("10.0.1.0/24"), 0),
            ("host bits", "10.0.1.1/24", Some("10.0.1.0/24"), 1),
            ("leading zeros", "010.0.1.0/24", Some("10.0.1.0/24"), 1),
            ("mapped IPv4", "::ffff:10.0.1.0/120", Some("10.0.1.0/24"), 1),
            ("upper case", "FD00::/64", Some("fd00::/64"), 1),
            ("junk", "junk", None, 1),
        ];
        for (name, text, want, broken) in rows {
            let mut findings = Findings::default();
            let read = route(given("rt-1", text, Some("n")), true, &mut findings);
            assert_eq!(read.map(|route| route.destination.to_string()).as_deref(), want, "{name}");
            assert_eq!(findings.rules, vec![rule::ROUTE_CANONICAL; broken], "{name}");
            assert_eq!(findings.rejected.len(), broken, "{name}");
        }
    }

    #[test]
    fn a_route_has_an_id_and_a_state_that_is_known() {
        let mut findings = Findings::default();
        assert_eq!(route(given("", "10.0.1.0/24", None), true, &mut findings), None);
        assert_eq!(findings.rules, [rule::ROUTE_REQUIRED]);

        let mut findings = Findings::default();
        let newer = pb::Route { state: 77, ..given("rt-1", "10.0.1.0/24", Some("n")) };
        assert_eq!(route(newer, true, &mut findings).unwrap().state, RouteState::Unspecified);
        assert_eq!(findings.rules, [rule::UNKNOWN_ENUM]);

        for (ownership, ours, broken) in [
            (pb::Ownership::ByUid.into(), true, vec![]),
            (pb::Ownership::ByLegacyName.into(), false, vec![]),
            (0, false, vec![rule::ROUTE_OWNERSHIP]),
            (77, false, vec![rule::UNKNOWN_ENUM, rule::ROUTE_OWNERSHIP]),
        ] {
            let mut findings = Findings::default();
            let given = pb::Route { ownership, ..given("rt-1", "10.0.1.0/24", Some("n")) };
            assert_eq!(route(given, true, &mut findings).unwrap().ours, ours, "{ownership}");
            assert_eq!(findings.rules, broken, "{ownership}");
        }

        let nameless = given("rt-1", "10.0.1.0/24", Some(""));
        assert_eq!(route(nameless, true, &mut Findings::default()).unwrap().target, None);
    }

    fn ensured(result: pb::RouteResult) -> (Result<EnsuredRoute, CloudError>, Vec<&'static str>) {
        let wanted = EnsureRoute {
            destination: "10.0.1.0/24".parse().unwrap(),
            node: Arc::new(node("n").with_provider_id("test://n")),
        };
        let mut findings = Findings::default();
        (ensured_route(result, &wanted, true, &mut findings), findings.rules)
    }

    fn standing(cidr: &str, name: &str, provider_id: &str, state: pb::RouteState) -> pb::RouteResult {
        let mut route = given("rt-1", cidr, Some(name));
        route.target.as_mut().unwrap().provider_id = provider_id.into();
        route.state = state.into();
        pb::RouteResult { route: Some(route), ..Default::default() }
    }

    #[test]
    fn an_answer_is_believed_only_for_what_was_asked() {
        use pb::RouteState as S;
        let (echo, defect) = (rule::ROUTE_ECHO_TARGET, super::super::super::ErrorReason::InternalError);
        let rows = [
            ("as asked", standing("10.0.1.0/24", "n", "test://n", S::Active), Ok(false), vec![]),
            ("no provider ID", standing("10.0.1.0/24", "n", "", S::Active), Ok(false), vec![]),
            ("another node", standing("10.0.1.0/24", "m", "", S::Active), Err(defect), vec![echo]),
            ("another machine", standing("10.0.1.0/24", "n", "test://m", S::Active), Err(defect), vec![echo]),
            ("another network", standing("10.0.2.0/24", "n", "test://n", S::Active), Err(defect), vec![echo]),
            ("being made", standing("10.0.1.0/24", "n", "test://n", S::Pending), Ok(true), vec![]),
            (
                "nothing is known",
                standing("10.0.1.0/24", "n", "test://n", S::Unspecified),
                Err(defect),
                vec![],
            ),
            ("nothing", pb::RouteResult::default(), Err(defect), vec![]),
            (
                "going on, without a route",
                pb::RouteResult {
                    in_progress: Some(pb::InProgress {
                        retry_after: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
                        ..Default::default()
                    }),
                    ..Default::default()
                },
                Ok(true),
                vec![],
            ),
        ];
        for (name, result, want, rules) in rows {
            let (seen, broken) = ensured(result);
            let seen = seen.map(|answer| answer.in_progress.is_some()).map_err(|error| error.reason.unwrap());
            assert_eq!((seen, broken), (want, rules), "{name}");
        }
    }
}
