//! Decides what a node, and the answer about it, require. Pure: no clock, no client.
//!
//! In: a node, and its provider's answer. Out: a taint to write, or evidence for [`super::guard`], which alone
//! decides on deletions. The table is the one at `InstanceState` in `instances.proto`.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use ccm_base::label;
use ccm_cloud::{InstanceAnswer, InstanceState};
use ccm_kube::node::{Node, Taint};
use ccm_reconcile::{settings::lifecycle::ShutdownPolicy, taint};

/// A person confirms with this annotation that a node's instance is really gone; its value is the node's uid.
pub(crate) const CONFIRM_DELETION: &str = "cloudprovider.ccm/confirm-deletion";

/// The step that an answer requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The instance exists, or is not ours. Holds the taints to write, if they differ.
    Keep(Option<Vec<Taint>>),
    /// It is stopped; the provider reliably looked at that time. Holds the taints to write, if they differ.
    Stopped(Option<Vec<Taint>>, Timestamp),
    /// The provider reliably looked for the instance at that time, and did not find it: evidence.
    Absent(Timestamp),
    /// The same, but the question did not identify the instance.
    Nameless,
    /// Nothing certain is known.
    Uncertain,
}

/// The provider's answer about a Ready node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has an instance.
    Found,
    /// It has none, or none of this provider's.
    Denied,
    /// Nothing certain is known.
    Unknown,
}

/// What counts against a node that has no instance, or a stopped one.
#[derive(Debug, Clone)]
pub(super) struct Evidence {
    pub(super) node: Arc<Node>,
    pub(super) age: Duration,
    /// A person confirmed that it is really gone.
    pub(super) vouched: bool,
    /// An autoscaler or a person has given the node up already.
    pub(super) given_up: bool,
    /// When the provider looked for its instance, by its clock.
    pub(super) observed_at: Timestamp,
}

/// Taints by which other components, or a person who shut the node down for good, mark a node as given up.
const GIVEN_UP: [&str; 3] = [taint::AUTOSCALER, taint::KARPENTER, taint::OUT_OF_SERVICE];

/// Whether the node reports that it is ready. One without the condition does not.
pub(super) fn is_ready(node: &Node) -> bool {
    node.condition("Ready").is_some_and(|ready| ready.status == "True")
}

/// Whether kube-controller-manager has found the kubelet silent, by its own clock. A kubelet itself reports True or
/// False.
pub(super) fn is_unheard(node: &Node) -> bool {
    node.condition("Ready").is_some_and(|ready| ready.status == "Unknown")
}

/// Decides on the answer about a node that is not ready. `named` is whether the question identified the instance:
/// by its provider ID, by a name that is the cloud's own key, or by a person who confirmed that it is gone.
pub(super) fn decide(policy: ShutdownPolicy, node: &Node, named: bool, answer: &InstanceAnswer) -> Verdict {
    use InstanceState as S;
    match answer.state {
        S::Running => Verdict::Keep(taint::without_stop(&node.taints)),
        S::Stopped | S::Terminating => {
            let taints = (policy != ShutdownPolicy::None)
                .then(|| taint::with(&node.taints, &taint::shutdown()))
                .flatten();
            let reliable = answer.authoritative && answer.error.is_none() && answer.state == S::Stopped;
            match answer.observed_at.filter(|_| reliable) {
                Some(at) => Verdict::Stopped(taints, at),
                None => Verdict::Keep(taints),
            }
        }
        S::Pending | S::NotOwned | S::Exists => Verdict::Keep(None),
        S::Absent => match looked_for(answer) {
            Some(at) if named => Verdict::Absent(at),
            Some(_) => Verdict::Nameless,
            None => Verdict::Uncertain,
        },
        S::Unspecified => Verdict::Uncertain,
    }
}

/// Classifies the answer about a Ready node.
pub(super) fn presence(answer: &InstanceAnswer) -> Presence {
    use InstanceState as S;
    match answer.state {
        S::Pending | S::Running | S::Stopped | S::Terminating | S::Exists => Presence::Found,
        S::Absent if looked_for(answer).is_some() => Presence::Denied,
        S::NotOwned if answer.error.is_none() => Presence::Denied,
        S::Absent | S::NotOwned | S::Unspecified => Presence::Unknown,
    }
}

/// When the provider looked for an absent instance; `None` if it describes the instance or reports an error, and so
/// did not really look.
fn looked_for(answer: &InstanceAnswer) -> Option<Timestamp> {
    let looked = answer.authoritative && answer.error.is_none() && answer.instance.is_none();
    answer.observed_at.filter(|_| looked)
}

/// Whether another component or a person has given the node up already.
pub fn is_given_up(node: &Node) -> bool {
    let by_others = |taint: &Taint| GIVEN_UP.contains(&taint.key.as_str()) && !taint::is_of_given_up(taint);
    node.taints.iter().any(by_others)
}

/// The node's zone; empty if it has none.
pub(super) fn zone(node: &Node) -> &str {
    label::ZONE.iter().find_map(|key| node.labels.get(key)).unwrap_or_default()
}

/// Whether a person has confirmed that exactly this node may be deleted.
pub(super) fn is_vouched_for(node: &Node) -> bool {
    !node.uid.is_empty() && node.annotations.get(CONFIRM_DELETION) == Some(&node.uid)
}

#[cfg(test)]
mod tests;
