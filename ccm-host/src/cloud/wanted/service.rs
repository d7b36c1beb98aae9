//! A Service as a provider sees it.

use cloudprovider_proto::v1alpha1 as pb;

use super::{pick, timestamp};
use crate::kube::{
    Ingress, ObjectKey, Service, ServicePort, TargetPort,
    service::{SOURCE_RANGES, source_ranges},
};

/// The apiserver's default.
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

/// Identifies a Service.
pub(crate) fn service_ref(key: &ObjectKey, uid: &str) -> pb::ServiceRef {
    pb::ServiceRef { namespace: key.namespace.to_string(), name: key.name.to_string(), uid: uid.to_owned() }
}

/// The spec, and the wanted metadata.
pub(crate) fn service(service: &Service, fields: &pb::ServiceFields) -> pb::Service {
    let spec = &service.spec;
    pb::Service {
        r#ref: Some(service_ref(&service.key, &service.uid)),
        labels: pick(&service.labels, &fields.labels),
        annotations: pick(&service.annotations, &fields.annotations),
        ports: spec.ports.iter().map(port).collect(),
        load_balancer_class: spec.load_balancer_class.clone().unwrap_or_default(),
        load_balancer_ip: spec.load_balancer_ip.clone(),
        source_ranges: ranges(service),
        ip_families: spec.ip_families.iter().map(|family| family_number(family)).collect(),
        ip_family_policy: match spec.ip_family_policy.as_deref() {
            Some("SingleStack") => pb::IpFamilyPolicy::SingleStack,
            Some("PreferDualStack") => pb::IpFamilyPolicy::PreferDualStack,
            Some("RequireDualStack") => pb::IpFamilyPolicy::RequireDualStack,
            _ => pb::IpFamilyPolicy::Unspecified,
        }
        .into(),
        cluster_ips: spec.cluster_ips.clone(),
        external_ips: spec.external_ips.clone(),
        client_ip_affinity: affinity(service),
        external_traffic_policy: policy(Some(&spec.external_traffic_policy)),
        internal_traffic_policy: policy(spec.internal_traffic_policy.as_deref()),
        health_check_node_port: spec.health_check_node_port,
        allocate_node_ports: spec.allocate_load_balancer_node_ports,
        ingress: service.ingress.iter().map(ingress).collect(),
        creation_time: service.created.map(timestamp),
        finalizers: if fields.finalizers { service.finalizers.clone() } else { Vec::new() },
        deletion_time: service.deletion_time.filter(|_| fields.deletion_time).map(timestamp),
    }
}

/// Canonical and deduplicated. If one is invalid, all are passed on unchanged: dropping it would open the balancer.
fn ranges(service: &Service) -> Vec<String> {
    match source_ranges(service) {
        Ok(ranges) => ranges.iter().map(ToString::to_string).collect(),
        Err(_) => {
            let listed = service.spec.load_balancer_source_ranges.clone().unwrap_or_default();
            let annotated = || service.annotations.get(SOURCE_RANGES).unwrap_or_default();
            if listed.is_empty() { vec![annotated().to_owned()] } else { listed }
        }
    }
}

fn port(port: &ServicePort) -> pb::ServicePort {
    pb::ServicePort {
        name: port.name.clone(),
        protocol: protocol(&port.protocol),
        app_protocol: port.app_protocol.clone().unwrap_or_default(),
        port: port.port,
        node_port: port.node_port,
        target_port: Some(match &port.target_port {
            TargetPort::Number(number) => pb::service_port::TargetPort::TargetPortNumber(*number),
            TargetPort::Name(name) => pb::service_port::TargetPort::TargetPortName(name.clone()),
        }),
    }
}

fn affinity(service: &Service) -> Option<prost_types::Duration> {
    if service.spec.session_affinity != "ClientIP" {
        return None;
    }
    let config = service.spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(DEFAULT_AFFINITY_SECONDS);
    Some(prost_types::Duration { seconds: seconds.into(), nanos: 0 })
}

fn ingress(ingress: &Ingress) -> pb::LoadBalancerIngress {
    pb::LoadBalancerIngress {
        ip: ingress.ip.clone(),
        hostname: ingress.hostname.clone(),
        ip_mode: match ingress.ip_mode.as_deref() {
            Some("VIP") => pb::IngressIpMode::Vip,
            Some("Proxy") => pb::IngressIpMode::Proxy,
            _ => pb::IngressIpMode::Unspecified,
        }
        .into(),
        ports: ingress
            .ports
            .iter()
            .map(|port| pb::PortStatus {
                port: port.port,
                protocol: protocol(&port.protocol),
                error: port.error.clone().unwrap_or_default(),
            })
            .collect(),
    }
}

fn protocol(text: &str) -> i32 {
    match text {
        // The apiserver's default.
        "" | "TCP" => pb::Protocol::Tcp,
        "UDP" => pb::Protocol::Udp,
        "SCTP" => pb::Protocol::Sctp,
        _ => pb::Protocol::Unspecified,
    }
    .into()
}

fn family_number(text: &str) -> i32 {
    match text {
        "IPv4" => pb::IpFamily::Ipv4,
        "IPv6" => pb::IpFamily::Ipv6,
        _ => pb::IpFamily::Unspecified,
    }
    .into()
}

fn policy(text: Option<&str>) -> i32 {
    match text {
        Some("Cluster") => pb::TrafficPolicy::Cluster,
        Some("Local") => pb::TrafficPolicy::Local,
        _ => pb::TrafficPolicy::Unspecified,
    }
    .into()
}
