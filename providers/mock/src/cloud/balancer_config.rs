//! What a Service requests of this cloud: its spec and annotations, checked.
//!
//! | Annotation `mock.cloudprovider.ccm/…` | Value | Effect |
//! |---|---|---|
//! | `refuse` | text | INVALID_CONFIGURATION with that text |
//! | `implemented-elsewhere` | any | IMPLEMENTED_ELSEWHERE |
//! | `scheme` | `internal`, `internet-facing` | internal or external addresses |
//! | `ingress` | `ip`, `hostname` | form of the ingress |
//! | `ip-mode` | `VIP`, `Proxy` | `ipMode` of the ingress |
//! | `name` | text | name of the balancer |

use cloudprovider_sdk::{
    ProviderError, Result,
    proto::{IpFamily, IpFamilyPolicy, Protocol, Service},
};

use super::ANNOTATION_PREFIX;

/// The class that this cloud implements, besides Services without a class.
const CLASS: &str = "mock";

/// The requested configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) internal: bool,
    pub(super) hostname: bool,
    pub(super) proxy: bool,
    pub(super) name: Option<String>,
    pub(super) families: Vec<IpFamily>,
}

/// Checks a Service and returns the configuration it requests.
pub(super) fn check(service: &Service) -> Result<Config> {
    let class = service.load_balancer_class.as_str();
    if service.annotations.contains_key(&key("implemented-elsewhere")) || !["", CLASS].contains(&class) {
        let of_class = format!("the controller of class {class}");
        let who = if class.is_empty() { "another controller" } else { &of_class };
        return Err(ProviderError::implemented_elsewhere(who));
    }
    if let Some(text) = service.annotations.get(&key("refuse")) {
        return Err(invalid("refuse", text));
    }
    check_ports(service)?;
    check_ranges(service)?;
    Ok(Config {
        internal: one_of(service, "scheme", ["internet-facing", "internal"])?,
        hostname: one_of(service, "ingress", ["ip", "hostname"])?,
        proxy: one_of(service, "ip-mode", ["VIP", "Proxy"])?,
        name: name(service)?,
        families: families(service),
    })
}

fn key(name: &str) -> String {
    format!("{ANNOTATION_PREFIX}{name}")
}

pub(super) fn invalid(name: &str, why: &str) -> ProviderError {
    ProviderError::invalid_configuration(&format!("metadata.annotations[{}]", key(name)), why)
}

/// Whether the annotation has the second of two values; the first is the default.
fn one_of(service: &Service, name: &str, values: [&str; 2]) -> Result<bool> {
    match service.annotations.get(&key(name)).map(String::as_str) {
        None => Ok(false),
        Some(value) if value == values[0] => Ok(false),
        Some(value) if value == values[1] => Ok(true),
        Some(value) => {
            Err(invalid(name, &format!("{value:?} is neither {:?} nor {:?}", values[0], values[1])))
        }
    }
}

fn name(service: &Service) -> Result<Option<String>> {
    let Some(name) = service.annotations.get(&key("name")) else { return Ok(None) };
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(legal) {
        return Err(invalid("name", &format!("{name:?} must be 1 to 63 of a-z, 0-9 and -")));
    }
    Ok(Some(name.clone()))
}

fn check_ports(service: &Service) -> Result<()> {
    if service.ports.is_empty() {
        return Err(ProviderError::invalid_configuration("spec.ports", "a load balancer needs a port"));
    }
    for (index, port) in service.ports.iter().enumerate() {
        if !matches!(port.protocol(), Protocol::Tcp | Protocol::Udp) {
            let why = format!("port {} has a protocol other than TCP and UDP", port.port);
            return Err(ProviderError::unsupported_feature(&format!("spec.ports[{index}].protocol"), &why));
        }
        if !(1..=65535).contains(&port.port) {
            let why = format!("port {} is not within 1 to 65535", port.port);
            return Err(ProviderError::invalid_configuration(&format!("spec.ports[{index}].port"), &why));
        }
    }
    Ok(())
}

fn check_ranges(service: &Service) -> Result<()> {
    let mut ranges = service.source_ranges.iter().enumerate();
    match ranges.find(|(_, range)| range.parse::<ipnet::IpNet>().is_err()) {
        Some((index, range)) => {
            let field = format!("spec.loadBalancerSourceRanges[{index}]");
            Err(ProviderError::invalid_configuration(&field, &format!("{range:?} is not a CIDR")))
        }
        None => Ok(()),
    }
}

fn families(service: &Service) -> Vec<IpFamily> {
    let known = service.ip_families().filter(|family| *family != IpFamily::Unspecified);
    let mut families: Vec<_> = known.collect();
    families.dedup();
    if families.is_empty() {
        families.push(IpFamily::Ipv4);
    }
    if service.ip_family_policy() == IpFamilyPolicy::RequireDualStack && families.len() == 1 {
        families.push(if families[0] == IpFamily::Ipv4 { IpFamily::Ipv6 } else { IpFamily::Ipv4 });
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloudprovider_sdk::proto::{ErrorReason, ServicePort};

    fn service(annotations: &[(&str, &str)]) -> Service {
        let port = ServicePort { protocol: Protocol::Tcp.into(), port: 80, ..ServicePort::default() };
        Service {
            annotations: annotations.iter().map(|(name, value)| (key(name), (*value).to_owned())).collect(),
            ports: vec![port],
            ..Service::default()
        }
    }

    #[test]
    fn annotations_shape_the_balancer() {
        let plain = check(&service(&[])).unwrap();
        assert!(!plain.internal && !plain.hostname && !plain.proxy && plain.name.is_none());
        let shaped = check(&service(&[
            ("scheme", "internal"),
            ("ingress", "hostname"),
            ("ip-mode", "Proxy"),
            ("name", "front"),
        ]))
        .unwrap();
        assert!(shaped.internal && shaped.hostname && shaped.proxy);
        assert_eq!(shaped.name.as_deref(), Some("front"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_field() {
        let refused = |service: &Service| {
            let error = check(service).unwrap_err();
            match (error.reason(), error.fields().first()) {
                (ErrorReason::InvalidConfiguration, Some((field, _))) => format!("invalid {field}"),
                (ErrorReason::UnsupportedFeature, Some((field, _))) => format!("unsupported {field}"),
                (ErrorReason::ImplementedElsewhere, None) => error.message().to_owned(),
                other => panic!("{other:?}"),
            }
        };
        let annotated = |name: &str| format!("invalid metadata.annotations[{ANNOTATION_PREFIX}{name}]");
        assert_eq!(refused(&service(&[("refuse", "no")])), annotated("refuse"));
        assert_eq!(refused(&service(&[("scheme", "x")])), annotated("scheme"));
        assert_eq!(refused(&service(&[("name", "UPPER")])), annotated("name"));
        let mut sctp = service(&[]);
        sctp.ports[0].set_protocol(Protocol::Sctp);
        assert_eq!(refused(&sctp), "unsupported spec.ports[0].protocol");
        let mut ranges = service(&[]);
        ranges.source_ranges = vec!["10.0.0.0/8".into(), "x".into()];
        assert_eq!(refused(&ranges), "invalid spec.loadBalancerSourceRanges[1]");
        let of_class = |class: &str| Service { load_balancer_class: class.into(), ..service(&[]) };
        assert_eq!(refused(&of_class("other")), "the controller of class other serves this Service");
        assert!(check(&of_class("mock")).is_ok());
    }

    #[test]
    fn families_follow_the_service() {
        let (v4, v6) = (IpFamily::Ipv4, IpFamily::Ipv6);
        let cases = [
            (vec![], IpFamilyPolicy::SingleStack, vec![v4]),
            (vec![v6], IpFamilyPolicy::SingleStack, vec![v6]),
            (vec![v6, v4], IpFamilyPolicy::PreferDualStack, vec![v6, v4]),
            (vec![v6], IpFamilyPolicy::RequireDualStack, vec![v6, v4]),
        ];
        for (families, policy, wanted) in cases {
            let mut service = service(&[]);
            service.ip_families = families.into_iter().map(i32::from).collect();
            service.set_ip_family_policy(policy);
            assert_eq!(check(&service).unwrap().families, wanted);
        }
    }
}
