//! The comparison, as tables, and what is held back over its life.

use std::cell::RefCell;

use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::kube::{
    fixtures::node,
    node::Node,
    patch::{NodeChange, Target, WantedCondition, node_addresses, node_condition, node_main},
};

const GRACE: Duration = Duration::from_secs(120);
const BY: &str = "cloud-node-controller";

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

fn seen(value: Value) -> Observed {
    Observed { uid: "u".to_owned(), value }
}

/// Of a write that was first held back at 0, and asked for again at 100.
fn judged(
    path: &str,
    (old, new): (Option<Value>, Value),
    observed: Option<&Observed>,
    now: i64,
) -> Judgement {
    let write = Write { controller: BY, uid: "u".to_owned(), old, new, since: at(0), asked: at(100) };
    judge(path, &write, observed, at(now), &Times::of(GRACE))
}

#[test]
fn a_write_is_agreed_missing_or_not_wanted_any_more() {
    let zone = "/metadata/labels/topology.kubernetes.io~1zone";
    let labels = |zone: Value| seen(json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}));
    let wanted = || (Some(json!("a")), json!("b"));
    let stands = Judgement::Stands;
    let rows = [
        ("the same", zone, wanted(), Some(labels(json!("b"))), 110, Judgement::Agreed),
        ("not yet", zone, wanted(), Some(labels(json!("a"))), 110, stands(Standing::Pending)),
        ("still not", zone, wanted(), Some(labels(json!("a"))), 120, stands(Standing::Differs)),
        ("a third value", zone, wanted(), Some(labels(json!("c"))), 130, stands(Standing::Pending)),
        ("not asked for again", zone, wanted(), Some(labels(json!("a"))), 240, Judgement::Dropped),
        ("done after all", zone, wanted(), Some(labels(json!("b"))), 240, Judgement::Agreed),
        (
            "a note of the host",
            "/metadata/annotations/cloudprovider.ccm~1owned-labels",
            (Some(Value::Null), json!("a")),
            Some(seen(json!({}))),
            130,
            stands(Standing::Once),
        ),
        ("gone", zone, wanted(), None, 110, Judgement::Dropped),
        (
            "replaced",
            zone,
            wanted(),
            Some(Observed { uid: "other".to_owned(), ..labels(json!("a")) }),
            110,
            Judgement::Dropped,
        ),
        ("to remove", zone, (Some(json!("a")), Value::Null), Some(seen(json!({}))), 110, Judgement::Agreed),
        ("deleted", "", (None, Value::Null), None, 110, Judgement::Agreed),
        ("not deleted", "", (None, Value::Null), Some(seen(json!({}))), 120, stands(Standing::Differs)),
    ];
    for (name, path, write, observed, now, want) in rows {
        assert_eq!(judged(path, write, observed.as_ref(), now), want, "{name}");
    }
}

/// What the apiserver adds, and the order of taints, are no differences.
#[test]
fn spellings_of_the_same_are_the_same() {
    let rows = [
        (
            "/spec/taints",
            json!([{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]),
            json!([{"key": "b", "effect": "NoExecute", "timeAdded": "x"}, {"key": "a", "effect": "NoSchedule"}]),
            true,
        ),
        ("/spec/taints", Value::Null, json!([]), true),
        ("/spec/taints", json!([{"key": "a", "effect": "x"}]), json!([{"key": "a", "effect": "y"}]), false),
        (
            "/status/loadBalancer/ingress",
            json!([{"ip": "::1"}]),
            json!([{"ip": "::1", "ipMode": "VIP"}]),
            true,
        ),
        (
            "/status/loadBalancer/ingress",
            json!([{"ip": "::1"}]),
            json!([{"ip": "::1", "ipMode": "Proxy"}]),
            false,
        ),
        ("/status/addresses", json!([1, 2]), json!([2, 1]), false),
    ];
    for (path, one, other, want) in rows {
        let same = fields::comparable(path, &one) == fields::comparable(path, &other);
        assert_eq!(same, want, "{path}: {one} {other}");
    }
}

#[test]
fn a_call_that_takes_over_is_never_a_difference() {
    let times = Times::of(GRACE);
    let rows = [
        (true, 10, Some(Standing::Once)),
        (true, 9999, Some(Standing::Once)),
        (false, 110, Some(Standing::Pending)),
        (false, 120, Some(Standing::Differs)),
        (false, 240, None),
    ];
    for (takes_over, now, want) in rows {
        assert_eq!(times.of_call(takes_over, at(0), at(100), at(now)), want, "{takes_over} {now}");
    }
}

/// One node, as the world has it now.
struct World(RefCell<Option<Node>>);

impl Objects for World {
    fn observe(&self, subject: &Subject) -> Option<Observed> {
        assert_eq!((subject.kind.as_str(), subject.name.as_str()), ("Node", "n"));
        self.0.borrow().as_ref().map(objects::of_node)
    }
}

fn subject() -> Subject {
    Subject { kind: "Node".to_owned(), namespace: String::new(), name: "n".to_owned() }
}

fn shadow() -> Shadow {
    Shadow::new(&Settings { shadow: true, shadow_grace: GRACE }, Metrics::default())
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
        set_labels: [("zone".to_owned(), "a".to_owned())].into(),
        taints: Some(Vec::new()),
        ..NodeChange::default()
    };
    let wanted = WantedCondition {
        type_: "NetworkUnavailable",
        status: "False",
        reason: "RouteCreated",
        message: "m",
    };
    let address = crate::kube::NodeAddress { type_: "InternalIP".to_owned(), address: "10.0.0.1".to_owned() };
    let shadow = shadow();
    shadow.hold_patch(BY, &subject(), &node_main(&before, &change).unwrap());
    shadow.hold_patch(BY, &subject(), &node_condition(&before, &wanted, at(0)).unwrap());
    shadow.hold_patch(BY, &subject(), &node_addresses(&before, &[address]).unwrap());
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
        NodeChange { set_labels: [("zone".to_owned(), "a".to_owned())].into(), ..NodeChange::default() };
    let now = world.0.borrow().clone().unwrap();
    shadow.hold_patch(BY, &subject(), &node_main(&now, &change).unwrap());
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

#[test]
fn guards_of_a_patch_are_no_fields() {
    let body = json!([
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "test", "path": "/metadata/annotations", "value": null},
        {"op": "add", "path": "/metadata/annotations", "value": {"x/y": "1"}},
    ]);
    let patch = Patch { target: Target::Main, body: crate::kube::patch::Body::Json(body) };
    let (uid, fields) = fields::of(&patch);
    let want = fields::Field {
        path: "/metadata/annotations/x~1y".to_owned(),
        old: Some(Value::Null),
        new: json!("1"),
    };
    assert_eq!((uid.as_str(), fields), ("u", vec![want]));
    assert_eq!(fields::shown("/metadata/annotations/x~1y"), "the annotation x/y");
}
