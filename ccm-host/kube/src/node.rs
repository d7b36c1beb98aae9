//! The slim Node: the fields that the node controllers, the backend sets and the routes read.
//!
//! In: the apiserver's JSON, through a private wire type. Out: about one tenth of it. Images, capacity, managed fields
//! and annotations that are not wanted are never kept.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    cache::Slim,
    keep::{Interner, Keep, Pairs},
    wire::{Condition, Meta, or_default},
};

/// Condition types that are kept, besides those with [`OWN_CONDITION_PREFIX`].
pub const KEPT_CONDITIONS: [&str; 3] = ["Ready", "NetworkUnavailable", "MaintenancePlanned"];
/// Conditions with this prefix belong to this host and are kept.
pub const OWN_CONDITION_PREFIX: &str = "CloudProvider";

/// The annotation in which the kubelet records the IPs that it was given (`--node-ip`).
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// A Node as the controllers see it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// `metadata.creationTimestamp`
    pub created: Option<Timestamp>,
    /// `metadata.deletionTimestamp`
    pub deletion_time: Option<Timestamp>,
    pub labels: Pairs,
    pub annotations: Pairs,
    /// `spec.providerID`, `None` if empty.
    pub provider_id: Option<String>,
    /// `spec.podCIDRs`
    pub pod_cidrs: Vec<String>,
    /// `spec.taints`, complete and in order.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`
    pub unschedulable: bool,
    /// `status.addresses`, in order.
    pub addresses: Vec<NodeAddress>,
    /// The kept part of `status.conditions`.
    pub conditions: Vec<Condition>,
    /// `status.nodeInfo.systemUUID`, `None` if empty.
    pub system_uuid: Option<String>,
}

/// One taint. All fields survive a round trip unchanged, since taints are written as a whole list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: String,
    /// Taint value, often empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Kept as the apiserver wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// One address of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`, `InternalDNS`, `ExternalDNS`, or a provider's own.
    #[serde(rename = "type")]
    pub type_: String,
    /// The address in the writer's own spelling.
    pub address: String,
}

impl Node {
    /// The condition of this type, if the node has it and it is kept.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether its deletion was requested.
    pub fn is_deleting(&self) -> bool {
        self.deletion_time.is_some()
    }

    /// Whether any taint has this key.
    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| taint.key == key)
    }
}

impl Slim for Node {
    type Key = String;
    type Kind = k8s_openapi::api::core::v1::Node;
    type Wire = NodeObject;
    const KIND: &'static str = "Node";

    crate::cache::cluster_scoped!();

    fn index(&self) -> Option<&str> {
        self.provider_id.as_deref()
    }

    fn project(wire: NodeObject, keep: &Keep, interner: &Interner) -> Self {
        let NodeObject { metadata, spec, status } = wire;
        Self {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            created: metadata.creation_timestamp,
            deletion_time: metadata.deletion_timestamp,
            labels: keep.labels.pick(metadata.labels, interner),
            annotations: keep.annotations.pick(metadata.annotations, interner),
            provider_id: Some(spec.provider_id).filter(|id| !id.is_empty()),
            pod_cidrs: exact(spec.pod_cidrs),
            taints: exact(spec.taints),
            unschedulable: spec.unschedulable,
            addresses: exact(status.addresses),
            conditions: exact(status.conditions.into_iter().filter(kept).collect()),
            system_uuid: Some(status.node_info.system_uuid).filter(|uuid| !uuid.is_empty()),
        }
    }
}

/// A Node while it is decoded.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeObject {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(rename = "podCIDRs", deserialize_with = "or_default")]
    pod_cidrs: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    taints: Vec<Taint>,
    unschedulable: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<NodeAddress>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
    node_info: NodeInfo,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "systemUUID")]
    system_uuid: String,
}

fn kept(condition: &Condition) -> bool {
    KEPT_CONDITIONS.contains(&condition.type_.as_str()) || condition.type_.starts_with(OWN_CONDITION_PREFIX)
}

/// A decoded list has spare capacity; an object that stays for hours should not.
fn exact<T>(mut list: Vec<T>) -> Vec<T> {
    list.shrink_to_fit();
    list
}
