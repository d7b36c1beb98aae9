//! Whatever a provider answers: nothing panics, and nothing is believed that the contract forbids.

use cloudprovider_proto::{discovery::v1::GetInfoRequest, v1alpha1 as pb};
use prost::Message;
use tonic::{Code, Status};

use super::believed::Believed;
use crate::{
    CloudError, Freshness, LoadBalancer,
    call::answer::{most_bytes, takes},
    check::{self, Asked},
    connection::negotiate::negotiate,
    findings::Findings,
    method::Rpc,
};
use ccm_kube::ObjectKey;

/// The first byte chooses the call, the rest is the answer.
pub fn answers(data: &[u8]) {
    let Some((call, answer)) = data.split_first() else { return };
    let is = Believed(0);
    let findings = &mut Findings::default();
    match call % 7 {
        0 => {
            let Some(answer) = decoded::<pb::BatchGetInstancesRequest>(answer, Some(4)) else { return };
            let asked = Asked {
                prefixes: &["fake://".to_owned()],
                annotation_prefixes: &["a/".to_owned()],
                freshness: Freshness::ReadThrough,
                at: jiff::Timestamp::UNIX_EPOCH,
            };
            for result in answer.results {
                is.instance(&check::answer(result, &asked, findings));
            }
        }
        1 => {
            let Some(page) = decoded::<pb::ListLoadBalancersRequest>(answer, None) else { return };
            let listed: Vec<LoadBalancer> =
                page.load_balancers.into_iter().filter_map(|one| check::listed(one, findings)).collect();
            is.that(listed.iter().all(|one| !one.service_uid.is_empty()), "a balancer of nobody");
            listed.iter().for_each(|one| is.balancer(one));
        }
        2 => {
            let Some(answer) = decoded::<pb::EnsureLoadBalancerRequest>(answer, Some(1)) else { return };
            let wants = pb::Wants { service_annotation_writes: vec!["a/".to_owned()], ..Default::default() };
            let ensured = check::ensured(answer, &ObjectKey::new("shop", "web"), "u-1", &wants, findings);
            let effects = &ensured.effects;
            is.that(effects.annotations.keys().all(|key| key.starts_with("a/")), "an annotation of others");
            is.that(effects.conditions.is_empty(), "a condition that nobody advertised");
            is.ensured(&ensured);
        }
        3 => {
            let Some(page) = decoded::<pb::ListRoutesRequest>(answer, None) else { return };
            for given in page.routes {
                let owned = given.ownership() == pb::Ownership::ByUid;
                let Some(route) = check::route(given, true, findings) else { continue };
                is.that(owned || !route.ours, "a route of others");
                is.route(&route);
            }
        }
        4 => {
            let Some(answer) = decoded::<pb::BatchGetVolumeLabelsRequest>(answer, Some(4)) else { return };
            for result in answer.results {
                let answer = crate::volumes::volume(result, findings);
                let plain = |text: &String| text.len() <= 63;
                is.that(answer.labels.values().all(plain), "a label of a volume");
                answer.error.iter().for_each(|error| is.error(error));
            }
        }
        5 => {
            let details = answer.to_vec().into();
            let status = Status::with_details(Code::Unavailable, "busy", details);
            is.error(&CloudError::of_status("GetStatus", &status, findings));
        }
        _ => {
            let Some(hello) = decoded::<GetInfoRequest>(answer, Some(1)) else { return };
            if let Ok(served) = negotiate(&hello.services) {
                is.that(served.has("CloudProvider"), "a provider that serves nothing");
            }
        }
    }
    is.that(findings.rejected.len() <= 32, "a long story");
}

/// The answer, as the host decodes it.
fn decoded<Q: Rpc>(bytes: &[u8], items: Option<usize>) -> Option<Q::Answer> {
    let is_too_much = takes(Q::METHOD.path, bytes) > most_bytes(items);
    Q::Answer::decode(bytes).ok().filter(|_| !is_too_much)
}
