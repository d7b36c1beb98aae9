//! What keeps a node from being initialised or refreshed, and what is wrong with it, as reports.

use std::fmt::Display;

use ccm_state::Standing;

use super::is_new;
use ccm_cloud::{CloudError, ContestedPrefix, ErrorReason, InstanceAnswer};
use ccm_kube::{events::EventType, node::Node, patch::WriteError};
use ccm_reconcile::{Report, Retry};

const NOT_INITIALISED: &str = "the node is not initialised yet";
const NOT_REFRESHED: &str = "the node is initialised, but its last refresh failed";
const FAILED: &str = "InitializationFailed";
const INVALID: &str = "InvalidInstanceMetadata";

/// The provider says nothing that the node could be initialised or refreshed with.
pub(super) fn held_up(node: &Node, reason: &'static str, why: impl Display) -> Report {
    of_stage(node, Report::blocked(reason, format!("{}: {why} ({reason})", what(node)), Retry::Backoff))
}

/// As [`held_up`], but the answer's error says more than its state, if there is one.
pub(super) fn because(node: &Node, answer: &InstanceAnswer, reason: &'static str, why: &str) -> Report {
    answer.error.as_ref().map_or_else(|| held_up(node, reason, why), |error| of_error(node, error))
}

/// A call, or its part about this node, failed.
pub(super) fn of_error(node: &Node, error: &CloudError) -> Report {
    // What only a change of the node can cure is retried all the same; a change requeues it earlier.
    of_stage(node, Report::failed(error.label(), what(node), error))
}

/// The instance is being created.
pub(super) fn pending(node: &Node, answer: &InstanceAnswer) -> Report {
    match &answer.error {
        Some(error) => not_described(node, Some(error)),
        None => expected(held_up(node, "InstancePending", "the instance is being created")),
    }
}

/// The instance exists but cannot be described.
pub(super) fn not_described(node: &Node, error: Option<&CloudError>) -> Report {
    match error {
        None => held_up(node, "InstanceNotDescribed", "the provider does not describe the instance"),
        Some(error) if error.is(ErrorReason::MetadataNotReady) => expected(of_error(node, error)),
        Some(error) => of_error(node, error),
    }
}

/// Several providers have an instance for the node: a wrong provider ID could never be taken back.
pub(super) fn contested(node: &Node, by: &[String]) -> Report {
    let why = format_args!(
        "providers {} each have an instance of this name: give the kubelet --provider-id, or the host \
         --provider-node-selector",
        by.join(" and ")
    );
    held_up(node, "SeveralProviders", why)
}

/// Several providers claim the node's provider ID.
pub(super) fn contested_id(node: &Node, contest: &ContestedPrefix) -> Report {
    if is_new(node) {
        return held_up(node, "SeveralProviders", contest);
    }
    Report::blocked("SeveralProviders", contest.to_string(), Retry::Wait).warning("ProviderIDContested")
}

/// What was decided could not be written. Events tell only of what the apiserver, or a webhook, refuses.
pub(super) fn not_written(node: &Node, error: WriteError) -> Report {
    let reason = match &error {
        WriteError::Invalid(_) => "WriteInvalid",
        WriteError::Conflict | WriteError::Gone => "WriteConflict",
        error if error.is_refusal() => "WriteRefused",
        _ => "WriteFailed",
    };
    let event = error.is_refusal().then_some((EventType::Warning, INVALID));
    let error = anyhow::Error::from(error);
    Report { event, ..held_up(node, reason, format_args!("{error:#}")) }
}

/// It is not known which provider has its instance.
pub(super) fn undecided(retry: Retry, lasts: bool) -> Report {
    let why = "a provider has not said yet whether it has an instance for this node: until all have, it is nobody's";
    let report = Report::waiting("OwnerUnknown", why, retry);
    if lasts { report.warning(FAILED) } else { report }
}

/// The instance belongs to someone else.
pub(super) fn not_ours() -> Report {
    let why = "the provider does not own this node's instance: the node is left alone";
    let event = Some((EventType::Normal, "InstanceNotOwned"));
    Report { event, ..Report::left_alone("InstanceNotOwned", why) }
}

/// No provider of this host claims its provider ID.
pub(super) fn nobodys(id: &str) -> Report {
    let why =
        format!("no provider of this host looks after provider IDs like {id:?}: the node is left alone");
    Report::left_alone("NoProvider", why).warning("NoProviderForNode")
}

/// The provider has another provider ID for the instance.
pub(super) fn other_id(present: &str, said: &str) -> Report {
    let why = format!("the node's provider ID {present:?} stays, although the provider says {said:?}");
    odd("ProviderIDMismatch", why)
}

/// Parts of the answer break a rule, and are left out.
pub(super) fn rejected(parts: &[String]) -> Report {
    odd(INVALID, parts.join("; "))
}

/// The kubelet's own address is not among the instance's; the node keeps the addresses that it has.
pub(super) fn of_provided_ip(error: impl Display) -> Report {
    odd("InvalidProvidedNodeIP", error.to_string())
}

/// The node is as it should be but for this; the next answer may say otherwise.
fn odd(reason: &'static str, why: String) -> Report {
    Report::blocked(reason, why, Retry::Wait).warning(reason)
}

fn what(node: &Node) -> &'static str {
    if is_new(node) { NOT_INITIALISED } else { NOT_REFRESHED }
}

/// A node that is initialised works without its refresh.
fn of_stage(node: &Node, report: Report) -> Report {
    if is_new(node) { report.warning(FAILED) } else { expected(report) }
}

/// It may pass by itself: no warning.
fn expected(report: Report) -> Report {
    Report { standing: Standing::Waiting, event: None, ..report }
}
