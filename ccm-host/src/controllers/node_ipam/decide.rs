//! Decides what to do with a node. Pure: no clock, no client.
//!
//! In: the node as seen, the answer of a provider. Out: what to do next.
//! [`super::ledger`] decides which blocks a node gets.

use ipnet::IpNet;

use super::problem::Problem;
use crate::{
    cidr,
    cloud::{CloudError, InstanceAnswer, InstanceState},
    kube::{cache::Change, node::Node, queue::Outcome},
    reconcile::{Retry, SLOW_RETRY},
};

/// Whether the node needs pod CIDRs: existing ones are kept, and a node being deleted needs none.
pub(super) fn wants(node: &Node) -> bool {
    node.pod_cidrs.is_empty() && !node.is_deleting()
}

/// Whether a change requires a reconcile now. Heartbeats do not cut a wait or a backoff short.
pub(super) fn concerns(change: &Change<Node>) -> bool {
    match change {
        Change::Added(node) => wants(node),
        Change::Updated { old, new } => {
            wants(new) && (!wants(old) || old.provider_id != new.provider_id || old.labels != new.labels)
        }
        Change::Deleted(_) => false,
    }
}

/// The decision on a provider's answer about a node without pod CIDRs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write these: at least one, at most one per family.
    Assign(Vec<IpNet>),
    /// Not yet: report the problem, and ask again as `again` says.
    NotYet { problem: Problem, again: Outcome },
    /// The instance is not this provider's.
    NotOurs,
}

/// Decides on an answer; `allots` says whether the answering provider's cloud allots pod CIDRs at all. PodCIDRs are
/// permanent, so nothing is written before there is one for each family of the cluster CIDRs.
pub(super) fn of_answer(answer: &InstanceAnswer, allots: bool, cluster: &[IpNet]) -> Verdict {
    use InstanceState as S;
    let why = match answer.state {
        S::NotOwned => return Verdict::NotOurs,
        S::Unspecified => "the provider does not know whether the instance exists",
        S::Terminating => "the instance is being terminated",
        S::Absent => "the cloud has no instance for this node (yet)",
        S::Pending | S::Running | S::Stopped | S::Exists => match &answer.instance {
            Some(instance) if !instance.pod_cidrs.is_empty() => {
                return match lacking(&instance.pod_cidrs, cluster) {
                    None => Verdict::Assign(in_order(&instance.pod_cidrs, cluster)),
                    Some(why) => not_yet(&why, Outcome::retry(&why)),
                };
            }
            Some(_) if !allots => {
                return not_yet("the provider allocates none", Outcome::RetryAfter(SLOW_RETRY));
            }
            Some(_) => "the instance has none (yet)",
            None => "the instance is not described (yet)",
        },
    };
    answer.error.as_ref().map_or_else(|| not_yet(why, Outcome::retry(why)), of_error)
}

/// In the order of the cluster CIDRs, whose first family is the cluster's primary one; the provider's otherwise.
fn in_order(allotted: &[IpNet], cluster: &[IpNet]) -> Vec<IpNet> {
    let mut ordered = allotted.to_vec();
    ordered.sort_by_key(|network| {
        cluster.iter().position(|of| cidr::same_family(of, network)).unwrap_or(cluster.len())
    });
    ordered
}

/// Says what is missing, if a family of the cluster CIDRs is.
fn lacking(allotted: &[IpNet], cluster: &[IpNet]) -> Option<String> {
    let is_missing = |network: &&IpNet| !allotted.iter().any(|given| cidr::same_family(given, network));
    let missing = cluster.iter().find(is_missing)?;
    let given: Vec<_> = allotted.iter().map(ToString::to_string).collect();
    Some(format!(
        "the instance has {}, but none (yet) of the family of {missing} in --cluster-cidr",
        given.join(",")
    ))
}

/// Decides on a question that failed.
pub(super) fn of_error(error: &CloudError) -> Verdict {
    not_yet(&format!("{}: {}", error.label(), error.message), Retry::without_sweep(error).outcome(error))
}

fn not_yet(why: &str, again: Outcome) -> Verdict {
    Verdict::NotYet { problem: Problem::NotAllotted(why.to_owned()), again }
}

#[cfg(test)]
mod tests;
