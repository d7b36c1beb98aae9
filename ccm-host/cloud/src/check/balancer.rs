//! Checks answers about balancers.

use std::net::IpAddr;

use cloudprovider_proto::v1alpha1 as pb;

use super::effects;
use crate::findings::{Findings, rule, shown};
use crate::{Ensured, LoadBalancer, LoadBalancerState, Ownership, SyncState};
use ccm_base::label::{is_key, is_subdomain};
use ccm_kube::{Ingress, ObjectKey, PortStatus};

const LONGEST_ID: usize = 1 << 10;
const LONGEST_DIGEST: usize = 128;

/// The balancer of the requested Service. If the answer names another Service, its state is unknown.
pub(crate) fn balancer(
    given: Option<pb::LoadBalancer>,
    key: &ObjectKey,
    uid: &str,
    findings: &mut Findings,
) -> LoadBalancer {
    let given = given.unwrap_or_default();
    let answered = given.service.as_ref().map_or("", |service| service.uid.as_str()).to_owned();
    let mut read = read(given, key.clone(), uid.to_owned(), findings);
    if answered != uid {
        findings.reject(
            rule::SERVICE_REF,
            format!("the response is about the service uid {answered:?}, not {uid:?}"),
        );
        read.state = LoadBalancerState::Unspecified;
        read.ownership = Ownership::Unspecified;
        read.ingress.clear();
        read.applied_digest = None;
        read.sync_state = SyncState::Unspecified;
    }
    read.rejected.append(&mut findings.rejected);
    read
}

/// Whether a former controller made this balancer and its Service cannot be identified. That is not the provider's
/// fault, and the balancer belongs to no Service of ours.
pub(crate) fn has_no_service(given: &pb::LoadBalancer) -> bool {
    given.ownership() == pb::Ownership::ByLegacyName
        && given.service.as_ref().is_none_or(|service| service.uid.is_empty())
}

/// Kubernetes has no longer names or uids.
const LONGEST_NAME: usize = 253;

/// A balancer of a list; `None` if it does not name its Service.
pub(crate) fn listed(mut given: pb::LoadBalancer, findings: &mut Findings) -> Option<LoadBalancer> {
    let is_one = |service: &pb::ServiceRef| {
        let lengths = [&service.namespace, &service.name, &service.uid].map(String::len);
        !service.uid.is_empty() && lengths.into_iter().all(|length| length <= LONGEST_NAME)
    };
    let Some(service) = given.service.take().filter(is_one) else {
        findings.count(rule::SERVICE_REF);
        return None;
    };
    let key = ObjectKey::new(service.namespace, service.name);
    Some(read(given, key, service.uid, findings))
}

/// The answer of Ensure, reduced to what the provider may write on the Service.
pub(crate) fn ensured(
    given: pb::EnsureLoadBalancerResponse,
    key: &ObjectKey,
    uid: &str,
    wants: &pb::Wants,
    findings: &mut Findings,
) -> Ensured {
    let in_progress = given.in_progress.map(|given| effects::in_progress(given, findings));
    let effects = effects::on_service(given.events, given.service, wants, findings);
    let load_balancer = balancer(given.load_balancer, key, uid, findings);
    Ensured { load_balancer, in_progress, effects }
}

fn read(
    given: pb::LoadBalancer,
    key: ObjectKey,
    service_uid: String,
    findings: &mut Findings,
) -> LoadBalancer {
    let state = findings.known(given.state);
    let ownership = findings.known(given.ownership);
    let no_owner = matches!(state, LoadBalancerState::Absent | LoadBalancerState::NotOwned);
    if ownership == Ownership::Unspecified && !no_owner {
        findings.count(rule::OWNERSHIP_REQUIRED);
    }
    LoadBalancer {
        key,
        service_uid,
        id: shown(&given.id, LONGEST_ID),
        name: shown(&given.name, LONGEST_ID),
        state,
        ingress: ingress(given.ingress, findings),
        applied_digest: Some(given.applied_digest)
            .filter(|digest| !digest.is_empty() && digest.len() <= LONGEST_DIGEST),
        sync_state: findings.known(given.sync_state),
        ownership,
        rejected: Vec::new(),
    }
}

/// More than any balancer has, and few enough to compare pairwise.
const MOST: usize = 256;
/// The apiserver's limit for the error of a port.
const LONGEST_PORT_ERROR: usize = 316;

/// The valid entries, in order and without duplicates.
pub(crate) fn ingress(given: Vec<pb::LoadBalancerIngress>, findings: &mut Findings) -> Vec<Ingress> {
    let mut kept: Vec<Ingress> = Vec::new();
    for entry in given {
        let Some(entry) = one(entry, findings) else { continue };
        if kept.len() == MOST {
            findings.reject(rule::INGRESS_VALID, format!("more than {MOST} ingress entries"));
            break;
        }
        if kept.contains(&entry) {
            findings.reject(rule::INGRESS_VALID, format!("ingress {} appears twice", way_in(&entry)));
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
    let ports = given.ports.into_iter().take(MOST).filter_map(|given| port(given, findings)).collect();
    Some(Ingress {
        ip: ip.map(|ip| ip.to_string()).unwrap_or_default(),
        hostname: hostname.unwrap_or_default(),
        ip_mode: ip_mode.map(str::to_owned),
        ports,
    })
}

fn address(text: &str, findings: &mut Findings) -> Option<IpAddr> {
    if text.is_empty() {
        return None;
    }
    let parsed = text.parse().ok();
    if parsed.is_none() {
        findings.reject(rule::INGRESS_VALID, format!("ingress {text:?} is not an IP address"));
    }
    parsed
}

fn hostname(text: String, findings: &mut Findings) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if is_subdomain(&text) && text.parse::<IpAddr>().is_err() {
        return Some(text);
    }
    findings.reject(rule::INGRESS_VALID, format!("ingress {text:?} is not a DNS name"));
    None
}

fn port(given: pb::PortStatus, findings: &mut Findings) -> Option<PortStatus> {
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
        valid if valid.len() <= LONGEST_PORT_ERROR && is_key(&valid) => Some(valid),
        invalid => {
            findings.reject(rule::INGRESS_VALID, format!("port {port}: {invalid:?} is not a valid reason"));
            // The port has an error, even if the provider's name for it is invalid.
            Some("InvalidReason".to_owned())
        }
    };
    Some(PortStatus { port: port.into(), protocol: protocol.to_owned(), error })
}

fn way_in(entry: &Ingress) -> &str {
    if entry.ip.is_empty() { &entry.hostname } else { &entry.ip }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(uid: &str, state: i32) -> pb::LoadBalancer {
        pb::LoadBalancer {
            service: Some(pb::ServiceRef { namespace: "ns".into(), name: "web".into(), uid: uid.into() }),
            state,
            applied_digest: "d".into(),
            ownership: pb::Ownership::ByUid.into(),
            ..Default::default()
        }
    }

    #[test]
    fn an_answer_about_another_service_says_nothing() {
        let mut findings = Findings::default();
        let key = ObjectKey::new("ns", "web");
        let read =
            balancer(Some(given("u2", pb::LoadBalancerState::Absent.into())), &key, "u1", &mut findings);
        assert_eq!((read.state, read.ownership), (LoadBalancerState::Unspecified, Ownership::Unspecified));
        assert_eq!((read.service_uid.as_str(), read.applied_digest), ("u1", None));
        assert_eq!(read.rejected.len(), 1);
        assert_eq!(findings.rules, [rule::SERVICE_REF]);
    }

    #[test]
    fn states_of_a_newer_contract_are_unknown() {
        let mut findings = Findings::default();
        let read = listed(given("u1", 42), &mut findings).unwrap();
        assert_eq!(read.state, LoadBalancerState::Unspecified);
        assert_eq!(findings.rules, [rule::UNKNOWN_ENUM]);
    }

    #[test]
    fn a_listed_balancer_says_whose_it_is() {
        let mut findings = Findings::default();
        assert!(listed(pb::LoadBalancer::default(), &mut findings).is_none());
        assert_eq!(findings.rules, [rule::SERVICE_REF]);
    }

    fn entry(ip: &str, hostname: &str, mode: pb::IngressIpMode) -> pb::LoadBalancerIngress {
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
            (entry("192.0.2.1", "", M::Unspecified), Some(("192.0.2.1", Some("VIP"))), 0),
            (entry("192.0.2.1", "", M::Proxy), Some(("192.0.2.1", Some("Proxy"))), 0),
            (entry("2001:db8::1", "", M::Vip), Some(("2001:db8::1", Some("VIP"))), 0),
            (entry("", "lb.example.com", M::Unspecified), Some(("lb.example.com", None)), 0),
            (entry("", "lb.example.com", M::Vip), Some(("lb.example.com", None)), 1),
            (entry("192.0.2", "", M::Unspecified), None, 1),
            (entry("", "LB!", M::Unspecified), None, 2),
            (entry("", "192.0.2.1", M::Unspecified), None, 2),
            (entry("", "", M::Unspecified), None, 1),
        ];
        for (entry, want, broken) in rows {
            let mut findings = Findings::default();
            let kept = ingress(vec![entry.clone()], &mut findings);
            let seen = kept.first().map(|kept| (way_in(kept).to_owned(), kept.ip_mode.clone()));
            assert_eq!(
                seen,
                want.map(|(text, mode)| (text.to_owned(), mode.map(str::to_owned))),
                "{entry:?}"
            );
            assert_eq!(findings.rules.len(), broken, "{entry:?}: {findings:?}");
        }
    }

    #[test]
    fn states_of_ports_are_checked() {
        let port =
            |port, protocol: i32, error: &str| pb::PortStatus { port, protocol, error: error.to_owned() };
        let mut entry = entry("192.0.2.1", "", pb::IngressIpMode::Vip);
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
        let seen: Vec<_> =
            kept[0].ports.iter().map(|p| (p.port, p.protocol.as_str(), p.error.as_deref())).collect();
        assert_eq!(
            seen,
            [(80, "TCP", None), (81, "UDP", Some("example.com/Broken")), (82, "SCTP", Some("InvalidReason"))]
        );
    }
}
