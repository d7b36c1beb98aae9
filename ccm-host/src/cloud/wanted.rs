//! The node and Service fields that a provider wants, and digests over exactly those.
//!
//! In: slim objects and the provider's `Wants`. Out: messages with the wanted fields only, and digests that change
//! when, and only when, a wanted field changes: neither a heartbeat nor the order of nodes changes them.

mod digest;
mod keys;
mod node;
mod service;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use cloudprovider_proto::v1alpha1 as pb;
use prost::Message as _;

use super::{BackendSet, desired::desired};
use crate::kube::{Node, Service};
pub(super) use keys::union;
pub(super) use node::{PROVIDED_NODE_IP, node_ref};
pub(super) use service::{service, service_ref};

/// Prefixes of the digested text, so that a change of the format changes the digest.
const BACKENDS: &str = "backends/1";
const SERVICE: &str = "service/1";

/// The set of these nodes, sorted by name, with its digest and its encoding.
pub(super) fn backend_set(mut nodes: Vec<Arc<Node>>, fields: &pb::NodeFields) -> BackendSet {
    nodes.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
    nodes.dedup_by(|a, b| a.name == b.name && a.uid == b.uid);
    let mut text = digest::Writer::new(BACKENDS);
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
    let mut text = digest::Writer::new(SERVICE);
    text.service(&message);
    desired(object.spec.load_balancer_class.as_deref(), &text.finish(), &backends.digest)
}
