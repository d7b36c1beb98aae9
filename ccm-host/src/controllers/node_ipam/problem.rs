//! The problems of a node's pod CIDRs, and which of them were reported.

use std::fmt;

use ipnet::IpNet;

use super::metrics::IpamMetrics;
use crate::reconcile::ToldOnce;

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

    /// A node's current problems.
    pub(super) fn told(&self, uid: &str) -> Vec<Problem> {
        self.told.told(uid).to_vec()
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
