//! What a node and the answer about it call for. Pure: no clock, no client.
//!
//! In: a node, and what its provider says. Out: a taint to write, or evidence for [`super::guard`], which alone decides on
//! deletions. The table is the one at `InstanceState` in `instances.proto`.

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
    /// It is not there, on good authority: evidence.
    Absent,
    /// Nothing certain is known.
    Uncertain,
}

/// The first look. A missing condition is not ready.
pub(super) fn look(node: &Node) -> Look {
    if is_ready(node) { Look::Ready(without_shutdown(node)) } else { Look::NotReady }
}

/// Whether the node says of itself that it is ready.
pub(super) fn is_ready(node: &Node) -> bool {
    node.condition("Ready").is_some_and(|ready| ready.status == "True")
}

/// What the answer about a node that is not ready calls for.
pub(super) fn decide(node: &Node, answer: &InstanceAnswer) -> Verdict {
    use InstanceState as S;
    match answer.state {
        S::Running => Verdict::Keep(without_shutdown(node)),
        S::Stopped | S::Terminating => Verdict::Keep(taint::with(&node.taints, &taint::shutdown())),
        S::Pending | S::NotOwned | S::Exists => Verdict::Keep(None),
        S::Absent if answer.authoritative => Verdict::Absent,
        S::Absent | S::Unknown => Verdict::Uncertain,
    }
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
