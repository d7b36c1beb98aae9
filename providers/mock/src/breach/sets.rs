//! Breaches in remembering backend sets, and in building something else than the answer says.

use std::collections::BTreeSet;

use cloudprovider_sdk::{ProviderError, proto::*};
use serde_json::{Value, json};

use crate::{
    cloud::{Balancer, Port, State},
    contract::{Message, Method, method},
    effect::{Effect, Shot, Turn, effect},
};

const WITH_SETS: &[&Method] = &[&method::ENSURE_LOAD_BALANCER, &method::BATCH_UPDATE_LOAD_BALANCERS];
const UPDATE: &[&Method] = &[&method::BATCH_UPDATE_LOAD_BALANCERS];
const ADVERTISED_TOO: &[&Method] =
    &[&method::GET_CAPABILITIES, &method::ENSURE_LOAD_BALANCER, &method::BATCH_UPDATE_LOAD_BALANCERS];

pub(super) const BREACHES: &[Effect] = &[
    effect("built-as-asked", "a part is silently not built, or another call's is, or what is gone counts")
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
            "ranges-kept",
            "node-ports-kept",
            "unwanted-fields",
            "gone-attached",
            "gone-refused",
            "mixed",
            "affinity",
            "requested-address",
            "no-node-ports",
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
                "mixed" => shot.memory.under_way.lock().extend(request.first::<Service>()),
                // It wants none of it, so no host sends it.
                "unwanted-fields" => request.each(|set: &mut BackendSet| {
                    set.nodes.retain(|node| !node.system_uuid.is_empty());
                }),
                "location-down" => request.each(|set: &mut BackendSet| {
                    let down = shot.look(|state| state.conditions.unreachable_zones.clone());
                    let within = |id: &str| down.iter().any(|zone| id.contains(&format!("//{zone}/")));
                    set.nodes.retain(|node| !within(&node.provider_id));
                }),
                _ => {}
            }
        })
        .early(|request, shot| {
            let vanished =
                || request.first::<BackendSet>()?.nodes.into_iter().find(|node| is_gone(node, shot));
            match (shot.variant == "gone-refused").then(vanished).flatten() {
                Some(node) => Turn::fail(ProviderError::instance_not_found(&node.provider_id)),
                None => Turn::GoOn,
            }
        })
        .late(|request, _, shot| {
            let Some(now) = shot.balancer_of(request) else { return };
            if let Some(patch) = built_otherwise(request, &now, shot) {
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

/// Whether the instance of this node is gone.
fn is_gone(node: &NodeRef, shot: &Shot<'_>) -> bool {
    let machines = |state: &State| state.instances().all(|one| one.provider_id != node.provider_id);
    !node.provider_id.is_empty() && shot.look(machines)
}

/// What becomes of a balancer beside what was asked for.
fn built_otherwise(request: &Message, now: &Balancer, shot: &Shot<'_>) -> Option<Value> {
    match shot.variant {
        "health-check-kept" => {
            let checks = shot.memory.checks.lock();
            let former = checks.get(&now.id).filter(|_| now.health_check_port == 0)?;
            Some(json!({"health_check_port": former, "drifted": false}))
        }
        "gone-attached" => {
            let set = request.first::<BackendSet>().filter(|set| !set.nodes_omitted)?;
            let targets =
                set.nodes.into_iter().map(|node| json!({"node": node.name, "provider_id": node.provider_id}));
            Some(json!({"backends": targets.collect::<Vec<_>>(), "drifted": false}))
        }
        "mixed" => {
            let mut under_way = shot.memory.under_way.lock();
            under_way.retain(|other| other.r#ref.as_ref().is_none_or(|of| of.uid != now.service_uid));
            let ports: Vec<_> = under_way.first()?.ports.iter().map(Port::from).collect();
            Some(json!({"ports": ports, "drifted": false}))
        }
        _ => None,
    }
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
        "affinity" => service.client_ip_affinity = None,
        "requested-address" => service.load_balancer_ip.clear(),
        "no-node-ports" => service.allocate_node_ports = None,
        "still-open" => {
            let everybody = "0.0.0.0/0".to_owned();
            let was_open =
                |stood: &Balancer| stood.source_ranges.is_empty() || stood.source_ranges.contains(&everybody);
            if stood.is_some_and(was_open) && !service.source_ranges.is_empty() {
                service.source_ranges.push(everybody);
            }
        }
        "ranges-kept" if !service.source_ranges.is_empty() => {
            let former = stood.into_iter().flat_map(|stood| stood.source_ranges.iter().cloned());
            let former: Vec<_> = former.filter(|range| !service.source_ranges.contains(range)).collect();
            service.source_ranges.extend(former);
        }
        "ports" => service.ports.truncate(1),
        "node-ports-kept" => service.ports.iter_mut().for_each(|port| {
            let same = |one: &&Port| (one.protocol as i32, one.port) == (port.protocol, port.port);
            let former = stood.and_then(|stood| stood.ports.iter().find(same));
            port.node_port = former.map_or(port.node_port, |former| former.node_port);
        }),
        "node-ports" => service.ports.iter_mut().for_each(|port| port.node_port = port.port),
        "protocol" => service.ports.iter_mut().for_each(|port| port.set_protocol(Protocol::Tcp)),
        "family" => service.ip_families = vec![IpFamily::Ipv4.into()],
        "health-check" => service.set_external_traffic_policy(TrafficPolicy::Cluster),
        _ => {}
    }
}
