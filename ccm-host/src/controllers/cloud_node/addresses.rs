//! Computes the addresses for a node's status.
//!
//! In: the node, the cloud's list. Out: the complete list that replaces the present one, or `None` to leave it alone.
//! The patch compares the two, entry by entry and in order.

use super::provided_ip::{ANNOTATION, ProvidedIpError, ProvidedIps};
use crate::{
    cloud,
    kube::node::{Node, NodeAddress},
};

const HOSTNAME: &str = "Hostname";

/// The list for the status; `None` if the cloud gives no address, since that never clears anything.
///
/// The cloud's list replaces everything, including addresses of other writers. Only the kubelet's host names stay,
/// unless the cloud has its own. IPs that the kubelet was told to use must be in the cloud's list.
pub(super) fn wanted(
    node: &Node,
    cloud: &[cloud::NodeAddress],
) -> Result<Option<Vec<NodeAddress>>, ProvidedIpError> {
    let provided = node.annotations.get(ANNOTATION).map(ProvidedIps::parse).transpose()?;
    let mut list: Vec<NodeAddress> = cloud.iter().map(as_written).collect();
    if let Some(provided) = &provided {
        // Check the cloud's own list first: a host name from the kubelet proves nothing about the cloud.
        provided.select(&list)?;
    }
    if list.is_empty() {
        return Ok(None);
    }
    if !list.iter().any(|address| address.type_ == HOSTNAME) {
        list.extend(node.addresses.iter().filter(|address| address.type_ == HOSTNAME).cloned());
    }
    provided.map_or(Ok(list.clone()), |provided| provided.select(&list)).map(Some)
}

/// Whether only the order differs from the status; if the kubelet was told which IPs to use, the first address must
/// be the same, too. Some providers have no stable order, and theirs would be written at each sweep.
pub(super) fn only_reordered(node: &Node, wanted: &[NodeAddress]) -> bool {
    let present = &node.addresses;
    let first = |list: &[NodeAddress]| list.first().map(|first| first.address.clone());
    let is_same_set = present.len() == wanted.len() && wanted.iter().all(|address| present.contains(address));
    let is_led = node.annotations.get(ANNOTATION).is_some() && first(present) != first(wanted);
    is_same_set && !is_led && present.as_slice() != wanted
}

fn as_written(address: &cloud::NodeAddress) -> NodeAddress {
    NodeAddress { type_: address.kind.as_str().to_owned(), address: address.address.clone() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        cloud::AddressType::{self, ExternalIp, Hostname, InternalIp},
        kube::{fixtures::node, patch::node_addresses},
    };

    fn cloud(list: &[(AddressType, &str)]) -> Vec<cloud::NodeAddress> {
        list.iter()
            .map(|(kind, address)| cloud::NodeAddress { kind: *kind, address: (*address).to_owned() })
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
                own(&[(Hostname, "a")]).with_annotation(ANNOTATION, "10.0.0.1"),
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
        let told = |ip: &str| node("n").with_address("Hostname", ip).with_annotation(ANNOTATION, ip);
        let not_in_cloud = |ip: &str| Err(ProvidedIpError::NotInCloud(ip.parse().unwrap()));
        let list = cloud(&[(InternalIp, "10.0.0.1")]);
        assert_eq!(
            wanted(&told("10.0.0.2"), &list),
            not_in_cloud("10.0.0.2"),
            "NODE-10, though a host name reads so"
        );
        assert_eq!(wanted(&told("10.0.0.1"), &[]), not_in_cloud("10.0.0.1"), "NODE-30");
        assert_eq!(wanted(&told("x"), &list), Err(ProvidedIpError::Malformed("x".to_owned())), "NODE-9");
    }

    fn some_addresses() -> impl Strategy<Value = Vec<cloud::NodeAddress>> {
        let kind = prop::sample::select(vec![InternalIp, ExternalIp, Hostname, AddressType::InternalDns]);
        let address = prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "fd00::1", "FD00:0::1", "host"]);
        let one = (kind, address)
            .prop_map(|(kind, address)| cloud::NodeAddress { kind, address: address.to_owned() });
        prop::collection::btree_set(one.prop_map(|one| (one.kind, one.address)), 0..7)
            .prop_map(|set| {
                set.into_iter().map(|(kind, address)| cloud::NodeAddress { kind, address }).collect()
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
                told.iter().fold(node, |node, told| node.with_annotation(ANNOTATION, told))
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
        let told = |node: Node| node.with_annotation(ANNOTATION, "fd00::1,10.0.0.1");
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
}
