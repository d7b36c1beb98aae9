//! What is wrong with the pod CIDRs of a node, or why it has none, as reports.

use std::fmt::Display;

use ipnet::IpNet;

use ccm_cloud::CloudError;
use ccm_kube::patch::WriteError;
use ccm_reconcile::{Report, Retry};

/// What a node has is never changed.
pub(super) const REMEDY: &str = "the host never changes a pod CIDR: recreate the node without it";

const INVALID: &str = "InvalidPodCIDR";
const CONFLICT: &str = "PodCIDRConflict";
const NOT_AVAILABLE: &str = "CIDRNotAvailable";

const NOT_ALLOTTED: &str = "the cloud has not allocated the pod CIDRs";

pub(super) fn malformed(text: &str) -> Report {
    stays("Malformed", INVALID, format_args!("the pod CIDR {text:?} is not a network"))
}

pub(super) fn other_family(network: &IpNet) -> Report {
    let what = format_args!("the pod CIDR {network} is of an IP family for which the cluster has no CIDR");
    stays("OtherFamily", INVALID, what)
}

pub(super) fn out_of_range(network: &IpNet, cluster: &IpNet) -> Report {
    let what = format_args!("the pod CIDR {network} is outside the cluster CIDR {cluster}");
    stays("OutOfRange", INVALID, what)
}

/// Neighbours that are named: one wide CIDR may have thousands.
const NAMED: usize = 3;

pub(super) fn shared(network: &IpNet, nodes: &[&str]) -> Report {
    let (named, more) = nodes.split_at(nodes.len().min(NAMED));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    let of = if nodes.len() == 1 { "that of node" } else { "those of nodes" };
    let what = format_args!("the pod CIDR {network} overlaps {of} {}{more}", named.join(", "));
    stays("Shared", CONFLICT, what)
}

pub(super) fn of_services(network: &IpNet) -> Report {
    let what = format_args!("the pod CIDR {network} overlaps the range of the Services");
    stays("OfServices", CONFLICT, what)
}

/// No block of this cluster CIDR is free. `widest`: the node that holds most of them.
pub(super) fn exhausted(cluster: &IpNet, widest: Option<&(String, IpNet)>) -> Report {
    let whose = widest.map_or_else(String::new, |(name, network)| {
        format!("; node {name:?} alone holds {network}: delete that Node if it should not")
    });
    let what = format!(
        "the cluster CIDR {cluster} has no block left for this node: it gets one when another node goes{whose}"
    );
    Report::blocked("Exhausted", what, Retry::Wait).warning(NOT_AVAILABLE)
}

/// The provider has allotted nothing, or too little.
pub(super) fn not_allotted(why: impl Display, retry: Retry) -> Report {
    Report::blocked("NotAllotted", format!("{NOT_ALLOTTED}: {why}"), retry).warning(NOT_AVAILABLE)
}

/// The provider could not be asked.
pub(super) fn not_asked(error: &CloudError) -> Report {
    Report::failed("NotAllotted", NOT_ALLOTTED, error).warning(NOT_AVAILABLE)
}

pub(super) fn not_written(networks: &[String], error: WriteError) -> Report {
    let (networks, error) = (networks.join(","), anyhow::Error::from(error));
    let what = format!("the pod CIDR {networks} could not be assigned: {error:#}");
    Report::blocked("NotWritten", what, Retry::Backoff).warning("CIDRAssignmentFailed")
}

fn stays(reason: &'static str, event: &'static str, what: impl Display) -> Report {
    Report::blocked(reason, format!("{what}; {REMEDY}"), Retry::Wait).warning(event)
}
