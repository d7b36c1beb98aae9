//! Computes the condition `MaintenancePlanned` of a node.
//!
//! In: the node, and what the cloud plans to do to its instance, if the operator wants to see it
//! (`--planned-maintenance-condition`). Out: what the condition is to say. A node that never had the
//! condition does not get it to say that nothing is planned.

use ccm_cloud::{Maintenance, MaintenanceKind};
use ccm_kube::{node::Node, patch::WantedCondition};

const MAINTENANCE_PLANNED: &str = "MaintenancePlanned";

/// What the condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Said {
    pub(super) fn condition(&self) -> WantedCondition<'_> {
        let Self { status, reason, message } = self;
        WantedCondition { type_: MAINTENANCE_PLANNED, status, reason, message }
    }
}

/// What the node is to say, which it may say already; `None` if it has nothing to say.
pub(super) fn said(node: &Node, planned: Option<&Maintenance>) -> Option<Said> {
    match planned {
        Some(planned) => {
            Some(Said { status: "True", reason: reason(planned.kind), message: message(planned) })
        }
        None => node.condition(MAINTENANCE_PLANNED).map(|_| Said {
            status: "False",
            reason: "NothingPlanned",
            message: "the cloud plans no maintenance of the instance".to_owned(),
        }),
    }
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
mod tests {
    use super::*;
    use ccm_kube::{fixtures::node, patch::node_condition};

    /// What would be written.
    fn news(node: &Node, planned: Option<&Maintenance>) -> Option<Said> {
        let differs = |said: &Said| node_condition(node, &said.condition(), ccm_base::clock::now()).is_some();
        said(node, planned).filter(differs)
    }

    fn reboot() -> Maintenance {
        let from = Some("2026-12-01T02:00:00Z".parse().unwrap());
        Maintenance {
            kind: MaintenanceKind::Reboot,
            from,
            message: "kernel".to_owned(),
            ..Maintenance::default()
        }
    }

    #[test]
    fn the_condition_follows_the_plan_and_is_never_written_for_nothing() {
        let plain = node("n");
        assert_eq!(news(&plain, None), None, "never had it");
        let first = news(&plain, Some(&reboot())).unwrap();
        assert_eq!(
            (first.status, first.reason, &*first.message),
            ("True", "RebootPlanned", "the cloud will reboot the instance from 2026-12-01T02:00:00Z: kernel")
        );
        let has = |said: &Said| {
            let mut node = node("n").with_condition(MAINTENANCE_PLANNED, said.status, said.reason);
            node.conditions[0].message.clone_from(&said.message);
            node
        };
        let shown = has(&first);
        assert_eq!(news(&shown, Some(&reboot())), None, "says so already");
        let later = Maintenance { from: Some("2026-12-02T02:00:00Z".parse().unwrap()), ..reboot() };
        assert!(news(&shown, Some(&later)).is_some());
        let over = news(&shown, None).unwrap();
        assert_eq!((over.status, over.reason), ("False", "NothingPlanned"));
        assert_eq!(news(&has(&over), None), None);
    }
}
