//! What is held back over its life, compared with objects as the caches show them.

use std::{cell::RefCell, time::Duration};

use ccm_state::shadow::{Agreed, Standing};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::*;
use ccm_base::clock;
use ccm_kube::{
    NodeAddress,
    fixtures::node,
    patch::{NodeChange, Patch, WantedCondition, node_addresses, node_condition, node_main},
    shadow::{Shadow, ShadowMetrics, ShadowSettings},
};

const GRACE: Duration = Duration::from_secs(120);
const BY: &str = "cloud-node-controller";

/// One node, as the world has it now.
struct World(RefCell<Option<Node>>);

impl Objects for World {
    fn observe(&self, subject: &ShadowSubject) -> Option<Observed> {
        assert_eq!((subject.kind.as_str(), subject.name.as_str()), ("Node", "n"));
        self.0.borrow().as_ref().map(of_node)
    }
}

fn subject() -> ShadowSubject {
    ShadowSubject { kind: "Node".to_owned(), namespace: String::new(), name: "n".to_owned() }
}

fn shadow() -> Shadow {
    Shadow::new(&ShadowSettings { shadow: true, shadow_grace: GRACE }, ShadowMetrics::default())
}

fn hold(shadow: &Shadow, patch: Option<Patch>) {
    let (uid, fields) = patch.unwrap().fields();
    shadow.hold_write(BY, &subject(), &uid, fields);
}

fn later(seconds: i64) -> Timestamp {
    clock::now() + SignedDuration::from_secs(seconds)
}

/// The shapes of all patches of a node that the host writes.
#[test]
fn each_field_of_a_patch_is_compared_by_itself() {
    let before = node("n").tainted_uninitialized();
    let change = NodeChange {
        provider_id: Some("x://n".to_owned()),
        labels: [("zone".to_owned(), Some("a".to_owned()))].into(),
        taints: Some(Vec::new()),
        ..NodeChange::default()
    };
    let wanted = WantedCondition {
        type_: "NetworkUnavailable",
        status: "False",
        reason: "RouteCreated",
        message: "m".into(),
    };
    let address = NodeAddress { type_: "InternalIP".to_owned(), address: "10.0.0.1".to_owned() };
    let shadow = shadow();
    hold(&shadow, node_main(&before, &change));
    hold(&shadow, node_condition(&before, &wanted, Timestamp::UNIX_EPOCH));
    hold(&shadow, node_addresses(&before, &[address]));
    let world = World(RefCell::new(Some(before)));

    let (rows, _) = shadow.review(&world, later(0));
    let fields: Vec<_> = rows.iter().map(|row| row.field.as_str()).collect();
    let all = [
        "/metadata/labels/zone",
        "/spec/providerID",
        "/spec/taints",
        "/status/addresses",
        "/status/conditions/NetworkUnavailable",
    ];
    assert_eq!(fields, all);
    assert!(rows.iter().all(|row| row.standing == Standing::Pending), "{rows:?}");

    // The other controller does all of it, but for the label, which it sets to something else.
    {
        let mut node = world.0.borrow_mut();
        let node = node.as_mut().unwrap();
        node.provider_id = Some("x://n".to_owned());
        node.taints.clear();
        node.labels = [("zone", "b")].into_iter().collect();
    }
    let (rows, agreed) = shadow.review(&world, later(1));
    assert_eq!(rows.iter().map(|row| row.field.as_str()).collect::<Vec<_>>(), [all[0], all[3], all[4]]);
    assert_eq!(agreed, [Agreed { controller: BY.to_owned(), count: 2 }]);

    // So we decide again.
    let change =
        NodeChange { labels: [("zone".to_owned(), Some("a".to_owned()))].into(), ..NodeChange::default() };
    let now = world.0.borrow().clone().unwrap();
    hold(&shadow, node_main(&now, &change));
    let (rows, _) = shadow.review(&world, later(121));
    let row = rows.iter().find(|row| row.field == all[0]).unwrap();
    assert_eq!((row.standing, &row.now, &row.would), (Standing::Differs, &json!("b"), &json!("a")));
    assert_eq!(row.what, "would set the label zone");

    *world.0.borrow_mut() = None;
    assert!(shadow.review(&world, later(121)).0.is_empty());
}

#[test]
fn a_deletion_is_agreed_once_the_object_is_gone() {
    let shadow = shadow();
    let world = World(RefCell::new(Some(node("n"))));
    let uid = world.0.borrow().as_ref().unwrap().uid.clone();
    shadow.hold_deletion("cloud-node-lifecycle-controller", &subject(), &uid);
    let (rows, _) = shadow.review(&world, later(120));
    assert_eq!((rows[0].standing, rows[0].what.as_str()), (Standing::Differs, "would delete the Node"));
    *world.0.borrow_mut() = None;
    let (rows, agreed) = shadow.review(&world, later(120));
    assert_eq!((rows.len(), agreed[0].count), (0, 1));
}
