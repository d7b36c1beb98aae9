//! Computes the condition `NetworkUnavailable` of a node, and writes it.
//!
//! In: the result for each of its routes. Out: the condition, if it is to be set and differs. Uncertainty changes
//! nothing, and a condition of another writer is not fought over.

use std::{borrow::Cow, collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Controller;
use ccm_kube::{
    node::Node,
    patch::{WantedCondition, node_condition},
};
use ccm_reconcile::{Report, Retry};

pub(super) const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

const AVAILABLE: WantedCondition<'static> = WantedCondition {
    type_: NETWORK_UNAVAILABLE,
    status: "False",
    reason: "RouteCreated",
    message: Cow::Borrowed("RouteController created a route"),
};

const UNAVAILABLE: WantedCondition<'static> = WantedCondition {
    type_: NETWORK_UNAVAILABLE,
    status: "True",
    reason: "NoRouteCreated",
    message: Cow::Borrowed("RouteController failed to create a route"),
};

/// How far one destination of a node is reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Its route is present.
    Stands,
    /// It has no route.
    Missing,
    /// Nothing certain is known.
    Unknown,
    /// It is not ours to reach: it lies outside the cluster CIDRs.
    Foreign,
}

/// The condition to set on the node; `None` leaves it as it is.
pub(super) fn wanted(
    node: &Node,
    concerned: bool,
    reaches: &[Reach],
    list_is_whole: bool,
) -> Option<WantedCondition<'static>> {
    if !concerned {
        return None;
    }
    let has = |reach| reaches.contains(&reach);
    if reaches.is_empty() || has(Reach::Missing) {
        // A route missing from an incomplete list may exist.
        return list_is_whole.then_some(UNAVAILABLE);
    }
    // Where nothing is ours to reach, nothing of ours is missing.
    let stands = has(Reach::Stands) || says(node, &UNAVAILABLE);
    (stands && !has(Reach::Unknown)).then_some(AVAILABLE)
}

/// Whether the node has that condition already, ignoring the message.
pub(super) fn says(node: &Node, wanted: &WantedCondition<'_>) -> bool {
    node.condition(wanted.type_)
        .is_some_and(|known| known.status == wanted.status && known.reason == wanted.reason)
}

/// Whether this controller wrote the condition; false if there is none.
pub(super) fn is_ours(node: &Node) -> bool {
    [AVAILABLE, UNAVAILABLE].iter().any(|wanted| says(node, wanted))
}

/// Minimum time between overwrites of another writer's condition: two writers that disagree would otherwise keep each
/// other busy.
const PEACE: Duration = Duration::from_secs(10);

/// When another writer's condition was last overwritten, by node.
#[derive(Debug, Default)]
pub(super) struct Overwritten(Mutex<HashMap<String, Instant>>);

impl Overwritten {
    /// How long to leave the condition alone; `None` means that it is ours, or may be overwritten now.
    fn peace(&self, node: &Node, now: Instant) -> Option<Duration> {
        let mut overwritten = self.0.lock();
        if node.condition(NETWORK_UNAVAILABLE).is_none() || is_ours(node) {
            return None;
        }
        let left = overwritten.get(&node.name).map(|at| (*at + PEACE).saturating_duration_since(now));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Some(left);
        }
        overwritten.insert(node.name.clone(), now);
        None
    }

    /// Forgets a node that is gone.
    pub(super) fn forget(&self, node: &str) {
        self.0.lock().remove(node);
    }
}

impl Controller {
    /// Writes the condition unless the current node has it already. Returns why it is not written yet.
    pub(super) async fn show(&self, node: &Node, wanted: &WantedCondition<'_>) -> Option<Report> {
        let now_known = self.shell.parts.nodes.get(&node.name).filter(|known| known.uid == node.uid);
        let node = now_known.filter(|node| !says(node, wanted))?;
        if let Some(left) = self.shown.peace(&node, Instant::now()) {
            let why = "another writer also sets the condition NetworkUnavailable: the host waits before it sets it again";
            return Some(Report::waiting("ConditionOfAnother", why, Retry::After(left)));
        }
        let patch = node_condition(&node, wanted, ccm_base::clock::now())?;
        let error = match self.shell.patch::<Node>(&node.name, &patch).await {
            Ok(()) => {
                tracing::info!(node = node.name, status = wanted.status, reason = wanted.reason, "condition");
                return None;
            }
            Err(error) => error,
        };
        let retry = Retry::of_write(&error)?;
        let why =
            format!("the condition NetworkUnavailable is not written: {:#}", anyhow::Error::from(error));
        Some(Report::waiting("ConditionNotWritten", why, retry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_kube::fixtures::node;

    #[test]
    fn the_condition_follows_the_routes() {
        use Reach::{Foreign, Missing, Stands, Unknown};
        type Row<'a> = (&'a str, bool, &'a [Reach], bool, Option<&'a str>);
        let rows: [Row<'_>; 13] = [
            ("ROUTE-3 all stand", true, &[Stands, Stands], true, Some("False")),
            ("ROUTE-14 no pod CIDR, no route", false, &[], true, None),
            ("ROUTE-18 no pod CIDR, a route", true, &[], true, Some("True")),
            ("ROUTE-19 one is missing", true, &[Missing], true, Some("True")),
            ("ROUTE-21 one of two is missing", true, &[Stands, Missing], true, Some("True")),
            ("one is not known", true, &[Stands, Unknown], true, None),
            ("one is missing, one is not known", true, &[Missing, Unknown], true, Some("True")),
            ("one is missing, one is not ours", true, &[Missing, Foreign], true, Some("True")),
            ("one stands, one is not ours", true, &[Stands, Foreign], true, Some("False")),
            ("none is ours", true, &[Foreign], true, None),
            ("rule 7: missing from half a list", true, &[Missing], false, None),
            ("rule 7: a route in half a list", true, &[], false, None),
            ("all stand in half a list", true, &[Stands], false, Some("False")),
        ];
        for (name, concerned, reaches, whole, want) in rows {
            let seen = wanted(&node("n"), concerned, reaches, whole);
            assert_eq!(seen.map(|wanted| wanted.status), want, "{name}");
        }
        let without = node("n").with_condition(NETWORK_UNAVAILABLE, "True", "NoRouteCreated");
        for (reaches, want) in [(&[Foreign], Some("False")), (&[Unknown], None)] {
            let seen = wanted(&without, true, reaches, true);
            assert_eq!(seen.map(|wanted| wanted.status), want, "{reaches:?} of a node that says it has none");
        }
    }

    /// COND-1..9.
    #[test]
    fn a_condition_is_written_unless_the_node_says_so_already() {
        let none: Option<(&str, &str)> = None;
        let rows = [
            ("COND-1", none, AVAILABLE, true),
            ("COND-2", none, UNAVAILABLE, true),
            ("COND-3", Some(("False", "RouteCreated")), AVAILABLE, false),
            ("COND-4", Some(("False", "CalicoIsUp")), AVAILABLE, true),
            ("COND-5", Some(("False", "ExternalCNI")), AVAILABLE, true),
            ("COND-6", Some(("True", "SomeOtherReason")), UNAVAILABLE, true),
            ("COND-7", Some(("False", "RouteCreated")), UNAVAILABLE, true),
            ("COND-8", Some(("True", "NoRouteCreated")), UNAVAILABLE, false),
            ("COND-9", Some(("False", "CalicoIsUp")), AVAILABLE, true),
        ];
        for (id, existing, wanted, written) in rows {
            let before = match existing {
                Some((status, reason)) => node("n").with_condition(NETWORK_UNAVAILABLE, status, reason),
                None => node("n"),
            };
            assert_eq!(!says(&before, &wanted), written, "{id}");
            if !written {
                continue;
            }
            let now = jiff::Timestamp::from_second(1000).unwrap();
            let patch = node_condition(&before, &wanted, now).unwrap();
            let condition = &patch.body.value()["status"]["conditions"][0];
            assert_eq!(condition["type"], "NetworkUnavailable", "{id}");
            assert_eq!(condition["status"], wanted.status, "{id}");
            assert_eq!(condition["reason"], wanted.reason, "{id}");
            assert_eq!(condition["message"], *wanted.message, "{id}");
            // SW-41: the time of transition moves only with the status.
            let kept = existing.is_some_and(|(status, _)| status == wanted.status);
            let since = if kept { "1970-01-01T00:00:00Z" } else { "1970-01-01T00:16:40Z" };
            assert_eq!(condition["lastTransitionTime"], since, "{id}");
            assert_eq!(condition["lastHeartbeatTime"], "1970-01-01T00:16:40Z", "{id}");
        }
    }

    #[test]
    fn our_own_conditions_are_told_from_others() {
        let with = |status, reason| node("n").with_condition(NETWORK_UNAVAILABLE, status, reason);
        let ours = [with("False", "RouteCreated"), with("True", "NoRouteCreated")];
        let others = [with("False", "CalicoIsUp"), with("True", "RouteCreated"), node("n")];
        assert!(ours.iter().all(is_ours) && !others.iter().any(is_ours));
    }
}
