//! Converts a provider's report of a balancer to the status of its Service.
//!
//! In: a balancer. Out: entries of `status.loadBalancer.ingress`. Whether they differ from the current status is up
//! to [`crate::kube::patch`], which knows what the apiserver defaults.

use crate::{
    cloud::{self, LoadBalancer},
    kube::service::{Ingress, PortStatus},
};

/// The entries, in the provider's order.
pub(super) fn published(balancer: &LoadBalancer) -> Vec<Ingress> {
    balancer.ingress.iter().map(entry).collect()
}

fn entry(ingress: &cloud::Ingress) -> Ingress {
    let cloud::Ingress { ip, hostname, ip_mode, ports } = ingress;
    Ingress {
        ip: ip.map(|ip| ip.to_string()).unwrap_or_default(),
        hostname: hostname.clone().unwrap_or_default(),
        ip_mode: ip_mode.map(str::to_owned),
        ports: ports
            .iter()
            .map(|port| PortStatus {
                port: port.port.into(),
                protocol: port.protocol.to_owned(),
                error: port.error.clone(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{fixtures::service, patch::service_ingress, service::Service};

    fn ip(ip: &str, mode: Option<&'static str>) -> cloud::Ingress {
        cloud::Ingress { ip: Some(ip.parse().unwrap()), hostname: None, ip_mode: mode, ports: Vec::new() }
    }

    fn port(protocol: &'static str) -> cloud::IngressPort {
        cloud::IngressPort { port: 80, protocol, error: None }
    }

    fn with_ports(ports: Vec<cloud::IngressPort>) -> cloud::Ingress {
        cloud::Ingress { ports, ..ip("8.8.8.8", None) }
    }

    fn stored(entries: &[cloud::Ingress]) -> Service {
        let mut service = service("web").load_balancer();
        service.ingress = entries.iter().map(entry).collect();
        service
    }

    #[test]
    fn a_status_is_written_only_if_it_differs() {
        let rows = [
            ("STAT-1", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.8", Some("VIP"))], false),
            ("STAT-2", vec![], vec![ip("8.8.8.8", None)], true),
            ("STAT-3", vec![], vec![], false),
            ("STAT-4", vec![ip("8.8.8.8", Some("VIP"))], vec![], true),
            // Differs from upstream on purpose (SW-19): the apiserver fills in the mode.
            ("STAT-5", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.8", None)], false),
            ("HLP-25", vec![], vec![], false),
            ("HLP-26", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.9", Some("VIP"))], true),
            ("HLP-27", vec![ip("8.8.8.8", Some("Proxy"))], vec![ip("8.8.8.8", Some("Proxy"))], false),
            ("HLP-27", vec![ip("8.8.8.8", Some("Proxy"))], vec![ip("8.8.8.8", None)], true),
            ("HLP-27", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.8", Some("Proxy"))], true),
            ("HLP-28", vec![with_ports(vec![port("TCP")])], vec![with_ports(vec![port("TCP")])], false),
            ("HLP-28", vec![with_ports(vec![port("TCP")])], vec![with_ports(vec![port("UDP")])], true),
            ("HLP-28", vec![with_ports(vec![port("TCP")])], vec![with_ports(vec![])], true),
            (
                "HLP-29",
                vec![ip("8.8.8.8", None), ip("8.8.8.9", None)],
                vec![ip("8.8.8.9", None), ip("8.8.8.8", None)],
                true,
            ),
        ];
        for (id, before, after, want) in rows {
            let wanted: Vec<_> = after.iter().map(entry).collect();
            assert_eq!(service_ingress(&stored(&before), &wanted).is_some(), want, "{id}");
        }
    }

    #[test]
    fn a_host_name_has_no_mode_and_no_address() {
        let named = cloud::Ingress {
            ip: None,
            hostname: Some("lb.example".to_owned()),
            ip_mode: None,
            ports: vec![cloud::IngressPort { port: 443, protocol: "TCP", error: Some("Closed".to_owned()) }],
        };
        let written = serde_json::to_value(entry(&named)).unwrap();
        let want = serde_json::json!({
            "hostname": "lb.example",
            "ports": [{"port": 443, "protocol": "TCP", "error": "Closed"}],
        });
        assert_eq!(written, want);
    }
}
