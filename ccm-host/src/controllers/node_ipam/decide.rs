//! What shall become of a node. Pure: no clock, no client.
//!
//! In: the node as seen, the error of a write, a fresh read, the answer of a provider. Out: what to do next. Which blocks a
//! node gets is decided in [`super::ledger`].

use ipnet::IpNet;

use super::problem::Problem;
use crate::{
    cidr,
    cloud::{CloudError, InstanceAnswer, InstanceState},
    kube::{cache::Change, node::Node, patch::WriteError, queue::Outcome},
    reconcile::{Retry, SLOW_RETRY},
};

/// Whether the node is to get pod CIDRs: what it has, it keeps, and one that is going needs none.
pub(super) fn wants(node: &Node) -> bool {
    node.pod_cidrs.is_empty() && !node.is_deleting()
}

/// Whether a change is a reason to look at the node now. One that waits or fails is not hurried by its heartbeats.
pub(super) fn concerns(change: &Change<Node>) -> bool {
    match change {
        Change::Added(node) => wants(node),
        Change::Updated { old, new } => {
            wants(new) && (!wants(old) || old.provider_id != new.provider_id || old.labels != new.labels)
        }
        Change::Deleted(_) => false,
    }
}

/// What a failed write says about the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// It is not there any more, or we are stopping.
    Over,
    /// It may have podCIDRs by now, ours or others: only a live read tells.
    Unknown,
    /// Surely nothing was written, and never will be.
    Refused,
}

/// Sorts the error of a write.
pub(super) fn failure(error: &WriteError) -> Failure {
    match error {
        WriteError::NotFound | WriteError::Gone | WriteError::Cancelled => Failure::Over,
        WriteError::Conflict | WriteError::Other(_) => Failure::Unknown,
        WriteError::Invalid(_) => Failure::Refused,
    }
}

/// What a live read says after a write of unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Live {
    /// The node is gone, or another one has its name.
    Over,
    /// It has podCIDRs.
    Assigned,
    /// It has none: the write did not happen, or not yet.
    Empty,
}

/// Compares the node that was written to with a live read.
pub(super) fn live(written: &Node, live: Option<&Node>) -> Live {
    match live {
        Some(live) if live.uid == written.uid && live.pod_cidrs.is_empty() => Live::Empty,
        Some(live) if live.uid == written.uid => Live::Assigned,
        _ => Live::Over,
    }
}

/// What a provider's answer means for a node without pod CIDRs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// These are to be written, in the provider's order: at least one, at most one a family.
    Assign(Vec<IpNet>),
    /// Not yet: told to people, and asked again at its pace.
    NotYet { problem: Problem, again: Outcome },
    /// The machine is not this provider's.
    NotOurs,
}

/// The verdict on an answer; `allots` is whether the cloud of who gave it allots pod CIDRs at all. What is written stays for
/// good, so it is not written before it has all families of the cluster CIDRs.
pub(super) fn of_answer(answer: &InstanceAnswer, allots: bool, cluster: &[IpNet]) -> Verdict {
    use InstanceState as S;
    let why = match answer.state {
        S::NotOwned => return Verdict::NotOurs,
        S::Unknown => "the provider does not know whether the instance exists",
        S::Terminating => "the instance is being terminated",
        S::Absent => "the cloud has no instance for this node (yet)",
        S::Pending | S::Running | S::Stopped | S::Exists => match &answer.instance {
            Some(instance) if !instance.pod_cidrs.is_empty() => {
                return match lacking(&instance.pod_cidrs, cluster) {
                    None => Verdict::Assign(instance.pod_cidrs.clone()),
                    Some(why) => not_yet(&why, Outcome::retry(&why)),
                };
            }
            Some(_) if !allots => {
                return not_yet("the provider allots none", Outcome::RetryAfter(SLOW_RETRY));
            }
            Some(_) => "the instance has none (yet)",
            None => "the instance is not described (yet)",
        },
    };
    answer.error.as_ref().map_or_else(|| not_yet(why, Outcome::retry(why)), of_error)
}

/// What is missing, if a family of the cluster CIDRs is.
fn lacking(allotted: &[IpNet], cluster: &[IpNet]) -> Option<String> {
    let is_missing = |network: &&IpNet| !allotted.iter().any(|given| cidr::same_family(given, network));
    let missing = cluster.iter().find(is_missing)?;
    let given: Vec<_> = allotted.iter().map(ToString::to_string).collect();
    Some(format!(
        "the instance has {}, but none (yet) of the family of {missing} in --cluster-cidr",
        given.join(",")
    ))
}

/// The verdict on a question that was not answered.
pub(super) fn of_error(error: &CloudError) -> Verdict {
    not_yet(&format!("{}: {}", error.label(), error.message), Retry::without_sweep(error).outcome(error))
}

fn not_yet(why: &str, again: Outcome) -> Verdict {
    Verdict::NotYet { problem: Problem::NotAllotted(why.to_owned()), again }
}

#[cfg(test)]
mod tests;
