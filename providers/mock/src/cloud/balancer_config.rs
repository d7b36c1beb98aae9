//! What a Service asks of this cloud: its spec and annotations, checked.
//!
//! | Annotation `mock.cloudprovider.ccm/…` | Value | Effect |
//! |---|---|---|
//! | `refuse` | text | INVALID_CONFIGURATION with that text |
//! | `implemented-elsewhere` | any | IMPLEMENTED_ELSEWHERE |
//! | `scheme` | `internal`, `internet-facing` | addresses from within or from outside |
//! | `ingress` | `ip`, `hostname` | how the way in is told |
//! | `ip-mode` | `VIP`, `Proxy` | `ipMode` of the way in |
//! | `name` | text | name of the balancer |

use super::{ANNOTATION_PREFIX, CloudError, Family, FamilyPolicy, Protocol, WantedService};

/// The class that this cloud looks after, beside Services without a class.
const CLASS: &str = "mock";

/// What a Service asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) internal: bool,
    pub(super) hostname: bool,
    pub(super) proxy: bool,
    pub(super) name: Option<String>,
    pub(super) families: Vec<Family>,
}

/// Checks what a Service asks for.
pub(super) fn check(service: &WantedService) -> Result<Config, CloudError> {
    if service.annotations.contains_key(&key("implemented-elsewhere")) {
        return Err(CloudError::ImplementedElsewhere { class: service.class.clone() });
    }
    if !service.class.is_empty() && service.class != CLASS {
        return Err(CloudError::ImplementedElsewhere { class: service.class.clone() });
    }
    if let Some(text) = service.annotations.get(&key("refuse")) {
        return Err(invalid("refuse", text.clone()));
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

fn invalid(name: &str, message: String) -> CloudError {
    CloudError::InvalidConfiguration { field: format!("metadata.annotations[{}]", key(name)), message }
}

/// Whether the annotation has the second of two values; the first is the default.
fn one_of(service: &WantedService, name: &str, values: [&str; 2]) -> Result<bool, CloudError> {
    match service.annotations.get(&key(name)).map(String::as_str) {
        None => Ok(false),
        Some(value) if value == values[0] => Ok(false),
        Some(value) if value == values[1] => Ok(true),
        Some(value) => {
            Err(invalid(name, format!("{value:?} is neither {:?} nor {:?}", values[0], values[1])))
        }
    }
}

fn name(service: &WantedService) -> Result<Option<String>, CloudError> {
    let Some(name) = service.annotations.get(&key("name")) else { return Ok(None) };
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(legal) {
        return Err(invalid("name", format!("{name:?} must be 1 to 63 of a-z, 0-9 and -")));
    }
    Ok(Some(name.clone()))
}

fn check_ports(service: &WantedService) -> Result<(), CloudError> {
    if service.ports.is_empty() {
        return Err(CloudError::InvalidConfiguration {
            field: "spec.ports".to_owned(),
            message: "a load balancer needs a port".to_owned(),
        });
    }
    for (index, port) in service.ports.iter().enumerate() {
        if matches!(port.protocol, Protocol::Sctp | Protocol::Unknown) {
            return Err(CloudError::Unsupported {
                field: format!("spec.ports[{index}].protocol"),
                message: format!("port {} has a protocol other than TCP and UDP", port.port),
            });
        }
        if !(1..=65535).contains(&port.port) {
            return Err(CloudError::InvalidConfiguration {
                field: format!("spec.ports[{index}].port"),
                message: format!("port {} is not within 1 to 65535", port.port),
            });
        }
    }
    Ok(())
}

fn check_ranges(service: &WantedService) -> Result<(), CloudError> {
    for (index, range) in service.source_ranges.iter().enumerate() {
        if range.parse::<ipnet::IpNet>().is_err() {
            return Err(CloudError::InvalidConfiguration {
                field: format!("spec.loadBalancerSourceRanges[{index}]"),
                message: format!("{range:?} is no CIDR"),
            });
        }
    }
    Ok(())
}

fn families(service: &WantedService) -> Vec<Family> {
    let mut families = Vec::new();
    for family in &service.families {
        if !families.contains(family) {
            families.push(*family);
        }
    }
    if families.is_empty() {
        families.push(Family::V4);
    }
    if service.family_policy == FamilyPolicy::RequireDual && families.len() == 1 {
        families.push(if families.contains(&Family::V4) { Family::V6 } else { Family::V4 });
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::Port;

    fn service(annotations: &[(&str, &str)]) -> WantedService {
        WantedService {
            annotations: annotations.iter().map(|(name, value)| (key(name), (*value).to_owned())).collect(),
            ports: vec![Port { name: String::new(), protocol: Protocol::Tcp, port: 80, node_port: 30080 }],
            ..WantedService::default()
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
        let refused = |service: &WantedService| match check(service).unwrap_err() {
            CloudError::InvalidConfiguration { field, .. } => format!("invalid {field}"),
            CloudError::Unsupported { field, .. } => format!("unsupported {field}"),
            CloudError::ImplementedElsewhere { class } => format!("elsewhere {class}"),
            other => panic!("{other}"),
        };
        let annotated = |name: &str| format!("invalid metadata.annotations[{ANNOTATION_PREFIX}{name}]");
        assert_eq!(refused(&service(&[("refuse", "no")])), annotated("refuse"));
        assert_eq!(refused(&service(&[("scheme", "x")])), annotated("scheme"));
        assert_eq!(refused(&service(&[("name", "UPPER")])), annotated("name"));
        let mut sctp = service(&[]);
        sctp.ports[0].protocol = Protocol::Sctp;
        assert_eq!(refused(&sctp), "unsupported spec.ports[0].protocol");
        let mut ranges = service(&[]);
        ranges.source_ranges = vec!["10.0.0.0/8".into(), "x".into()];
        assert_eq!(refused(&ranges), "invalid spec.loadBalancerSourceRanges[1]");
        let elsewhere = WantedService { class: "other".into(), ..service(&[]) };
        assert_eq!(refused(&elsewhere), "elsewhere other");
        assert!(check(&WantedService { class: "mock".into(), ..service(&[]) }).is_ok());
    }

    #[test]
    fn families_follow_the_service() {
        let cases = [
            (vec![], FamilyPolicy::Single, vec![Family::V4]),
            (vec![Family::V6], FamilyPolicy::Single, vec![Family::V6]),
            (vec![Family::V6, Family::V4], FamilyPolicy::PreferDual, vec![Family::V6, Family::V4]),
            (vec![Family::V6], FamilyPolicy::RequireDual, vec![Family::V6, Family::V4]),
        ];
        for (families, family_policy, wanted) in cases {
            let service = WantedService { families, family_policy, ..service(&[]) };
            assert_eq!(check(&service).unwrap().families, wanted);
        }
    }
}
