//! Breaches by what is built in the cloud: the answer says that all is as wanted.

use cloudprovider_sdk::proto::{BackendSet, IpFamily, Protocol, Service, TrafficPolicy};

use super::{Breach, early};
use crate::wire::{Method, Request, Shot, Turn};

const BUILDS: &[Method] = &[Method::EnsureLoadBalancer, Method::BatchUpdateLoadBalancers];
const UPDATE: &[Method] = &[Method::BatchUpdateLoadBalancers];

pub(super) const BREACHES: &[Breach] = &[
    early("built-as-asked", "a part of what was asked for is not built, and nobody says so", BUILDS, in_part)
        .ways(&["backends", "source-ranges", "ports", "node-ports", "protocol", "family", "health-check"]),
    early("update-own-set", "each balancer of a batch gets the first set", UPDATE, first_set),
];

fn in_part(request: &mut Request, shot: &Shot<'_>) -> Turn {
    match request {
        Request::EnsureLoadBalancer(request) => {
            request.service.iter_mut().for_each(|service| lessen(service, shot.variant));
            request.backends.iter_mut().for_each(|set| detach(set, shot.variant));
        }
        Request::BatchUpdateLoadBalancers(request) => {
            request.backend_sets.iter_mut().for_each(|set| detach(set, shot.variant));
        }
        _ => {}
    }
    Turn::GoOn
}

fn detach(set: &mut BackendSet, variant: &str) {
    if variant == "backends" {
        set.nodes.clear();
    }
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

fn first_set(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    if let Request::BatchUpdateLoadBalancers(request) = request {
        request.items.iter_mut().for_each(|item| item.backend_set = 0);
    }
    Turn::GoOn
}
