//! A node as a provider sees it.

use cloudprovider_proto::v1alpha1 as pb;

use super::keys::{is_wanted, pick};
use crate::kube::Node;

/// Annotation with the kubelet's `--node-ip`. The caches keep it if a provider wants these addresses.
pub(in crate::cloud) const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
const MOST_PROVIDED_IPS: usize = 2;

/// The wanted fields of a node.
pub(in crate::cloud) fn node_ref(node: &Node, fields: &pb::NodeFields) -> pb::NodeRef {
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
    let wanted = node.taints.iter().filter(|taint| patterns.iter().any(|key| is_wanted(key, &taint.key)));
    wanted
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

pub(super) fn timestamp(at: jiff::Timestamp) -> prost_types::Timestamp {
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
            let kind = match address.type_.as_str() {
                "Hostname" => pb::NodeAddressType::Hostname,
                "InternalIP" => pb::NodeAddressType::InternalIp,
                "ExternalIP" => pb::NodeAddressType::ExternalIp,
                "InternalDNS" => pb::NodeAddressType::InternalDns,
                "ExternalDNS" => pb::NodeAddressType::ExternalDns,
                // An unknown type, which the contract cannot express.
                _ => return None,
            };
            Some(pb::NodeAddress { r#type: kind.into(), address: address.address.clone() })
        })
        .collect()
}
