//! The shape in which a Node arrives.

use k8s_openapi::{ClusterResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::Deserialize;

use super::{KEPT_CONDITIONS, Node, NodeAddress, NodeCondition, OWN_CONDITION_PREFIX, Taint};
use crate::kube::{
    keep::Keep,
    pairs::Interner,
    wire::{Meta, core_resource, or_default},
};

/// A Node while it is decoded.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Object")]
pub struct NodeWire {
    meta: ObjectMeta,
    object: Object,
}

core_resource!(NodeWire, ClusterResourceScope, "Node", "nodes");

impl From<Object> for NodeWire {
    fn from(object: Object) -> Self {
        Self { meta: object.metadata.for_watcher(), object }
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Object {
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
    conditions: Vec<NodeCondition>,
    node_info: NodeInfo,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "systemUUID")]
    system_uuid: String,
}

impl NodeWire {
    pub(super) fn project(self, keep: &Keep, interner: &Interner) -> Node {
        let Object { metadata, spec, status } = self.object;
        Node {
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

fn kept(condition: &NodeCondition) -> bool {
    KEPT_CONDITIONS.contains(&condition.type_.as_str()) || condition.type_.starts_with(OWN_CONDITION_PREFIX)
}

/// A decoded list has spare capacity; an object that stays for hours should not.
fn exact<T>(mut list: Vec<T>) -> Vec<T> {
    list.shrink_to_fit();
    list
}
