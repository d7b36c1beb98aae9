//! The slim Service: the fields that the load balancer controller compares, sends and writes.
//!
//! In: the apiserver's JSON, through a private wire type. The cache keeps the annotations that the providers want or
//! the controller reads.

mod source_ranges;

use std::{fmt, sync::Arc};

use ::kube::{Api, Client};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use super::{
    cache::Slim,
    keep::Keep,
    pairs::{Interner, Pairs},
    wire::{Condition, Meta, core_resource, or_default},
};
pub use source_ranges::{SOURCE_RANGES, SourceRangesError, source_ranges};

/// Namespace and name; written `namespace/name`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A Service as the controllers see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    pub key: ObjectKey,
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
    /// `metadata.finalizers`, complete and in order.
    pub finalizers: Vec<String>,
    /// The part of `spec` that is read.
    pub spec: ServiceSpec,
    /// `status.loadBalancer.ingress`
    pub ingress: Vec<Ingress>,
    /// `status.conditions`
    pub conditions: Vec<Condition>,
}

/// The part of a Service's spec that a balancer depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `None` means the cluster's default implementation.
    pub load_balancer_class: Option<String>,
    /// Allowed client ranges; `None` and empty differ.
    pub load_balancer_source_ranges: Option<Vec<String>>,
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<ServicePort>,
    /// `None` or `ClientIP`.
    pub session_affinity: String,
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// The requested address (deprecated upstream, still used).
    #[serde(rename = "loadBalancerIP")]
    pub load_balancer_ip: String,
    /// Addresses routed to the nodes from outside.
    #[serde(rename = "externalIPs", deserialize_with = "or_default")]
    pub external_ips: Vec<String>,
    /// `Cluster` or `Local`.
    pub external_traffic_policy: String,
    /// `Cluster` or `Local`.
    pub internal_traffic_policy: Option<String>,
    /// Health check port for the policy `Local`; 0 if none.
    pub health_check_node_port: i32,
    /// `IPv4`, `IPv6`; the first is the primary.
    #[serde(deserialize_with = "or_default")]
    pub ip_families: Vec<String>,
    /// `SingleStack`, `PreferDualStack` or `RequireDualStack`.
    pub ip_family_policy: Option<String>,
    #[serde(rename = "clusterIPs", deserialize_with = "or_default")]
    pub cluster_ips: Vec<String>,
    /// Whether to allocate node ports; `None` means yes.
    pub allocate_load_balancer_node_ports: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct SessionAffinityConfig {
    /// For affinity `ClientIP`.
    #[serde(rename = "clientIP", default)]
    pub client_ip: Option<ClientIpConfig>,
}

/// Configuration of affinity by client address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpConfig {
    /// How long a client sticks to a backend.
    #[serde(default)]
    pub timeout_seconds: Option<i32>,
}

/// One port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// May be empty if there is only one port.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    pub app_protocol: Option<String>,
    pub port: i32,
    pub target_port: TargetPort,
    /// Port on the nodes; 0 if none.
    pub node_port: i32,
}

/// A port by number, or by its name in the pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    Number(i32),
    Name(String),
}

impl Default for TargetPort {
    fn default() -> Self {
        Self::Number(0)
    }
}

/// One published entry of a balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ingress {
    /// An address, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ip: String,
    /// A DNS name, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// `VIP` or `Proxy`; `None` leaves it to the apiserver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub ports: Vec<PortStatus>,
}

/// State of one port of a balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// A reason in CamelCase or `vendor/Reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Service {
    /// Whether its deletion was requested.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_time.is_some()
    }

    /// Whether the finalizer is in the list.
    #[must_use]
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|found| found == finalizer)
    }

    /// The condition of this type, if the Service has it.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

impl Slim for Service {
    type Key = ObjectKey;
    type Wire = ServiceWire;
    const KIND: &'static str = "Service";

    fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    fn place(key: &ObjectKey, client: &Client) -> (Api<ServiceWire>, String) {
        (Api::namespaced(client.clone(), &key.namespace), key.name.to_string())
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }

    fn resource_version_mut(&mut self) -> &mut String {
        &mut self.resource_version
    }

    fn project(wire: ServiceWire, keep: &Keep, interner: &Interner) -> Self {
        let Object { metadata, spec, status } = wire.object;
        Self {
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

core_resource!(ServiceWire, NamespaceResourceScope, "Service", "services");

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
