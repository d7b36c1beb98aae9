//! Projection of the apiserver's JSON to the slim types, and its cost.

use super::*;
use crate::{
    node::Taint,
    service::{ServiceSpec, TargetPort},
};

fn project<T: Slim>(json: Value, keep: &Keep) -> T {
    T::project(serde_json::from_value(json).unwrap(), keep, &Interner::default())
}

#[test]
fn a_node_keeps_what_is_read_and_nothing_else() {
    let keep = Keep { labels: KeySet::all(), annotations: KeySet::patterns(&["ours/"]) };
    let node: Node = project(full_node(7), &keep);
    assert_eq!(node.name, "node-0007");
    assert_eq!(node.created.unwrap().to_string(), "2024-05-01T10:00:00Z");
    assert!(!node.is_deleting() && node.unschedulable);
    assert_eq!(node.provider_id.as_deref(), Some("mock://zone-a/i-0000000000000007"));
    assert_eq!(node.annotations.iter().collect::<Vec<_>>(), [("ours/digest", "d")]);
    assert_eq!(node.annotations.total(), 4);
    assert_eq!(node.labels.iter().count(), 12);
    assert_eq!(node.conditions.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["Ready"]);
    assert_eq!(node.addresses.len(), 3);
    assert_eq!(node.pod_cidrs, ["10.0.7.0/24"]);
    assert_eq!(node.system_uuid.as_deref(), Some("ec2f0000-0000-0000-0000-000000000007"));
}

#[test]
fn taints_survive_a_round_trip_unchanged() {
    let taints = json!([
        {"key": "a", "effect": "NoSchedule"},
        {"key": "b", "value": "v", "effect": "NoExecute", "timeAdded": "2024-05-01T10:00:00Z"},
    ]);
    let read: Vec<Taint> = serde_json::from_value(taints.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), taints);
}

#[test]
fn nulls_and_absent_parts_are_empty() {
    let node: Node = project(
        json!({"metadata": {"name": "a", "labels": null}, "spec": {"taints": null}, "status": {"addresses": null}}),
        &Keep::default(),
    );
    assert!(node.taints.is_empty() && node.addresses.is_empty() && node.provider_id.is_none());
    let service: Service = project(json!({"metadata": {"name": "s", "namespace": "n"}}), &Keep::default());
    assert_eq!(service.spec, ServiceSpec::default());
}

#[test]
fn a_service_keeps_what_a_balancer_depends_on() {
    let service: Service = project(
        json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "5",
                "finalizers": ["x"], "deletionTimestamp": "2024-05-01T10:00:00Z",
                "annotations": {"keep": "1", "drop": "2"}},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "c", "loadBalancerSourceRanges": [],
                "loadBalancerIP": "1.2.3.4", "externalIPs": ["5.6.7.8"], "clusterIPs": ["10.0.0.1"],
                "ports": [
                    {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "web", "nodePort": 30080},
                    {"port": 443, "targetPort": 8443, "appProtocol": "https"}],
                "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000, "ipFamilies": ["IPv4", "IPv6"],
                "ipFamilyPolicy": "PreferDualStack", "allocateLoadBalancerNodePorts": false},
            "status": {"loadBalancer": {"ingress": [
                {"ip": "9.9.9.9", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP", "error": "E"}]}]},
                "conditions": [{"type": "T", "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": "2024-05-01T10:00:00Z"}]},
        }),
        &Keep { annotations: KeySet::keys(["keep"]), ..Keep::default() },
    );
    assert_eq!(service.key, ObjectKey::new("shop", "web"));
    assert_eq!(service.key.to_string(), "shop/web");
    assert!(service.is_deleting() && service.has_finalizer("x"));
    assert_eq!(service.annotations.iter().collect::<Vec<_>>(), [("keep", "1")]);
    let spec = &service.spec;
    assert_eq!(spec.load_balancer_source_ranges.as_deref(), Some(&[][..]), "empty is not absent");
    assert_eq!(spec.load_balancer_ip, "1.2.3.4");
    assert_eq!(spec.ports[0].target_port, TargetPort::Name("web".to_owned()));
    assert_eq!((spec.ports[1].port, &spec.ports[1].target_port), (443, &TargetPort::Number(8443)));
    assert_eq!(spec.ports[1].app_protocol.as_deref(), Some("https"));
    let affinity = spec.session_affinity_config.as_ref().unwrap().client_ip.as_ref().unwrap();
    assert_eq!(affinity.timeout_seconds, Some(60));
    assert_eq!(spec.allocate_load_balancer_node_ports, Some(false));
    assert_eq!(service.ingress[0].ports[0].error.as_deref(), Some("E"));
    assert_eq!(service.condition("T").unwrap().reason, "R");
}

/// H2: whoever may write a condition chooses its time, and Go knows later ones than this host.
#[test]
fn a_time_out_of_range_is_no_time() {
    for time in ["9999-12-31T23:59:59Z", "10000-01-01T11:59:59Z", "soon"] {
        let condition = json!({"type": "NetworkUnavailable", "status": "False", "lastTransitionTime": time});
        let foreign = json!({"type": "example.com/own", "status": "True", "lastTransitionTime": time});
        let node: Node = project(
            json!({"metadata": {"name": "a"}, "status": {"conditions": [condition, foreign]}}),
            &Keep::default(),
        );
        let read = node.condition("NetworkUnavailable").unwrap();
        assert_eq!((read.status.as_str(), read.last_transition_time), ("False", None), "{time}");
    }
}

/// A Node as big as real ones: labels, conditions, images and managed fields, about 8 KB.
fn full_node(number: usize) -> Value {
    let images: Vec<_> = (0..30)
        .map(|image| {
            let digest = format!("{image:064x}");
            let names = [
                format!("registry.example/team/app-{image}@sha256:{digest}"),
                format!("registry.example/team/app-{image}:v1"),
            ];
            json!({"names": names, "sizeBytes": 12_345_678})
        })
        .collect();
    let conditions: Vec<_> = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
        .map(|type_| {
            json!({"type": type_, "status": "False", "reason": "KubeletHasNoPressure", "message": "kubelet has no pressure",
                "lastHeartbeatTime": "2024-05-01T10:00:00Z", "lastTransitionTime": "2024-05-01T10:00:00Z"})
        })
        .into();
    let labels: serde_json::Map<_, _> = (0..12)
        .map(|label| (format!("topology.example.io/label-{label}"), json!(format!("value-{label}"))))
        .collect();
    let managed: serde_json::Map<_, _> =
        (0..25).map(|field| (format!("f:field-number-{field}"), json!({".": {}}))).collect();
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {
            "name": format!("node-{number:04}"), "uid": format!("00000000-0000-0000-0000-{number:012}"),
            "resourceVersion": format!("{}", 1000 + number), "creationTimestamp": "2024-05-01T10:00:00Z", "labels": labels,
            "annotations": {
                "ours/digest": "d", "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "csi.volume.kubernetes.io/nodeid": "{\"driver.example\":\"i-0000000000000000\"}"},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": managed}]},
        "spec": {
            "providerID": format!("mock://zone-a/i-{number:016}"), "podCIDR": format!("10.0.{}.0/24", number % 250),
            "podCIDRs": [format!("10.0.{}.0/24", number % 250)], "unschedulable": true},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.1.2.3"}, {"type": "ExternalIP", "address": "203.0.113.7"},
                {"type": "Hostname", "address": format!("node-{number:04}")}],
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "8", "memory": "31Gi", "pods": "110"},
            "conditions": conditions, "images": images,
            "nodeInfo": {"systemUUID": format!("ec2f0000-0000-0000-0000-{number:012}"), "kubeletVersion": "v1.36.0"}},
    })
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
#[ignore = "a measurement for people: cargo test -p ccm-host --release -- --ignored --nocapture node_costs"]
fn what_a_cached_node_costs() {
    const NODES: usize = 20_000;
    let interner = Interner::default();
    let keep = Keep { labels: KeySet::all(), annotations: KeySet::patterns(&["ours/"]) };
    let size = full_node(0).to_string().len();
    let mut store = Store::<Node>::default();
    let read = |number| serde_json::from_str(&full_node(number).to_string()).unwrap();
    store.put(Node::project(read(NODES), &keep, &interner));
    let before = resident_bytes();
    for number in 0..NODES {
        store.put(Node::project(read(number), &keep, &interner));
    }
    println!("{size} bytes of JSON become {} bytes of memory", (resident_bytes() - before) / NODES);
    assert_eq!(store.len(), NODES + 1);
}
