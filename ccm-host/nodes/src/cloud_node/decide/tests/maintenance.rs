use super::super::*;
use ccm_kube::{fixtures::node, patch::node_condition};

/// What would be written.
fn news(node: &Node, planned: Option<&Maintenance>) -> Option<WantedCondition<'static>> {
    let differs = |said: &WantedCondition<'_>| node_condition(node, said, ccm_base::clock::now()).is_some();
    maintenance_condition(node, planned).filter(differs)
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
    let has = |said: &WantedCondition<'_>| {
        let mut node = node("n").with_condition(MAINTENANCE_PLANNED, said.status, said.reason);
        node.conditions[0].message = said.message.to_string();
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
