//! What both kinds of balancers read of a Service.
//!
//! In: the Service and the cloud config. Out: its annotations, tags, the labels of its nodes. What these come to is decided by
//! either kind.

mod annotations;

use std::collections::BTreeMap;

use cloudprovider_sdk::proto::{NodeRef, Service, ServiceRef};
use cloudprovider_sdk::{ProviderError, Result};

use super::names;
use crate::cloud::Cluster;
use crate::config::HealthProbe;
pub(super) use annotations::{Annotations, Kind};

pub(super) type Texts = BTreeMap<String, String>;

/// The port of health checks that is each target's own.
pub(super) const TRAFFIC_PORT: &str = "traffic-port";
pub(super) const EVERYWHERE: &str = "0.0.0.0/0";

/// What all Services share.
#[derive(Debug, Clone)]
pub(super) struct Defaults {
    pub cluster: Cluster,
    pub health: HealthProbe,
    /// Network balancers get security groups.
    pub security_groups: bool,
    /// The security group of all classic balancers; empty: each has one of its own.
    pub shared_group: String,
}

/// What no balancer of AWS can do without, or at all.
pub(super) fn has_what_all_need(service: &Service) -> Result<()> {
    if !service.load_balancer_ip.is_empty() {
        let why = "AWS gives addresses by subnet; use the annotation aws-load-balancer-eip-allocations";
        return Err(ProviderError::invalid_configuration("spec.loadBalancerIP", why));
    }
    if service.ports.is_empty() {
        return Err(ProviderError::invalid_configuration("spec.ports", "a balancer needs a port"));
    }
    if service.ports.iter().any(|port| port.node_port == 0) {
        let why = "AWS reaches the pods by node ports, and the Service allocates none";
        return Err(ProviderError::unsupported_feature("spec.allocateLoadBalancerNodePorts", why));
    }
    Ok(())
}

/// The tags of everything that AWS makes for a Service.
pub(super) fn tags(
    annotations: &Annotations<'_>,
    cluster_uid: &str,
    service: &ServiceRef,
    cluster: &Cluster,
) -> Result<Texts> {
    let additional = "aws-load-balancer-additional-resource-tags";
    let mut tags = annotations.pairs(additional);
    if let Some(key) = tags.keys().find(|key| key.starts_with(names::OURS)) {
        let why = format!("the tag {key:?} is this provider's own; leave it out");
        return Err(Annotations::error(additional, &why));
    }
    tags.insert(names::SERVICE_TAG.to_owned(), names::service(service));
    tags.insert(names::OWNER_TAG.to_owned(), names::owner(cluster_uid, service));
    tags.extend(cluster.tags());
    Ok(tags)
}

/// The labels that a Service's nodes have; an empty value stands for any.
pub(super) fn node_labels(service: &Service) -> Texts {
    Annotations::of(service).pairs("aws-load-balancer-target-node-labels")
}

pub(super) fn has_labels(node: &NodeRef, wanted: &Texts) -> bool {
    let has = |(key, value): (&String, &String)| {
        node.labels.get(key).is_some_and(|of_node| value.is_empty() || of_node == value)
    };
    wanted.iter().all(has)
}

/// What of `wanted` is not so.
pub(super) fn missing(wanted: &Texts, actual: &Texts) -> Texts {
    let is_so = |(key, value): &(&String, &String)| actual.get(*key) == Some(value);
    wanted.iter().filter(|pair| !is_so(pair)).map(|(key, value)| (key.clone(), value.clone())).collect()
}
