use jiff::Timestamp;

use super::*;
use crate::cloud::{NewInstances, Quota, Settings};

fn cloud() -> State {
    let mut cloud = State::new(Settings::default());
    cloud.create_instances(&NewInstances::many(2), Timestamp::UNIX_EPOCH).unwrap();
    cloud
}

fn node(name: &str) -> NodeRef {
    NodeRef { name: name.into(), ..NodeRef::default() }
}

fn ensure(cloud: &mut State, cidr: &str, name: &str) -> Result<ListedRoute> {
    cloud.ensure_route("c1", cidr, &node(name))
}

fn delete(cloud: &mut State, listed: &ListedRoute) -> Result<(), ErrorReason> {
    let route = &listed.route;
    let cidr = route.destination_cidr.to_string();
    let deleted = cloud.delete_route("c1", &route.id, &cidr, route.target.as_ref(), true);
    deleted.map_err(|error| error.reason())
}

#[test]
fn ensuring_again_changes_nothing_and_another_target_replaces() {
    let mut cloud = cloud();
    let first = ensure(&mut cloud, "10.1.0.5/24", "node-0").unwrap();
    assert_eq!(ensure(&mut cloud, "10.1.0.0/24", "node-0").unwrap(), first);
    assert_eq!(cloud.routes().next(), Some(first.clone()));
    let second = ensure(&mut cloud, "10.1.0.0/24", "node-1").unwrap();
    assert_eq!(second.route.id, first.route.id);
    assert_eq!(second.route.target.unwrap().node, "node-1");
    assert_eq!(cloud.routes().count(), 1);
}

#[test]
fn what_cannot_be_routed_says_why() {
    let mut cloud = cloud();
    let foreign = NewRoute { cluster_uid: "c2".into(), destination_cidr: "10.9.0.0/24".into(), target: None };
    cloud.create_route_outside(foreign).unwrap();
    cloud.quota = Quota { max_routes: Some(2), ..Quota::default() };
    ensure(&mut cloud, "10.1.0.0/24", "node-0").unwrap();
    let cases = [
        ("x", "node-0", "destination \"x\" is not a CIDR"),
        ("10.2.0.0/24", "ghost", "instance \"ghost\" does not exist"),
        ("10.9.0.0/24", "node-0", "\"route to 10.9.0.0/24\" belongs to another cluster"),
        ("10.2.0.0/24", "node-0", "the route table already holds its maximum of 2 routes"),
    ];
    for (cidr, target, wanted) in cases {
        assert_eq!(ensure(&mut cloud, cidr, target).unwrap_err().message(), wanted);
    }
}

#[test]
fn a_route_whose_machine_ends_is_a_blackhole() {
    let mut cloud = cloud();
    let route = ensure(&mut cloud, "10.1.0.0/24", "node-0").unwrap();
    assert_eq!(route.state, RouteState::Active);
    cloud.delete_instance("node-0").unwrap();
    assert_eq!(cloud.list_routes("c1", &[]).unwrap()[0].state, RouteState::Blackhole);
}

#[test]
fn only_what_was_listed_is_deleted() {
    let mut cloud = cloud();
    let listed = ensure(&mut cloud, "10.1.0.0/24", "node-0").unwrap();
    ensure(&mut cloud, "10.1.0.0/24", "node-1").unwrap();
    let changed = Err(ErrorReason::RouteChanged);
    assert_eq!(delete(&mut cloud, &listed), changed, "R:route-changed, another target");
    cloud.remove_route_outside(&listed.route.id).unwrap();
    ensure(&mut cloud, "10.1.0.0/24", "node-0").unwrap();
    assert_eq!(delete(&mut cloud, &listed), changed, "R:route-changed, another id");
    let fresh = cloud.routes().next().unwrap();
    assert_eq!(delete(&mut cloud, &fresh), Ok(()));
    assert_eq!(delete(&mut cloud, &fresh), Ok(()), "gone is no error");
}

#[test]
fn another_clusters_route_is_neither_listed_nor_deleted() {
    let mut cloud = cloud();
    let foreign = NewRoute { cluster_uid: "c2".into(), destination_cidr: "10.9.0.0/24".into(), target: None };
    let foreign = cloud.create_route_outside(foreign).unwrap();
    assert_eq!(cloud.list_routes("c1", &[]).unwrap(), []);
    let refused = Err(ErrorReason::OwnedByOtherCluster);
    assert_eq!(delete(&mut cloud, &foreign), refused, "R:cluster-owns-by-uid");
    assert_eq!(cloud.routes().count(), 1);
}

#[test]
fn lists_keep_within_what_was_asked() {
    let mut cloud = cloud();
    for cidr in ["10.1.0.0/24", "10.2.0.0/24"] {
        ensure(&mut cloud, cidr, "node-0").unwrap();
    }
    let within = ["10.2.0.0/16".parse().unwrap()];
    assert_eq!(cloud.list_routes("c1", &within).unwrap().len(), 1);
}

#[test]
fn cidrs_are_compared_as_networks() {
    let text = |cidr: &str| canonical_cidr(cidr).map(|net| net.to_string());
    assert_eq!(text("10.0.1.7/24"), Some("10.0.1.0/24".into()), "R:route-canonical");
    assert_eq!(text("2001:DB8:0:0::1/64"), Some("2001:db8::/64".into()), "R:route-canonical");
    assert_eq!(text("10.0.1.0"), None);
    assert_eq!(text("x/24"), None);
}
