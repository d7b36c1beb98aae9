//! Decides what to do with a node, given its provider's answer. Pure: no clock, no client.
//!
//! In: the node as seen, the answer. Out: a [`Verdict`]. [`super::addresses`] and [`super::labels`] compute addresses
//! and labels; [`super::observe`] decides when to ask.
//!
//! | Answer | A new node | A node that is initialised |
//! |---|---|---|
//! | RUNNING, STOPPED, described | initialised | refreshed |
//! | PENDING, described | asked again | refreshed |
//! | not described yet | asked again, quietly | left until the next sweep, or asked again |
//! | unknown, TERMINATING, ABSENT | asked again, with a warning | left until the next sweep, or asked again |
//! | NOT_OWNED | left alone, said once | left alone |
//!
//! A node that is initialised is asked about again if the answer was to be of the present, and failed.

use super::{
    addresses, is_new,
    labels::{self, Seen},
};
use crate::{
    cloud::{CloudError, ContestedPrefix, ErrorReason, Instance, InstanceAnswer, InstanceState},
    controllers::taint,
    kube::{
        events::EventType,
        node::{Node, NodeAddress},
        patch::NodeChange,
    },
    reconcile::Retry,
};

/// The decision about a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// Write everything, and remove the taint.
    Initialise(Plan),
    /// Bring the node up to date with the cloud.
    Refresh(Plan),
    /// Nothing can be done yet.
    NotYet(Obstacle),
    /// The instance is not this provider's: write nothing.
    NotOurs,
}

/// The wanted state of a node. Only what differs is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Plan {
    /// Written first.
    pub(super) addresses: Option<Vec<NodeAddress>>,
    /// The answer has the node's addresses in another order, which is not written.
    pub(super) reordered: bool,
    /// Written second, in a single patch.
    pub(super) change: NodeChange,
    /// Notices for people.
    pub(super) notices: Vec<Notice>,
}

/// A notice for people, emitted once for as long as its cause lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) type_: EventType,
    pub(super) reason: &'static str,
    /// Two notices with the same reason and subject are the same.
    pub(super) about: String,
    pub(super) message: String,
}

/// Why a node is not initialised or refreshed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// Machine-readable: a value from the contract's list of reasons, or one of our own.
    pub(super) reason: String,
    pub(super) message: String,
    /// When to ask again.
    pub(super) retry: Retry,
    /// Part of an ordinary start: no warning.
    pub(super) expected: bool,
}

/// Decides on an answer.
pub(super) fn decide(seen: &Seen<'_>, answer: &InstanceAnswer) -> Verdict {
    use InstanceState as S;
    let new = is_new(&seen.node);
    match answer.state {
        S::NotOwned => Verdict::NotOurs,
        S::Running | S::Stopped | S::Exists => described(seen, answer, new),
        S::Pending if !new => described(seen, answer, new),
        S::Pending => Verdict::NotYet(Obstacle::pending(answer)),
        S::Unspecified => Verdict::NotYet(Obstacle::because(
            answer,
            "InstanceUnknown",
            "the provider does not know whether the instance exists",
        )),
        S::Terminating => Verdict::NotYet(Obstacle::because(
            answer,
            "InstanceTerminating",
            "the instance is being terminated",
        )),
        S::Absent => Verdict::NotYet(Obstacle::because(
            answer,
            "InstanceAbsent",
            "the cloud has no instance for this node (yet)",
        )),
    }
}

/// The plan if no provider was asked: makes the two names of the well-known labels agree. `None` for a new node.
pub(super) fn decide_without_answer(seen: &Seen<'_>) -> Option<Plan> {
    let mut plan = Plan::default();
    labels::mirror(&seen.node, &mut plan.change);
    (!is_new(&seen.node)).then_some(plan)
}

fn described(seen: &Seen<'_>, answer: &InstanceAnswer, new: bool) -> Verdict {
    let instance = match (&answer.error, &answer.instance) {
        (None, Some(instance)) => instance,
        (error, _) => return Verdict::NotYet(Obstacle::not_described(error.as_ref())),
    };
    if !new {
        return Verdict::Refresh(refreshed(seen, instance));
    }
    initialised(seen, instance).map_or_else(Verdict::NotYet, Verdict::Initialise)
}

fn initialised(seen: &Seen<'_>, instance: &Instance) -> Result<Plan, Obstacle> {
    let node = &*seen.node;
    let mut plan = Plan { notices: notices(node, instance), ..Plan::default() };
    if node.provider_id.is_none() {
        plan.change.provider_id = Some(instance.provider_id.clone());
    }
    plan.addresses = addresses::wanted(node, &instance.addresses)
        .map_err(|error| Obstacle::new("ProvidedNodeIPInvalid", error.to_string()))?;
    plan.change.taints = taint::without_key(&node.taints, taint::UNINITIALIZED);
    labels::initialise(seen, instance, &mut plan.change);
    Ok(plan)
}

fn refreshed(seen: &Seen<'_>, instance: &Instance) -> Plan {
    let node = &*seen.node;
    let mut plan = Plan { notices: notices(node, instance), ..Plan::default() };
    match addresses::wanted(node, &instance.addresses) {
        Ok(Some(addresses)) if addresses::only_reordered(node, &addresses) => plan.reordered = true,
        Ok(addresses) => plan.addresses = addresses,
        Err(error) => plan.notices.push(Notice::warning("InvalidProvidedNodeIP", error.to_string())),
    }
    if node.provider_id.is_some() {
        labels::refresh(seen, instance, &mut plan.change);
    } else {
        // The node was never initialised: its kubelet runs without a cloud provider, and its labels are not ours.
        labels::mirror(node, &mut plan.change);
    }
    plan
}

fn notices(node: &Node, instance: &Instance) -> Vec<Notice> {
    let mut notices = Vec::new();
    if let Some(present) = &node.provider_id
        && *present != instance.provider_id
    {
        let message = format!(
            "the node's provider ID {present:?} stays, although the provider says {:?}",
            instance.provider_id
        );
        notices.push(Notice::warning("ProviderIDMismatch", message));
    }
    if !instance.rejected.is_empty() {
        notices.push(Notice::warning("InvalidInstanceMetadata", instance.rejected.join("; ")));
    }
    notices
}

impl Notice {
    pub(super) fn warning(reason: &'static str, message: String) -> Self {
        Self { type_: EventType::Warning, reason, about: message.clone(), message }
    }

    /// The instance belongs to someone else.
    pub(super) fn not_ours() -> Self {
        let message = "the provider does not own this node's instance: the node is left alone".to_owned();
        Self { type_: EventType::Normal, ..Self::warning("InstanceNotOwned", message) }
    }
}

impl Obstacle {
    /// A warning, the same for as long as the reason is; `None` for what is part of an ordinary start.
    pub(super) fn notice(&self) -> Option<Notice> {
        let message = format!("not initialised yet: {} ({})", self.message, self.reason);
        let notice =
            Notice { about: self.reason.clone(), ..Notice::warning("InitializationFailed", message) };
        (!self.expected).then_some(notice)
    }

    fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into(), retry: Retry::Backoff, expected: false }
    }

    /// Prefers the answer's error, if any: it says more than the state.
    fn because(answer: &InstanceAnswer, reason: &str, message: &str) -> Self {
        answer.error.as_ref().map_or_else(|| Self::new(reason, message), Self::of_error)
    }

    /// The instance is being created.
    fn pending(answer: &InstanceAnswer) -> Self {
        match &answer.error {
            Some(error) => Self::not_described(Some(error)),
            None => Self { expected: true, ..Self::new("InstancePending", "the instance is being created") },
        }
    }

    /// The instance exists but cannot be described.
    fn not_described(error: Option<&CloudError>) -> Self {
        let Some(error) = error else {
            return Self::new("InstanceNotDescribed", "the provider does not describe the instance");
        };
        Self { expected: error.is(ErrorReason::MetadataNotReady), ..Self::of_error(error) }
    }

    /// Several providers have an instance for the node: a wrong provider ID could never be taken back.
    pub(super) fn contested(by: &[String]) -> Self {
        let message = format!(
            "providers {} each have an instance of this name: give the kubelet --provider-id, or the host \
             --provider-node-selector",
            by.join(" and ")
        );
        Self::new("SeveralProviders", message)
    }

    /// Several providers claim the node's provider ID.
    pub(super) fn contested_id(contest: &ContestedPrefix) -> Self {
        Self::new("SeveralProviders", contest.to_string())
    }

    /// A call, or its part about this node, failed.
    pub(super) fn of_error(error: &CloudError) -> Self {
        // What only a change of the node can cure is retried all the same; a change requeues it earlier.
        let retry = Retry::without_sweep(error);
        Self { reason: error.label(), message: error.to_string(), retry, expected: false }
    }
}

#[cfg(test)]
mod tests;
