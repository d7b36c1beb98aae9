//! The node and Service fields that a provider wants, and digests over exactly those.
//!
//! In: slim objects and the provider's `Wants`. Out: messages with the wanted fields only, and digests that change
//! when, and only when, a wanted field changes: neither a heartbeat nor the order of nodes changes them.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use cloudprovider_proto::v1alpha1 as pb;
use prost::Message as _;

use super::{
    AddressType, BackendSet,
    digest::{Digester, desired},
};
use ccm_kube::{
    Ingress, Node, ObjectKey, Pairs, Service, ServicePort, Taint, TargetPort,
    keep::is_meant,
    node::PROVIDED_NODE_IP,
    service::{SOURCE_RANGES, source_ranges},
};

/// Prefixes of the digested text, so that a change of the format changes the digest.
const BACKENDS: &str = "backends/2";
const SERVICE: &str = "service/2";

/// The set of these nodes, sorted by name, with its digest and its encoding.
pub(super) fn backend_set(mut nodes: Vec<Arc<Node>>, wants: Arc<pb::Wants>) -> BackendSet {
    let fields = wants.backend.clone().unwrap_or_default();
    nodes.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
    nodes.dedup_by(|a, b| a.name == b.name && a.uid == b.uid);
    let mut text = Digester::new(BACKENDS);
    let mut told: Vec<_> = nodes.iter().map(|node| node_ref(node, &fields)).collect();
    told.iter_mut().for_each(|node| text.node(node));
    let message = pb::BackendSet { digest: text.finish(), nodes: told, nodes_omitted: false };
    BackendSet { encoded: message.encode_to_vec().into(), digest: message.digest, nodes, wants }
}

/// Digest of a balancer's whole desired state. Annotations that the provider writes on the Service are answers, not
/// wishes: counting them would ensure every balancer once more.
pub(super) fn desired_digest(object: &Service, backends: &BackendSet) -> String {
    let wants = &backends.wants;
    let mut message = service(object, wants.service.as_ref().unwrap_or(&Default::default()));
    let written =
        |key: &String| wants.service_annotation_writes.iter().any(|prefix| key.starts_with(prefix.as_str()));
    message.annotations.retain(|key, _| !written(key));
    let mut text = Digester::new(SERVICE);
    text.service(message);
    text.settings(&wants.load_balancer_settings);
    desired(object.spec.load_balancer_class.as_deref(), &text.finish(), &backends.digest)
}

/// The wanted labels or annotations.
fn pick(pairs: &Pairs, patterns: &[String]) -> HashMap<String, String> {
    let pairs = pairs.iter().filter(|(key, _)| patterns.iter().any(|pattern| is_meant(pattern, key)));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

const MOST_PROVIDED_IPS: usize = 2;

/// The wanted fields of a node.
pub(super) fn node_ref(node: &Node, fields: &pb::NodeFields) -> pb::NodeRef {
    let provided = || node.annotations.get(PROVIDED_NODE_IP).unwrap_or_default();
    pb::NodeRef {
        name: node.name.clone(),
        uid: node.uid.clone(),
        provider_id: node.provider_id.clone().unwrap_or_default(),
        system_uuid: if fields.system_uuid {
            node.system_uuid.clone().unwrap_or_default()
        } else {
            String::new()
        },
        provided_node_ips: if fields.provided_node_ips { provided_ips(provided()) } else { Vec::new() },
        addresses: if fields.addresses { addresses(node) } else { Vec::new() },
        creation_time: node.created.filter(|_| fields.creation_time).map(timestamp),
        labels: pick(&node.labels, &fields.labels),
        annotations: pick(&node.annotations, &fields.annotations),
        pod_cidrs: if fields.pod_cidrs { node.pod_cidrs.clone() } else { Vec::new() },
        taints: taints(node, &fields.taints),
        unschedulable: fields.unschedulable && node.unschedulable,
        readiness: if fields.readiness { readiness(node) } else { pb::NodeReadiness::Unspecified }.into(),
        deletion_time: node.deletion_time.filter(|_| fields.deletion_time).map(timestamp),
    }
}

fn taints(node: &Node, patterns: &[String]) -> Vec<pb::NodeTaint> {
    let is_wanted = |taint: &&Taint| patterns.iter().any(|pattern| is_meant(pattern, &taint.key));
    let taints = node.taints.iter().filter(is_wanted);
    taints
        .map(|taint| pb::NodeTaint {
            key: taint.key.clone(),
            value: taint.value.clone(),
            effect: match taint.effect.as_str() {
                "NoSchedule" => pb::TaintEffect::NoSchedule,
                "PreferNoSchedule" => pb::TaintEffect::PreferNoSchedule,
                "NoExecute" => pb::TaintEffect::NoExecute,
                _ => pb::TaintEffect::Unspecified,
            }
            .into(),
        })
        .collect()
}

fn readiness(node: &Node) -> pb::NodeReadiness {
    match node.condition("Ready").map(|ready| ready.status.as_str()) {
        Some("True") => pb::NodeReadiness::Ready,
        Some("False") => pb::NodeReadiness::NotReady,
        _ => pb::NodeReadiness::Unspecified,
    }
}

fn timestamp(at: jiff::Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

fn provided_ips(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|ip| !ip.is_empty())
        .take(MOST_PROVIDED_IPS)
        .map(str::to_owned)
        .collect()
}

fn addresses(node: &Node) -> Vec<pb::NodeAddress> {
    node.addresses
        .iter()
        .filter_map(|address| {
            // The contract cannot express an unknown type.
            let kind = AddressType::of(&address.type_)?;
            Some(pb::NodeAddress { r#type: kind as i32, address: address.address.clone() })
        })
        .collect()
}

/// The apiserver's default.
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

/// Identifies a Service.
pub(super) fn service_ref(key: &ObjectKey, uid: &str) -> pb::ServiceRef {
    pb::ServiceRef { namespace: key.namespace.to_string(), name: key.name.to_string(), uid: uid.to_owned() }
}

/// The spec, and the wanted metadata.
pub(super) fn service(service: &Service, fields: &pb::ServiceFields) -> pb::Service {
    let spec = &service.spec;
    let source_ranges = ranges(service);
    pb::Service {
        r#ref: Some(service_ref(&service.key, &service.uid)),
        labels: pick(&service.labels, &fields.labels),
        annotations: pick(&service.annotations, &fields.annotations),
        ports: spec.ports.iter().map(port).collect(),
        load_balancer_class: spec.load_balancer_class.clone().unwrap_or_default(),
        load_balancer_ip: spec.load_balancer_ip.clone(),
        source_ranges_are_annotated: !source_ranges.is_empty()
            && spec.load_balancer_source_ranges.as_ref().is_none_or(Vec::is_empty),
        source_ranges,
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
