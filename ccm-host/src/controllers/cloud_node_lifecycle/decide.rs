//! What a node and the answer about it call for. Pure: no clock, no client.
//!
//! In: a node, and what its provider says. Out: a taint to write, or evidence for [`super::guard`], which alone decides on
//! deletions. The table is the one at `InstanceState` in `instances.proto`.

use jiff::Timestamp;

use crate::{
    cloud::{InstanceAnswer, InstanceState},
    controllers::taint,
    kube::node::{Node, Taint},
};

/// The annotation by which a person says that a node's machine is really gone; its value is the node's uid.
pub(crate) const CONFIRM_DELETION: &str = "cloudprovider.ccm/confirm-deletion";

/// What a node calls for before anybody is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// It is ready: the cloud is not asked. The list is what its taints shall be, if they are not so.
    Ready(Option<Vec<Taint>>),
    /// Its provider has to be asked.
    NotReady,
}

/// What an answer calls for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The machine is there, or none of ours. The list is what the taints shall be, if they are not so.
    Keep(Option<Vec<Taint>>),
    /// It was looked for then and is not there, on good authority: evidence.
    Absent(Timestamp),
    /// Nothing certain is known.
    Uncertain,
}

/// What is said of a Ready node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has an instance.
    Found,
    /// It had none then, or none of this provider's.
    Denied(Timestamp),
    /// Nothing certain is known.
    Unknown,
}

/// Taints by which others say that they have given a node up, and the person who shut it down for good.
const GIVEN_UP: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "node.kubernetes.io/out-of-service"];

/// The labels that name a zone: now, and in former times.
pub(super) const ZONES: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

/// The first look. A missing condition is not ready.
pub(super) fn look(node: &Node) -> Look {
    if is_ready(node) { Look::Ready(without_shutdown(node)) } else { Look::NotReady }
}

/// Whether the node says of itself that it is ready.
pub(super) fn is_ready(node: &Node) -> bool {
    node.condition("Ready").is_some_and(|ready| ready.status == "True")
}

/// What the answer about a node that is not ready calls for. `named` is whether the question named the instance: by its
/// provider ID, or by a name that is the cloud's own key.
pub(super) fn decide(node: &Node, named: bool, answer: &InstanceAnswer) -> Verdict {
    use InstanceState as S;
    match answer.state {
        S::Running => Verdict::Keep(without_shutdown(node)),
        S::Stopped | S::Terminating => Verdict::Keep(taint::with(&node.taints, &taint::shutdown())),
        S::Pending | S::NotOwned | S::Exists => Verdict::Keep(None),
        S::Absent if named => looked_for(answer).map_or(Verdict::Uncertain, Verdict::Absent),
        S::Absent | S::Unknown => Verdict::Uncertain,
    }
}

/// What the answer about a Ready node says, which was asked for then.
pub(super) fn presence(answer: &InstanceAnswer, asked_at: Timestamp) -> Presence {
    use InstanceState as S;
    match answer.state {
        S::Pending | S::Running | S::Stopped | S::Terminating | S::Exists => Presence::Found,
        S::Absent => looked_for(answer).map_or(Presence::Unknown, Presence::Denied),
        S::NotOwned if answer.error.is_none() => Presence::Denied(answer.observed_at.unwrap_or(asked_at)),
        S::NotOwned | S::Unknown => Presence::Unknown,
    }
}

/// When what is absent was looked for. Who describes it all the same, or names an error, did not look.
fn looked_for(answer: &InstanceAnswer) -> Option<Timestamp> {
    let looked = answer.authoritative && answer.error.is_none() && answer.instance.is_none();
    answer.observed_at.filter(|_| looked)
}

/// Whether somebody else has given the node up already.
pub(super) fn is_given_up(node: &Node) -> bool {
    GIVEN_UP.iter().any(|key| node.has_taint(key))
}

/// The node's zone; empty if it has none.
pub(super) fn zone(node: &Node) -> &str {
    ZONES.iter().find_map(|key| node.labels.get(key)).unwrap_or_default()
}

/// Whether a person vouches for it that this very node may go.
pub(super) fn is_vouched_for(node: &Node) -> bool {
    !node.uid.is_empty() && node.annotations.get(CONFIRM_DELETION) == Some(&node.uid)
}

fn without_shutdown(node: &Node) -> Option<Vec<Taint>> {
    taint::without(&node.taints, &taint::shutdown())
}

#[cfg(test)]
mod tests;
