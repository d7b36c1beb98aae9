mod maintenance;
use std::time::Duration;

use super::*;
use crate::cloud_node::labels::OWNED_LABELS;
use ccm_cloud::{
    AddressType, CloudError, ErrorReason, InstanceAddress as CloudAddress,
    fake::{error, machine},
};
use ccm_kube::node::PROVIDED_NODE_IP;
use ccm_kube::{fixtures::node, keep::KeySet};
use ccm_reconcile::{Retry, SLOW_RETRY};

fn kept() -> KeySet {
    KeySet::keys(labels::keys())
}

fn decided(node: &Node, answer: &InstanceAnswer) -> Verdict {
    decide(&VisibleLabels::cached(node, &kept()), answer)
}

/// A new node that the kubelet named `a`.
fn tainted() -> Node {
    node("n").tainted_uninitialized().with_address("Hostname", "a")
}

fn at(kind: AddressType, address: &str) -> CloudAddress {
    CloudAddress { kind, address: address.to_owned() }
}

fn machine_12345() -> Instance {
    Instance {
        provider_id: "fake://12345".to_owned(),
        addresses: vec![
            at(AddressType::InternalIp, "10.0.0.1"),
            at(AddressType::ExternalIp, "132.143.154.163"),
        ],
        ..Instance::default()
    }
}

fn in_zone() -> Instance {
    Instance { zone: Some("us-west-1a".to_owned()), region: Some("us-west".to_owned()), ..machine_12345() }
}

fn named_b() -> Instance {
    let mut instance = machine_12345();
    instance.addresses.insert(0, at(AddressType::Hostname, "b"));
    instance
}

fn running(instance: Instance) -> InstanceAnswer {
    machine(InstanceState::Running, Some(instance))
}

fn failed(state: InstanceState, reason: ErrorReason) -> InstanceAnswer {
    InstanceAnswer { error: Some(error("BatchGetInstances", Some(reason))), ..machine(state, None) }
}

/// The verdict in words: `init` or `refresh` with what differs from the node, or why not.
fn words(node: &Node, verdict: Verdict) -> String {
    let (kind, plan) = match verdict {
        Verdict::Initialise(plan) => ("init", plan),
        Verdict::Refresh(plan) => ("refresh", plan),
        Verdict::NotYet(report) => return format!("not yet: {}", report.reason),
        Verdict::NotOurs => return "not ours".to_owned(),
    };
    let mut words = vec![kind.to_owned()];
    let Plan { addresses, maintenance, change, reports, reordered: _ } = plan;
    words.extend(maintenance.map(|said| format!("maintenance={}", said.status)));
    words.extend(change.provider_id.map(|id| format!("pid={id}")));
    let (set, removed): (Vec<_>, Vec<_>) = change.labels.into_iter().partition(|(_, value)| value.is_some());
    words.extend(set.into_iter().map(|(key, value)| format!("{key}={}", value.unwrap())));
    words.extend(removed.into_iter().map(|(key, _)| format!("-{key}")));
    if let Some(taints) = change.taints {
        let keys: Vec<_> = taints.into_iter().map(|taint| taint.key).collect();
        words.push(format!("taints={}", keys.join(",")));
    }
    if let Some(addresses) = addresses.filter(|addresses| *addresses != node.addresses) {
        let list: Vec<_> =
            addresses.into_iter().map(|one| format!("{}:{}", one.type_, one.address)).collect();
        words.push(list.join(","));
    }
    words.extend(reports.into_iter().map(|report| format!("!{}", report.reason)));
    words.join(" ")
}

const FOREIGN: &str = "dedicated";
const ZONES: &str = "failure-domain.beta.kubernetes.io/region=us-west failure-domain.beta.kubernetes.io/zone=us-west-1a \
                     topology.kubernetes.io/region=us-west topology.kubernetes.io/zone=us-west-1a";
const IPS: &str = "InternalIP:10.0.0.1,ExternalIP:132.143.154.163";

/// Rows of the legacy interfaces (v1) and of InstancesV2 (v2) are the same scenario behind our contract: one question, one
/// answer. A row whose outcome is ours says so.
#[test]
fn initialises() {
    let foreign_first = || {
        node("n").with_taint(FOREIGN, "x", "NoSchedule").tainted_uninitialized().with_address("Hostname", "a")
    };
    let told = |ip: &str| tainted().with_annotation(PROVIDED_NODE_IP, ip);
    let rows = [
        (
            "NODE-1",
            tainted(),
            running(named_b()),
            "init pid=fake://12345 taints= Hostname:b,InternalIP:10.0.0.1,ExternalIP:132.143.154.163"
                .to_owned(),
        ),
        (
            "E8 it is there, and whether it runs was not asked",
            tainted(),
            machine(InstanceState::Exists, Some(machine_12345())),
            format!("init pid=fake://12345 taints= {IPS},Hostname:a"),
        ),
        (
            "NODE-2",
            tainted(),
            running(machine_12345()),
            format!("init pid=fake://12345 taints= {IPS},Hostname:a"),
        ),
        (
            "NODE-3",
            node("n").tainted_uninitialized(),
            running(named_b()),
            "init pid=fake://12345 taints= Hostname:b,InternalIP:10.0.0.1,ExternalIP:132.143.154.163"
                .to_owned(),
        ),
        (
            "NODE-5, NODE-15",
            tainted(),
            running(in_zone()),
            format!("init pid=fake://12345 {ZONES} taints= {IPS},Hostname:a"),
        ),
        (
            "NODE-6, NODE-16",
            foreign_first(),
            running(machine_12345()),
            format!("init pid=fake://12345 taints=dedicated {IPS},Hostname:a"),
        ),
        (
            "NODE-7 ours: a node that is not the provider's is left alone, which NOT_OWNED says",
            foreign_first().with_provider_id("other://1"),
            machine(InstanceState::NotOwned, None),
            "not ours".to_owned(),
        ),
        (
            "NODE-7 ours: null metadata is METADATA_NOT_READY, and is asked again",
            foreign_first().with_provider_id("fake://12345").with_annotation(PROVIDED_NODE_IP, "10.0.0.1"),
            failed(InstanceState::Running, ErrorReason::MetadataNotReady),
            "not yet: METADATA_NOT_READY".to_owned(),
        ),
        (
            "NODE-8, NODE-17",
            told("10.0.0.1").with_provider_id("fake://12345"),
            running(machine_12345()),
            format!("init taints= {IPS},Hostname:a"),
        ),
        ("NODE-9", told("nonsense"), running(machine_12345()), "not yet: ProvidedNodeIPInvalid".to_owned()),
        ("NODE-10", told("10.0.0.2"), running(machine_12345()), "not yet: ProvidedNodeIPInvalid".to_owned()),
        (
            "NODE-11 ours: one answer tells existence, too, and what is absent is not described",
            tainted().with_provider_id("fake://12345"),
            machine(InstanceState::Absent, None),
            "not yet: InstanceAbsent".to_owned(),
        ),
        (
            "NODE-13",
            tainted().with_provider_id("fake://12345"),
            running(machine_12345()),
            format!("init taints= {IPS},Hostname:a"),
        ),
        (
            "NODE-18",
            tainted(),
            running(Instance {
                labels: [
                    ("topology.k8s.cp/zone-id".to_owned(), "1".to_owned()),
                    ("my.custom.label/foo".to_owned(), "2".to_owned()),
                ]
                .into(),
                ..machine_12345()
            }),
            format!(
                "init pid=fake://12345 my.custom.label/foo=2 topology.k8s.cp/zone-id=1 taints= {IPS},Hostname:a"
            ),
        ),
        (
            "NODE-19 reserved keys are gone from the answer, and said",
            tainted(),
            running(Instance { rejected: vec!["label kubernetes.io/x is reserved".to_owned()], ..in_zone() }),
            format!("init pid=fake://12345 {ZONES} taints= {IPS},Hostname:a !InvalidInstanceMetadata"),
        ),
        (
            "NODE-21, NODE-44, and ours instead of NODE-12, NODE-20, NODE-41, NODE-42, NODE-45: what has no provider ID is \
             no description",
            tainted().with_provider_id("fake://12345"),
            failed(InstanceState::Running, ErrorReason::InternalError),
            "not yet: INTERNAL_ERROR".to_owned(),
        ),
        (
            "NODE-22",
            tainted(),
            failed(InstanceState::Unspecified, ErrorReason::CloudApiUnavailable),
            "not yet: CLOUD_API_UNAVAILABLE".to_owned(),
        ),
        (
            "NODE-23",
            node("n").with_taint(taint::UNINITIALIZED, "odd", "NoExecute").with_address("Hostname", "a"),
            running(machine_12345()),
            format!("init pid=fake://12345 taints= {IPS},Hostname:a"),
        ),
        ("NODE-29", tainted(), machine(InstanceState::Absent, None), "not yet: InstanceAbsent".to_owned()),
        (
            "NODE-30",
            told("10.0.0.1"),
            running(Instance { addresses: Vec::new(), ..machine_12345() }),
            "not yet: ProvidedNodeIPInvalid".to_owned(),
        ),
        (
            "NODE-31 the node's provider ID wins, and people are told",
            tainted().with_provider_id("fake://x"),
            running(machine_12345()),
            format!("init taints= {IPS},Hostname:a !ProviderIDMismatch"),
        ),
        (
            "NODE-32, NW-20 ours: a bad label value is dropped, not the node",
            tainted(),
            running(Instance {
                rejected: vec!["zone \"no zone\" is no label value".to_owned()],
                ..machine_12345()
            }),
            format!("init pid=fake://12345 taints= {IPS},Hostname:a !InvalidInstanceMetadata"),
        ),
        (
            "NODE-40, NODE-43",
            tainted(),
            running(machine_12345()),
            format!("init pid=fake://12345 taints= {IPS},Hostname:a"),
        ),
        (
            "no addresses from the cloud clear none",
            tainted(),
            running(Instance { addresses: Vec::new(), ..machine_12345() }),
            "init pid=fake://12345 taints=".to_owned(),
        ),
        (
            "a stopped machine is initialised",
            tainted(),
            machine(InstanceState::Stopped, Some(machine_12345())),
            format!("init pid=fake://12345 taints= {IPS},Hostname:a"),
        ),
        (
            "a machine that is being made",
            tainted(),
            machine(InstanceState::Pending, Some(machine_12345())),
            "not yet: InstancePending".to_owned(),
        ),
        (
            "a machine on its way out",
            tainted(),
            machine(InstanceState::Terminating, Some(machine_12345())),
            "not yet: InstanceTerminating".to_owned(),
        ),
        (
            "nobody knows",
            tainted(),
            machine(InstanceState::Unspecified, None),
            "not yet: InstanceUnknown".to_owned(),
        ),
        (
            "running, and no more said",
            tainted(),
            machine(InstanceState::Running, None),
            "not yet: InstanceNotDescribed".to_owned(),
        ),
    ];
    for (id, node, answer, want) in rows {
        assert_eq!(words(&node, decided(&node, &answer)), want, "{id}");
    }
}

#[test]
fn refreshes() {
    let node = || {
        node("n")
            .with_provider_id("fake://12345")
            .with_address("InternalIP", "10.0.0.1")
            .with_address("Hostname", "a")
    };
    let rows = [
        ("addresses follow the cloud", node(), running(machine_12345()), format!("refresh {IPS},Hostname:a")),
        (
            "without the taint neither provider ID nor taints are touched",
            Node { provider_id: None, ..node() }.with_taint(FOREIGN, "x", "NoSchedule"),
            running(machine_12345()),
            format!("refresh {IPS},Hostname:a"),
        ),
        (
            "ADDR-12, NW-16 ours: nothing is known, nothing happens",
            node(),
            failed(InstanceState::Running, ErrorReason::MetadataNotReady),
            "not yet: METADATA_NOT_READY".to_owned(),
        ),
        (
            "ADDR-13",
            node(),
            running(Instance { addresses: Vec::new(), ..machine_12345() }),
            "refresh".to_owned(),
        ),
        (
            "a provided IP that is not the cloud's keeps the old addresses, and is said",
            node().with_annotation(PROVIDED_NODE_IP, "10.0.0.9"),
            running(in_zone()),
            format!("refresh {ZONES} !InvalidProvidedNodeIP"),
        ),
        ("labels follow too", node(), running(in_zone()), format!("refresh {ZONES} {IPS},Hostname:a")),
        (
            "a restart in the cloud",
            node(),
            machine(InstanceState::Pending, Some(machine_12345())),
            format!("refresh {IPS},Hostname:a"),
        ),
        (
            "on its way out",
            node(),
            machine(InstanceState::Terminating, Some(machine_12345())),
            "not yet: InstanceTerminating".to_owned(),
        ),
        ("gone", node(), machine(InstanceState::Absent, None), "not yet: InstanceAbsent".to_owned()),
        ("not ours", node(), machine(InstanceState::NotOwned, None), "not ours".to_owned()),
    ];
    for (id, node, answer, want) in rows {
        assert_eq!(words(&node, decided(&node, &answer)), want, "{id}");
    }
}

#[test]
fn an_initialised_node_that_is_decided_about_again_needs_nothing() {
    let before = tainted();
    let Verdict::Initialise(plan) = decided(&before, &running(in_zone())) else { panic!() };
    let mut after = Node {
        taints: plan.change.taints.unwrap(),
        provider_id: plan.change.provider_id,
        addresses: plan.addresses.unwrap(),
        ..before
    };
    for (key, value) in &plan.change.labels {
        after = after.with_label(key, value.as_deref().unwrap());
    }
    for (key, value) in &plan.change.annotations {
        after = after.with_annotation(key, value.as_deref().unwrap());
    }
    assert!(after.annotations.contains_key(OWNED_LABELS));
    let Verdict::Refresh(plan) = decided(&after, &running(in_zone())) else { panic!() };
    assert_eq!(plan.change, NodeChange::default());
    assert_eq!(plan.addresses, Some(after.addresses));
}

/// Under its own prefixes a provider's word is the whole truth; elsewhere nothing is touched.
#[test]
fn annotations_under_a_providers_prefixes_are_the_providers() {
    let instance = Instance {
        annotations: [("x.io/peer".to_owned(), "65000".to_owned()), ("x.io/same".to_owned(), "1".to_owned())]
            .into(),
        annotation_prefixes: vec!["x.io/".to_owned()],
        ..machine_12345()
    };
    let annotated = |node: Node| {
        let pairs = [("x.io/stale", "1"), ("x.io/same", "1"), ("y.io/users", "1")];
        pairs.into_iter().fold(node, |node, (key, value)| node.with_annotation(key, value))
    };
    let changed = [("x.io/peer".to_owned(), Some("65000".to_owned())), ("x.io/stale".to_owned(), None)];
    let rows = [
        (tainted(), changed.clone().into()),
        (node("n").with_provider_id("fake://12345"), changed.into()),
        // Its kubelet runs without a cloud provider.
        (node("n"), [].into()),
    ];
    for (before, want) in rows.map(|(node, want)| (annotated(node), want)) {
        let (Verdict::Initialise(plan) | Verdict::Refresh(plan)) =
            decided(&before, &running(instance.clone()))
        else {
            panic!()
        };
        let mut change = plan.change.annotations;
        change.remove(OWNED_LABELS);
        assert_eq!(change, want);
    }
}

#[test]
fn when_to_ask_again_is_the_contracts_word() {
    let after = |reason, seconds: u64| CloudError {
        retry_after: Some(Duration::from_secs(seconds)),
        ..error("x", reason)
    };
    let rows = [
        ("no reason", error("x", None), Retry::Backoff, false),
        ("not ready, no pause", error("x", Some(ErrorReason::MetadataNotReady)), Retry::Backoff, true),
        (
            "not ready",
            after(Some(ErrorReason::MetadataNotReady), 3),
            Retry::After(Duration::from_secs(3)),
            true,
        ),
        ("throttled", after(Some(ErrorReason::RateLimited), 7), Retry::After(Duration::from_secs(7)), false),
        ("ambiguous", error("x", Some(ErrorReason::InstanceAmbiguous)), Retry::After(SLOW_RETRY), false),
        (
            "slow, but longer",
            after(Some(ErrorReason::InstanceAmbiguous), 900),
            Retry::After(Duration::from_secs(900)),
            false,
        ),
        (
            "only a change helps",
            error("x", Some(ErrorReason::MethodNotSupported)),
            Retry::After(SLOW_RETRY),
            false,
        ),
    ];
    for (id, error, retry, expected) in rows {
        let answer = InstanceAnswer { error: Some(error), ..machine(InstanceState::Running, None) };
        let Verdict::NotYet(report) = decided(&tainted(), &answer) else { panic!("{id}") };
        assert_eq!((report.retry, report.event.is_none()), (retry, expected), "{id}");
    }
}
