//! The Events of this controller, with upstream's reasons and types.
//!
//! In: what happened, once the writes concerned have succeeded. Out: Events on the Service, and reports of what is wrong
//! with it.

use std::fmt::Display;

use ccm_state::{LeftOut, Standing};

use super::{Controller, RunKey};
use ccm_cloud::{BackendSet, CloudError, ErrorReason, LoadBalancer};
use ccm_kube::{
    events::{EventType, Regarding},
    patch::WriteError,
    queue::Outcome,
};
use ccm_reconcile::{Report, Retry};

/// The reason of what is wrong with the nodes behind a balancer.
pub(super) const NOT_UPDATED: &str = "UpdateLoadBalancerFailed";

/// What people are told of, by reason and message.
pub(super) const ENSURING: (&str, &str) = ("EnsuringLoadBalancer", "Ensuring load balancer");
pub(super) const ENSURED: (&str, &str) = ("EnsuredLoadBalancer", "Ensured load balancer");
pub(super) const UPDATED: (&str, &str) = ("UpdatedLoadBalancer", "Updated load balancer with new hosts");
pub(super) const DELETING: (&str, &str) = ("DeletingLoadBalancer", "Deleting load balancer");
pub(super) const DELETED: (&str, &str) = ("DeletedLoadBalancer", "Deleted load balancer");

/// Maximum node names in one Event.
const NAMES: usize = 20;

/// The flag that lets the host remove orphans.
const DELETE_FLAG: &str = "--delete-orphaned-load-balancers";

const SYNC: &str = "SyncLoadBalancerFailed";
const SYNC_FAILED: &str = "Error syncing load balancer";
const DELETE: &str = "DeleteLoadBalancerFailed";
const DELETE_FAILED: &str = "Error deleting load balancer";

/// A balancer cannot be created, changed, removed for its Service, or published.
pub(super) fn sync_failed(why: impl Display, retry: Retry) -> Report {
    warning(SYNC, format!("{SYNC_FAILED}: {why}"), retry)
}

/// What follows from a failed write, and what is to be told of it.
pub(super) fn unwritten(what: &str, error: &WriteError) -> (Outcome, Option<Report>) {
    // The watch will report the change and so requeue the Service; if it does not, the sweep does.
    let Some(retry) = Retry::of_write(error) else { return (Outcome::Done, None) };
    let why = format!("failed to update load balancer {what}: {error}");
    let is_told = matches!(error, WriteError::Invalid(_) | WriteError::Other(_));
    let report = is_told.then(|| sync_failed(&why, retry));
    (retry.outcome(why), report)
}

/// The same, by a provider's word.
pub(super) fn not_synced(error: &CloudError, retry: Retry) -> Report {
    failed(SYNC, SYNC_FAILED, error, retry)
}

/// A balancer did not get its nodes.
pub(super) fn not_updated(backends: &BackendSet, error: &CloudError) -> Report {
    let names = names(backends.nodes.iter().map(|node| node.name.as_str()));
    let what = format!("Error updating load balancer with {} nodes [{names}]", backends.nodes.len());
    failed(NOT_UPDATED, what, error, Retry::of(error))
}

/// A balancer whose Service is gone, was replaced, or has another balancer, cannot be removed before something changes.
pub(super) fn delete_failed(why: impl Display) -> Report {
    warning(DELETE, format!("{DELETE_FAILED}: {why}"), Retry::Wait)
}

/// The same, by a provider's word.
pub(super) fn not_deleted(error: &CloudError, retry: Retry) -> Report {
    failed(DELETE, DELETE_FAILED, error, retry)
}

/// A provider failed. What another reconcile, another leader or a moment's patience resolves deserves no Event.
fn failed(event: &'static str, what: impl Into<String>, error: &CloudError, retry: Retry) -> Report {
    use ErrorReason as R;
    let report = Report { retry, ..Report::failed(event, what, error) };
    match error.reason {
        Some(R::StaleRevision | R::StaleLeader | R::ImplementedElsewhere | R::ConcurrentOperation) => {
            Report { standing: Standing::Waiting, ..report }
        }
        _ => report.warning(event),
    }
}

/// The balancer has no nodes.
pub(super) fn no_nodes(left_out: &[LeftOut]) -> Report {
    warning("UnAvailableLoadBalancer", lacks_nodes(left_out), Retry::Wait)
}

/// Upstream's words, and why.
pub(super) fn lacks_nodes(left_out: &[LeftOut]) -> String {
    let reasons = left_out.iter().map(|LeftOut { why, count, .. }| format!("{count} {why}"));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    let why = if reasons.is_empty() { "the cluster has none" } else { &reasons };
    format!("There are no available nodes for LoadBalancer: {why}")
}

fn warning(reason: &'static str, message: String, retry: Retry) -> Report {
    Report::blocked(reason, message, retry).warning(reason)
}

impl Controller {
    /// Tells what happened: the reason and the message.
    pub(super) fn tell(&self, service: impl Into<Regarding>, (reason, message): (&'static str, &str)) {
        self.shell.recorder.record(service, EventType::Normal, reason, message);
    }

    /// The Service no longer exists, but the Event is visible in its namespace.
    pub(super) fn record_orphaned(&self, balancer: &LoadBalancer, will_go: bool) {
        let then = if will_go {
            "it is removed by the next sweep".to_owned()
        } else {
            format!("remove it in the cloud, or let the host do so with {DELETE_FLAG}")
        };
        let message =
            format!("Load balancer {:?} of this cluster has no Service any more; {then}", balancer.id);
        let service = Regarding::service(&balancer.key, &balancer.service_uid);
        self.shell.recorder.record(service, EventType::Warning, "OrphanedLoadBalancer", message);
    }

    /// Reports what is wrong with what a key is about, or what it waits for, until it [is well](Self::is_well). What is
    /// wrong says more than what it waits for. Only runs of the key call this.
    pub(super) fn say(&self, key: &RunKey, about: impl Into<Regarding>, report: Report) {
        let about = about.into();
        let mut reports = self.shell.reports.of(key);
        if reports.is_empty() {
            self.metrics.pending.inc();
        } else if self.shell.reports.about(&about.uid).is_empty() {
            // They are about a former Service of that name.
            reports.clear();
        }
        reports.retain(|one| one.standing == Standing::Blocked && one.reason != report.reason);
        if report.standing == Standing::Blocked || reports.is_empty() {
            reports.push(report);
        }
        self.shell.reports.set(key, Some(about), reports);
    }

    /// What was wrong for this reason is over.
    pub(super) fn is_over(&self, key: &RunKey, about: impl Into<Regarding>, reason: &str) {
        let mut reports = self.shell.reports.of(key);
        reports.retain(|one| one.reason != reason);
        if reports.is_empty() {
            self.is_well(key);
        } else {
            self.shell.reports.set(key, Some(about.into()), reports);
        }
    }

    /// There is nothing to say about it any more.
    pub(super) fn is_well(&self, key: &RunKey) {
        if !self.shell.reports.of(key).is_empty() {
            self.metrics.pending.dec();
            self.shell.reports.clear(key);
        }
    }
}

/// The first names, sorted, and the number of further ones.
fn names<'a>(all: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = all.len().saturating_sub(NAMES);
    let mut shown: Vec<_> = all.take(NAMES).map(str::to_owned).collect();
    shown.sort_unstable();
    if more > 0 {
        shown.push(format!("<{more} more>"));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_after_twenty() {
        let all: Vec<String> = (10..35).map(|number| format!("n{number}")).collect();
        let text = names(all.iter().map(String::as_str));
        assert!(text.starts_with("n10, n11, ") && text.ends_with(", n29, <5 more>"), "LBN-35: {text}");
        assert_eq!(names(["b", "a"].into_iter()), "a, b");
    }
}
