//! Which instance a node is asked about.
//!
//! In: the node as the host sends it. Out: an instance ID, or names and addresses by which EC2 can find one.

use std::net::IpAddr;

use cloudprovider_sdk::proto::NodeRef;

use super::PREFIX;
use crate::config::region_of;

/// How to find a node's instance.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Id(String),
    /// By the private DNS name that is the node's; if nothing has it, by one of these addresses.
    Name(String, Vec<IpAddr>),
    /// No instance of EC2 in this region.
    NotOurs,
}

impl Lookup {
    pub(super) fn of(node: &NodeRef, region: &str) -> Self {
        if !node.provider_id.is_empty() {
            return match id_of(&node.provider_id, region) {
                Some(id) => Self::Id(id.to_owned()),
                None => Self::NotOurs,
            };
        }
        // Where a VPC names by resource: the ID, on some systems with the domain behind it.
        let (host, _) = node.name.split_once('.').unwrap_or((&node.name, ""));
        if is_id(host) {
            return Self::Id(host.to_owned());
        }
        let named = host.strip_prefix("ip-").map(|digits| digits.replace('-', "."));
        let named = named.and_then(|address| address.parse().ok());
        let given = node.provided_node_ips.iter().filter_map(|address| address.parse().ok());
        Self::Name(node.name.clone(), named.into_iter().chain(given).collect())
    }
}

/// The instance of a provider ID: `aws:///ZONE/ID`, or without a zone.
pub(crate) fn id_of<'a>(provider_id: &'a str, region: &str) -> Option<&'a str> {
    let path = provider_id.strip_prefix(PREFIX)?.strip_prefix('/')?;
    let (zone, id) = path.split_once('/').unwrap_or(("", path));
    let here = zone.is_empty() || region_of(zone) == Some(region);
    (here && is_id(id)).then_some(id)
}

/// EC2 refuses a whole call for one ID of another form.
fn is_id(text: &str) -> bool {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    text.strip_prefix("i-").is_some_and(|id| matches!(id.len(), 8 | 17) && id.chars().all(hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str, provider_id: &str, ips: &[&str]) -> Lookup {
        let node = NodeRef {
            name: name.to_owned(),
            provider_id: provider_id.to_owned(),
            provided_node_ips: ips.iter().map(|ip| (*ip).to_owned()).collect(),
            ..NodeRef::default()
        };
        Lookup::of(&node, "us-east-1")
    }

    #[test]
    fn a_provider_id_names_an_instance_of_this_region_or_is_not_ours() {
        for (provider_id, id) in [
            ("aws:///us-east-1a/i-0123456789abcdef0", Some("i-0123456789abcdef0")),
            ("aws:///us-east-1-bos-1a/i-01234567", Some("i-01234567")),
            ("aws:///i-01234567", Some("i-01234567")),
            ("aws:////i-01234567", Some("i-01234567")),
            ("aws:///eu-west-1a/i-01234567", None),
            ("aws:///us-east-1a/i-0123456G", None),
            ("aws:///us-east-1a/i-0123456", None),
            ("aws:///us-east-1a/0123/fargate-ip-10-0-0-1.ec2.internal", None),
            ("aws://i-01234567", None),
            ("aws://", None),
            ("gce:///us-east-1a/i-01234567", None),
        ] {
            let expected = id.map_or(Lookup::NotOurs, |id| Lookup::Id(id.to_owned()));
            assert_eq!(lookup("i-99999999", provider_id, &[]), expected, "{provider_id}");
        }
    }

    #[test]
    fn a_node_without_a_provider_id_is_found_by_its_name_or_its_addresses() {
        let named = |name: &str, ips: &[&str]| {
            Lookup::Name(name.to_owned(), ips.iter().map(|ip| ip.parse().unwrap()).collect())
        };
        for (name, ips, expected) in [
            ("i-0123456789abcdef0", &[][..], Lookup::Id("i-0123456789abcdef0".to_owned())),
            ("i-0123456789abcdef0.ec2.internal", &[], Lookup::Id("i-0123456789abcdef0".to_owned())),
            ("ip-10-0-0-7.ec2.internal", &[], named("ip-10-0-0-7.ec2.internal", &["10.0.0.7"])),
            ("ip-10-0-0-700.ec2.internal", &[], named("ip-10-0-0-700.ec2.internal", &[])),
            ("worker-1", &["10.0.0.7", "fd00::7", "x"], named("worker-1", &["10.0.0.7", "fd00::7"])),
            ("i-robot", &[], named("i-robot", &[])),
        ] {
            assert_eq!(lookup(name, "", ips), expected, "{name}");
        }
    }
}
