use std::collections::HashMap;

use cloudprovider_sdk::proto::{ErrorReason, ServicePort, ServiceRef};

use super::*;
use crate::cloud::Cluster;
use crate::config::Config;

fn service(annotations: &[(&str, &str)]) -> Service {
    let annotations: HashMap<_, _> = annotations
        .iter()
        .map(|(key, value)| {
            (format!("service.beta.kubernetes.io/aws-load-balancer-{key}"), (*value).to_owned())
        })
        .collect();
    let port = |port: i32| ServicePort {
        name: format!("p{port}"),
        protocol: Protocol::Tcp.into(),
        port,
        node_port: 30_000 + port,
        ..ServicePort::default()
    };
    Service {
        r#ref: Some(ServiceRef { uid: "u-1".to_owned(), ..ServiceRef::default() }),
        annotations,
        ports: vec![port(80), port(443)],
        ip_families: vec![IpFamily::Ipv4.into()],
        ..Service::default()
    }
}

fn wanted_with(config: &str, service: &Service) -> Result<Wanted> {
    let config = Config::read(&format!("[Global]\nKubernetesClusterID = c\n{config}")).unwrap();
    let defaults = Defaults {
        cluster: Cluster::of_config(&config).unwrap(),
        health: config.health.clone(),
        security_groups: false,
        shared_group: config.shared_group.clone(),
    };
    Wanted::of(service, &ClusterRef { uid: "k".to_owned(), name: String::new() }, &defaults)
}

fn wanted(annotations: &[(&str, &str)]) -> Wanted {
    wanted_with("", &service(annotations)).unwrap()
}

#[test]
fn ports_become_listeners() {
    let told = |annotations: &[(&str, &str)]| {
        let of = |one: &Listener| {
            format!(
                "{} {} {} {}{}",
                one.protocol, one.port, one.node_protocol, one.node_port, one.certificate
            )
        };
        wanted(annotations).listeners.iter().map(of).collect::<Vec<_>>()
    };
    let (cert, speaks) = (("ssl-cert", "!"), |protocol| ("backend-protocol", protocol));
    assert_eq!(told(&[]), ["TCP 80 TCP 30080", "TCP 443 TCP 30443"]);
    assert_eq!(told(&[speaks("http")])[0], "HTTP 80 HTTP 30080");
    assert_eq!(told(&[speaks("ssl")])[0], "TCP 80 TCP 30080", "nothing without a certificate");
    assert_eq!(told(&[cert, ("ssl-ports", "443")]), ["TCP 80 TCP 30080", "SSL 443 TCP 30443!"]);
    assert_eq!(told(&[cert, ("ssl-ports", "p80")]), ["SSL 80 TCP 30080!", "TCP 443 TCP 30443"]);
    assert_eq!(told(&[cert, ("ssl-ports", "p80, 443 ")]), ["SSL 80 TCP 30080!", "SSL 443 TCP 30443!"]);
    for (protocol, expected) in [
        ("tcp", "SSL 80 TCP 30080!"),
        ("ssl", "SSL 80 SSL 30080!"),
        ("http", "HTTPS 80 HTTP 30080!"),
        ("https", "HTTPS 80 HTTPS 30080!"),
    ] {
        assert_eq!(told(&[cert, speaks(protocol)])[0], expected);
    }
}

#[test]
fn nodes_are_checked_as_the_published_provider_checks_them() {
    let target = |config: &str, local: bool, annotations: &[(&str, &str)]| {
        let mut service = service(annotations);
        if local {
            service.external_traffic_policy = TrafficPolicy::Local.into();
            service.health_check_node_port = 32_000;
        }
        wanted_with(config, &service).unwrap().health.target
    };
    let shared = "ClusterServiceLoadBalancerHealthProbeMode = Shared";
    let port = |text| ("healthcheck-port", text);
    let protocol = |text| ("healthcheck-protocol", text);
    assert_eq!(target("", false, &[]), "TCP:30080");
    assert_eq!(target("", false, &[("backend-protocol", "ssl")]), "SSL:30080");
    assert_eq!(target("", false, &[protocol("http")]), "HTTP:30080/");
    assert_eq!(
        target("", false, &[port("8080"), protocol("HTTPS"), ("healthcheck-path", "/a")]),
        "HTTPS:8080/a"
    );
    assert_eq!(target("", true, &[]), "HTTP:32000/healthz");
    assert_eq!(target("", true, &[port("traffic-port")]), "HTTP:30080/healthz");
    assert_eq!(target("", true, &[protocol("TCP")]), "TCP:32000");
    assert_eq!(target(shared, false, &[]), "HTTP:10256/healthz");
    assert_eq!(target(shared, true, &[]), "HTTP:32000/healthz");
    let health = wanted(&[]).health;
    assert_eq!((health.interval, health.timeout, health.healthy, health.unhealthy), (10, 5, 2, 6));
}

#[test]
fn groups_are_the_users_or_the_cloud_configs_or_its_own() {
    let groups = |config: &str, annotations: &[(&str, &str)]| {
        let wanted = wanted_with(config, &service(annotations)).unwrap();
        [wanted.groups, wanted.extra_groups].map(|groups| groups.join(" "))
    };
    let (shared, given) = ("ElbSecurityGroup = sg-0", ("security-groups", "sg-1, sg-2"));
    assert_eq!(groups("", &[]), ["", ""]);
    assert_eq!(groups(shared, &[("extra-security-groups", "sg-3")]), ["sg-0", "sg-3"]);
    assert_eq!(groups(shared, &[given]), ["sg-1 sg-2", ""]);
}

#[test]
fn what_aws_cannot_do_is_refused_and_named() {
    let with = |change: &dyn Fn(&mut Service)| {
        let mut service = service(&[]);
        change(&mut service);
        service
    };
    use ErrorReason::{InvalidConfiguration, UnsupportedFeature};
    for (service, reason, field) in [
        (
            with(&|one| one.ports[1].protocol = Protocol::Udp.into()),
            UnsupportedFeature,
            "spec.ports[1].protocol",
        ),
        (with(&|one| one.ports.clear()), InvalidConfiguration, "spec.ports"),
        (with(&|one| one.ports[0].node_port = 0), UnsupportedFeature, "spec.allocateLoadBalancerNodePorts"),
        (
            with(&|one| one.client_ip_affinity = Some(Default::default())),
            UnsupportedFeature,
            "spec.sessionAffinity",
        ),
        (with(&|one| one.ip_families = vec![IpFamily::Ipv6.into()]), UnsupportedFeature, "spec.ipFamilies"),
        (
            with(&|one| one.source_ranges = vec!["2001:db8::/32".to_owned()]),
            UnsupportedFeature,
            "spec.loadBalancerSourceRanges",
        ),
        (service(&[("proxy-protocol", "80")]), InvalidConfiguration, "proxy-protocol"),
        (
            service(&[("ssl-cert", "!"), ("backend-protocol", "udp")]),
            InvalidConfiguration,
            "backend-protocol",
        ),
        (service(&[("healthcheck-interval", "4")]), InvalidConfiguration, "healthcheck-interval"),
        (service(&[("healthcheck-protocol", "icmp")]), InvalidConfiguration, "healthcheck-protocol"),
        (service(&[("connection-idle-timeout", "long")]), InvalidConfiguration, "connection-idle-timeout"),
    ] {
        let error = wanted_with("", &service).unwrap_err();
        assert_eq!(error.reason(), reason, "{field}: {error}");
        assert!(error.fields().iter().any(|(path, _)| path.contains(field)), "{error:?}");
    }
}
