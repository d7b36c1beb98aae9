//! Addresses and pod CIDRs of an instance.

use std::{collections::HashSet, net::IpAddr};

use cloudprovider_proto::v1alpha1 as pb;
use ipnet::IpNet;

use super::{Findings, MOST, rule};
use crate::cloud::{AddressType, NodeAddress};

const LONGEST: usize = 253;

/// The valid addresses, in order and without duplicates.
pub(super) fn addresses(given: Vec<pb::NodeAddress>, findings: &mut Findings) -> Vec<NodeAddress> {
    let mut seen = HashSet::new();
    let mut kept = Vec::with_capacity(given.len().min(MOST));
    if given.len() > MOST {
        findings.reject(rule::ANSWER_BOUNDS, format!("there are more than {MOST} addresses"));
    }
    for pb::NodeAddress { r#type, address } in given.into_iter().take(MOST) {
        let Some(kind) = kind(findings.known(r#type)) else {
            findings.reject(rule::ADDRESS_VALID, format!("address {address:?} has no type that is known"));
            continue;
        };
        if !is_valid(kind, &address) {
            findings.reject(rule::ADDRESS_VALID, format!("address {address:?} is no {}", kind.as_str()));
            continue;
        }
        let address = NodeAddress { kind, address };
        if seen.insert(address.clone()) {
            kept.push(address);
        } else {
            findings.reject(
                rule::ADDRESS_UNIQUE,
                format!("address {} {} is there twice", kind.as_str(), address.address),
            );
        }
    }
    kept
}

/// The valid CIDRs in canonical form, at most one per family.
pub(super) fn pod_cidrs(given: Vec<String>, findings: &mut Findings) -> Vec<IpNet> {
    let mut kept: Vec<IpNet> = Vec::new();
    for text in given {
        let Ok(net) = text.parse::<IpNet>() else {
            findings.reject(rule::POD_CIDR_VALID, format!("pod CIDR {text:?} is no CIDR"));
            continue;
        };
        if kept.iter().any(|other| other.addr().is_ipv4() == net.addr().is_ipv4()) {
            findings.reject(rule::POD_CIDR_VALID, format!("pod CIDR {text} is the second of its family"));
            continue;
        }
        kept.push(net.trunc());
    }
    kept
}

fn kind(kind: pb::NodeAddressType) -> Option<AddressType> {
    match kind {
        pb::NodeAddressType::Unspecified => None,
        pb::NodeAddressType::Hostname => Some(AddressType::Hostname),
        pb::NodeAddressType::InternalIp => Some(AddressType::InternalIp),
        pb::NodeAddressType::ExternalIp => Some(AddressType::ExternalIp),
        pb::NodeAddressType::InternalDns => Some(AddressType::InternalDns),
        pb::NodeAddressType::ExternalDns => Some(AddressType::ExternalDns),
    }
}

/// Clouds use names that are not strictly DNS names, so names are only checked for length, whitespace and control
/// characters.
fn is_valid(kind: AddressType, address: &str) -> bool {
    match kind {
        AddressType::InternalIp | AddressType::ExternalIp => address.parse::<IpAddr>().is_ok(),
        AddressType::Hostname | AddressType::InternalDns | AddressType::ExternalDns => {
            !address.is_empty()
                && address.len() <= LONGEST
                && !address.chars().any(|char| char.is_whitespace() || char.is_control())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(kind: pb::NodeAddressType, text: &str) -> pb::NodeAddress {
        pb::NodeAddress { r#type: kind.into(), address: text.to_owned() }
    }

    #[test]
    fn invalid_and_doubled_addresses_go_and_the_order_stays() {
        use pb::NodeAddressType as T;
        let given = vec![
            address(T::ExternalIp, "203.0.113.9"),
            address(T::InternalIp, "10.0.0.1"),
            address(T::InternalIp, "10.0.0"),
            address(T::InternalIp, "10.0.0.1"),
            address(T::ExternalIp, "10.0.0.1"),
            address(T::Hostname, "a b"),
            address(T::Unspecified, "x"),
            pb::NodeAddress { r#type: 99, address: "x".to_owned() },
            address(T::InternalIp, "2001:DB8::1"),
        ];
        let mut findings = Findings::default();
        let kept = addresses(given, &mut findings);
        let texts: Vec<_> = kept.iter().map(|a| (a.kind.as_str(), a.address.as_str())).collect();
        assert_eq!(
            texts,
            [
                ("ExternalIP", "203.0.113.9"),
                ("InternalIP", "10.0.0.1"),
                ("ExternalIP", "10.0.0.1"),
                ("InternalIP", "2001:DB8::1")
            ]
        );
        assert_eq!(
            findings.rules,
            [
                rule::ADDRESS_VALID,
                rule::ADDRESS_UNIQUE,
                rule::ADDRESS_VALID,
                rule::ADDRESS_VALID,
                rule::UNKNOWN_ENUM,
                rule::ADDRESS_VALID
            ]
        );
        assert_eq!(findings.rejected[0], "address \"10.0.0\" is no InternalIP");
    }

    /// ADDR-37 ours: providers need no helper that drops duplicates.
    #[test]
    fn each_pair_stands_once_where_it_stood_first() {
        let internal = |text| address(pb::NodeAddressType::InternalIp, text);
        let rows = [
            ("nothing", vec![], vec![]),
            ("two new", vec![internal("10.0.0.1"), internal("10.0.0.2")], vec!["10.0.0.1", "10.0.0.2"]),
            ("the same twice", vec![internal("10.0.0.1"), internal("10.0.0.1")], vec!["10.0.0.1"]),
            (
                "one known and one new",
                vec![internal("10.0.0.1"), internal("10.0.0.1"), internal("10.0.0.2")],
                vec!["10.0.0.1", "10.0.0.2"],
            ),
        ];
        for (id, given, want) in rows {
            let kept = addresses(given, &mut Findings::default());
            let texts: Vec<_> = kept.iter().map(|address| address.address.as_str()).collect();
            assert_eq!(texts, want, "ADDR-37 {id}");
        }
    }

    #[test]
    fn pod_cidrs_are_canonical_and_one_a_family() {
        let mut findings = Findings::default();
        let given = ["10.1.2.3/24", "10.9.0.0/24", "fd00::1/64", "x"].map(str::to_owned).to_vec();
        let kept: Vec<_> = pod_cidrs(given, &mut findings).iter().map(ToString::to_string).collect();
        assert_eq!(kept, ["10.1.2.0/24", "fd00::/64"]);
        assert_eq!(findings.rules, [rule::POD_CIDR_VALID; 2]);
    }
}
