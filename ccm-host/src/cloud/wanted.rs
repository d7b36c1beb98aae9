//! The node and Service fields that a provider wants, and digests over exactly those.
//!
//! In: slim objects and the provider's `Wants`. Out: messages with the wanted fields only, and digests that change
//! when, and only when, a wanted field changes: neither a heartbeat nor the order of nodes changes them.

mod service;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use cloudprovider_proto::v1alpha1 as pb;
use prost::Message as _;

use super::{
    BackendSet,
    digest::{Writer, desired},
};
use crate::kube::{Node, Pairs, Service};

pub(super) use service::{service, service_ref};

/// Prefixes of the digested text, so that a change of the format changes the digest.
const BACKENDS: &str = "backends/1";
const SERVICE: &str = "service/1";

/// The set of these nodes, sorted by name, with its digest and its encoding.
pub(super) fn backend_set(mut nodes: Vec<Arc<Node>>, fields: &pb::NodeFields) -> BackendSet {
    nodes.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
    nodes.dedup_by(|a, b| a.name == b.name && a.uid == b.uid);
    let mut text = Writer::new(BACKENDS);
    text.count(nodes.len());
    let told: Vec<_> = nodes.iter().map(|node| node_ref(node, fields)).collect();
    told.iter().for_each(|node| text.node(node));
    let message = pb::BackendSet { digest: text.finish(), nodes: told, nodes_omitted: false };
    BackendSet { encoded: message.encode_to_vec().into(), digest: message.digest, nodes }
}

/// Digest of a balancer's whole desired state. Annotations that the provider writes on the Service are answers, not
/// wishes: counting them would ensure every balancer once more.
pub(super) fn desired_digest(object: &Service, wants: &pb::Wants, backends: &BackendSet) -> String {
    let mut message = service(object, wants.service.as_ref().unwrap_or(&Default::default()));
    let written =
        |key: &String| wants.service_annotation_writes.iter().any(|prefix| key.starts_with(prefix.as_str()));
    message.annotations.retain(|key, _| !written(key));
    let mut text = Writer::new(SERVICE);
    text.service(&message);
    desired(object.spec.load_balancer_class.as_deref(), &text.finish(), &backends.digest)
}

/// The wanted labels or annotations.
fn pick(pairs: &Pairs, patterns: &[String]) -> HashMap<String, String> {
    pairs
        .iter()
        .filter(|(key, _)| patterns.iter().any(|pattern| is_wanted(pattern, key)))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// All patterns of these lists, sorted.
pub(super) fn union<'a>(lists: impl IntoIterator<Item = &'a [String]>) -> Vec<String> {
    let all: BTreeSet<&String> = lists.into_iter().flatten().filter(|pattern| !pattern.is_empty()).collect();
    all.into_iter().cloned().collect()
}

/// A pattern is a key, or a prefix that ends in `/` or `*`.
fn is_wanted(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => key.starts_with(prefix),
        None if pattern.ends_with('/') => key.starts_with(pattern),
        None => key == pattern,
    }
}

/// Annotation with the kubelet's `--node-ip`. The caches keep it if a provider wants these addresses.
pub(super) const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
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
