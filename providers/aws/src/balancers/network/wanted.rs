//! What a Service wants of a network balancer.
//!
//! In: the Service and the cloud config. Out: [`Wanted`], or what about the Service AWS cannot do. Defaults and meanings of
//! annotations are the published provider's.

mod health;

use aws_sdk_elasticloadbalancingv2::types::ProtocolEnum;
use cloudprovider_sdk::proto::{ClusterRef, IpFamily, IpFamilyPolicy, Protocol, Service, ServicePort};
use cloudprovider_sdk::{ProviderError, Result};

use crate::balancers::service::{
    Annotations, Defaults, EVERYWHERE, TRAFFIC_PORT, Texts, has_what_all_need, node_labels, tags,
};
use crate::balancers::{names, reference};

/// A network balancer as it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub name: String,
    pub internal: bool,
    pub families: Families,
    pub tags: Texts,
    /// By ID or name; none: those that the cluster's administrator marked.
    pub subnets: Vec<String>,
    /// For each subnet one, or none.
    pub allocations: Vec<String>,
    pub private_addresses: Vec<String>,
    pub attributes: Texts,
    pub group_attributes: Texts,
    pub listeners: Vec<Listener>,
    /// From where clients come; never empty.
    pub source_ranges: Vec<String>,
    /// Only nodes with these labels; an empty value stands for any.
    pub node_labels: Texts,
    pub security_groups: SecurityGroups,
}

/// The security groups of a balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SecurityGroups {
    /// Whatever it has, which is none if it is new.
    AsTheyAre,
    /// By ID. Their rules are the user's.
    Given(Vec<String>),
    /// One of its own.
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Families {
    V4,
    /// If the subnets have IPv6.
    DualIfPossible,
    Dual,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listener {
    pub port: i32,
    pub protocol: ProtocolEnum,
    pub tls: Option<Tls>,
    pub group: TargetGroup,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::balancers) struct Tls {
    pub certificate: String,
    /// Empty: AWS's default.
    pub policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::balancers) struct TargetGroup {
    pub name: String,
    pub port: i32,
    pub protocol: ProtocolEnum,
    pub health: Health,
}

/// How AWS finds out whether a target serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::balancers) struct Health {
    pub protocol: ProtocolEnum,
    pub port: String,
    /// Empty for TCP.
    pub path: String,
    pub interval: i32,
    pub healthy: i32,
    pub unhealthy: i32,
}

impl Wanted {
    pub(super) fn of(service: &Service, cluster: &ClusterRef, defaults: &Defaults) -> Result<Self> {
        let annotations = Annotations::of(service);
        let reference = reference(service)?;
        has_what_all_need(service)?;
        let extra = "aws-load-balancer-extra-security-groups";
        if annotations.get(extra).is_some() {
            return Err(Annotations::error(extra, "only classic balancers have extra security groups"));
        }
        let families = families(service)?;
        let source_ranges = source_ranges(service)?;
        let health = health::of(service, &annotations, &defaults.health)?;
        let listeners =
            listeners(service, &annotations, &|port, target, traffic: &ProtocolEnum| TargetGroup {
                name: names::group(
                    defaults.cluster.id(),
                    reference,
                    port,
                    target,
                    traffic,
                    (&health.protocol, health.interval),
                ),
                port: target,
                protocol: traffic.clone(),
                health: health.clone(),
            })?;
        Ok(Self {
            name: names::balancer(&reference.uid),
            internal: annotations.is_internal(),
            families,
            tags: tags(&annotations, &cluster.uid, reference, &defaults.cluster)?,
            subnets: annotations.list("aws-load-balancer-subnets"),
            allocations: annotations.list("aws-load-balancer-eip-allocations"),
            private_addresses: annotations.list("aws-load-balancer-private-ipv4-addresses"),
            attributes: annotations.attributes()?,
            group_attributes: group_attributes(service, &annotations, &listeners)?,
            listeners,
            source_ranges,
            node_labels: node_labels(service),
            security_groups: match annotations.list("aws-load-balancer-security-groups") {
                _ if !defaults.security_groups => SecurityGroups::AsTheyAre,
                given if !given.is_empty() => SecurityGroups::Given(given),
                _ => SecurityGroups::Own,
            },
        })
    }

    pub(super) fn groups(&self) -> Vec<&TargetGroup> {
        self.listeners.iter().map(|one| &one.group).collect()
    }

    /// Whether nodes cannot tell the clients that may come from others.
    pub(super) fn hides_clients(&self) -> bool {
        self.source_ranges != [EVERYWHERE] && hides(&self.group_attributes)
    }

    /// Whether a security group that is the balancer's own stays.
    pub(super) fn keeps_own_group(&self) -> bool {
        !matches!(self.security_groups, SecurityGroups::Given(_))
    }
}

/// Both families are served only where the source of a client of IPv6, which nodes cannot see, does not matter.
fn families(service: &Service) -> Result<Families> {
    let has = |family: IpFamily| service.ip_families().any(|one| one == family);
    match (has(IpFamily::Ipv4), has(IpFamily::Ipv6)) {
        (false, true) => {
            let why = "a network balancer has IPv4, or both families";
            return Err(ProviderError::unsupported_feature("spec.ipFamilies", why));
        }
        (true, true) => {}
        _ => return Ok(Families::V4),
    }
    let restricted = !service.source_ranges.is_empty();
    let of_udp = service.ports.iter().any(|port| port.protocol() == Protocol::Udp);
    match service.ip_family_policy() {
        IpFamilyPolicy::RequireDualStack if restricted => {
            let why = "nodes see clients of IPv6 with the balancer's own address, so a balancer of both families serves everybody";
            Err(ProviderError::unsupported_feature("spec.loadBalancerSourceRanges", why))
        }
        IpFamilyPolicy::RequireDualStack if of_udp => {
            let why = "a network balancer of both families has TCP alone";
            Err(ProviderError::unsupported_feature("spec.ipFamilyPolicy", why))
        }
        IpFamilyPolicy::RequireDualStack => Ok(Families::Dual),
        _ if restricted || of_udp => Ok(Families::V4),
        _ => Ok(Families::DualIfPossible),
    }
}

pub(super) fn source_ranges(service: &Service) -> Result<Vec<String>> {
    if service.source_ranges.iter().any(|range| range.contains(':')) {
        let why =
            "nodes see clients of IPv6 with the balancer's own address, so ranges of IPv6 cannot be held";
        return Err(ProviderError::unsupported_feature("spec.loadBalancerSourceRanges", why));
    }
    let everywhere = || vec![EVERYWHERE.to_owned()];
    Ok(if service.source_ranges.is_empty() { everywhere() } else { service.source_ranges.clone() })
}

fn listeners(
    service: &Service,
    annotations: &Annotations<'_>,
    group: &dyn Fn(i32, i32, &ProtocolEnum) -> TargetGroup,
) -> Result<Vec<Listener>> {
    let mut listeners: Vec<Listener> = Vec::new();
    for (at, port) in service.ports.iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{at}].{name}");
        let protocol = match port.protocol() {
            Protocol::Tcp => ProtocolEnum::Tcp,
            Protocol::Udp => ProtocolEnum::Udp,
            Protocol::Sctp | Protocol::Unspecified => {
                let why = "a network balancer has TCP and UDP";
                return Err(ProviderError::unsupported_feature(&field("protocol"), why));
            }
        };
        if let Some(there) = listeners.iter_mut().find(|one| one.port == port.port) {
            // Both protocols on one port are one listener with one group, which has one port.
            if there.tls.is_some()
                || annotations.certificate(port).is_some()
                || there.group.port != port.node_port
            {
                let why = "TCP and UDP on one port need the same node port, and no TLS";
                return Err(ProviderError::unsupported_feature(&field("nodePort"), why));
            }
            there.protocol = ProtocolEnum::TcpUdp;
            there.group = group(port.port, port.node_port, &ProtocolEnum::TcpUdp);
            continue;
        }
        let tls = annotations.certificate(port);
        let tls = tls.map(|certificate| Tls { certificate, policy: annotations.tls_policy() });
        let traffic = match &tls {
            Some(_) if annotations.speaks_tls_to_nodes() => ProtocolEnum::Tls,
            _ => protocol.clone(),
        };
        listeners.push(Listener {
            port: port.port,
            protocol: if tls.is_some() { ProtocolEnum::Tls } else { protocol },
            tls,
            group: group(port.port, port.node_port, &traffic),
        });
    }
    Ok(listeners)
}

fn group_attributes(
    service: &Service,
    annotations: &Annotations<'_>,
    listeners: &[Listener],
) -> Result<Texts> {
    let of_udp = |port: &ServicePort| port.protocol() == Protocol::Udp;
    let mut attributes = annotations.group_attributes(service.ports.iter().any(of_udp))?;
    let sticky = service.client_ip_affinity.is_some();
    if sticky && listeners.iter().any(|one| one.tls.is_some()) {
        let why = "a listener with TLS has no affinity";
        return Err(ProviderError::unsupported_feature("spec.sessionAffinity", why));
    }
    attributes.insert(STICKY.to_owned(), sticky.to_string());
    if !service.source_ranges.is_empty() {
        // Without the annotation, AWS keeps what a former one said.
        attributes.entry(PRESERVE.to_owned()).or_insert_with(|| "true".to_owned());
    }
    if sticky {
        attributes.insert("stickiness.type".to_owned(), "source_ip".to_owned());
    }
    Ok(attributes)
}

/// Whether targets with these attributes see the balancer's own address in place of a client's.
pub(super) fn hides(attributes: &Texts) -> bool {
    attributes.get(PRESERVE).is_some_and(|on| on == "false")
}

/// The attribute of target groups that says whether a client keeps its node.
pub(super) const STICKY: &str = "stickiness.enabled";
/// The one that says whether nodes see a client's own address.
pub(super) const PRESERVE: &str = "preserve_client_ip.enabled";

#[cfg(test)]
mod tests;
