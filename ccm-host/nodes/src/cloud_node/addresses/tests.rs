use proptest::prelude::*;

use super::*;
use ccm_cloud::AddressType::{self, ExternalIp, Hostname, InternalIp};
use ccm_kube::{fixtures::node, patch::node_addresses};

fn cloud(list: &[(AddressType, &str)]) -> Vec<ccm_cloud::InstanceAddress> {
    list.iter()
        .map(|(kind, address)| ccm_cloud::InstanceAddress { kind: *kind, address: (*address).to_owned() })
        .collect()
}

/// `IIP=1.2.3.4` and the like.
fn with(list: &[(AddressType, &str)]) -> Node {
    list.iter().fold(node("n"), |node, (kind, address)| node.with_address(kind.as_str(), address))
}

#[test]
fn replaces_all_but_the_kubelets_host_name() {
    let own = |list: &[(AddressType, &str)]| with(list);
    type List<'a> = &'a [(AddressType, &'a str)];
    let rows: [(&str, Node, List<'_>, Option<List<'_>>); 6] = [
        (
            "NODE-1 the cloud's host name wins",
            own(&[(Hostname, "a")]),
            &[(Hostname, "b"), (InternalIp, "10.0.0.1"), (ExternalIp, "9.9.9.9")],
            Some(&[(Hostname, "b"), (InternalIp, "10.0.0.1"), (ExternalIp, "9.9.9.9")]),
        ),
        (
            "NODE-2 the kubelet's host name stays, last",
            own(&[(Hostname, "a")]),
            &[(InternalIp, "10.0.0.1"), (ExternalIp, "9.9.9.9")],
            Some(&[(InternalIp, "10.0.0.1"), (ExternalIp, "9.9.9.9"), (Hostname, "a")]),
        ),
        (
            "NODE-8 the provided IP orders, the host name stays",
            own(&[(Hostname, "a")]).with_annotation(PROVIDED_NODE_IP, "10.0.0.1"),
            &[(ExternalIp, "9.9.9.9"), (InternalIp, "10.0.0.1")],
            Some(&[(InternalIp, "10.0.0.1"), (ExternalIp, "9.9.9.9"), (Hostname, "a")]),
        ),
        ("ADDR-13 no addresses clear nothing", own(&[(InternalIp, "10.0.0.1")]), &[], None),
        (
            "ADDR-15, NW-33 addresses of others go, the kubelet's host name stays",
            own(&[(ExternalIp, "9.9.9.9"), (Hostname, "a")]),
            &[(InternalIp, "10.0.0.1")],
            Some(&[(InternalIp, "10.0.0.1"), (Hostname, "a")]),
        ),
        (
            "the same again",
            own(&[(InternalIp, "10.0.0.1"), (Hostname, "a")]),
            &[(InternalIp, "10.0.0.1")],
            Some(&[(InternalIp, "10.0.0.1"), (Hostname, "a")]),
        ),
    ];
    for (id, node, list, want) in rows {
        let want = want.map(|list| with(list).addresses);
        assert_eq!(wanted(&node, &cloud(list)), Ok(want), "{id}");
    }
}

#[test]
fn a_provided_ip_has_to_be_the_clouds() {
    let told = |ip: &str| node("n").with_address("Hostname", ip).with_annotation(PROVIDED_NODE_IP, ip);
    let not_in_cloud = |ip: &str| {
        Err(format!(
            "annotation {PROVIDED_NODE_IP} requests {ip}, which is not among the node's addresses in the cloud"
        ))
    };
    let list = cloud(&[(InternalIp, "10.0.0.1")]);
    assert_eq!(
        wanted(&told("10.0.0.2"), &list),
        not_in_cloud("10.0.0.2"),
        "NODE-10, though a host name reads so"
    );
    assert_eq!(wanted(&told("10.0.0.1"), &[]), not_in_cloud("10.0.0.1"), "NODE-30");
    assert_eq!(wanted(&told("x"), &list), Err(malformed("x")), "NODE-9");
}

fn some_addresses() -> impl Strategy<Value = Vec<ccm_cloud::InstanceAddress>> {
    let kind = prop::sample::select(vec![InternalIp, ExternalIp, Hostname, AddressType::InternalDns]);
    let address = prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "fd00::1", "FD00:0::1", "host"]);
    let one = (kind, address)
        .prop_map(|(kind, address)| ccm_cloud::InstanceAddress { kind, address: address.to_owned() });
    prop::collection::btree_set(one.prop_map(|one| (one.kind, one.address)), 0..7)
        .prop_map(|set| {
            set.into_iter().map(|(kind, address)| ccm_cloud::InstanceAddress { kind, address }).collect()
        })
        .prop_shuffle()
}

proptest! {
    /// One write settles the list, whatever others wrote, and in whatever order.
    #[test]
    fn are_settled_by_one_write_and_keep_the_clouds_order(
        cloud in some_addresses(),
        before in some_addresses(),
        told in prop::option::of(prop::sample::select(vec!["10.0.0.1", "10.0.0.2,fd00::1", "fd00::1,10.0.0.1"])),
    ) {
        let on = |addresses: Vec<NodeAddress>| {
            let node = Node { addresses, ..node("n") };
            told.iter().fold(node, |node, told| node.with_annotation(PROVIDED_NODE_IP, told))
        };
        let before: Vec<_> = before.iter().map(as_written).collect();
        let first = wanted(&on(before.clone()), &cloud);
        let Ok(Some(list)) = &first else { return Ok(()) };
        prop_assert_eq!(wanted(&on(list.clone()), &cloud), first.clone(), "idempotent");
        let of_kubelet = before.into_iter().filter(|address| address.type_ == HOSTNAME).collect();
        prop_assert_eq!(wanted(&on(of_kubelet), &cloud), first.clone(), "only host names of the kubelet stay");
        if told.is_none() {
            let given: Vec<_> = cloud.iter().map(as_written).collect();
            prop_assert!(list.starts_with(&given), "{:?}", list);
        }
    }
}

#[test]
fn an_order_counts_only_where_the_kubelet_was_told_its_ips() {
    let (v4, v6, name) = ((InternalIp, "10.0.0.1"), (InternalIp, "fd00::1"), (Hostname, "a"));
    let told = |node: Node| node.with_annotation(PROVIDED_NODE_IP, "fd00::1,10.0.0.1");
    type List<'a> = &'a [(AddressType, &'a str)];
    let rows: [(&str, Node, List<'_>, bool); 6] = [
        ("the same", with(&[v4, v6]), &[v4, v6], false),
        ("reordered", with(&[v4, v6, name]), &[name, v6, v4], true),
        ("one more", with(&[v4, v6]), &[v4, v6, name], false),
        ("another", with(&[v4, v6]), &[v6, name], false),
        ("led by another IP", told(with(&[v4, v6, name])), &[v6, v4, name], false),
        ("led by the same IP", told(with(&[v6, name, v4])), &[v6, v4, name], true),
    ];
    for (id, node, list, want) in rows {
        assert_eq!(only_reordered(&node, &with(list).addresses), want, "{id}");
    }
}

/// Lists are compared entry by entry and in order; nothing is sent for equal lists.
#[test]
fn a_list_is_written_when_it_differs() {
    type List<'a> = &'a [(AddressType, &'a str)];
    let both: List<'_> = &[(InternalIp, "10.0.0.1"), (ExternalIp, "9.9.9.9")];
    let rows: [(&str, List<'_>, List<'_>, bool); 9] = [
        ("ADDR-1", both, both, false),
        ("ADDR-2", both, &[(InternalIp, "10.0.0.1"), (ExternalIp, "8.8.8.8")], true),
        (
            "ADDR-3",
            &[(InternalIp, "10.0.0.1"), (Hostname, "a"), (Hostname, "b")],
            &[(InternalIp, "10.0.0.1"), (Hostname, "a")],
            true,
        ),
        ("ADDR-4", both, &[(InternalIp, "10.0.0.1"), (ExternalIp, "9.9.9.9"), (Hostname, "a")], true),
        ("ADDR-5", both, &[(InternalIp, "9.9.9.9"), (ExternalIp, "10.0.0.1")], true),
        (
            "ADDR-6 the order is the provider's word",
            both,
            &[(ExternalIp, "9.9.9.9"), (InternalIp, "10.0.0.1")],
            true,
        ),
        (
            "ADDR-7 two of a type",
            &[(InternalIp, "10.0.0.1"), (InternalIp, "fd00::1")],
            &[(InternalIp, "10.0.0.1"), (InternalIp, "fd00::1")],
            false,
        ),
        (
            "ADDR-8 one of two goes",
            &[(InternalIp, "10.0.0.1"), (InternalIp, "10.0.0.2")],
            &[(InternalIp, "10.0.0.2")],
            true,
        ),
        ("ADDR-14 nothing before", &[], &[(InternalIp, "10.0.0.1"), (InternalIp, "fd00::1")], true),
    ];
    for (id, before, list, want) in rows {
        let node = with(before);
        let list = wanted(&node, &cloud(list)).unwrap().unwrap();
        assert_eq!(node_addresses(&node, &list).is_some(), want, "{id}");
    }
}

/// The column "annotation (strict)"; the other columns are the kubelet's.
#[test]
fn parses_strictly() {
    let rows: [(&str, &str, Option<&[&str]>); 26] = [
        ("NIP-1", "", None),
        ("NIP-2", " ", None),
        ("NIP-3", "garbage", None),
        ("NIP-3", "1.2.3", None),
        ("NIP-3", "1.2.3.0/24", None),
        ("NIP-4", "1.2.3.4", Some(&["1.2.3.4"])),
        ("NIP-5", " 1.2.3.4 ", None),
        ("NIP-6", "01.2.3.004", Some(&["1.2.3.4"])),
        ("NIP-7", "0.0.0.0", Some(&["0.0.0.0"])),
        ("NIP-8", "1.2.3.4,garbage", None),
        ("NIP-9", "abcd::ef01", Some(&["abcd::ef01"])),
        ("NIP-9 not canonical", "abcd:0::0:EF01", Some(&["abcd::ef01"])),
        ("NIP-10", "1.2.3.4,abcd::ef01", Some(&["1.2.3.4", "abcd::ef01"])),
        ("NIP-10 other order", "abcd::ef01,1.2.3.4", Some(&["abcd::ef01", "1.2.3.4"])),
        ("NIP-11", "abcd::ef01 , 1.2.3.4", None),
        ("NIP-12", "1.2.3.4,5.6.7.8", None),
        ("NIP-12", "abcd::1,abcd::2", None),
        ("NIP-12 v4 in v6 clothes", "1.2.3.4,::ffff:5.6.7.8", None),
        ("NIP-13", "1.2.3.4,::", None),
        ("NIP-13", "0.0.0.0,abcd::1", None),
        ("NIP-14", "abcd::1 , 1.2.3.4, something", None),
        ("NIP-15", "1.2.3.4,abcd::1,5.6.7.8", None),
        ("trailing comma", "1.2.3.4,", None),
        ("a sign", "1.2.3.+4", None),
        ("five octets", "1.2.3.4.5", None),
        ("a zone", "fe80::1%eth0", None),
    ];
    for (id, text, want) in rows {
        let want = want.map_or_else(
            || Err(malformed(text)),
            |ips| Ok(ips.iter().map(|ip| ip.parse().unwrap()).collect()),
        );
        assert_eq!(provided_ips(text), want, "{id} {text:?}");
    }
}

/// `IIP=1.2.3.4` and the like, separated by blanks.
fn addresses(text: &str) -> Vec<NodeAddress> {
    let type_of = |short: &str| match short {
        "HN" => "Hostname",
        "IIP" => "InternalIP",
        "EIP" => "ExternalIP",
        "IDNS" => "InternalDNS",
        "EDNS" => "ExternalDNS",
        other => panic!("{other}"),
    };
    let address = |word: &str| {
        let (type_, address) = word.split_once('=').unwrap();
        NodeAddress { type_: type_of(type_).to_owned(), address: address.to_owned() }
    };
    text.split_whitespace().map(address).collect()
}

#[test]
fn selects_and_orders() {
    let rows = [
        ("ADDR-20", "10.1.1.1", "IIP=10.1.1.1 HN=h", Some("IIP=10.1.1.1 HN=h")),
        (
            "ADDR-21",
            "55.55.55.55",
            "IIP=10.1.1.1 EIP=55.55.55.55 HN=h",
            Some("EIP=55.55.55.55 IIP=10.1.1.1 HN=h"),
        ),
        (
            "ADDR-22",
            "55.55.55.55",
            "IIP=44.44.44.44 EIP=44.44.44.44 IIP=55.55.55.55 EIP=55.55.55.55 HN=h",
            Some("IIP=55.55.55.55 EIP=55.55.55.55 HN=h"),
        ),
        (
            "ADDR-23",
            "10.1.1.1",
            "IIP=10.1.1.1 EIP=55.55.55.55 IDNS=i EDNS=e HN=h",
            Some("IIP=10.1.1.1 EIP=55.55.55.55 IDNS=i EDNS=e HN=h"),
        ),
        (
            "ADDR-24",
            "10.1.1.1",
            "IIP=10.1.1.1 IIP=10.2.2.2 IIP=10.3.3.3 EIP=55.55.55.55 HN=h",
            Some("IIP=10.1.1.1 EIP=55.55.55.55 HN=h"),
        ),
        ("ADDR-25", "10.2.2.2", "IIP=10.1.1.1 EIP=55.55.55.55 HN=h", None),
        (
            "ADDR-26",
            "2001:db8::1",
            "IIP=10.1.1.1 IIP=2001:0db8:0:0:0:0:0:1 HN=h",
            Some("IIP=2001:0db8:0:0:0:0:0:1 HN=h"),
        ),
        ("ADDR-27", "10.1.1.1,2001:db8::1", "IIP=10.1.1.1 HN=h", None),
        (
            "ADDR-28",
            "10.1.1.1,2001:db8::1",
            "IIP=10.1.1.1 IIP=2001:db8::1 HN=h",
            Some("IIP=10.1.1.1 IIP=2001:db8::1 HN=h"),
        ),
        (
            "ADDR-29",
            "10.1.1.1,2001:db8::1",
            "IIP=2001:db8::1 IIP=10.1.1.1 HN=h",
            Some("IIP=10.1.1.1 IIP=2001:db8::1 HN=h"),
        ),
        (
            "ADDR-30",
            "10.1.1.2,2001:db8::2",
            "IIP=10.1.1.1 IIP=10.1.1.2 IIP=2001:db8::1 IIP=2001:db8::2 HN=h",
            Some("IIP=10.1.1.2 IIP=2001:db8::2 HN=h"),
        ),
        (
            "ADDR-31",
            "10.1.1.1,2001:db8::2",
            "IIP=10.1.1.1 EIP=55.55.55.55 IIP=2001:db8::1 IIP=2001:db8::2 HN=h",
            Some("IIP=10.1.1.1 IIP=2001:db8::2 EIP=55.55.55.55 HN=h"),
        ),
        (
            "ADDR-32",
            "2001:db8::1,10.1.1.1",
            "IIP=10.1.1.1 EIP=55.55.55.55 IIP=2001:db8::1 EIP=2001:db8::2 HN=h",
            Some("IIP=2001:db8::1 IIP=10.1.1.1 EIP=55.55.55.55 EIP=2001:db8::2 HN=h"),
        ),
        (
            "ADDR-33",
            "55.55.55.55,2001:db8::1",
            "IIP=10.1.1.1 EIP=55.55.55.55 IIP=2001:db8::1 EIP=2001:db8::2 HN=h",
            Some("EIP=55.55.55.55 IIP=2001:db8::1 HN=h"),
        ),
        ("ADDR-34 leading zero", "010.0.0.1", "IIP=10.0.0.1", Some("IIP=10.0.0.1")),
        ("ADDR-34 mapped", "::ffff:10.0.0.1", "IIP=10.0.0.1", Some("IIP=10.0.0.1")),
        ("ADDR-34 mapped with a leading zero", "::ffff:010.0.0.1", "IIP=10.0.0.1", Some("IIP=10.0.0.1")),
        ("ADDR-35", "0.0.0.0", "IIP=10.0.0.1", None),
        ("ADDR-36", "10.0.0.1", "IIP=10.0.0.1 IIP=2001:db8::1", Some("IIP=10.0.0.1")),
        (
            "a host name that is the IP pins its type",
            "10.0.0.1",
            "IIP=10.0.0.1 HN=10.0.0.1 HN=h",
            Some("IIP=10.0.0.1 HN=10.0.0.1"),
        ),
        ("nothing to choose from", "10.0.0.1", "", None),
    ];
    for (id, annotation, cloud, want) in rows {
        let got = select(&provided_ips(annotation).unwrap(), &addresses(cloud));
        assert_eq!(got.ok(), want.map(addresses), "{id}");
    }
}

fn malformed(text: &str) -> String {
    format!(
        "annotation {PROVIDED_NODE_IP} is {text:?}, which is not one IP address, nor two of different families \
         separated by a comma"
    )
}
