//! The comparison, as tables, and what is held back over its life.

use jiff::SignedDuration;
use serde_json::json;

use super::*;

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
    judge(path, &write, observed, at(now), GRACE)
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
        (
            "a record of the host",
            "/status/conditions/cloudprovider.ccm/LoadBalancer",
            (None, json!({"status": "True"})),
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
        let same = compare::comparable(path, &one) == compare::comparable(path, &other);
        assert_eq!(same, want, "{path}: {one} {other}");
    }
}

#[test]
fn a_call_that_takes_over_is_never_a_difference() {
    let rows = [
        (true, 10, Some(Standing::Once)),
        (true, 9999, Some(Standing::Once)),
        (false, 110, Some(Standing::Pending)),
        (false, 120, Some(Standing::Differs)),
        (false, 240, None),
    ];
    for (takes_over, now, want) in rows {
        assert_eq!(of_call(takes_over, at(0), at(100), at(now), GRACE), want, "{takes_over} {now}");
    }
}

#[test]
fn a_field_has_a_name_for_people() {
    let rows = [
        ("/metadata/annotations/x~1y", "the annotation x/y"),
        ("/metadata/labels/x", "the label x"),
        ("/status/conditions/Ready", "the condition Ready"),
        ("/spec/providerID", "spec.providerID"),
    ];
    for (path, want) in rows {
        assert_eq!(shown(path), want);
    }
}
