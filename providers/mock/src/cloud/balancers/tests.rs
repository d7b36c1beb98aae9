use std::time::Duration;

use cloudprovider_sdk::{
    ProviderError,
    proto::{
        Adoption, BackendSet, EnsureLoadBalancerRequest, ErrorReason, LoadBalancerUpdate, Protocol, Service,
        ServicePort, ServiceRef,
    },
};
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::cloud::{ANNOTATION_PREFIX, Deleted, Ensured, NewLegacyBalancer, Quota, Settings};

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

fn slow(millis: u64) -> State {
    let delay = Duration::from_millis(millis);
    State::new(Settings { provisioning_delay: delay, deletion_delay: delay, ..Settings::default() })
}

fn service(uid: &str) -> Service {
    let port =
        ServicePort { protocol: Protocol::Tcp.into(), port: 80, node_port: 30080, ..ServicePort::default() };
    Service {
        r#ref: Some(ServiceRef { namespace: "ns".into(), name: "web".into(), uid: uid.into() }),
        ports: vec![port],
        ..Service::default()
    }
}

fn annotated(name: &str, value: &str) -> Service {
    let annotations = [(format!("{ANNOTATION_PREFIX}{name}"), value.to_owned())].into();
    Service { annotations, ..service(UID) }
}

fn cluster(uid: &str, name: &str) -> proto::ClusterRef {
    proto::ClusterRef { uid: uid.into(), name: name.into() }
}

fn wish(service: &Service, digest: &str) -> EnsureLoadBalancerRequest {
    let nodes = vec![proto::NodeRef { name: "node-0".into(), ..proto::NodeRef::default() }];
    EnsureLoadBalancerRequest {
        service: Some(service.clone()),
        backends: Some(BackendSet { digest: "b1".into(), nodes, ..BackendSet::default() }),
        desired_digest: digest.into(),
        ..EnsureLoadBalancerRequest::default()
    }
}

fn ensure(cloud: &mut State, uid: &str, service: &Service, digest: &str) -> Result<Ensured> {
    cloud.ensure_balancer(&cluster(uid, ""), wish(service, digest), at(0))
}

fn update(cloud: &mut State, service: &Service, digest: &str) -> Result<Option<Timestamp>> {
    let wish = LoadBalancerUpdate {
        service: Some(service.clone()),
        desired_digest: digest.into(),
        ..LoadBalancerUpdate::default()
    };
    cloud.update_balancer("c1", &wish, ("empty", Arc::default()), at(0))
}

fn delete(cloud: &mut State, adopt: bool, now: i64) -> Deleted {
    cloud.delete_balancer("c1", UID, adopt, at(now)).unwrap()
}

fn refused<T: std::fmt::Debug>(outcome: Result<T>) -> (ErrorReason, String) {
    let error: ProviderError = outcome.unwrap_err();
    (error.reason(), error.message().to_owned())
}

/// Whoever looks at a balancer sees what the Service asked for, also what this cloud makes nothing of.
#[test]
fn a_balancer_shows_everything_that_its_service_asks_for() {
    let mut cloud = State::new(Settings::default());
    let mut wanted = Service {
        labels: [("team".to_owned(), "web".to_owned())].into(),
        load_balancer_class: "mock".into(),
        load_balancer_ip: "192.0.2.9".into(),
        ip_families: vec![IpFamily::Ipv4.into(), IpFamily::Ipv6.into()],
        cluster_ips: vec!["10.0.0.7".into()],
        external_ips: vec!["198.51.100.9".into()],
        allocate_node_ports: Some(false),
        ..service(UID)
    };
    wanted.set_ip_family_policy(proto::IpFamilyPolicy::PreferDualStack);
    wanted.set_external_traffic_policy(proto::TrafficPolicy::Local);
    wanted.set_internal_traffic_policy(proto::TrafficPolicy::Cluster);
    wanted.ports[0].app_protocol = "https".into();
    wanted.ports[0].target_port = Some(proto::service_port::TargetPort::TargetPortName("web".into()));
    ensure(&mut cloud, "c1", &wanted, "d1").unwrap();
    let shown = |cloud: &State| serde_json::to_value(cloud.balancer(UID).unwrap()).unwrap();
    let all = json!({
        "labels": {"team": "web"},
        "load_balancer_class": "mock",
        "load_balancer_ip": "192.0.2.9",
        "ip_families": ["IPv4", "IPv6"],
        "ip_family_policy": "PreferDualStack",
        "cluster_ips": ["10.0.0.7"],
        "external_ips": ["198.51.100.9"],
        "external_traffic_policy": "Local",
        "internal_traffic_policy": "Cluster",
        "allocate_node_ports": false,
        "ports": [{
            "name": "", "protocol": "TCP", "port": 80, "node_port": 30080, "target_port": "web", "app_protocol": "https",
        }],
    });
    for (field, value) in all.as_object().unwrap() {
        assert_eq!(&shown(&cloud)[field], value, "{field}");
    }
    ensure(&mut cloud, "c1", &service(UID), "d2").unwrap();
    let fields = ["load_balancer_ip", "external_traffic_policy", "ip_family_policy", "load_balancer_class"];
    fields.iter().for_each(|field| assert_eq!(shown(&cloud)[*field], "", "{field} is no longer asked for"));
}

#[test]
fn many_calls_leave_one_balancer_and_the_same_answer() {
    let mut cloud = slow(0);
    let first = ensure(&mut cloud, "c1", &service(UID), "d1").unwrap();
    assert!(first.created);
    assert_eq!(first.balancer.applied_digest, "d1", "R:applied-digest");
    for _ in 0..3 {
        let again = ensure(&mut cloud, "c1", &service(UID), "d1").unwrap();
        assert_eq!(again.balancer, first.balancer, "R:ensure-idempotent");
    }
    assert_eq!(cloud.balancers().count(), 1);
}

#[test]
fn a_slow_balancer_is_partial_until_it_is_due() {
    let mut cloud = slow(1000);
    let balancer = ensure(&mut cloud, "c1", &service(UID), "d1").unwrap().balancer;
    assert_eq!((balancer.state, balancer.applied_digest.as_str()), (BalancerState::Provisioning, ""));
    update(&mut cloud, &service(UID), "d2")
        .unwrap()
        .expect("an update of one that is being made takes as long");
    cloud.tick(at(1000));
    let balancer = cloud.balancers().next().unwrap();
    assert_eq!((balancer.state, balancer.applied_digest.as_str()), (BalancerState::Active, "d2"));
}

#[test]
fn changes_are_made_in_place_and_keep_the_address() {
    let mut cloud = slow(0);
    let before = ensure(&mut cloud, "c1", &service(UID), "d1").unwrap().balancer;
    let mut wanted = service(UID);
    wanted.ports[0].port = 443;
    wanted.client_ip_affinity = Some(prost_types::Duration { seconds: 600, nanos: 0 });
    let after = ensure(&mut cloud, "c1", &wanted, "d2").unwrap().balancer;
    assert_eq!((&after.id, &after.ingress), (&before.id, &before.ingress));
    assert_eq!((after.ports[0].port, after.applied_digest.as_str()), (443, "d2"));
    assert_eq!(after.affinity_seconds, 600);
    let internal = ensure(&mut cloud, "c1", &annotated("scheme", "internal"), "d3").unwrap().balancer;
    assert_eq!(internal.ingress[0].ip.unwrap().to_string(), "172.31.0.1");
    assert_eq!(cloud.taken_addresses().len(), 1, "the former address is free again");
}

#[test]
fn a_failed_change_leaves_what_works() {
    let mut cloud = slow(0);
    let before = ensure(&mut cloud, "c1", &service(UID), "d1").unwrap().balancer;
    let wanted = Service { load_balancer_ip: "8.8.8.8".into(), ..service(UID) };
    ensure(&mut cloud, "c1", &wanted, "d2").unwrap_err();
    assert_eq!(cloud.balancers().next(), Some(&before), "R:ensure-keeps-working");
}

#[test]
fn another_clusters_balancer_is_never_touched() {
    let mut cloud = slow(0);
    let foreign = ensure(&mut cloud, "c2", &service(UID), "d1").unwrap().balancer;
    assert_eq!(cloud.find_balancer("c1", UID), FoundBalancer::NotOwned);
    let (reason, _) = refused(ensure(&mut cloud, "c1", &service(UID), "d1"));
    assert_eq!(reason, ErrorReason::OwnedByOtherCluster);
    assert_eq!(delete(&mut cloud, true, 0), Deleted::Gone);
    assert_eq!(cloud.list_balancers(&cluster("c1", "")).unwrap(), Vec::<&Balancer>::new(), "R:list-own-only");
    assert_eq!(cloud.balancers().collect::<Vec<_>>(), [&foreign], "R:cluster-owns-by-uid");
}

#[test]
fn a_name_that_is_taken_is_refused_by_owner() {
    let mut cloud = slow(0);
    ensure(&mut cloud, "c1", &annotated("name", "front"), "d1").unwrap();
    let other = Service { r#ref: service("other").r#ref, ..annotated("name", "front") };
    let (reason, text) = refused(ensure(&mut cloud, "c1", &other, "d"));
    assert_eq!(reason, ErrorReason::InvalidConfiguration);
    assert!(text.ends_with("name]: name \"front\" is taken by service ns/web"), "{text}");
    let (reason, text) = refused(ensure(&mut cloud, "c2", &other, "d"));
    assert_eq!(reason, ErrorReason::OwnedByOtherCluster);
    assert_eq!(text, "\"load balancer front\" belongs to another cluster");
}

#[test]
fn a_former_controllers_balancer_is_taken_over_only_when_told() {
    let mut cloud = slow(0);
    let legacy =
        NewLegacyBalancer { service_uid: UID.into(), cluster_name: "prod".into(), ..Default::default() };
    let legacy = cloud.create_legacy_balancer(legacy, at(0)).unwrap();
    assert_eq!(cloud.find_balancer("c1", UID), FoundBalancer::ByLegacyName(&legacy));
    assert_eq!(cloud.list_balancers(&cluster("c1", "prod")).unwrap().len(), 1);
    assert_eq!(cloud.list_balancers(&cluster("c1", "other")).unwrap().len(), 0);
    let (reason, text) = refused(ensure(&mut cloud, "c1", &service(UID), "d1"));
    assert_eq!(reason, ErrorReason::AdoptionRefused);
    assert!(text.contains(&legacy.name), "{text}");
    assert_eq!(delete(&mut cloud, false, 0), Deleted::LegacyLeft);
    let mut adopting = wish(&service(UID), "d1");
    adopting.set_adoption(Adoption::AdoptByLegacyName);
    let adopted = cloud.ensure_balancer(&cluster("c1", ""), adopting, at(0)).unwrap();
    assert!(adopted.adopted && !adopted.created);
    assert_eq!((&adopted.balancer.id, &adopted.balancer.ingress), (&legacy.id, &legacy.ingress));
    assert!(matches!(cloud.find_balancer("c1", UID), FoundBalancer::ByUid(_)));
}

#[test]
fn an_update_never_makes_or_rebuilds() {
    let mut cloud = slow(0);
    let needs = |outcome| refused(outcome).0 == ErrorReason::NeedsEnsure;
    assert!(needs(update(&mut cloud, &service(UID), "d1")), "absent");
    ensure(&mut cloud, "c1", &service(UID), "d1").unwrap();
    assert_eq!(update(&mut cloud, &service(UID), "d2").unwrap(), None);
    assert_eq!(cloud.balancers().next().unwrap().applied_digest, "d2");
    assert!(cloud.balancers().next().unwrap().backends.is_empty());
    let edited = annotated("scheme", "internal");
    assert_eq!(update(&mut cloud, &edited, "d3").unwrap(), None, "R:update-backends-only");
    let balancer = cloud.balancers().next().unwrap();
    assert_eq!((balancer.applied_digest.as_str(), balancer.annotations.len()), ("d3", 0), "the edit waits");
    let rejected = annotated("refuse", "not today");
    assert_eq!(refused(ensure(&mut cloud, "c1", &rejected, "d4")).0, ErrorReason::InvalidConfiguration);
    assert_eq!(update(&mut cloud, &rejected, "d3").unwrap(), None, "an Ensure of it failed");
    cloud.patch_balancer(UID, &json!({})).unwrap();
    assert_eq!(update(&mut cloud, &service(UID), "d3").unwrap(), None, "drifted");
    assert!(cloud.balancers().next().unwrap().drifted, "only an Ensure mends it");
    let repaired = ensure(&mut cloud, "c1", &service(UID), "d3").unwrap().balancer;
    assert!(!repaired.drifted);
}

#[test]
fn deletion_works_by_key_takes_its_time_and_repeats() {
    let mut cloud = slow(1000);
    assert_eq!(delete(&mut cloud, false, 0), Deleted::Gone, "R:delete-absent-ok");
    ensure(&mut cloud, "c1", &service(UID), "d1").unwrap();
    let going = Deleted::Going(at(1000));
    assert_eq!(delete(&mut cloud, false, 0), going, "R:delete-by-key");
    assert_eq!(delete(&mut cloud, false, 500), going, "asking again does not begin anew");
    assert_eq!(delete(&mut cloud, false, 1000), Deleted::Gone);
    assert!(cloud.taken_addresses().is_empty());
}

#[test]
fn quotas_hold() {
    let mut cloud = slow(0);
    cloud.quota = Quota { max_balancers: Some(1), ..Quota::default() };
    ensure(&mut cloud, "c1", &service(UID), "d1").unwrap();
    let second = ensure(&mut cloud, "c1", &service("other"), "d1");
    let (reason, text) = refused(second);
    assert_eq!(reason, ErrorReason::QuotaExceeded);
    assert!(text.ends_with("1 load balancers"), "{text}");
    ensure(&mut cloud, "c1", &service(UID), "d2").unwrap();
    cloud.quota = Quota { max_addresses: Some(1), ..Quota::default() };
    let second = ensure(&mut cloud, "c1", &service("other"), "d1");
    let (reason, text) = refused(second);
    assert_eq!(reason, ErrorReason::QuotaExceeded);
    assert!(text.ends_with("1 addresses"), "{text}");
    assert_eq!(cloud.balancers().count(), 1, "a refusal leaves nothing behind");
}

#[test]
fn a_node_whose_instance_is_gone_is_no_backend() {
    let behind = |provider_id: &str| {
        let node = proto::NodeRef { provider_id: provider_id.into(), ..proto::NodeRef::default() };
        slow(0).resolve_backends("c1", &[node]).remove(0).provider_id
    };
    assert_eq!(behind("mock://mock-1a/i-1"), "");
    assert_eq!(behind("elsewhere://i-1"), "elsewhere://i-1", "nobody here can tell");
}

#[test]
fn balancers_over_one_set_hold_it_once() {
    let mut cloud = slow(0);
    let first = ensure(&mut cloud, "c1", &service(UID), "d1").unwrap().balancer;
    let second = ensure(&mut cloud, "c1", &service("other"), "d1").unwrap().balancer;
    assert!(Arc::ptr_eq(&first.backends, &second.backends));
}

#[test]
fn legacy_names_are_those_of_in_tree_providers() {
    assert_eq!(legacy_name(UID), "a1111111122223333444455555555555");
    assert_eq!(legacy_name("x"), "ax");
}
