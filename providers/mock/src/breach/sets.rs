//! Breaches by what is known of sets of backends, and by what is built while the answer says that all is as wanted.

use cloudprovider_sdk::{
    ProviderError,
    proto::{BackendSet, Capability, GetCapabilitiesResponse, IpFamily, Protocol, Service, TrafficPolicy},
};

use super::{Breach, asked, early, late};
use crate::wire::{Method, Request, Shot, Turn};

const WITH_SETS: &[Method] = &[Method::EnsureLoadBalancer, Method::BatchUpdateLoadBalancers];
const UPDATE: &[Method] = &[Method::BatchUpdateLoadBalancers];
const ADVERTISED_TOO: &[Method] =
    &[Method::GetCapabilities, Method::EnsureLoadBalancer, Method::BatchUpdateLoadBalancers];

pub(super) const BREACHES: &[Breach] = &[
    asked(
        "built-as-asked",
        "a part of what was asked for is not built, and nobody says so",
        WITH_SETS,
        |request, shot| {
            if let Request::EnsureLoadBalancer(request) = request {
                request.service.iter_mut().for_each(|service| lessen(service, shot.variant));
            }
            if shot.variant == "backends" {
                sets(request).iter_mut().for_each(|set| set.nodes.clear());
            }
        },
    )
    .ways(&["backends", "source-ranges", "ports", "node-ports", "protocol", "family", "health-check"]),
    asked("update-own-set", "each balancer of a batch gets the first set", UPDATE, |request, _| {
        if let Request::BatchUpdateLoadBalancers(request) = request {
            request.items.iter_mut().for_each(|item| item.backend_set = 0);
        }
    }),
    early(
        "set-by-digest",
        "no set is known again, or only the last one, or a digest stands for no nodes",
        WITH_SETS,
        forget,
    )
    .ways(&["at-once", "all-but-one", "empty"]),
    asked("set-unknown", "a digest that is not known stands for no nodes", WITH_SETS, empty),
    asked("set-per-cluster", "a digest stands for the set of whichever cluster", WITH_SETS, fill_in),
    late(
        "set-needs-capability",
        "nothing is said of sets by digest, and a digest stands for no nodes",
        ADVERTISED_TOO,
        |_, reply, _| {
            let by_digest = i32::from(Capability::BackendSetsByDigest);
            reply.edit(|answer: &mut GetCapabilitiesResponse| {
                answer.capabilities.retain(|one| *one != by_digest);
            });
        },
    )
    .and_asked(empty),
];

fn sets(request: &mut Request) -> &mut [BackendSet] {
    match request {
        Request::EnsureLoadBalancer(request) => request.backends.as_mut_slice(),
        Request::BatchUpdateLoadBalancers(request) => &mut request.backend_sets,
        _ => &mut [],
    }
}

/// What is left out is filled in from all that ever came, by digest alone.
fn fill_in(request: &mut Request, shot: &Shot<'_>) {
    let mut came = shot.memory.sets.lock();
    for set in sets(request) {
        if !set.nodes_omitted {
            came.push((set.digest.clone(), set.nodes.clone()));
        } else if let Some((_, nodes)) = came.iter().rfind(|(digest, _)| *digest == set.digest) {
            (set.nodes, set.nodes_omitted) = (nodes.clone(), false);
        }
    }
}

fn forget(request: &mut Request, shot: &Shot<'_>) -> Turn {
    if shot.variant == "empty" {
        empty(request, shot);
        return Turn::GoOn;
    }
    let last = (shot.variant == "all-but-one").then(|| shot.memory.sets.lock().pop()).flatten();
    *shot.memory.sets.lock() = Vec::from_iter(last);
    fill_in(request, shot);
    let unknown: Vec<_> =
        sets(request).iter().filter(|set| set.nodes_omitted).map(|set| set.digest.clone()).collect();
    if unknown.is_empty() { Turn::GoOn } else { Turn::fail(ProviderError::unknown_backend_set(&unknown)) }
}

fn empty(request: &mut Request, _shot: &Shot<'_>) {
    sets(request).iter_mut().for_each(|set| set.nodes_omitted = false);
}

fn lessen(service: &mut Service, variant: &str) {
    match variant {
        "source-ranges" => service.source_ranges.clear(),
        "ports" => service.ports.truncate(1),
        "node-ports" => service.ports.iter_mut().for_each(|port| port.node_port = port.port),
        "protocol" => service.ports.iter_mut().for_each(|port| port.set_protocol(Protocol::Tcp)),
        "family" => service.ip_families = vec![IpFamily::Ipv4.into()],
        "health-check" => service.set_external_traffic_policy(TrafficPolicy::Cluster),
        _ => {}
    }
}
