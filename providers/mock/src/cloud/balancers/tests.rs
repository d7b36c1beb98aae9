use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::cloud::{
    ANNOTATION_PREFIX, BalancerPatch, Deleted, EnsureWish, Ensured, NewLegacyBalancer, Port, Protocol, Quota,
    Settings, UpdateWish, Updated, WantedService,
};

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

fn slow(millis: u64) -> State {
    let delay = Duration::from_millis(millis);
    State::new(Settings { provisioning_delay: delay, deletion_delay: delay, ..Settings::default() })
}

fn service(uid: &str) -> WantedService {
    WantedService {
        namespace: "ns".into(),
        name: "web".into(),
        uid: uid.into(),
        ports: vec![Port { name: String::new(), protocol: Protocol::Tcp, port: 80, node_port: 30080 }],
        ..WantedService::default()
    }
}

fn annotated(name: &str, value: &str) -> WantedService {
    let annotations = [(format!("{ANNOTATION_PREFIX}{name}"), value.to_owned())].into();
    WantedService { annotations, ..service(UID) }
}

fn key(cluster: &str) -> BalancerKey {
    BalancerKey { cluster_uid: cluster.into(), service_uid: UID.into() }
}

fn wish<'a>(cluster: &'a str, service: &'a WantedService, digest: &'a str) -> EnsureWish<'a> {
    EnsureWish {
        cluster_uid: cluster,
        cluster_name: "",
        service,
        backends: vec![Backend { node: "node-0".into(), provider_id: String::new() }],
        backend_digest: "b1",
        desired_digest: digest,
        adopt: false,
    }
}

fn ensure(
    cloud: &mut State,
    cluster: &str,
    service: &WantedService,
    digest: &str,
) -> Result<Ensured, CloudError> {
    cloud.ensure_balancer(wish(cluster, service, digest), at(0))
}

fn update(cloud: &mut State, service: &WantedService, digest: &str) -> Result<Updated, CloudError> {
    let wish = UpdateWish {
        cluster_uid: "c1",
        service,
        backends: Arc::default(),
        backend_digest: "empty",
        desired_digest: digest,
    };
    cloud.update_balancer(wish, at(0))
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
        .due
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
    let after = ensure(&mut cloud, "c1", &wanted, "d2").unwrap().balancer;
    assert_eq!((&after.id, &after.ingress), (&before.id, &before.ingress));
    assert_eq!((after.ports[0].port, after.applied_digest.as_str()), (443, "d2"));
    let internal = ensure(&mut cloud, "c1", &annotated("scheme", "internal"), "d3").unwrap().balancer;
    assert_eq!(internal.ingress[0].ip.unwrap().to_string(), "172.31.0.1");
    assert_eq!(cloud.taken_addresses.len(), 1, "the former address is free again");
}

#[test]
fn a_failed_change_leaves_what_works() {
    let mut cloud = slow(0);
    let before = ensure(&mut cloud, "c1", &service(UID), "d1").unwrap().balancer;
    let wanted = WantedService { requested_ip: "8.8.8.8".into(), ..service(UID) };
    ensure(&mut cloud, "c1", &wanted, "d2").unwrap_err();
    assert_eq!(cloud.balancers().next(), Some(&before), "R:ensure-keeps-working");
}

#[test]
fn another_clusters_balancer_is_never_touched() {
    let mut cloud = slow(0);
    let foreign = ensure(&mut cloud, "c2", &service(UID), "d1").unwrap().balancer;
    assert_eq!(cloud.get_balancer(&key("c1")), Ok(FoundBalancer::NotOwned));
    let refused = ensure(&mut cloud, "c1", &service(UID), "d1");
    assert!(matches!(refused, Err(CloudError::OwnedByOtherCluster { .. })));
    assert_eq!(cloud.delete_balancer(&key("c1"), true, at(0)), Ok(Deleted::Gone));
    assert_eq!(cloud.list_balancers("c1", "").unwrap(), Vec::<&Balancer>::new(), "R:list-own-only");
    assert_eq!(cloud.balancers().collect::<Vec<_>>(), [&foreign], "R:cluster-owns-by-uid");
}

#[test]
fn a_name_that_is_taken_is_refused_by_owner() {
    let mut cloud = slow(0);
    ensure(&mut cloud, "c1", &annotated("name", "front"), "d1").unwrap();
    let other = WantedService { uid: "other".into(), ..annotated("name", "front") };
    let said = |outcome: Result<Ensured, CloudError>| outcome.unwrap_err().to_string();
    assert_eq!(said(ensure(&mut cloud, "c1", &other, "d")), "name \"front\" is taken by service ns/web");
    assert_eq!(said(ensure(&mut cloud, "c2", &other, "d")), "load balancer front belongs to another cluster");
}

#[test]
fn a_former_controllers_balancer_is_taken_over_only_when_told() {
    let mut cloud = slow(0);
    let legacy =
        NewLegacyBalancer { service_uid: UID.into(), cluster_name: "prod".into(), ..Default::default() };
    let legacy = cloud.create_legacy_balancer(legacy, at(0)).unwrap();
    assert_eq!(cloud.get_balancer(&key("c1")), Ok(FoundBalancer::ByLegacyName(&legacy)));
    assert_eq!(cloud.list_balancers("c1", "prod").unwrap().len(), 1);
    assert_eq!(cloud.list_balancers("c1", "other").unwrap().len(), 0);
    let refused = ensure(&mut cloud, "c1", &service(UID), "d1");
    assert_eq!(refused, Err(CloudError::AdoptionRefused { name: legacy.name.clone() }));
    assert_eq!(cloud.delete_balancer(&key("c1"), false, at(0)), Ok(Deleted::LegacyLeft));
    let service = service(UID);
    let adopted =
        cloud.ensure_balancer(EnsureWish { adopt: true, ..wish("c1", &service, "d1") }, at(0)).unwrap();
    assert!(adopted.adopted && !adopted.created);
    assert_eq!((&adopted.balancer.id, &adopted.balancer.ingress), (&legacy.id, &legacy.ingress));
    assert!(matches!(cloud.get_balancer(&key("c1")), Ok(FoundBalancer::ByUid(_))));
}

#[test]
fn an_update_never_makes_or_rebuilds() {
    let mut cloud = slow(0);
    let needs = |outcome| matches!(outcome, Err(CloudError::NeedsEnsure { .. }));
    assert!(needs(update(&mut cloud, &service(UID), "d1")), "absent");
    ensure(&mut cloud, "c1", &service(UID), "d1").unwrap();
    assert_eq!(update(&mut cloud, &service(UID), "d2"), Ok(Updated { due: None }));
    assert_eq!(cloud.balancers().next().unwrap().applied_digest, "d2");
    assert!(cloud.balancers().next().unwrap().backends.is_empty());
    let edited = annotated("scheme", "internal");
    assert_eq!(update(&mut cloud, &edited, "d3"), Ok(Updated { due: None }), "R:update-backends-only");
    let balancer = cloud.balancers().next().unwrap();
    assert_eq!((balancer.applied_digest.as_str(), balancer.annotations.len()), ("d3", 0), "the edit waits");
    cloud.patch_balancer(UID, BalancerPatch::default()).unwrap();
    assert!(needs(update(&mut cloud, &service(UID), "d3")), "drifted");
    let repaired = ensure(&mut cloud, "c1", &service(UID), "d3").unwrap().balancer;
    assert!(!repaired.drifted);
}

#[test]
fn deletion_works_by_key_takes_its_time_and_repeats() {
    let mut cloud = slow(1000);
    assert_eq!(cloud.delete_balancer(&key("c1"), false, at(0)), Ok(Deleted::Gone), "R:delete-absent-ok");
    ensure(&mut cloud, "c1", &service(UID), "d1").unwrap();
    let going = Ok(Deleted::Going { due: at(1000) });
    assert_eq!(cloud.delete_balancer(&key("c1"), false, at(0)), going, "R:delete-by-key");
    assert_eq!(cloud.delete_balancer(&key("c1"), false, at(500)), going, "asking again does not begin anew");
    assert_eq!(cloud.delete_balancer(&key("c1"), false, at(1000)), Ok(Deleted::Gone));
    assert!(cloud.taken_addresses.is_empty());
}

#[test]
fn quotas_hold() {
    let mut cloud = slow(0);
    cloud.set_quota(Quota { max_balancers: Some(1), ..Quota::default() });
    ensure(&mut cloud, "c1", &service(UID), "d1").unwrap();
    let second = ensure(&mut cloud, "c1", &service("other"), "d1");
    assert_eq!(second, Err(CloudError::QuotaExceeded { subject: "load balancers".into(), limit: 1 }));
    ensure(&mut cloud, "c1", &service(UID), "d2").unwrap();
    cloud.set_quota(Quota { max_addresses: Some(1), ..Quota::default() });
    let second = ensure(&mut cloud, "c1", &service("other"), "d1");
    assert_eq!(second, Err(CloudError::QuotaExceeded { subject: "addresses".into(), limit: 1 }));
    assert_eq!(cloud.balancers().count(), 1, "a refusal leaves nothing behind");
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
