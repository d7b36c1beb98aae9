//! The state that must be reached once all faults are over, derived only from users' wishes and machines.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use ccm_cloud::PROVIDER_ANNOTATION;
use k8s_openapi::api::core::v1::Node;
use provider_mock::cloud::{Address, AddressKind, Balancer, Instance, InstanceState, Route};

use crate::{
    kubelets::{UNINITIALIZED, ready},
    world::{AUTOSCALER, EXCLUDE, World},
};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Everything that is not yet as it must be.
pub fn differences(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    let machines: BTreeMap<String, Instance> =
        world.machines().into_iter().map(|one| (one.provider_id.clone(), one)).collect();
    let nodes = world.nodes();
    let keyed = world.mock.advertised.keyed_by_name;
    for node in nodes.iter().filter(|node| !world.is_spoilt(name(&node.metadata.name))) {
        wrong.extend(wrong_with_node(node, &machines, keyed));
    }
    for machine in machines.values().filter(|machine| machine.state == InstanceState::Running) {
        if !nodes.iter().any(|node| name(&node.metadata.name) == machine.name) {
            wrong.push(format!("node {}: missing", machine.name));
        }
    }
    wrong.extend(wrong_with_routes(world, &nodes));
    wrong.extend(wrong_with_services(world, &nodes));
    wrong
}

fn name(name: &Option<String>) -> &str {
    name.as_deref().unwrap_or_default()
}

/// `keyed`: the provider's absence counts even for nodes without a provider ID.
fn wrong_with_node(node: &Node, machines: &BTreeMap<String, Instance>, keyed: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut say = |what: String| wrong.push(format!("node {}: {what}", name(&node.metadata.name)));
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
    if provider_id.is_empty() {
        // Such a node stays after its machine is gone, unless its provider declares that names are keys.
        if keyed || machines.values().any(|machine| machine.name == name(&node.metadata.name)) {
            say("has no provider ID".to_owned());
        }
        return wrong;
    }
    let Some(machine) = machines.get(&provider_id) else {
        say(format!("its machine {provider_id} is gone"));
        return wrong;
    };
    let taints: BTreeSet<&str> = (node.spec.iter())
        .flat_map(|spec| spec.taints.iter().flatten())
        .map(|taint| taint.key.as_str())
        .collect();
    if taints.contains(UNINITIALIZED) {
        say("is uninitialized".to_owned());
    }
    let is_ready = ready(node).as_deref() == Some("True");
    let stopped = machine.state == InstanceState::Stopped && !is_ready;
    if machine.state != InstanceState::Terminating && taints.contains(SHUTDOWN) != stopped {
        say(format!("{:?} and Ready={is_ready}, but tainted {taints:?}", machine.state));
    }
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let wanted = [
        ("topology.kubernetes.io/zone", &machine.zone),
        ("topology.kubernetes.io/region", &machine.region),
        ("node.kubernetes.io/instance-type", &machine.instance_type),
    ];
    for (key, value) in wanted {
        if labels.get(key) != Some(value) {
            say(format!("{key} is {:?}, not {value}", labels.get(key)));
        }
    }
    let has: BTreeSet<(String, String)> = (node.status.iter())
        .flat_map(|status| status.addresses.iter().flatten())
        .map(|address| (address.type_.clone(), address.address.clone()))
        .collect();
    let must: BTreeSet<(String, String)> = machine.addresses.iter().map(address).collect();
    if has != must {
        say(format!("addresses are {has:?}, not {must:?}"));
    }
    if node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_ref()).is_none_or(Vec::is_empty) {
        say("has no pod CIDR".to_owned());
    }
    wrong
}

fn address(address: &Address) -> (String, String) {
    let kind = match address.kind {
        AddressKind::Hostname => "Hostname",
        AddressKind::InternalIp => "InternalIP",
        AddressKind::ExternalIp => "ExternalIP",
        AddressKind::InternalDns => "InternalDNS",
        AddressKind::ExternalDns => "ExternalDNS",
    };
    (kind.to_owned(), address.address.clone())
}

fn wrong_with_routes(world: &World, nodes: &[Rc<Node>]) -> Vec<String> {
    let unknown: BTreeSet<&str> = (nodes.iter())
        .filter(|node| node.spec.as_ref().is_none_or(|spec| spec.provider_id.is_none()))
        .map(|node| name(&node.metadata.name))
        .collect();
    // A node that was never initialised (see above) may be on the machine to which its name had a route.
    let unknown =
        |route: &Route| route.target.as_ref().is_some_and(|target| unknown.contains(target.node.as_str()));
    let ours = world.routes().into_iter().filter(|(route, _)| !unknown(route));
    let mut has: BTreeMap<(String, bool), String> = ours
        .map(|(route, is_at_edge)| {
            let target = route.target.map(|target| target.provider_id).unwrap_or_default();
            ((route.destination_cidr.to_string(), is_at_edge), target)
        })
        .collect();
    let mut must = BTreeMap::new();
    let mut wrong = Vec::new();
    for node in nodes {
        let Some(spec) = &node.spec else { continue };
        if spec.provider_id.is_none() || world.is_spoilt(name(&node.metadata.name)) {
            // Never initialised, see above, or its machine was terminated unseen: nobody knows where its route should
            // lead.
            has.retain(|(cidr, _), _| !spec.pod_cidrs.iter().flatten().any(|one| one == cidr));
            continue;
        }
        for cidr in spec.pod_cidrs.iter().flatten() {
            must.insert((cidr.clone(), is_of_edge(provider_id(node))), provider_id(node).to_owned());
        }
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let routed = conditions.into_iter().find(|condition| condition.type_ == "NetworkUnavailable");
        if routed.is_none_or(|condition| condition.status != "False") {
            let status = routed.map(|condition| &condition.status);
            wrong.push(format!("node {}: NetworkUnavailable is {status:?}", name(&node.metadata.name)));
        }
    }
    if has != must {
        wrong.push(format!("routes are {has:?}, not {must:?}"));
    }
    wrong
}

fn wrong_with_services(world: &World, nodes: &[Rc<Node>]) -> Vec<String> {
    let balancers: BTreeMap<(String, bool), Balancer> = (world.balancers().into_iter())
        .map(|(balancer, is_at_edge)| ((balancer.service_uid.clone(), is_at_edge), balancer))
        .collect();
    let behind: BTreeSet<(&str, &str)> = (nodes.iter().filter(|node| is_behind(node)))
        .map(|node| (name(&node.metadata.name), provider_id(node)))
        .filter(|(node, _)| !world.is_spoilt(node))
        // With two providers, a node of which nobody knows whose it is belongs to neither.
        .filter(|(_, provider_id)| !world.has_edge() || !provider_id.is_empty())
        .collect();
    // The cloud finds a node without a provider ID by its name.
    let by_name: BTreeSet<&str> =
        behind.iter().filter(|(_, provider_id)| provider_id.is_empty()).map(|(node, _)| *node).collect();
    let services = world.services();
    let mut wrong = Vec::new();
    let known: BTreeSet<&str> =
        services.iter().filter_map(|service| service.metadata.uid.as_deref()).collect();
    for balancer in balancers.values().filter(|one| !known.contains(one.service_uid.as_str())) {
        wrong.push(format!("balancer {} of {}: its Service is gone", balancer.id, balancer.service_name));
    }
    for service in services.iter() {
        let mut say = |what: String| wrong.push(format!("service {}: {what}", name(&service.metadata.name)));
        let annotations = service.metadata.annotations.iter().flatten();
        let is_at_edge = world.has_edge()
            && annotations.into_iter().any(|(key, value)| key == PROVIDER_ANNOTATION && value == "edge");
        let at = |edge: bool| balancers.get(&(service.metadata.uid.clone()?, edge));
        if let Some(balancer) = at(!is_at_edge) {
            say(format!("{} is at the other provider, too", balancer.id));
        }
        let balancer = at(is_at_edge);
        let guarded = service.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
        let spec = service.spec.clone().unwrap_or_default();
        let wanted =
            spec.type_.as_deref() == Some("LoadBalancer") && service.metadata.deletion_timestamp.is_none();
        if guarded != wanted || balancer.is_some() != wanted {
            say(format!("wanted {wanted}, finalizer {guarded}, balancer {}", balancer.is_some()));
            continue;
        }
        let published: Vec<String> = (service.status.iter())
            .filter_map(|status| status.load_balancer.as_ref())
            .flat_map(|balancer| balancer.ingress.iter().flatten())
            .filter_map(|ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone()))
            .collect();
        let Some(balancer) = balancer else {
            if !published.is_empty() && service.metadata.deletion_timestamp.is_none() {
                say(format!("publishes {published:?} without a balancer"));
            }
            continue;
        };
        let ways: Vec<String> = (balancer.ingress.iter())
            .filter_map(|way| way.ip.map(|ip| ip.to_string()).or_else(|| way.hostname.clone()))
            .collect();
        if published != ways || ways.is_empty() {
            say(format!("publishes {published:?}, its balancer has {ways:?}"));
        }
        let stand: BTreeSet<(&str, &str)> = (balancer.backends.iter())
            .map(|backend| (backend.node.as_str(), backend.provider_id.as_str()))
            .map(|(node, id)| (node, if by_name.contains(node) { "" } else { id }))
            .filter(|(node, _)| !world.is_spoilt(node))
            .collect();
        let behind: BTreeSet<_> =
            behind.iter().filter(|(_, provider_id)| is_of_edge(provider_id) == is_at_edge).copied().collect();
        if stand != behind && !world.is_spoilt(name(&service.metadata.name)) {
            say(format!("backends are {stand:?}, not {behind:?}"));
        }
        let open: Vec<i32> = balancer.ports.iter().map(|port| port.port).collect();
        let must: Vec<i32> = spec.ports.iter().flatten().map(|port| port.port).collect();
        if open != must {
            say(format!("ports are {open:?}, not {must:?}"));
        }
    }
    wrong
}

/// Whether a machine is in the second cloud.
fn is_of_edge(provider_id: &str) -> bool {
    provider_id.starts_with("edge://")
}

fn provider_id(node: &Node) -> &str {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
}

fn is_behind(node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let leaving =
        node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == AUTOSCALER);
    !labels.contains_key(EXCLUDE) && !leaving && node.metadata.deletion_timestamp.is_none()
}
