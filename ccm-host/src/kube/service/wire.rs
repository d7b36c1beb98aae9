//! The shape in which a Service arrives.

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::Deserialize;

use super::{Condition, Ingress, ObjectKey, Service, ServiceSpec};
use crate::kube::{
    keep::Keep,
    pairs::Interner,
    wire::{Meta, core_resource, or_default},
};

/// A Service while it is decoded.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Object")]
pub struct ServiceWire {
    meta: ObjectMeta,
    object: Object,
}

core_resource!(ServiceWire, NamespaceResourceScope, "Service", "services");

impl From<Object> for ServiceWire {
    fn from(object: Object) -> Self {
        Self { meta: object.metadata.for_watcher(), object }
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Object {
    metadata: Meta,
    #[serde(default)]
    spec: ServiceSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    load_balancer: LoadBalancerStatus,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct LoadBalancerStatus {
    #[serde(deserialize_with = "or_default")]
    ingress: Vec<Ingress>,
}

impl ServiceWire {
    pub(super) fn project(self, keep: &Keep, interner: &Interner) -> Service {
        let Object { metadata, spec, status } = self.object;
        Service {
            key: ObjectKey::new(interner.intern(&metadata.namespace), metadata.name),
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            created: metadata.creation_timestamp,
            deletion_time: metadata.deletion_timestamp,
            labels: keep.labels.pick(metadata.labels, interner),
            annotations: keep.annotations.pick(metadata.annotations, interner),
            finalizers: metadata.finalizers,
            spec,
            ingress: status.load_balancer.ingress,
            conditions: status.conditions,
        }
    }
}
