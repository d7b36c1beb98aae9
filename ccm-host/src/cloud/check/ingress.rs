//! Ingress entries of a balancer.

use std::net::IpAddr;

use cloudprovider_proto::v1alpha1 as pb;

use super::{Findings, label, rule};
use crate::cloud::{Ingress, IngressPort};

/// More than any balancer has, and few enough to compare pairwise.
const MOST: usize = 256;
/// The apiserver's limit for the error of a port.
const LONGEST_PORT_ERROR: usize = 316;

/// The valid entries, in order and without duplicates.
pub(super) fn ingress(given: Vec<pb::LoadBalancerIngress>, findings: &mut Findings) -> Vec<Ingress> {
    let mut kept: Vec<Ingress> = Vec::new();
    for entry in given {
        let Some(entry) = one(entry, findings) else { continue };
        if kept.len() == MOST {
            findings.reject(rule::INGRESS_VALID, format!("there are more than {MOST} ways in"));
            break;
        }
        if kept.contains(&entry) {
            findings.reject(rule::INGRESS_VALID, format!("ingress {} is there twice", shown(&entry)));
        } else {
            kept.push(entry);
        }
    }
    kept
}

fn one(given: pb::LoadBalancerIngress, findings: &mut Findings) -> Option<Ingress> {
    let mode = findings.known(given.ip_mode);
    let ip = address(&given.ip, findings);
    let hostname = hostname(given.hostname, findings);
    if ip.is_none() && hostname.is_none() {
        if given.ip.is_empty() {
            findings
                .reject(rule::INGRESS_VALID, "an ingress has neither an address nor a host name".to_owned());
        }
        return None;
    }
    let ip_mode = match (ip, mode) {
        (Some(_), pb::IngressIpMode::Proxy) => Some("Proxy"),
        (Some(_), pb::IngressIpMode::Vip | pb::IngressIpMode::Unspecified) => Some("VIP"),
        (None, pb::IngressIpMode::Unspecified) => None,
        (None, pb::IngressIpMode::Vip | pb::IngressIpMode::Proxy) => {
            findings.reject(rule::INGRESS_VALID, "an ingress has an ip mode but no address".to_owned());
            None
        }
    };
    let ports = given.ports.into_iter().filter_map(|given| port(given, findings)).collect();
    Some(Ingress { ip, hostname, ip_mode, ports })
}

fn address(text: &str, findings: &mut Findings) -> Option<IpAddr> {
    if text.is_empty() {
        return None;
    }
    let parsed = text.parse().ok();
    if parsed.is_none() {
        findings.reject(rule::INGRESS_VALID, format!("ingress {text:?} is no IP address"));
    }
    parsed
}

fn hostname(text: String, findings: &mut Findings) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if label::is_subdomain(&text) && text.parse::<IpAddr>().is_err() {
        return Some(text);
    }
    findings.reject(rule::INGRESS_VALID, format!("ingress {text:?} is no DNS name"));
    None
}

fn port(given: pb::PortStatus, findings: &mut Findings) -> Option<IngressPort> {
    let protocol = match findings.known(given.protocol) {
        pb::Protocol::Tcp => Some("TCP"),
        pb::Protocol::Udp => Some("UDP"),
        pb::Protocol::Sctp => Some("SCTP"),
        pb::Protocol::Unspecified => None,
    };
    let number = u16::try_from(given.port).ok().filter(|number| *number > 0);
    let (Some(protocol), Some(port)) = (protocol, number) else {
        findings.reject(rule::INGRESS_VALID, format!("the state of port {} names no port", given.port));
        return None;
    };
    let error = match given.error {
        none if none.is_empty() => None,
        valid if valid.len() <= LONGEST_PORT_ERROR && label::is_key(&valid) => Some(valid),
        invalid => {
            findings.reject(rule::INGRESS_VALID, format!("port {port}: {invalid:?} is no reason"));
            // The port has an error, even if the provider's name for it is invalid.
            Some("InvalidReason".to_owned())
        }
    };
    Some(IngressPort { port, protocol, error })
}

fn shown(entry: &Ingress) -> String {
    match (&entry.ip, &entry.hostname) {
        (Some(ip), _) => ip.to_string(),
        (None, Some(hostname)) => hostname.clone(),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(ip: &str, hostname: &str, mode: pb::IngressIpMode) -> pb::LoadBalancerIngress {
        pb::LoadBalancerIngress {
            ip: ip.to_owned(),
            hostname: hostname.to_owned(),
            ip_mode: mode.into(),
            ports: Vec::new(),
        }
    }

    #[test]
    fn only_valid_ways_in_are_left() {
        use pb::IngressIpMode as M;
        let rows = [
            (given("192.0.2.1", "", M::Unspecified), Some(("192.0.2.1", Some("VIP"))), 0),
            (given("192.0.2.1", "", M::Proxy), Some(("192.0.2.1", Some("Proxy"))), 0),
            (given("2001:db8::1", "", M::Vip), Some(("2001:db8::1", Some("VIP"))), 0),
            (given("", "lb.example.com", M::Unspecified), Some(("lb.example.com", None)), 0),
            (given("", "lb.example.com", M::Vip), Some(("lb.example.com", None)), 1),
            (given("192.0.2", "", M::Unspecified), None, 1),
            (given("", "LB!", M::Unspecified), None, 2),
            (given("", "192.0.2.1", M::Unspecified), None, 2),
            (given("", "", M::Unspecified), None, 1),
        ];
        for (entry, want, broken) in rows {
            let mut findings = Findings::default();
            let kept = ingress(vec![entry.clone()], &mut findings);
            let seen = kept.first().map(|kept| (shown(kept), kept.ip_mode));
            assert_eq!(seen, want.map(|(text, mode)| (text.to_owned(), mode)), "{entry:?}");
            assert_eq!(findings.rules.len(), broken, "{entry:?}: {findings:?}");
        }
    }

    #[test]
    fn states_of_ports_are_checked() {
        let port =
            |port, protocol: i32, error: &str| pb::PortStatus { port, protocol, error: error.to_owned() };
        let mut entry = given("192.0.2.1", "", pb::IngressIpMode::Vip);
        entry.ports = vec![
            port(80, 1, ""),
            port(81, 2, "example.com/Broken"),
            port(82, 3, "no reason"),
            port(0, 1, ""),
            port(83, 0, ""),
            port(84, 77, ""),
        ];
        let mut findings = Findings::default();
        let kept = ingress(vec![entry], &mut findings);
        let seen: Vec<_> = kept[0].ports.iter().map(|p| (p.port, p.protocol, p.error.as_deref())).collect();
        assert_eq!(
            seen,
            [(80, "TCP", None), (81, "UDP", Some("example.com/Broken")), (82, "SCTP", Some("InvalidReason"))]
        );
    }
}
