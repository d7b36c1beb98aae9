use super::*;

fn entry_of(build: impl FnOnce(types::builders::RouteBuilder) -> types::builders::RouteBuilder) -> Entry {
    let route = types::Route::builder().destination_cidr_block("10.244.1.0/24");
    let (destination, entry) = entry(&build(route).build()).unwrap();
    assert_eq!(destination.to_string(), "10.244.1.0/24");
    entry
}

#[test]
fn what_is_somebody_elses_is_never_replaced() {
    use types::RouteState::{Active, Blackhole};
    let mine = "i-1";
    for (what, entry, expected) in [
        ("nothing", None, Ok(Step::Create)),
        (
            "the instance",
            Some(entry_of(|route| route.instance_id("i-1").state(Active))),
            Ok(Step::Keep(RouteState::Active)),
        ),
        (
            "the instance, stopped",
            Some(entry_of(|route| route.instance_id("i-1").state(Blackhole))),
            Ok(Step::Keep(RouteState::Blackhole)),
        ),
        (
            "the instance, by its interface",
            Some(entry_of(|route| route.instance_id("i-1").network_interface_id("eni-1").state(Active))),
            Ok(Step::Keep(RouteState::Active)),
        ),
        (
            "another instance",
            Some(entry_of(|route| route.instance_id("i-2").state(Active))),
            Ok(Step::Replace),
        ),
        ("a terminated instance", Some(entry_of(|route| route.state(Blackhole))), Ok(Step::Replace)),
        (
            "the interface of a terminated instance",
            Some(entry_of(|route| route.network_interface_id("eni-1").state(Blackhole))),
            Ok(Step::Replace),
        ),
        (
            "another cluster's instance",
            Some(entry_of(|route| route.instance_id("i-9").state(Active))),
            Err("i-9"),
        ),
        ("the network itself", Some(entry_of(|route| route.gateway_id("local").state(Active))), Err("local")),
        (
            "a gateway that is gone",
            Some(entry_of(|route| route.nat_gateway_id("nat-1").state(Blackhole))),
            Err("nat-1"),
        ),
        (
            "another network that is gone",
            Some(entry_of(|route| route.vpc_peering_connection_id("pcx-1").state(Blackhole))),
            Err("pcx-1"),
        ),
        (
            "an interface of no instance",
            Some(entry_of(|route| route.network_interface_id("eni-1").state(Active))),
            Err("eni-1"),
        ),
    ] {
        let step = next(entry.as_ref(), mine, |id| id == "i-9");
        assert_eq!(step, expected.map_err(str::to_owned), "{what}");
    }
}

#[test]
fn a_destination_is_a_network_of_either_family() {
    let v6 = types::Route::builder().destination_ipv6_cidr_block("fd00:10:0:1::/64").instance_id("i-1");
    let (destination, _) = entry(&v6.build()).unwrap();
    assert_eq!(families(&destination), (None, Some("fd00:10:0:1::/64".to_owned())));
    let list = types::Route::builder().destination_prefix_list_id("pl-1").gateway_id("vpce-1");
    assert!(entry(&list.build()).is_none());
}
