//! Addresses and networks, parsed as Kubernetes does.
//!
//! In: the text of a flag, an annotation, a Node or a provider. Out: an address or a network, or `None` if it is invalid.
//! Callers decide which of them are allowed.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

/// Parses a network. Host bits are kept, so that a caller can detect them.
///
/// As lenient as the apiserver is with old objects: octets with leading zeros are decimal, and an IPv6 network of
/// mapped IPv4 addresses is read as that IPv4 network.
pub fn parse(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    if !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let network = IpNet::new(spelled(address)?, length.parse().ok()?).ok()?;
    Some(as_ipv4(network).unwrap_or(network))
}

/// Parses an address: leading zeros in a dotted quad are decimal, and an IPv4-mapped IPv6 address is IPv4.
pub fn address(text: &str) -> Option<IpAddr> {
    spelled(text).map(|address| address.to_canonical())
}

/// Whether both are IPv4 or both IPv6.
pub fn same_family(one: &IpNet, other: &IpNet) -> bool {
    one.addr().is_ipv4() == other.addr().is_ipv4()
}

/// Whether any address is in both.
pub fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

/// `IPv4` or `IPv6`.
pub fn family(network: &IpNet) -> &'static str {
    if network.addr().is_ipv4() { "IPv4" } else { "IPv6" }
}

/// The IPv4 network that an IPv6 network of mapped addresses stands for.
fn as_ipv4(network: IpNet) -> Option<IpNet> {
    let IpNet::V6(network) = network else { return None };
    let address: Ipv4Addr = network.addr().to_ipv4_mapped()?;
    Some(Ipv4Net::new(address, network.prefix_len().checked_sub(96)?).ok()?.into())
}

/// An address of the family that it is written in.
fn spelled(text: &str) -> Option<IpAddr> {
    let Some(colon) = text.rfind(':') else { return quad(text).map(IpAddr::V4) };
    let (groups, tail) = text.split_at_checked(colon + 1)?;
    if tail.contains('.') { format!("{groups}{}", quad(tail)?).parse() } else { text.parse() }.ok()
}

/// `010.0.1.0` was always read as `10.0.1.0`, not as an octal number.
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

    #[test]
    fn a_network_is_read_leniently_and_keeps_its_host_bits() {
        let rows = [
            ("10.10.0.1/24", Some("10.10.0.1/24")),
            ("010.001.000.0/16", Some("10.1.0.0/16")),
            ("a00::/86", Some("a00::/86")),
            ("::ffff:10.0.1.7/120", Some("10.0.1.7/24")),
            ("::ffff:10.0.1.7/90", Some("::ffff:10.0.1.7/90")),
            ("10.0.0.0", None),
            ("10.0.0.0/33", None),
            ("10.0.0.0/+8", None),
            ("10..0.0/8", None),
            ("fd00::/129", None),
            (" 10.0.0.0/8", None),
            ("", None),
        ];
        for (text, want) in rows {
            assert_eq!(parse(text).map(|network| network.to_string()).as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn an_address_is_read_leniently() {
        let rows = [
            ("010.001.000.7", Some("10.1.0.7")),
            ("::ffff:010.0.1.7", Some("10.0.1.7")),
            ("fd00::7", Some("fd00::7")),
            ("10.0.0.256", None),
            ("+10.0.0.1", None),
            ("10.0.0", None),
            ("10.0.0.1.1", None),
            ("fd00::7%eth0", None),
            ("", None),
        ];
        for (text, want) in rows {
            assert_eq!(address(text).map(|address| address.to_string()).as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn networks_overlap_if_either_holds_the_other() {
        let rows = [
            ("10.1.0.0/16", "10.1.255.0/24", true),
            ("10.1.255.0/24", "10.1.0.0/16", true),
            ("10.1.0.0/16", "10.0.255.0/24", false),
            ("0.0.0.0/0", "::/0", false),
        ];
        for (one, other, want) in rows {
            assert_eq!(overlap(&parse(one).unwrap(), &parse(other).unwrap()), want, "{one} {other}");
        }
    }
}
