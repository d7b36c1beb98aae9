//! What requests say, as the cloud's plain values.

use cloudprovider_sdk::proto;

use crate::cloud::{Family, FamilyPolicy, NodeQuery, Port, Protocol, RouteTarget, WantedService};

/// A node, with all IPs that are known of it.
pub(super) fn node(node: proto::NodeRef) -> NodeQuery {
    let is_ip = |address: &proto::NodeAddress| {
        matches!(address.r#type(), proto::NodeAddressType::InternalIp | proto::NodeAddressType::ExternalIp)
    };
    let mut ips = node.provided_node_ips;
    ips.extend(node.addresses.into_iter().filter(is_ip).map(|address| address.address));
    NodeQuery { name: node.name, provider_id: node.provider_id, system_uuid: node.system_uuid, ips }
}

/// Only what finds a node: its name and provider ID.
pub(super) fn target(node: &proto::NodeRef) -> RouteTarget {
    RouteTarget { node: node.name.clone(), provider_id: node.provider_id.clone() }
}

/// A Service.
pub(super) fn service(service: proto::Service) -> WantedService {
    let policy = service.ip_family_policy();
    let local = service.external_traffic_policy() == proto::TrafficPolicy::Local;
    let families = service.ip_families().filter_map(family).collect();
    let reference = service.r#ref.unwrap_or_default();
    WantedService {
        namespace: reference.namespace,
        name: reference.name,
        uid: reference.uid,
        class: service.load_balancer_class,
        annotations: service.annotations.into_iter().collect(),
        ports: service.ports.into_iter().map(port).collect(),
        requested_ip: service.load_balancer_ip,
        source_ranges: service.source_ranges,
        health_check_port: if local { service.health_check_node_port } else { 0 },
        families,
        family_policy: match policy {
            proto::IpFamilyPolicy::Unspecified | proto::IpFamilyPolicy::SingleStack => FamilyPolicy::Single,
            proto::IpFamilyPolicy::PreferDualStack => FamilyPolicy::PreferDual,
            proto::IpFamilyPolicy::RequireDualStack => FamilyPolicy::RequireDual,
        },
    }
}

fn family(family: proto::IpFamily) -> Option<Family> {
    match family {
        proto::IpFamily::Unspecified => None,
        proto::IpFamily::Ipv4 => Some(Family::V4),
        proto::IpFamily::Ipv6 => Some(Family::V6),
    }
}

fn port(port: proto::ServicePort) -> Port {
    let protocol = match port.protocol() {
        proto::Protocol::Unspecified => Protocol::Unknown,
        proto::Protocol::Tcp => Protocol::Tcp,
        proto::Protocol::Udp => Protocol::Udp,
        proto::Protocol::Sctp => Protocol::Sctp,
    };
    Port { name: port.name, protocol, port: port.port, node_port: port.node_port }
}
