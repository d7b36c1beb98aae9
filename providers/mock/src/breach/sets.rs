//! Breaches in remembering backend sets, and in building something else than the answer says.

use std::collections::BTreeSet;

use cloudprovider_sdk::{ProviderError, proto::*};
use serde_json::json;

use crate::{
    cloud::Balancer,
    contract::{Message, Method, method},
    effect::{Effect, Shot, Turn, effect},
};

const WITH_SETS: &[&Method] = &[&method::ENSURE_LOAD_BALANCER, &method::BATCH_UPDATE_LOAD_BALANCERS];
const UPDATE: &[&Method] = &[&method::BATCH_UPDATE_LOAD_BALANCERS];
const ADVERTISED_TOO: &[&Method] =
    &[&method::GET_CAPABILITIES, &method::ENSURE_LOAD_BALANCER, &method::BATCH_UPDATE_LOAD_BALANCERS];

pub(super) const BREACHES: &[Effect] = &[
    effect("built-as-asked", "a part of the request is silently not built")
        .to(WITH_SETS)
        .ways(&[
            "backends",
            "source-ranges",
            "ports",
            "node-ports",
            "protocol",
            "family",
            "health-check",
            "second-family",
            "second-protocol",
            "many-ports",
            "high-ports",
            "ranges-of-ipv6",
            "health-check-moved",
            "health-check-kept",
            "location-down",
            "still-open",
        ])
        .asked(|request, shot| {
            if shot.method == &method::ENSURE_LOAD_BALANCER {
                let stood = shot.balancer_of(request);
                if let Some(stood) = stood.as_ref().filter(|stood| stood.health_check_port > 0) {
                    shot.memory.checks.lock().insert(stood.id.clone(), stood.health_check_port);
                }
                request.each(|service| lessen(service, stood.as_ref(), shot.variant));
            }
            match shot.variant {
                "backends" => request.each(|set: &mut BackendSet| set.nodes.clear()),
                "location-down" => request.each(|set: &mut BackendSet| {
                    let down = shot.look(|state| state.conditions.unreachable_zones.clone());
                    let within = |id: &str| down.iter().any(|zone| id.contains(&format!("//{zone}/")));
                    set.nodes.retain(|node| !within(&node.provider_id));
                }),
                _ => {}
            }
        })
        .late(|request, _, shot| {
            if shot.variant == "health-check-kept"
                && let Some(now) = shot.balancer_of(request)
                && let Some(former) =
                    shot.memory.checks.lock().get(&now.id).filter(|_| now.health_check_port == 0)
            {
                let patch = json!({"health_check_port": former, "drifted": false});
                let _is_there = shot.alter(|state| state.patch_balancer(&now.id, &patch));
            }
        }),
    effect("update-every-item", "only the first balancer of a batch gets the backends")
        .to(UPDATE)
        .asked(|request, _| {
            request.each(|batch: &mut BatchUpdateLoadBalancersRequest| batch.items.truncate(1));
        })
        .late(|_, reply, shot| {
            reply.each(shot, |answer: &mut BatchUpdateLoadBalancersResponse| {
                answer.results.extend(shot.subjects.iter().skip(1).map(|subject| LoadBalancerUpdateResult {
                    service_uid: subject.key.clone(),
                    outcome: UpdateOutcome::Updated.into(),
                    ..LoadBalancerUpdateResult::default()
                }));
            });
        }),
    effect(
        "set-by-digest",
        "no backend set is remembered, or only the last one, or a digest stands for no nodes",
    )
    .to(WITH_SETS)
    .ways(&["at-once", "all-but-one", "empty"])
    .early(forget),
    effect("set-unknown", "an unknown digest stands for no nodes").to(WITH_SETS).asked(empty),
    effect("set-per-cluster", "a digest stands for the set of any cluster").to(WITH_SETS).asked(fill_in),
    effect("set-needs-capability", "sets by digest are not advertised, and a digest stands for no nodes")
        .to(ADVERTISED_TOO)
        .late(|_, reply, shot| {
            let by_digest = i32::from(Capability::BackendSetsByDigest);
            reply.each(shot, |answer: &mut GetCapabilitiesResponse| {
                answer.capabilities.retain(|one| *one != by_digest);
            });
        })
        .asked(empty),
];

/// Fills in omitted nodes from all sets ever received, by digest alone.
fn fill_in(request: &mut Message, shot: &Shot<'_>) {
    let mut came = shot.memory.sets.lock();
    request.each(|set: &mut BackendSet| {
        if !set.nodes_omitted {
            came.push((set.digest.clone(), set.nodes.clone()));
        } else if let Some((_, nodes)) = came.iter().rfind(|(digest, _)| *digest == set.digest) {
            (set.nodes, set.nodes_omitted) = (nodes.clone(), false);
        }
    });
}

fn forget(request: &mut Message, shot: &Shot<'_>) -> Turn {
    if shot.variant == "empty" {
        empty(request, shot);
        return Turn::GoOn;
    }
    let last = (shot.variant == "all-but-one").then(|| shot.memory.sets.lock().pop()).flatten();
    *shot.memory.sets.lock() = Vec::from_iter(last);
    fill_in(request, shot);
    let mut unknown = None;
    request.each(|set: &mut BackendSet| unknown = set.nodes_omitted.then(|| set.digest.clone()));
    unknown.map_or(Turn::GoOn, |digest| Turn::fail(ProviderError::unknown_backend_set(&digest)))
}

fn empty(request: &mut Message, _shot: &Shot<'_>) {
    request.each(|set: &mut BackendSet| set.nodes_omitted = false);
}

fn lessen(service: &mut Service, stood: Option<&Balancer>, variant: &str) {
    match variant {
        "second-family" => {
            service.ip_families.truncate(1);
            service.set_ip_family_policy(IpFamilyPolicy::SingleStack);
        }
        "second-protocol" => {
            let mut taken = BTreeSet::new();
            service.ports.retain(|port| taken.insert(port.port));
        }
        "many-ports" => service.ports.truncate(10),
        "high-ports" => service.ports.retain(|port| port.port <= i32::from(i16::MAX)),
        "ranges-of-ipv6" => service.source_ranges.retain(|range| !range.contains(':')),
        "health-check-moved" => {
            let former = stood.map(|stood| stood.health_check_port).filter(|port| *port > 0);
            service.health_check_node_port = former.unwrap_or(service.health_check_node_port);
        }
        "source-ranges" => service.source_ranges.clear(),
        "still-open" => {
            let everybody = "0.0.0.0/0".to_owned();
            let was_open =
                |stood: &Balancer| stood.source_ranges.is_empty() || stood.source_ranges.contains(&everybody);
            if stood.is_some_and(was_open) && !service.source_ranges.is_empty() {
                service.source_ranges.push(everybody);
            }
        }
        "ports" => service.ports.truncate(1),
        "node-ports" => service.ports.iter_mut().for_each(|port| port.node_port = port.port),
        "protocol" => service.ports.iter_mut().for_each(|port| port.set_protocol(Protocol::Tcp)),
        "family" => service.ip_families = vec![IpFamily::Ipv4.into()],
        "health-check" => service.set_external_traffic_policy(TrafficPolicy::Cluster),
        _ => {}
    }
}
