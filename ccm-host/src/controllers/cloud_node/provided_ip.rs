//! The node IPs that a kubelet was told to use (`--node-ip`), and how they restrict the cloud's list of addresses.
//!
//! In: the annotation's value and a list of addresses. Out: the list for the status, or why there is none.
//! [`super::addresses`] chooses the list to check.

use std::net::{IpAddr, Ipv4Addr};

use crate::kube::node::NodeAddress;

/// The annotation in which the kubelet records the IPs it was given.
pub(crate) const ANNOTATION: &str = "alpha.kubernetes.io/provided-node-ip";

/// One IP, or two of different families, in the kubelet's order: the first one's family is the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProvidedIps(Vec<IpAddr>);

/// Why the annotation cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProvidedIpError {
    #[error(
        "annotation {ANNOTATION} is {0:?}, which is not one IP address, nor two of different families separated by a comma"
    )]
    Malformed(String),
    #[error("annotation {ANNOTATION} requests {0}, which is not among the node's addresses in the cloud")]
    NotInCloud(IpAddr),
}

impl ProvidedIps {
    /// Parses the annotation. Strict: no blanks, no host names, no prefixes.
    pub(super) fn parse(text: &str) -> Result<Self, ProvidedIpError> {
        let ips: Option<Vec<_>> = text.split(',').map(ip).collect();
        match ips.as_deref() {
            Some([_]) => {}
            Some([first, second])
                if first.is_ipv4() != second.is_ipv4()
                    && !first.is_unspecified()
                    && !second.is_unspecified() => {}
            _ => return Err(ProvidedIpError::Malformed(text.to_owned())),
        }
        Ok(Self(ips.unwrap_or_default()))
    }

    /// The provided IPs first, in the cloud's spelling and under each type it has them; then, in the cloud's order, every
    /// address of a type that none of them has. The cloud's other addresses of those types are left out.
    pub(super) fn select(&self, cloud: &[NodeAddress]) -> Result<Vec<NodeAddress>, ProvidedIpError> {
        let parsed: Vec<_> = cloud.iter().map(|address| ip(&address.address)).collect();
        let mut selected: Vec<NodeAddress> = Vec::with_capacity(cloud.len());
        for wanted in &self.0 {
            let before = selected.len();
            let matching = cloud.iter().zip(&parsed).filter(|(_, ip)| ip.as_ref() == Some(wanted));
            selected.extend(matching.map(|(address, _)| address.clone()));
            if selected.len() == before {
                return Err(ProvidedIpError::NotInCloud(*wanted));
            }
        }
        let pinned = selected.len();
        for address in cloud {
            if !selected.iter().take(pinned).any(|known| known.type_ == address.type_) {
                selected.push(address.clone());
            }
        }
        Ok(selected)
    }
}

/// Parses an IP as Kubernetes does: leading zeros in a dotted quad are decimal, an IPv4-mapped IPv6 address is IPv4.
fn ip(text: &str) -> Option<IpAddr> {
    let Some(quad_at) = text.rfind(':').map(|colon| colon + 1).filter(|_| text.contains('.')) else {
        let parsed = if text.contains(':') { text.parse().ok() } else { quad(text).map(IpAddr::V4) };
        return parsed.map(|ip: IpAddr| ip.to_canonical());
    };
    let (groups, tail) = text.split_at_checked(quad_at)?;
    let whole: IpAddr = format!("{groups}{}", quad(tail)?).parse().ok()?;
    Some(whole.to_canonical())
}

fn quad(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        // The integer parser would accept a sign.
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then_some(Ipv4Addr::from(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

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
                || Err(ProvidedIpError::Malformed(text.to_owned())),
                |ips| Ok(ProvidedIps(ips.iter().map(|ip| ip.parse().unwrap()).collect())),
            );
            assert_eq!(ProvidedIps::parse(text), want, "{id} {text:?}");
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
            let got = ProvidedIps::parse(annotation).unwrap().select(&addresses(cloud));
            assert_eq!(got.ok(), want.map(addresses), "{id}");
        }
    }
}
