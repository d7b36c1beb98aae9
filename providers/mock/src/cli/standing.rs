//! A balancer as the conformance suite reads it from the hook `inspect-load-balancer`.

use serde::Serialize;

use crate::cloud::{Balancer, Protocol};

#[derive(Debug, Serialize)]
pub(super) struct Standing<'a> {
    ports: Vec<Port>,
    families: Vec<&'static str>,
    source_ranges: &'a [String],
    targets: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    health_check: Option<HealthCheck>,
}

#[derive(Debug, Serialize)]
struct Port {
    protocol: Protocol,
    port: i32,
    node_port: i32,
}

#[derive(Debug, Serialize)]
struct HealthCheck {
    port: i32,
}

impl<'a> Standing<'a> {
    pub(super) fn of(balancer: &'a Balancer) -> Self {
        let ips = balancer.ingress.iter().filter_map(|way| way.ip);
        let ports = balancer.ports.iter();
        let check = balancer.health_check_port;
        // A node without a machine gets nothing.
        let targets = balancer.backends.iter().map(|backend| backend.provider_id.as_str());
        Self {
            ports: ports
                .map(|port| Port { protocol: port.protocol, port: port.port, node_port: port.node_port })
                .collect(),
            families: ips.map(|ip| if ip.is_ipv4() { "IPv4" } else { "IPv6" }).collect(),
            source_ranges: &balancer.source_ranges,
            targets: targets.filter(|id| !id.is_empty()).collect(),
            health_check: (check > 0).then_some(HealthCheck { port: check }),
        }
    }
}
