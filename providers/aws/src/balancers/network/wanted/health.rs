//! The health check of a Service's targets.

use aws_sdk_elasticloadbalancingv2::types::ProtocolEnum;
use cloudprovider_sdk::Result;
use cloudprovider_sdk::proto::{Service, TrafficPolicy};

use super::{Annotations, Health, TRAFFIC_PORT};
use crate::config::HealthProbe;

pub(super) fn of(service: &Service, annotations: &Annotations<'_>, probe: &HealthProbe) -> Result<Health> {
    let local = service.external_traffic_policy() == TrafficPolicy::Local;
    let mut health = if local {
        Health {
            protocol: ProtocolEnum::Http,
            port: service.health_check_node_port.to_string(),
            path: "/healthz".to_owned(),
            interval: 10,
            healthy: 2,
            unhealthy: 2,
        }
    } else {
        Health {
            protocol: ProtocolEnum::Tcp,
            port: TRAFFIC_PORT.to_owned(),
            path: "/".to_owned(),
            interval: 30,
            healthy: 3,
            unhealthy: 3,
        }
    };
    let name = "aws-load-balancer-healthcheck-protocol";
    if let Some(protocol) = annotations.get(name) {
        health.protocol = match protocol.to_ascii_uppercase().as_str() {
            "HTTP" => ProtocolEnum::Http,
            "HTTPS" => ProtocolEnum::Https,
            "TCP" => ProtocolEnum::Tcp,
            _ => {
                let why = format!("{protocol:?} is no protocol of health checks; use TCP, HTTP or HTTPS");
                return Err(Annotations::error(name, &why));
            }
        };
    }
    if health.protocol == ProtocolEnum::Tcp {
        health.path.clear();
    } else if let Some(path) = annotations.get("aws-load-balancer-healthcheck-path") {
        path.clone_into(&mut health.path);
    }
    let name = "aws-load-balancer-healthcheck-port";
    if let Some(port) = annotations.get(name) {
        port.clone_into(&mut health.port);
    }
    if let (HealthProbe::OfKubeProxy { port, path }, false) = (probe, local) {
        health.protocol = ProtocolEnum::Http;
        health.port = port.to_string();
        health.path.clone_from(path);
    }
    let of =
        |what: &str, default| annotations.number(&format!("aws-load-balancer-healthcheck-{what}"), default);
    health.interval = of("interval", health.interval)?;
    health.healthy = of("healthy-threshold", health.healthy)?;
    health.unhealthy = of("unhealthy-threshold", health.unhealthy)?;
    // It has no effect, as with the published provider.
    of("timeout", 0)?;
    if health.port != TRAFFIC_PORT && health.port.parse::<u16>().is_err() {
        return Err(Annotations::error(
            name,
            &format!("{:?} is neither a port nor {TRAFFIC_PORT}", health.port),
        ));
    }
    Ok(health)
}
