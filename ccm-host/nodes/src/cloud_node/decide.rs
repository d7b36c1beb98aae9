//! Decides what to do with a node, given its provider's answer. Pure: no clock, no client.
//!
//! In: the node as seen, the answer. Out: a [`Verdict`]. [`super::addresses`] and [`super::labels`] compute parts of it;
//! [`super::observe`] decides when to ask.
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
    labels::{self, VisibleLabels},
    problem,
};
use ccm_cloud::{Instance, InstanceAnswer, InstanceState, Maintenance, MaintenanceKind};
use ccm_kube::{
    node::{Node, NodeAddress},
    patch::{NodeChange, WantedCondition},
};
use ccm_reconcile::{Report, taint};

/// The decision about a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// Write everything, and remove the taint.
    Initialise(Plan),
    /// Bring the node up to date with the cloud.
    Refresh(Plan),
    /// Nothing can be done yet.
    NotYet(Report),
    /// The instance is not this provider's: write nothing.
    NotOurs,
}

/// The wanted state of a node. Only what differs is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Plan {
    /// Written first.
    pub(super) addresses: Option<Vec<NodeAddress>>,
    /// What the node is to say of planned maintenance. Written next.
    pub(super) maintenance: Option<WantedCondition<'static>>,
    /// The answer has the node's addresses in another order, which is not written.
    pub(super) reordered: bool,
    /// Written last, in a single patch.
    pub(super) change: NodeChange,
    /// What is wrong all the same.
    pub(super) reports: Vec<Report>,
}

/// Decides on an answer.
pub(super) fn decide(seen: &VisibleLabels<'_>, answer: &InstanceAnswer) -> Verdict {
    use InstanceState as S;
    let new = is_new(&seen.node);
    let not_yet = |reason, why| Verdict::NotYet(problem::because(&seen.node, answer, reason, why));
    match answer.state {
        S::NotOwned => Verdict::NotOurs,
        S::Running | S::Stopped | S::Exists => described(seen, answer, new),
        S::Pending if !new => described(seen, answer, new),
        S::Pending => Verdict::NotYet(problem::pending(&seen.node, answer)),
        S::Unspecified => {
            not_yet("InstanceUnknown", "the provider does not know whether the instance exists")
        }
        S::Terminating => not_yet("InstanceTerminating", "the instance is being terminated"),
        S::Absent => not_yet("InstanceAbsent", "the cloud has no instance for this node (yet)"),
    }
}

/// The plan if no provider was asked: makes the two names of the well-known labels agree. `None` for a new node.
pub(super) fn decide_without_answer(seen: &VisibleLabels<'_>) -> Option<Plan> {
    let mut plan = Plan::default();
    labels::mirror(&seen.node, &mut plan.change);
    (!is_new(&seen.node)).then_some(plan)
}

fn described(seen: &VisibleLabels<'_>, answer: &InstanceAnswer, new: bool) -> Verdict {
    let instance = match (&answer.error, &answer.instance) {
        (None, Some(instance)) => instance,
        (error, _) => return Verdict::NotYet(problem::not_described(&seen.node, error.as_ref())),
    };
    if !new {
        return Verdict::Refresh(refreshed(seen, instance));
    }
    initialised(seen, instance).map_or_else(Verdict::NotYet, Verdict::Initialise)
}

fn initialised(seen: &VisibleLabels<'_>, instance: &Instance) -> Result<Plan, Report> {
    let node = &*seen.node;
    let mut plan = Plan { reports: oddities(node, instance), ..Plan::default() };
    if node.provider_id.is_none() {
        plan.change.provider_id = Some(instance.provider_id.clone());
    }
    plan.addresses = addresses::wanted(node, &instance.addresses)
        .map_err(|error| problem::held_up(node, "ProvidedNodeIPInvalid", error))?;
    plan.change.taints = taint::without_key(&node.taints, taint::UNINITIALIZED);
    labels::initialise(seen, instance, &mut plan.change);
    own_annotations(node, instance, &mut plan.change);
    plan.maintenance = maintenance_condition(node, instance.maintenance.as_ref());
    Ok(plan)
}

fn refreshed(seen: &VisibleLabels<'_>, instance: &Instance) -> Plan {
    let node = &*seen.node;
    let mut plan = Plan { reports: oddities(node, instance), ..Plan::default() };
    match addresses::wanted(node, &instance.addresses) {
        Ok(Some(addresses)) if addresses::only_reordered(node, &addresses) => plan.reordered = true,
        Ok(addresses) => plan.addresses = addresses,
        Err(error) => plan.reports.push(problem::of_provided_ip(error)),
    }
    if node.provider_id.is_some() {
        labels::refresh(seen, instance, &mut plan.change);
        own_annotations(node, instance, &mut plan.change);
    } else {
        // The node was never initialised: its kubelet runs without a cloud provider, and its labels and annotations are
        // not ours.
        labels::mirror(node, &mut plan.change);
    }
    plan.maintenance = maintenance_condition(node, instance.maintenance.as_ref());
    plan
}

/// Under the prefixes that its provider owns, the node has the provider's annotations and no other.
fn own_annotations(node: &Node, instance: &Instance, change: &mut NodeChange) {
    let Instance { annotations, annotation_prefixes, .. } = instance;
    let is_owned = |key: &str| annotation_prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()));
    let foreign = node.annotations.iter().map(|(key, _)| key);
    let foreign = foreign.filter(|key| is_owned(key) && !annotations.contains_key(*key));
    let missing = annotations.iter().filter(|(key, value)| node.annotations.get(key) != Some(value));
    change.annotations.extend(foreign.map(|key| (key.to_owned(), None)));
    change.annotations.extend(missing.map(|(key, value)| (key.clone(), Some(value.clone()))));
}

fn oddities(node: &Node, instance: &Instance) -> Vec<Report> {
    let other = node.provider_id.as_deref().filter(|present| *present != instance.provider_id);
    let other = other.map(|present| problem::other_id(present, &instance.provider_id));
    let rejected = (!instance.rejected.is_empty()).then(|| problem::rejected(&instance.rejected));
    other.into_iter().chain(rejected).collect()
}

const MAINTENANCE_PLANNED: &str = "MaintenancePlanned";

/// What the node is to say, which it may say already; `None` if it has nothing to say: a node that never had the condition
/// does not get it to say that nothing is planned.
fn maintenance_condition(node: &Node, planned: Option<&Maintenance>) -> Option<WantedCondition<'static>> {
    let (status, reason, message) = match planned {
        Some(planned) => ("True", reason(planned.kind), message(planned).into()),
        None => ("False", "NothingPlanned", "the cloud plans no maintenance of the instance".into()),
    };
    (planned.is_some() || node.condition(MAINTENANCE_PLANNED).is_some()).then_some(WantedCondition {
        type_: MAINTENANCE_PLANNED,
        status,
        reason,
        message,
    })
}

fn reason(kind: MaintenanceKind) -> &'static str {
    match kind {
        MaintenanceKind::Unspecified => "MaintenancePlanned",
        MaintenanceKind::Pause => "PausePlanned",
        MaintenanceKind::Reboot => "RebootPlanned",
        MaintenanceKind::Stop => "StopPlanned",
        MaintenanceKind::Termination => "TerminationPlanned",
    }
}

fn message(planned: &Maintenance) -> String {
    let what = match planned.kind {
        MaintenanceKind::Unspecified => "the cloud plans maintenance of the instance",
        MaintenanceKind::Pause => "the cloud will pause the instance",
        MaintenanceKind::Reboot => "the cloud will reboot the instance",
        MaintenanceKind::Stop => "the cloud will stop the instance",
        MaintenanceKind::Termination => "the cloud will reclaim the instance",
    };
    let from = planned.from.map(|from| format!(" from {from}")).unwrap_or_default();
    let until = planned.until.map(|until| format!(" until {until}")).unwrap_or_default();
    let why = if planned.message.is_empty() { String::new() } else { format!(": {}", planned.message) };
    format!("{what}{from}{until}{why}")
}

#[cfg(test)]
mod tests;
