//! The cloud's plain values, as answers say them.

use std::time::Duration;

use cloudprovider_sdk::proto;
use jiff::Timestamp;

use crate::cloud::{
    Address, AddressKind, Balancer, BalancerState, Ingress, Instance, InstanceState, ListedRoute, Protocol,
    RouteState,
};

/// The shortest and the longest time that a caller is told to wait for work that goes on.
const LEAST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub(crate) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

pub(super) fn state(state: InstanceState) -> proto::InstanceState {
    match state {
        InstanceState::Pending => proto::InstanceState::Pending,
        InstanceState::Running => proto::InstanceState::Running,
        InstanceState::Stopped => proto::InstanceState::Stopped,
        InstanceState::Terminating => proto::InstanceState::Terminating,
    }
}

/// As much of a machine as was asked for.
pub(super) fn instance(instance: &Instance, view: proto::InstanceView) -> proto::Instance {
    let mut answer = proto::Instance {
        provider_id: instance.provider_id.clone(),
        name: instance.name.clone(),
        ..proto::Instance::default()
    };
    if view == proto::InstanceView::Existence {
        return answer;
    }
    answer.instance_type.clone_from(&instance.instance_type);
    answer.addresses = instance.addresses.iter().map(address).collect();
    answer.zone.clone_from(&instance.zone);
    answer.region.clone_from(&instance.region);
    answer.labels = instance.labels.clone().into_iter().collect();
    answer.removed_labels = instance.removed_labels.iter().cloned().collect();
    answer.system_uuid.clone_from(&instance.system_uuid);
    if view != proto::InstanceView::Metadata {
        answer.pod_cidrs.clone_from(&instance.pod_cidrs);
    }
    answer
}

fn address(address: &Address) -> proto::NodeAddress {
    let kind = match address.kind {
        AddressKind::Hostname => proto::NodeAddressType::Hostname,
        AddressKind::InternalIp => proto::NodeAddressType::InternalIp,
        AddressKind::ExternalIp => proto::NodeAddressType::ExternalIp,
        AddressKind::InternalDns => proto::NodeAddressType::InternalDns,
        AddressKind::ExternalDns => proto::NodeAddressType::ExternalDns,
    };
    proto::NodeAddress { r#type: kind.into(), address: address.address.clone() }
}

/// A balancer; one that is being made has no way in yet.
pub(crate) fn balancer(balancer: &Balancer) -> proto::LoadBalancer {
    let (state, ingress) = match balancer.state {
        BalancerState::Provisioning => (proto::LoadBalancerState::Pending, Vec::new()),
        BalancerState::Active => (proto::LoadBalancerState::Active, ways(balancer)),
        BalancerState::Deleting => (proto::LoadBalancerState::Deleting, ways(balancer)),
    };
    let sync = if balancer.drifted { proto::SyncState::Drifted } else { proto::SyncState::InSync };
    let ownership =
        if balancer.is_legacy() { proto::Ownership::ByLegacyName } else { proto::Ownership::ByUid };
    proto::LoadBalancer {
        service: Some(proto::ServiceRef {
            namespace: balancer.namespace.clone(),
            name: balancer.service_name.clone(),
            uid: balancer.service_uid.clone(),
        }),
        id: balancer.id.clone(),
        name: balancer.name.clone(),
        state: state.into(),
        ingress,
        applied_digest: balancer.applied_digest.clone(),
        sync_state: sync.into(),
        ownership: ownership.into(),
    }
}

fn ways(balancer: &Balancer) -> Vec<proto::LoadBalancerIngress> {
    balancer.ingress.iter().map(|way| ingress(way, balancer)).collect()
}

fn ingress(way: &Ingress, balancer: &Balancer) -> proto::LoadBalancerIngress {
    let mode = match way.ip {
        None => proto::IngressIpMode::Unspecified,
        Some(_) if way.proxy => proto::IngressIpMode::Proxy,
        Some(_) => proto::IngressIpMode::Vip,
    };
    let port = |port: &crate::cloud::Port| proto::PortStatus {
        port: port.port,
        protocol: protocol(port.protocol).into(),
        error: String::new(),
    };
    proto::LoadBalancerIngress {
        ip: way.ip.map(|ip| ip.to_string()).unwrap_or_default(),
        hostname: way.hostname.clone().unwrap_or_default(),
        ip_mode: mode.into(),
        ports: balancer.ports.iter().map(port).collect(),
    }
}

fn protocol(protocol: Protocol) -> proto::Protocol {
    match protocol {
        Protocol::Tcp => proto::Protocol::Tcp,
        Protocol::Udp => proto::Protocol::Udp,
        Protocol::Sctp => proto::Protocol::Sctp,
        Protocol::Unknown => proto::Protocol::Unspecified,
    }
}

/// A route; without tags it says nothing of whose it is.
pub(super) fn route(listed: &ListedRoute, tags: bool) -> proto::Route {
    let ownership = match (tags, listed.route.is_legacy()) {
        (false, _) => proto::Ownership::Unspecified,
        (true, true) => proto::Ownership::ByLegacyName,
        (true, false) => proto::Ownership::ByUid,
    };
    let state = match listed.state {
        RouteState::Active => proto::RouteState::Active,
        RouteState::Blackhole => proto::RouteState::Blackhole,
    };
    proto::Route {
        id: listed.route.id.clone(),
        destination_cidr: listed.route.destination_cidr.to_string(),
        target: listed.route.target.clone().map(proto::NodeRef::from),
        state: state.into(),
        ownership: ownership.into(),
    }
}

/// Work that goes on until `due`.
pub(super) fn in_progress(reason: &str, message: &str, due: Timestamp, now: Timestamp) -> proto::InProgress {
    let left =
        Duration::try_from(due.duration_since(now)).unwrap_or_default().clamp(LEAST_WAIT, LONGEST_WAIT);
    proto::InProgress {
        retry_after: left.try_into().ok(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// A part of the cloud that could not be asked.
pub(super) fn unreachable(zone: &str) -> proto::UnreachableLocation {
    let error = cloudprovider_sdk::ProviderError::location_unreachable(zone).to_item();
    proto::UnreachableLocation { location: zone.to_owned(), error: Some(error) }
}
