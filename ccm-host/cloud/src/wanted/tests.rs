use proptest::prelude::*;

use super::*;
use crate::{differ_in_backends_only, is_for_another_class};
use ccm_kube::{
    Condition, ServicePort, TargetPort,
    fixtures::{node, service as service_named},
    service::SOURCE_RANGES,
};

fn web() -> Service {
    service_named("web").load_balancer().with_port("http", 80)
}

fn backend_fields() -> pb::NodeFields {
    pb::NodeFields { addresses: true, labels: vec!["zone".into(), "x.io/".into()], ..Default::default() }
}

fn service_fields() -> pb::ServiceFields {
    pb::ServiceFields { annotations: vec!["lb.example/".into()], ..Default::default() }
}

fn some_nodes(count: usize) -> Vec<Arc<Node>> {
    (0..count)
        .map(|i| {
            Arc::new(
                node(&format!("n{i}"))
                    .with_provider_id(&format!("cloud://{i}"))
                    .with_label("zone", "a")
                    .with_label("x.io/k", "v")
                    .with_label("noise", "1")
                    .with_address("InternalIP", &format!("10.0.0.{i}")),
            )
        })
        .collect()
}

/// The set for a provider that wants these fields of Services and of nodes.
fn set(nodes: Vec<Arc<Node>>, backend: &pb::NodeFields, wants: &pb::Wants) -> BackendSet {
    backend_set(nodes, Arc::new(pb::Wants { backend: Some(backend.clone()), ..wants.clone() }))
}

fn digest_with(nodes: Vec<Arc<Node>>, fields: &pb::NodeFields) -> String {
    set(nodes, fields, &pb::Wants::default()).digest
}

fn digest_of(nodes: Vec<Arc<Node>>) -> String {
    digest_with(nodes, &backend_fields())
}

#[test]
fn a_message_holds_what_is_wanted_and_no_more() {
    let full = node("n")
        .with_provider_id("cloud://1")
        .with_label("zone", "a")
        .with_label("x.io/k", "v")
        .with_label("noise", "1")
        .with_annotation(PROVIDED_NODE_IP, "10.0.0.1, fd00::1,10.0.0.3")
        .with_address("InternalIP", "10.0.0.1")
        .with_address("VendorIP", "x")
        .with_taint("x.io/drain", "soon", "NoExecute")
        .with_taint("noise", "", "NoSchedule")
        .ready()
        .unschedulable()
        .deleting();
    let bare = node_ref(&full, &pb::NodeFields::default());
    assert_eq!(
        bare,
        pb::NodeRef {
            name: "n".into(),
            uid: "n-uid".into(),
            provider_id: "cloud://1".into(),
            ..Default::default()
        }
    );
    let all = pb::NodeFields {
        system_uuid: true,
        provided_node_ips: true,
        addresses: true,
        creation_time: true,
        pod_cidrs: true,
        labels: vec!["x.io/*".into()],
        annotations: Vec::new(),
        taints: vec!["x.io/".into()],
        unschedulable: true,
        readiness: true,
        deletion_time: true,
    };
    let wanted = node_ref(&full, &all);
    assert_eq!(wanted.provided_node_ips, ["10.0.0.1", "fd00::1"]);
    assert_eq!(wanted.addresses.len(), 1);
    assert_eq!(wanted.readiness(), pb::NodeReadiness::Ready);
    let effect = pb::TaintEffect::NoExecute.into();
    assert_eq!(wanted.taints, [pb::NodeTaint { key: "x.io/drain".into(), value: "soon".into(), effect }]);
    assert_eq!(wanted.labels.into_iter().collect::<Vec<_>>(), [("x.io/k".to_owned(), "v".to_owned())]);
    assert!(wanted.annotations.is_empty());
    assert!(wanted.creation_time.is_some() && wanted.deletion_time.is_some() && wanted.unschedulable);
}

#[test]
fn a_heartbeat_changes_no_digest() {
    let before = some_nodes(3);
    let after = before
        .iter()
        .map(|node| {
            let mut beat = Node::clone(node).with_label("noise", "2").version("99");
            beat.conditions.push(Condition {
                type_: "Ready".into(),
                status: "True".into(),
                reason: String::new(),
                message: String::new(),
                last_transition_time: Some(jiff::Timestamp::MAX),
            });
            Arc::new(beat)
        })
        .collect();
    assert_eq!(digest_of(before), digest_of(after));
}

#[test]
fn a_wanted_field_changes_the_digest() {
    let before = digest_of(some_nodes(3));
    let change = |change: fn(Node) -> Node| {
        let mut nodes = some_nodes(3);
        nodes[1] = Arc::new(change(Node::clone(&nodes[1])));
        digest_of(nodes)
    };
    assert_ne!(before, change(|node| node.with_label("zone", "b")));
    assert_ne!(before, change(|node| node.with_label("x.io/new", "")));
    assert_ne!(before, change(|node| node.with_address("ExternalIP", "192.0.2.1")));
    assert_ne!(before, change(|node| node.with_provider_id("cloud://other")));
    assert_ne!(before, change(|node| node.uid("recreated")));
    assert_ne!(before, digest_of(some_nodes(2)));
    assert_ne!(digest_of(Vec::new()), digest_of(some_nodes(1)));
}

/// A node's own state changes a set only if the provider wants that state.
#[test]
fn the_state_of_a_node_is_in_a_set_where_it_is_wanted() {
    let plain = node("n").with_provider_id("cloud://n").ready();
    let fields = |taint: &[&str], unschedulable, readiness| pb::NodeFields {
        taints: taint.iter().map(|&key| key.into()).collect(),
        unschedulable,
        readiness,
        ..backend_fields()
    };
    let (nothing, taint) = (fields(&[], false, false), fields(&["x.io/*"], false, false));
    let (cordon, ready) = (fields(&[], true, false), fields(&[], false, true));
    let digest = |node: &Node, fields| digest_with(vec![Arc::new(node.clone())], fields);
    for (name, after, moves) in [
        ("a taint", plain.clone().with_taint("x.io/drain", "", "NoSchedule"), &taint),
        ("a cordon", plain.clone().unschedulable(), &cordon),
        ("not ready", plain.clone().with_condition("Ready", "False", "KubeletNotReady"), &ready),
        ("silent", plain.clone().not_ready(), &ready),
    ] {
        for fields in [&nothing, &taint, &cordon, &ready] {
            let moved = digest(&plain, fields) != digest(&after, fields);
            assert_eq!(moved, std::ptr::eq(fields, moves), "{name} {fields:?}");
        }
    }
}

#[test]
fn the_desired_state_is_the_service_and_its_backends() {
    let wants = pb::Wants {
        service: Some(service_fields()),
        service_annotation_writes: vec!["lb.example/status-".into()],
        ..Default::default()
    };
    let backends = |nodes, wants| set(some_nodes(nodes), &backend_fields(), wants);
    let digest = |service: &Service| desired_digest(service, &backends(2, &wants));
    let base = web();
    let before = digest(&base);
    let mut same = base.clone();
    same.ingress.push(ccm_kube::Ingress { ip: "192.0.2.1".into(), ..Default::default() });
    same.resource_version = "77".into();
    assert_eq!(before, digest(&same), "the status is not part of the desired state");
    let told = pb::ServiceFields { finalizers: true, deletion_time: true, ..service_fields() };
    let told = pb::Wants { service: Some(told), ..wants.clone() };
    let held = same.deleting().with_finalizer("x/y");
    let told = backends(2, &told);
    assert_eq!(desired_digest(&base, &told), desired_digest(&held, &told));
    assert_eq!(before, digest(&held), "nor what keeps it from going");
    assert_eq!(before, digest(&base.clone().with_annotation("other/a", "1")), "not wanted");
    let answered = base.clone().with_annotation("lb.example/status-id", "lb-1");
    assert_eq!(before, digest(&answered), "what the provider wrote is not part of the desired state");

    assert_ne!(before, digest(&base.clone().with_annotation("lb.example/a", "1")));
    let mut ranges = base.clone();
    ranges.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".into()]);
    assert_ne!(before, digest(&ranges));
    let mut ports = base.clone();
    ports.spec.ports[0].node_port += 1;
    assert_ne!(before, digest(&ports));
    let of_settings = |settings: &str| {
        let told = pb::Wants { load_balancer_settings: settings.into(), ..wants.clone() };
        desired_digest(&base, &set(some_nodes(2), &backend_fields(), &told))
    };
    assert_eq!(before, of_settings(""), "a provider that tells none");
    assert_ne!(before, of_settings("a"));
    assert!(!differ_in_backends_only(&of_settings("a"), &of_settings("b")));
    let other = desired_digest(&base, &backends(3, &wants));
    assert!(differ_in_backends_only(&before, &other));
    assert!(!differ_in_backends_only(&digest(&ports), &other));
    let classy = digest(&base.with_class("example/other"));
    assert!(is_for_another_class(&before, Some("example/other")) && is_for_another_class(&classy, None));
}

#[test]
fn source_ranges_are_canonical_and_never_lost() {
    let ranges = |listed: Option<&[&str]>, annotation: Option<&str>| {
        let mut object = web();
        object.spec.load_balancer_source_ranges =
            listed.map(|all| all.iter().map(|&text| text.into()).collect());
        if let Some(text) = annotation {
            object = object.with_annotation(SOURCE_RANGES, text);
        }
        let sent = service(&object, &pb::ServiceFields::default());
        (sent.source_ranges.join(" "), sent.source_ranges_are_annotated)
    };
    let of_spec = |ranges: &str| (ranges.to_owned(), false);
    let of_annotation = |ranges: &str| (ranges.to_owned(), true);
    assert_eq!(
        ranges(Some(&["10.1.2.3/8", "10.0.0.0/8", " 192.0.2.0/24 "]), Some("x")),
        of_spec("10.0.0.0/8 192.0.2.0/24")
    );
    assert_eq!(ranges(Some(&["10.0.0.0/8"]), Some("10.0.0.0/8")), of_spec("10.0.0.0/8"));
    let annotated = Some("10.0.0.0/8, 172.16.0.0/12");
    assert_eq!(ranges(Some(&[]), annotated), of_annotation("10.0.0.0/8 172.16.0.0/12"));
    assert_eq!(ranges(None, Some("  ")), of_spec(""));
    assert_eq!(ranges(Some(&["not a range"]), None), of_spec("not a range"));
    assert_eq!(ranges(None, Some("not a range")), of_annotation("not a range"));
}

proptest! {
    #[test]
    fn digests_ignore_the_order_of_nodes(order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle()) {
        let nodes = some_nodes(12);
        let shuffled = order.iter().map(|&i| Arc::clone(&nodes[i])).collect();
        prop_assert_eq!(digest_of(nodes), digest_of(shuffled));
    }

    #[test]
    fn digests_ignore_the_order_of_wishes(swap: bool, key in "[a-z]{1,5}", value in "[a-z]{0,5}") {
        let mut fields = backend_fields();
        fields.labels.push(key.clone());
        if swap {
            fields.labels.reverse();
        }
        let nodes = vec![Arc::new(node("n").with_label(&key, &value).with_label("zone", "z"))];
        let mut other = fields.clone();
        other.labels.reverse();
        prop_assert_eq!(digest_with(nodes.clone(), &fields), digest_with(nodes, &other));
    }

    #[test]
    fn different_texts_never_run_together(a in "[ab]{0,3}", b in "[ab]{0,3}", c in "[ab]{0,3}", d in "[ab]{0,3}") {
        let set = |first: &str, second: &str| {
            digest_of(vec![Arc::new(node(first).with_provider_id(second))])
        };
        prop_assert_eq!(set(&a, &b) == set(&c, &d), (a, b) == (c, d));
    }
}

/// HLP-17..20: a provider receives what upstream's helpers derive from type, policy and port.
#[test]
fn local_traffic_and_its_health_check_are_told() {
    let rows = [
        ("HLP-17", "", "", false),
        ("HLP-17, HLP-19", "ClusterIP", "", false),
        ("HLP-17", "NodePort", "", false),
        ("HLP-17, HLP-19", "NodePort", "Cluster", false),
        ("HLP-17, HLP-19", "LoadBalancer", "Cluster", false),
        ("HLP-18, HLP-19", "NodePort", "Local", true),
        ("HLP-18, HLP-20", "LoadBalancer", "Local", true),
    ];
    for (id, type_, policy, local) in rows {
        let mut object = web();
        object.spec.type_ = type_.into();
        object.spec.external_traffic_policy = policy.into();
        // The apiserver allocates the port in this case only.
        object.spec.health_check_node_port = if type_ == "LoadBalancer" && local { 30_123 } else { 0 };
        let told = service(&object, &pb::ServiceFields::default());
        assert_eq!(told.external_traffic_policy() == pb::TrafficPolicy::Local, local, "{id}");
        assert_eq!(told.health_check_node_port != 0, id.contains("HLP-20"), "{id}");
    }
}

/// The host judges no bad or unusual input: all of it must reach the provider, in the order of the Service.
#[test]
fn ports_travel_as_they_are() {
    let port =
        |name: &str, protocol: &str, number: i32, node_port: i32, target_port: TargetPort| ServicePort {
            name: name.into(),
            protocol: protocol.into(),
            app_protocol: (name == "grpc").then(|| "kubernetes.io/h2c".to_owned()),
            port: number,
            target_port,
            node_port,
        };
    let mut object = service_named("web").load_balancer();
    object.spec.ports = vec![
        port("dns-udp", "UDP", 53, 30_053, TargetPort::Number(5353)),
        port("dns-tcp", "TCP", 53, 30_054, TargetPort::Number(5353)),
        port("sigtran", "SCTP", 2905, 30_290, TargetPort::Number(2905)),
        port("grpc", "", 8443, 0, TargetPort::Name("web-grpc".into())),
        port("new", "QUIC", 443, 30_443, TargetPort::Number(0)),
    ];
    let told = service(&object, &pb::ServiceFields::default()).ports;
    let words: Vec<_> = told
        .iter()
        .map(|port| {
            (port.name.as_str(), port.protocol(), port.port, port.node_port, port.app_protocol.as_str())
        })
        .collect();
    use pb::Protocol as P;
    let want = [
        ("dns-udp", P::Udp, 53, 30_053, ""),
        ("dns-tcp", P::Tcp, 53, 30_054, ""),
        ("sigtran", P::Sctp, 2905, 30_290, ""),
        ("grpc", P::Tcp, 8443, 0, "kubernetes.io/h2c"),
        ("new", P::Unspecified, 443, 30_443, ""),
    ];
    assert_eq!(words, want);
    let named = pb::service_port::TargetPort::TargetPortName("web-grpc".into());
    assert_eq!(told[3].target_port, Some(named));

    let backends = backend_set(Vec::new(), Arc::default());
    let digest = |object: &Service| desired_digest(object, &backends);
    let before = digest(&object);
    for change in [
        (|ports| ports.swap(0, 1)) as fn(&mut Vec<ServicePort>),
        |ports| ports[0].protocol = "TCP".into(),
        |ports| ports[3].node_port = 30_844,
        |ports| ports[3].app_protocol = None,
        |ports| ports[3].target_port = TargetPort::Name("other".into()),
        |ports| ports[4].name = "newer".into(),
        |ports| _ = ports.pop(),
    ] {
        let mut changed = object.clone();
        change(&mut changed.spec.ports);
        assert_ne!(digest(&changed), before, "{:?}", changed.spec.ports);
    }
}

#[test]
fn finalizers_and_deletion_are_told_where_they_are_wanted() {
    let object = web().with_finalizer("x/y").deleting();
    let told = |finalizers, deletion_time| {
        service(&object, &pb::ServiceFields { finalizers, deletion_time, ..Default::default() })
    };
    assert_eq!(
        (told(true, false).finalizers, told(true, false).deletion_time),
        (vec!["x/y".to_owned()], None)
    );
    assert!(told(false, true).finalizers.is_empty() && told(false, true).deletion_time.is_some());
}

/// Only what the provider wants costs memory or bytes, however much a user writes.
#[test]
fn a_thousand_annotations_are_no_matter() {
    let huge = "x".repeat(200_000);
    let mut object = web().with_annotation("lb.example/note", &huge);
    for number in 0..1_000 {
        object = object.with_annotation(&format!("other.example/a{number}"), &huge[..50]);
    }
    let told = service(&object, &service_fields());
    assert_eq!(told.annotations.len(), 1);
    assert_eq!(told.annotations["lb.example/note"].len(), 200_000);
    let wants = pb::Wants { service: Some(service_fields()), ..Default::default() };
    let backends = backend_set(Vec::new(), Arc::new(wants));
    let before = desired_digest(&object, &backends);
    assert_eq!(before, desired_digest(&object.clone().with_annotation("other.example/a1", ""), &backends));
    assert_ne!(before, desired_digest(&object.with_annotation("lb.example/note", ""), &backends));
}
