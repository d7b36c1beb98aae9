//! Services: defaults, changes of type, status, finalizers.

use serde_json::{Value, json};

use super::{Step, delete, get, json_patch, merge, post, put, strategic};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const W: &str = "/api/v1/namespaces/default/services/w";
const W_STATUS: &str = "/api/v1/namespaces/default/services/w/status";
const C: &str = "/api/v1/namespaces/default/services/c";
const C_STATUS: &str = "/api/v1/namespaces/default/services/c/status";

pub(crate) fn steps() -> Vec<Step> {
    [creation(), status(), types()].concat()
}

fn service(name: &str, spec: Value) -> Step {
    post(
        SERVICES,
        json!({"metadata": {"name": name}, "spec": spec, "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}}),
    )
}

fn creation() -> Vec<Step> {
    vec![
        service("w", json!({"type": "LoadBalancer", "ports": [{"port": 80}]})),
        service("c", json!({"ports": [{"port": 80}]})),
        service("n", json!({})),
        service("l", json!({"type": "LoadBalancer", "ports": [{"port": 80}, {"port": 81}]})),
        service("l", json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerClass": "x.y/z", "allocateLoadBalancerNodePorts": false, "ports": [{"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 81, "protocol": "UDP", "nodePort": 30099}]})),
        service("q", json!({"type": "Nope", "ports": [{"port": 80}]})),
        service("q", json!({"ports": [{"port": 0}]})),
        service("headless", json!({"clusterIP": "None"})),
        service("np", json!({"type": "NodePort", "ports": [{"port": 80}]})),
        service("ext", json!({"type": "ExternalName", "externalName": "example.com"})),
        get(W).partial(),
        get(SERVICES).partial_list(),
    ]
    .into_iter()
    // The real one has the Service `kubernetes`.
    .filter(|step| step.method != "GET" || step.path != SERVICES)
    .collect()
}

fn status() -> Vec<Step> {
    let ingress =
        |list: Value| json!({"spec": {"ports": null}, "status": {"loadBalancer": {"ingress": list}}});
    let condition = json!({"type": "T", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let other = json!({"type": "U", "status": "False", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    vec![
        merge(W_STATUS, ingress(json!([{"ip": "1.1.1.1"}]))),
        merge(W_STATUS, ingress(json!([{"ip": "nope"}]))),
        merge(W_STATUS, ingress(json!([{"hostname": "h", "ipMode": "VIP"}]))),
        merge(W_STATUS, ingress(json!([{"ip": "1.1.1.1", "ipMode": "Nope"}]))),
        merge(W_STATUS, ingress(json!([{"ip": "1.1.1.1", "ports": [{"port": 80, "protocol": "TCP"}]}]))),
        merge(W_STATUS, ingress(json!([{"hostname": "h"}, {"ip": "1.1.1.1", "ipMode": "Proxy"}]))),
        merge(C_STATUS, ingress(json!([{"ip": "1.1.1.1"}]))),
        strategic(W_STATUS, json!({"status": {"conditions": [condition]}})),
        strategic(W_STATUS, json!({"status": {"conditions": [other]}})),
        json_patch(
            W_STATUS,
            json!([{"op": "test", "path": "/metadata/finalizers", "value": null}, {"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"]}]),
        ),
        merge(W_STATUS, json!({"metadata": {"annotations": {"x": "1"}}})),
        merge(W_STATUS, json!({"metadata": {"uid": "other"}})),
        merge(W, json!({"status": {"loadBalancer": null}})),
        merge(W_STATUS, ingress(json!(null))),
        merge(W_STATUS, ingress(json!([{"ip": "1.1.1.1"}]))),
    ]
}

fn types() -> Vec<Step> {
    vec![
        strategic(W, json!({"spec": {"ports": [{"port": 80, "name": "web"}, {"port": 90, "name": "b"}]}})),
        merge(W, json!({"spec": {"ports": [{"port": 80, "name": "web"}]}})),
        merge(W, json!({"spec": {"type": "ClusterIP"}})),
        merge(W, json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "n.w/c"}})),
        merge(W, json!({"spec": {"loadBalancerClass": "n.w/d"}})),
        merge(W, json!({"spec": {"loadBalancerIP": "1.2.3.4", "loadBalancerSourceRanges": ["1.1.1.1/32"]}})),
        merge(W, json!({"spec": {"externalTrafficPolicy": "Local"}})),
        merge(W, json!({"spec": {"externalTrafficPolicy": "Cluster"}})),
        merge(W, json!({"spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}})),
        put(C, json!({"metadata": {"name": "c"}, "spec": {"ports": [{"port": 81}]}})),
        put(
            "/api/v1/namespaces/default/services/new",
            json!({"metadata": {"name": "new"}, "spec": {"ports": [{"port": 80}]}}),
        ),
        delete(W),
        delete(W),
        json_patch(W_STATUS, json!([{"op": "remove", "path": "/metadata/finalizers"}])),
        get(W),
        delete(C),
    ]
}
