//! The slim Service: the fields that the load balancer controller compares, sends and writes.
//!
//! In: the apiserver's JSON, through a private wire type. The cache keeps the annotations that the providers want or
//! the controller reads.

use std::{fmt, sync::Arc};

use ipnet::IpNet;
use jiff::Timestamp;
pub use k8s_openapi::api::core::v1::{ClientIPConfig as ClientIpConfig, SessionAffinityConfig};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};

use super::{
    cache::Slim,
    keep::{Interner, Keep, Pairs},
    wire::{Condition, Meta, or_default},
};
use ccm_base::{
    cidr,
    text::{NAME, cut},
};

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
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
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
    pub fn is_deleting(&self) -> bool {
        self.deletion_time.is_some()
    }

    /// Whether the finalizer is in the list.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|found| found == finalizer)
    }

    /// The condition of this type, if the Service has it.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

/// Read if the spec has no ranges.
pub const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The ranges, deduplicated and in order of address; an empty list lets everybody in. `Err` says which is invalid, and where.
pub fn source_ranges(service: &Service) -> Result<Vec<IpNet>, String> {
    match service.spec.load_balancer_source_ranges.as_deref() {
        Some(listed) if !listed.is_empty() => {
            parse("spec.loadBalancerSourceRanges", listed.iter().map(String::as_str))
        }
        _ => match service.annotations.get(SOURCE_RANGES).map(str::trim) {
            Some(listed) if !listed.is_empty() => parse(SOURCE_RANGES, listed.split(',')),
            _ => Ok(Vec::new()),
        },
    }
}

fn parse<'a>(place: &str, listed: impl Iterator<Item = &'a str>) -> Result<Vec<IpNet>, String> {
    let bad = |range: &str| format!("{place}: {:?} is not a network such as 10.0.0.0/24", cut(range, NAME));
    let network = |text: &str| cidr::parse(text.trim()).map(|network| network.trunc());
    let mut ranges =
        listed.map(|text| network(text).ok_or_else(|| bad(text))).collect::<Result<Vec<_>, _>>()?;
    ranges.sort_unstable();
    ranges.dedup();
    Ok(ranges)
}

impl Slim for Service {
    type Key = ObjectKey;
    type Kind = k8s_openapi::api::core::v1::Service;
    type Wire = ServiceObject;
    const KIND: &'static str = "Service";

    fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    fn key_of(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new(namespace, name)
    }

    fn place(key: &ObjectKey, client: &Client) -> (Api<Self::Kind>, String) {
        (Api::namespaced(client.clone(), &key.namespace), key.name.to_string())
    }

    crate::cache::versioned!();

    fn project(wire: ServiceObject, keep: &Keep, interner: &Interner) -> Self {
        let ServiceObject { metadata, spec, status } = wire;
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

/// A Service while it is decoded.
#[derive(Debug, Clone, Deserialize)]
pub struct ServiceObject {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::service;

    fn annotated(text: &str) -> Service {
        service("web").load_balancer().with_annotation(SOURCE_RANGES, text)
    }

    fn listed(text: &str) -> Service {
        let mut service = service("web").load_balancer();
        service.spec.load_balancer_source_ranges = Some(text.split(',').map(str::to_owned).collect());
        service
    }

    fn words(service: &Service) -> Option<Vec<String>> {
        source_ranges(service).ok().map(|ranges| ranges.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn ranges_come_from_spec_and_annotation_alike() {
        let rows: [(&str, &str, Option<&[&str]>); 15] = [
            ("HLP-1", "10.0.0.1/33", None),
            ("HLP-2", "foo.bar", None),
            ("HLP-3", "10.0.0.1/32,*", None),
            ("HLP-4", "10.0.0.1/32,", None),
            ("HLP-5", "10.0.0.1/32, ", None),
            ("HLP-6", "10.0.0.1", None),
            ("HLP-7", "192.168.0.1/32", Some(&["192.168.0.1/32"])),
            ("HLP-8", "192.168.0.1/32,192.168.0.1/32", Some(&["192.168.0.1/32"])),
            ("HLP-9", "192.168.0.2/32,192.168.0.1/32", Some(&["192.168.0.1/32", "192.168.0.2/32"])),
            ("HLP-10", "  192.168.0.1/32 ,\t192.168.0.2/32\n", Some(&["192.168.0.1/32", "192.168.0.2/32"])),
            ("1.19", "10.1.2.3/8", Some(&["10.0.0.0/8"])),
            ("1.19", "010.0.1.0/24,0.0.0.0/0", Some(&["0.0.0.0/0", "10.0.1.0/24"])),
            ("1.19", "::ffff:10.0.1.0/120,fd00::1/8", Some(&["10.0.1.0/24", "fd00::/8"])),
            ("sign", "10.0.0.0/+8", None),
            ("gap", "10..0.0/8", None),
        ];
        for (id, text, want) in rows {
            let want = want.map(|want| want.iter().map(|&range| range.to_owned()).collect::<Vec<_>>());
            assert_eq!(words(&annotated(text)), want, "{id}: annotation {text:?}");
            assert_eq!(words(&listed(text)), want, "{id}: spec {text:?}");
        }
    }

    /// The contract says "none: no restriction" where upstream's helper says `0.0.0.0/0`.
    #[test]
    fn no_range_means_everybody() {
        let mut empty = service("web").load_balancer();
        empty.spec.load_balancer_source_ranges = Some(Vec::new());
        let rows = [
            ("HLP-11", service("web").load_balancer()),
            ("HLP-12", annotated("")),
            ("HLP-12", annotated(" \t")),
            ("empty list", empty),
        ];
        for (id, service) in rows {
            assert_eq!(words(&service), Some(Vec::new()), "{id}");
        }
    }

    /// HLP-14..16: the whole of IPv4 has one spelling to compare with.
    #[test]
    fn everybody_is_one_range_however_it_is_written() {
        let rows = [
            ("HLP-14", "10.0.0.1/32", false),
            ("HLP-14", "10.0.0.1/32,10.0.0.2/32", false),
            ("HLP-14", "10.0.0.1/32,10.0.0.1/32", false),
            ("HLP-15", "0.0.0.0/0", true),
            ("HLP-15", "192.168.0.0/0", true),
            ("HLP-15", "192.168.0.1/32,0.0.0.0/0", true),
            ("HLP-16", "::/0", false),
        ];
        for (id, text, want) in rows {
            let found = words(&listed(text)).unwrap().contains(&"0.0.0.0/0".to_owned());
            assert_eq!(found, want, "{id}: {text}");
        }
    }

    /// HLP-13.
    #[test]
    fn the_spec_hides_the_annotation() {
        let service = listed("10.0.0.0/8").with_annotation(SOURCE_RANGES, "foo");
        assert_eq!(words(&service), Some(vec!["10.0.0.0/8".to_owned()]));
    }

    #[test]
    fn an_error_names_place_and_range() {
        let error = source_ranges(&annotated("10.0.0.0/8,x")).unwrap_err();
        assert_eq!(error, format!("{SOURCE_RANGES}: \"x\" is not a network such as 10.0.0.0/24"));
    }
}
