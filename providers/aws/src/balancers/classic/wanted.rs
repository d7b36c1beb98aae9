//! What a Service wants of a classic balancer.
//!
//! In: the Service and the cloud config. Out: [`Wanted`], or what about the Service AWS cannot do. Defaults and meanings of
//! annotations are the published provider's.

use cloudprovider_sdk::proto::{ClusterRef, IpFamily, IpFamilyPolicy, Protocol, Service, TrafficPolicy};
use cloudprovider_sdk::{ProviderError, Result};

use crate::balancers::service::{
    self as shared, Annotations, Defaults, EVERYWHERE, TRAFFIC_PORT, Texts, node_labels,
};
use crate::balancers::{names, reference};
use crate::config::HealthProbe;

/// A classic balancer as it has to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub name: String,
    pub internal: bool,
    pub tags: Texts,
    /// By ID or name; none: those that the cluster's administrator marked.
    pub subnets: Vec<String>,
    /// By ID. None: one of its own.
    pub groups: Vec<String>,
    pub extra_groups: Vec<String>,
    pub listeners: Vec<Listener>,
    /// AWS's name of the policy of all listeners with TLS; empty: AWS's default.
    pub tls_policy: String,
    /// Nodes are told who the client is by the PROXY protocol.
    pub proxy: bool,
    /// By the names that [`super::read::attributes`] gives them.
    pub attributes: Texts,
    pub health: Health,
    /// From where clients come; never empty.
    pub source_ranges: Vec<String>,
    /// Only nodes with these labels; an empty value stands for any.
    pub node_labels: Texts,
}

/// Protocols are in capitals, as AWS has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::balancers) struct Listener {
    pub port: i32,
    pub protocol: String,
    pub node_port: i32,
    pub node_protocol: String,
    /// Empty without TLS.
    pub certificate: String,
}

/// How AWS finds out whether an instance serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::balancers) struct Health {
    /// Protocol, port and path, as AWS has them.
    pub target: String,
    pub interval: i32,
    pub timeout: i32,
    pub healthy: i32,
    pub unhealthy: i32,
}

impl Wanted {
    pub(super) fn of(service: &Service, cluster: &ClusterRef, defaults: &Defaults) -> Result<Self> {
        let annotations = Annotations::of(service);
        let reference = reference(service)?;
        shared::has_what_all_need(service)?;
        can_serve(service)?;
        let listeners = listeners(service, &annotations)?;
        let source_ranges = match &service.source_ranges[..] {
            [] => vec![EVERYWHERE.to_owned()],
            ranges => ranges.to_vec(),
        };
        let shared_group = Some(defaults.shared_group.clone()).filter(|group| !group.is_empty());
        let given = annotations.list("aws-load-balancer-security-groups");
        let proxy = "aws-load-balancer-proxy-protocol";
        Ok(Self {
            name: names::balancer(&reference.uid),
            internal: annotations.is_internal(),
            tags: shared::tags(&annotations, &cluster.uid, reference, &defaults.cluster)?,
            subnets: annotations.list("aws-load-balancer-subnets"),
            groups: if given.is_empty() { shared_group.into_iter().collect() } else { given },
            extra_groups: extra_groups(&annotations),
            tls_policy: annotations.tls_policy(),
            proxy: match annotations.get(proxy) {
                None | Some("") => false,
                Some("*") => true,
                Some(other) => {
                    let why = format!("{other:?} cannot be served; use \"*\", which is all node ports");
                    return Err(Annotations::error(proxy, &why));
                }
            },
            attributes: attributes(&annotations)?,
            health: health(service, &annotations, listeners[0].node_port, &defaults.health)?,
            listeners,
            source_ranges,
            node_labels: node_labels(service),
        })
    }

    /// As much of one as it takes to move instances.
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

/// The groups that a balancer has besides those that let its clients in.
pub(super) fn extra_groups(annotations: &Annotations<'_>) -> Vec<String> {
    annotations.list("aws-load-balancer-extra-security-groups")
}

fn can_serve(service: &Service) -> Result<()> {
    let has = |family: IpFamily| service.ip_families().any(|one| one == family);
    let both = has(IpFamily::Ipv4) && has(IpFamily::Ipv6);
    let requires_both = both && service.ip_family_policy() == IpFamilyPolicy::RequireDualStack;
    if requires_both || has(IpFamily::Ipv6) && !both {
        let why = "a classic balancer has IPv4 alone; a network balancer can have both families";
        return Err(ProviderError::unsupported_feature("spec.ipFamilies", why));
    }
    if service.source_ranges.iter().any(|range| range.contains(':')) {
        let why = "a classic balancer has clients of IPv4 alone";
        return Err(ProviderError::unsupported_feature("spec.loadBalancerSourceRanges", why));
    }
    if service.client_ip_affinity.is_some() {
        let why = "a classic balancer has no affinity by client IP; a network balancer can have it";
        return Err(ProviderError::unsupported_feature("spec.sessionAffinity", why));
    }
    Ok(())
}

fn listeners(service: &Service, annotations: &Annotations<'_>) -> Result<Vec<Listener>> {
    let name = "aws-load-balancer-backend-protocol";
    let to_nodes = annotations.get(name).unwrap_or_default();
    let listener = |(at, port): (usize, &cloudprovider_sdk::proto::ServicePort)| {
        if port.protocol() != Protocol::Tcp {
            let why = "a classic balancer has TCP alone; a network balancer can have UDP";
            return Err(ProviderError::unsupported_feature(&format!("spec.ports[{at}].protocol"), why));
        }
        let certificate = annotations.certificate(port).unwrap_or_default();
        let (protocol, node_protocol) = match to_nodes {
            "http" if certificate.is_empty() => ("HTTP", "HTTP"),
            _ if certificate.is_empty() => ("TCP", "TCP"),
            "" | "tcp" => ("SSL", "TCP"),
            "ssl" => ("SSL", "SSL"),
            "http" => ("HTTPS", "HTTP"),
            "https" => ("HTTPS", "HTTPS"),
            other => {
                let why = format!("{other:?} is no protocol of nodes; use tcp, ssl, http or https");
                return Err(Annotations::error(name, &why));
            }
        };
        Ok(Listener {
            port: port.port,
            protocol: protocol.to_owned(),
            node_port: port.node_port,
            node_protocol: node_protocol.to_owned(),
            certificate,
        })
    };
    service.ports.iter().enumerate().map(listener).collect()
}

fn attributes(annotations: &Annotations<'_>) -> Result<Texts> {
    let flag = |annotation: &str| annotations.bool(annotation).map(|flag| flag.to_string());
    let given = |annotation: &str| annotations.get(annotation).filter(|text| !text.is_empty());
    let mut attributes = vec![
        ("access_log.enabled", flag("aws-load-balancer-access-log-enabled")?),
        ("cross_zone.enabled", flag("aws-load-balancer-cross-zone-load-balancing-enabled")?),
        ("draining.enabled", flag("aws-load-balancer-connection-draining-enabled")?),
    ];
    let idle = "aws-load-balancer-connection-idle-timeout";
    let seconds = given(idle).map_or(Ok(60), |_| annotations.number(idle, 0))?;
    attributes.push(("idle_timeout", seconds.to_string()));
    for (key, annotation) in [
        ("access_log.interval", "aws-load-balancer-access-log-emit-interval"),
        ("draining.timeout", "aws-load-balancer-connection-draining-timeout"),
    ] {
        if given(annotation).is_some() {
            attributes.push((key, annotations.number(annotation, 0)?.to_string()));
        }
    }
    for (key, annotation) in [
        ("access_log.bucket", "aws-load-balancer-access-log-s3-bucket-name"),
        ("access_log.prefix", "aws-load-balancer-access-log-s3-bucket-prefix"),
    ] {
        if let Some(text) = given(annotation) {
            attributes.push((key, text.to_owned()));
        }
    }
    Ok(attributes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn health(
    service: &Service,
    annotations: &Annotations<'_>,
    first_node_port: i32,
    probe: &HealthProbe,
) -> Result<Health> {
    let local = service.external_traffic_policy() == TrafficPolicy::Local;
    let to_nodes = annotations.get("aws-load-balancer-backend-protocol").unwrap_or_default();
    let speaks_tls = to_nodes.eq_ignore_ascii_case("https") || to_nodes.eq_ignore_ascii_case("ssl");
    let (protocol, mut port, mut path) = match probe {
        _ if local => ("HTTP", service.health_check_node_port, "/healthz"),
        HealthProbe::OfKubeProxy { port, path } => ("HTTP", i32::from(*port), &**path),
        HealthProbe::OfService if speaks_tls => ("SSL", first_node_port, ""),
        HealthProbe::OfService => ("TCP", first_node_port, ""),
    };
    let name = "aws-load-balancer-healthcheck-protocol";
    let protocol = annotations.get(name).unwrap_or(protocol).to_ascii_uppercase();
    match &*protocol {
        "HTTP" | "HTTPS" => {
            let given = annotations.get("aws-load-balancer-healthcheck-path");
            path = given.filter(|path| !path.is_empty()).unwrap_or(if path.is_empty() { "/" } else { path });
        }
        "TCP" | "SSL" => path = "",
        _ => {
            let why = format!("{protocol:?} is no protocol of health checks; use TCP, SSL, HTTP or HTTPS");
            return Err(Annotations::error(name, &why));
        }
    }
    let name = "aws-load-balancer-healthcheck-port";
    match annotations.get(name) {
        Some(TRAFFIC_PORT) if local => port = first_node_port,
        None | Some(TRAFFIC_PORT) => {}
        Some(_) => port = number(annotations, "port", 0, 1)?,
    }
    Ok(Health {
        target: format!("{protocol}:{port}{path}"),
        interval: number(annotations, "interval", 10, 5)?,
        timeout: number(annotations, "timeout", 5, 2)?,
        healthy: number(annotations, "healthy-threshold", 2, 2)?,
        unhealthy: number(annotations, "unhealthy-threshold", 6, 2)?,
    })
}

/// A number of health checks, of which AWS has a least.
fn number(annotations: &Annotations<'_>, what: &str, default: i32, least: i32) -> Result<i32> {
    let name = format!("aws-load-balancer-healthcheck-{what}");
    match annotations.number(&name, default)? {
        number if number < least => {
            Err(Annotations::error(&name, &format!("{number} is too small; AWS has {least} at least")))
        }
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests;
