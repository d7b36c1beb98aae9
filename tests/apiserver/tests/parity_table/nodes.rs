//! Nodes: stamps, conflicts, patches of all kinds, immutable fields, finalizers.

use serde_json::json;

use super::{Step, broken, delete, delete_with, get, json_patch, merge, post, put, strategic};

const NODES: &str = "/api/v1/nodes";
const A: &str = "/api/v1/nodes/a";
const STATUS: &str = "/api/v1/nodes/a/status";

pub(crate) fn steps() -> Vec<Step> {
    [creation(), updates(), patches(), spec(), status(), deletion()].concat()
}

fn creation() -> Vec<Step> {
    vec![
        post(NODES, json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "status": {"phase": "Running"}})),
        post(NODES, json!({"metadata": {"name": "a"}})),
        post(NODES, json!({"metadata": {}})),
        post(NODES, json!({"metadata": {"name": "B_ad"}})),
        post(NODES, json!({"metadata": {"name": "b", "labels": {"x": "not a value!"}}})),
        post(NODES, json!({"metadata": {"name": "b", "labels": {"not a key!": "x"}}})),
        post(NODES, json!({"metadata": {"name": "b", "resourceVersion": "5"}})),
        post(NODES, json!({"metadata": {"name": "b"}, "spec": {"unschedulable": "yes"}})),
        post(NODES, json!({"metadata": {"name": "b"}, "spec": {"podCIDRs": ["10.1.0.0/24", "10.2.0.0/24"]}})),
        post(NODES, json!({"metadata": {"name": "b"}, "spec": {"podCIDRs": ["nope"]}})),
        post(NODES, json!({"metadata": {"name": "cidr"}, "spec": {"podCIDR": "10.1.0.0/24"}})),
        post(
            NODES,
            json!({"metadata": {"name": "tainted"}, "spec": {"unschedulable": false, "taints": [{"key": "k", "value": "", "effect": "NoSchedule"}]}}),
        ),
        broken("POST", NODES),
        post(A, json!({"metadata": {"name": "a"}})),
        get("/api/v1/nodes/zz"),
        get("/api/v1/nosuch"),
        get("/apis/no.such/v1/things"),
        delete("/api/v1/nodes/zz"),
        merge("/api/v1/nodes/zz", json!({})),
        put("/api/v1/nodes/zz", json!({"metadata": {"name": "zz"}})),
        merge("/api/v1/nodes/a/nope", json!({})),
        delete(STATUS),
        get(STATUS),
        get(A).partial(),
    ]
}

fn updates() -> Vec<Step> {
    vec![
        put(A, json!({"metadata": {"name": "zz"}})),
        put(A, json!({"metadata": {"name": "a", "resourceVersion": "1"}})),
        put(A, json!({"metadata": {"name": "a", "uid": "u"}})),
        put(A, json!({"metadata": {"name": "a"}, "status": {"phase": "Pending"}})).version_as("before"),
        put(A, json!({"metadata": {"name": "a"}, "status": {"phase": "Pending"}})),
        // That wrote nothing.
        put(A, json!({"metadata": {"name": "a", "resourceVersion": "<before>", "annotations": {"k": ""}}})),
        put(A, json!({"metadata": {"name": "a", "resourceVersion": "<before>"}})),
    ]
}

fn patches() -> Vec<Step> {
    let label = json!({"q": "1"});
    vec![
        merge(A, json!({"metadata": {"uid": "other", "labels": label}})),
        merge(A, json!({"metadata": {"resourceVersion": "1", "labels": label}})),
        json_patch(A, json!([{"op": "test", "path": "/metadata/uid", "value": "zz"}])),
        json_patch(
            A,
            json!([
                {"op": "test", "path": "/metadata/nope", "value": null},
                {"op": "test", "path": "/spec/taints", "value": null},
                {"op": "add", "path": "/spec/taints", "value": [{"key": "k", "effect": "NoSchedule"}]},
            ]),
        ),
        json_patch(A, json!([{"op": "test", "path": "/metadata/no/pe", "value": null}])),
        json_patch(A, json!([{"op": "remove", "path": "/metadata/nope"}])),
        json_patch(A, json!([{"op": "replace", "path": "/metadata/nope", "value": 1}])),
        json_patch(A, json!([{"op": "add", "path": "/metadata/no/pe", "value": 1}])),
        json_patch(A, json!([{"op": "add", "path": "/metadata/labels", "value": {"a.b/c": "1"}}])),
        json_patch(
            A,
            json!([{"op": "test", "path": "/metadata/labels/a.b~1c", "value": "1"}, {"op": "remove", "path": "/metadata/labels/a.b~1c"}]),
        ),
        json_patch(A, json!({"op": "add"})),
        json_patch(A, json!([{"op": "add", "path": "/spec/unschedulable", "value": "yes"}])),
        broken("PATCH", A).of_type("application/merge-patch+json"),
        merge(A, json!({"spec": {"unschedulable": "yes"}})),
        strategic(A, json!({"spec": {"unschedulable": "yes"}})),
        merge(A, json!({"spec": {}})).of_type("text/plain"),
        merge(A, json!({"kind": "Pod"})),
        merge(A, json!({"metadata": {"name": "zz"}})),
        merge(A, json!({"metadata": {"name": null}})),
        merge(
            A,
            json!({"metadata": {"creationTimestamp": null, "generation": 7, "labels": {"a": null, "b": ""}}}),
        ),
        merge(A, json!({"metadata": {"annotations": {"x": null}}})),
        merge(A, json!({"metadata": {"annotations": {"bad key": "v"}}})),
        merge(A, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
        merge("/api/v1/nodes/a?dryRun=All", json!({"metadata": {"labels": {"dry": "1"}}})),
        get(A),
    ]
}

fn spec() -> Vec<Step> {
    vec![
        merge(A, json!({"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}})),
        merge(A, json!({"spec": {"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24"]}})),
        merge(A, json!({"spec": {"podCIDRs": ["10.2.0.0/24"]}})),
        merge(A, json!({"spec": {"podCIDR": null, "podCIDRs": null}})),
        merge(A, json!({"spec": {"providerID": "x://1"}})),
        merge(A, json!({"spec": {"providerID": "x://2"}})),
        merge(A, json!({"spec": {"providerID": null}})),
        merge(A, json!({"spec": {"taints": [{"key": "z", "effect": "Nope"}]}})),
        merge(A, json!({"spec": {"taints": [{"key": "z"}]}})),
        strategic(A, json!({"spec": {"taints": [{"key": "z", "effect": "NoSchedule"}]}})),
        strategic(A, json!({"spec": {"taints": [{"key": "z", "effect": "NoExecute"}]}})),
        merge(
            A,
            json!({"spec": {"taints": [{"key": "n", "effect": "NoSchedule"}, {"key": "n", "effect": "NoSchedule"}]}}),
        ),
        merge(A, json!({"status": {"phase": "Pending"}})),
        merge(A, json!({"spec": {"unschedulable": true, "nosuch": 1}})),
        get("/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue"),
        merge(A, json!({"spec": {"unschedulable": false, "taints": []}})),
    ]
}

fn status() -> Vec<Step> {
    let ready = |status: &str| json!({"type": "Ready", "status": status, "reason": "R", "message": "", "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let address = |address: &str| json!({"type": "InternalIP", "address": address});
    vec![
        strategic(
            STATUS,
            json!({"spec": {"unschedulable": true}, "status": {"addresses": [address("1.1.1.1")]}, "metadata": {"labels": {"via": "status"}}}),
        ),
        strategic(STATUS, json!({"status": {"addresses": [address("1.1.1.2"), address("1.1.1.3")]}})),
        merge(STATUS, json!({"status": {"addresses": [address("1.1.1.2"), address("1.1.1.2")]}})),
        merge(STATUS, json!({"status": {"addresses": [address("1.1.1.2"), address("1.1.1.4")]}})),
        strategic(STATUS, json!({"status": {"conditions": [ready("True")]}})),
        strategic(STATUS, json!({"status": {"conditions": [{"type": "Disk", "status": "True"}]}})),
        strategic(
            STATUS,
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}], "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "Disk"}]}}),
        ),
        strategic(STATUS, json!({"status": {"conditions": [{"$patch": "delete", "type": "Disk"}]}})),
        strategic(STATUS, json!({"status": {"conditions": [{"status": "True"}]}})),
        json_patch(
            STATUS,
            json!([{"op": "add", "path": "/status/phase", "value": "Pending"}, {"op": "add", "path": "/spec/unschedulable", "value": true}]),
        ),
        strategic(STATUS, json!({"metadata": {"uid": "other"}, "status": {"phase": "Running"}})),
        strategic(STATUS, json!({"metadata": {"finalizers": ["a.b/c"]}})),
        strategic(STATUS, json!({"metadata": {"finalizers": ["a.b/d"]}})),
        strategic(STATUS, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}})),
    ]
}

fn deletion() -> Vec<Step> {
    vec![
        merge(A, json!({"metadata": {"finalizers": ["bad"]}})),
        merge(A, json!({"metadata": {"finalizers": ["a.b/c"]}})),
        delete_with(A, json!({"preconditions": {"uid": "u"}})),
        delete_with(A, json!({"preconditions": {"resourceVersion": "1"}})),
        broken("DELETE", A),
        delete("/api/v1/nodes/a?dryRun=All"),
        delete(A),
        delete(A),
        merge(A, json!({"metadata": {"finalizers": ["a.b/c", "d.e/f"]}})),
        merge(A, json!({"metadata": {"deletionTimestamp": null, "labels": {"kept": "1"}}})),
        json_patch(STATUS, json!([{"op": "remove", "path": "/metadata/finalizers"}])),
        get(A),
        delete_with("/api/v1/nodes/tainted", json!({"propagationPolicy": "Foreground"})),
        merge("/api/v1/nodes/tainted", json!({"metadata": {"finalizers": null}})),
        delete("/api/v1/nodes/cidr"),
        get(NODES),
    ]
}
