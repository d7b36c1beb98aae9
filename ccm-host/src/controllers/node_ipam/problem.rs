//! The problems of a node's pod CIDRs: which were reported, and why a node has no pod CIDR.

use std::fmt;

use ccm_state::{Explanation, Standing};
use ipnet::IpNet;

use super::{COMPONENT, Controller, decide, metrics::IpamMetrics};
use crate::{
    clock,
    controllers::explain::{Explain, explanation},
    kube::Node,
    reconcile::ToldOnce,
};

/// A problem to report to people, once while it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    /// The podCIDR is not a CIDR.
    Malformed(String),
    /// The cluster has no CIDR of its family.
    OtherFamily(IpNet),
    /// It is outside the cluster CIDR.
    OutOfRange { network: IpNet, cluster: IpNet },
    /// It overlaps that of another node.
    Shared { network: IpNet, node: String },
    /// It overlaps the Service range.
    OfServices(IpNet),
    /// No block is left.
    Exhausted(IpNet),
    /// The provider has allotted nothing.
    NotAllotted(String),
    /// The write failed.
    NotWritten { networks: String, error: String },
}

impl Problem {
    /// The reason of its Event.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) | Self::OtherFamily(_) | Self::OutOfRange { .. } => "InvalidPodCIDR",
            Self::Shared { .. } | Self::OfServices(_) => "PodCIDRConflict",
            Self::Exhausted(_) | Self::NotAllotted(_) => "CIDRNotAvailable",
            Self::NotWritten { .. } => "CIDRAssignmentFailed",
        }
    }

    /// The value of its `problem` label.
    fn label(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::OtherFamily(_) => "other_family",
            Self::OutOfRange { .. } => "out_of_range",
            Self::Shared { .. } => "shared",
            Self::OfServices(_) => "of_services",
            Self::Exhausted(_) => "exhausted",
            Self::NotAllotted(_) => "not_allotted",
            Self::NotWritten { .. } => "not_written",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => write!(out, "the pod CIDR {text:?} is not a network"),
            Self::OtherFamily(network) => {
                write!(out, "the pod CIDR {network} is of an IP family for which the cluster has no CIDR")
            }
            Self::OutOfRange { network, cluster } => {
                write!(out, "the pod CIDR {network} is outside the cluster CIDR {cluster}")
            }
            Self::Shared { network, node } => {
                write!(out, "the pod CIDR {network} overlaps that of node {node}")
            }
            Self::OfServices(network) => {
                write!(out, "the pod CIDR {network} overlaps the range of the Services")
            }
            Self::Exhausted(cluster) => write!(
                out,
                "the cluster CIDR {cluster} has no block left for this node: it gets one when another node goes"
            ),
            Self::NotAllotted(why) => write!(out, "the cloud has not allocated the pod CIDRs: {why}"),
            Self::NotWritten { networks, error } => {
                write!(out, "the pod CIDR {networks} could not be assigned: {error}")
            }
        }
    }
}

/// The problems reported for each node, by uid, and their count.
#[derive(Debug)]
pub(super) struct Problems {
    told: ToldOnce<Problem>,
    metrics: IpamMetrics,
}

impl Problems {
    pub(super) fn new(metrics: IpamMetrics) -> Self {
        Self { told: ToldOnce::default(), metrics }
    }

    /// Those of a node's current problems that were not reported before.
    pub(super) fn news(&mut self, uid: &str, problems: Vec<Problem>) -> Vec<Problem> {
        let count = |all: &[Problem], more| {
            all.iter().for_each(|problem| self.metrics.problem(problem.label(), more));
        };
        count(self.told.told(uid), -1);
        count(&problems, 1);
        self.told.news(uid, problems, Problem::clone)
    }
}

impl Explain for Controller {
    fn explain(&self, node: &Node) -> Option<Explanation> {
        if !self.parts.settings.manages(node) {
            return None;
        }
        let problems = self.problems.lock().told.told(&node.uid).to_vec();
        let reason = problems.first().map(Problem::reason);
        let told = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let said = match (decide::wants(node), reason) {
            (true, Some(reason)) => explanation(
                COMPONENT,
                Standing::Blocked,
                reason,
                told,
                "the host assigns a pod CIDR as soon as there is one for this node",
            ),
            (true, None) => explanation(
                COMPONENT,
                Standing::Waiting,
                "NoPodCIDRYet",
                "the node has no pod CIDR yet",
                "the host assigns one",
            ),
            (false, Some(reason)) => explanation(
                COMPONENT,
                Standing::Blocked,
                reason,
                told,
                "the host never changes a pod CIDR: recreate the node without it",
            ),
            (false, None) => return None,
        };
        let (retries, next) = (self.queue.retries(&node.name), self.queue.due(&node.name));
        Some(Explanation { retries, next_attempt: next.map(clock::at), ..said })
    }
}
