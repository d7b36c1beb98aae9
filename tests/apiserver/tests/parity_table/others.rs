//! Namespaces, ConfigMaps, Secrets, Leases, Events.

use serde_json::json;

use super::{Step, delete, get, merge, post, put};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

pub(crate) fn steps() -> Vec<Step> {
    [namespaces(), leases(), events(), maps()].concat()
}

fn namespaces() -> Vec<Step> {
    let map = json!({"metadata": {"name": "c"}});
    vec![
        post("/api/v1/namespaces", json!({"metadata": {"name": "ns"}})),
        post("/api/v1/namespaces/ns/configmaps", map.clone()),
        delete("/api/v1/namespaces/ns"),
        delete("/api/v1/namespaces/ns"),
        post("/api/v1/namespaces/ns/configmaps", json!({"metadata": {"name": "d"}})),
        merge("/api/v1/namespaces/ns", json!({"metadata": {"labels": {"a": "b"}}})),
        delete("/api/v1/namespaces/ns/configmaps/c"),
        post("/api/v1/namespaces/nowhere/configmaps", map),
        post(
            "/api/v1/namespaces/default/configmaps",
            json!({"metadata": {"name": "c", "namespace": "other"}}),
        ),
        get("/api/v1/namespaces/nowhere/configmaps"),
        get("/api/v1/namespaces/nowhere/configmaps/c"),
        get("/api/v1/namespaces/kube-system"),
    ]
}

fn leases() -> Vec<Step> {
    vec![
        post(LEASES, json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}})).version_as("lease"),
        merge(LEASE, json!({"spec": {"holderIdentity": "you", "leaseTransitions": 0}})),
        put(LEASE, json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})),
        put(LEASE, json!({"metadata": {"name": "l", "resourceVersion": "<lease>"}, "spec": {"holderIdentity": "me"}})),
        post(LEASES, json!({"metadata": {"name": "m"}, "spec": {"leaseDurationSeconds": 0}})),
        merge(LEASE, json!({"spec": {"holderIdentity": ""}})),
        get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/zz"),
        merge("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l/status", json!({})),
        delete(LEASE),
    ]
}

fn events() -> Vec<Step> {
    vec![
        post(
            EVENTS,
            json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "a"}, "reason": "R", "message": "m", "type": "Normal", "count": 1, "source": {"component": "x"}, "firstTimestamp": "2026-01-01T00:00:00Z"}),
        ),
        post(
            EVENTS,
            json!({"metadata": {"name": "e2"}, "involvedObject": {"kind": "Service", "name": "a", "namespace": "other"}, "reason": "R"}),
        ),
        merge("/api/v1/namespaces/default/events/e", json!({"count": 2, "message": "n"})),
        get("/apis/events.k8s.io/v1/namespaces/default/events/e"),
        post(
            NEW_EVENTS,
            json!({"metadata": {"name": "e3"}, "regarding": {"kind": "Node", "name": "a"}, "reason": "R", "note": "m", "type": "Normal", "reportingController": "c", "reportingInstance": "i", "action": "A", "eventTime": "2026-01-01T00:00:00.000000Z"}),
        ),
        get("/api/v1/namespaces/default/events/e3"),
        merge(
            "/apis/events.k8s.io/v1/namespaces/default/events/e3",
            json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}),
        ),
        merge("/api/v1/namespaces/default/events/gone", json!({"count": 2})),
        delete("/api/v1/namespaces/default/events/e"),
    ]
}

fn maps() -> Vec<Step> {
    vec![
        put(
            "/api/v1/namespaces/default/configmaps/new",
            json!({"metadata": {"name": "new"}, "data": {"a": ""}}),
        ),
        post(
            "/api/v1/namespaces/default/configmaps",
            json!({"metadata": {"name": "new"}, "data": {"a": ""}}),
        ),
        put(
            "/api/v1/namespaces/default/configmaps/new",
            json!({"metadata": {"name": "new"}, "data": {"a": "1"}}),
        ),
        delete("/api/v1/namespaces/default/configmaps/new"),
        merge("/api/v1/namespaces/default/configmaps/new/status", json!({})),
        post(
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
        ),
        merge("/api/v1/namespaces/default/secrets/s", json!({"stringData": {"c": "d"}})),
        delete("/api/v1/namespaces/default/secrets/s"),
    ]
}
