use std::collections::HashMap;

use cloudprovider_sdk::proto::{ErrorReason, NodeRef, ServiceRef};

use super::*;
use crate::balancers::service::has_labels;
use crate::cloud::Cluster;

fn service(annotations: &[(&str, &str)], ports: &[(Protocol, i32, i32)]) -> Service {
    let annotations: HashMap<_, _> = annotations
        .iter()
        .map(|(key, value)| (format!("service.beta.kubernetes.io/{key}"), (*value).to_owned()))
        .collect();
    let port = |(protocol, port, node_port): &(Protocol, i32, i32)| ServicePort {
        name: format!("p{port}"),
        protocol: (*protocol).into(),
        port: *port,
        node_port: *node_port,
        ..ServicePort::default()
    };
    Service {
        r#ref: Some(ServiceRef {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "u-1".to_owned(),
        }),
        annotations,
        ports: ports.iter().map(port).collect(),
        ip_families: vec![IpFamily::Ipv4.into()],
        ..Service::default()
    }
}

fn wanted(service: &Service) -> Result<Wanted> {
    let config = crate::config::Config::read("[Global]\nKubernetesClusterID = c").unwrap();
    let defaults = Defaults {
        cluster: Cluster::of_config(&config).unwrap(),
        health: config.health.clone(),
        security_groups: false,
        shared_group: String::new(),
    };
    Wanted::of(service, &ClusterRef { uid: "k".to_owned(), name: String::new() }, &defaults)
}

const NLB: (&str, &str) = ("aws-load-balancer-type", "nlb");
const CERTIFICATE: (&str, &str) = ("aws-load-balancer-ssl-cert", "arn:c");
const HTTP: (Protocol, i32, i32) = (Protocol::Tcp, 80, 30080);

fn shape(annotations: &[(&str, &str)], ports: &[(Protocol, i32, i32)]) -> Vec<String> {
    let wanted = wanted(&service(&[&[NLB], annotations].concat(), ports)).unwrap();
    let of = |one: &Listener| {
        let (group, health) = (&one.group, &one.group.health);
        let (protocol, to, check) =
            (one.protocol.as_str(), group.protocol.as_str(), health.protocol.as_str());
        format!(
            "{}/{protocol} {}/{to} {check}:{}{} {}s",
            one.port, group.port, health.port, health.path, health.interval
        )
    };
    wanted.listeners.iter().map(of).collect()
}

#[test]
fn a_service_gets_the_kind_that_its_annotation_names_or_the_default() {
    let kind = |annotations: &[(&str, &str)], network_by_default| {
        let service = service(annotations, &[HTTP]);
        format!("{:?}", Annotations::of(&service).kind(network_by_default))
    };
    for (annotation, classic_default, network_default) in [
        (None, "Classic", "Network"),
        (Some(""), "Classic", "Network"),
        (Some("nlb"), "Network", "Network"),
        (Some("other"), "Classic", "Classic"),
        (Some("external"), "Elsewhere", "Elsewhere"),
        (Some("nlb-ip"), "Elsewhere", "Elsewhere"),
    ] {
        let annotations: Vec<_> =
            annotation.map(|kind| ("aws-load-balancer-type", kind)).into_iter().collect();
        assert!(kind(&annotations, false).starts_with(classic_default), "{annotation:?}");
        assert!(kind(&annotations, true).starts_with(network_default), "{annotation:?}");
    }
}

#[test]
fn ports_become_listeners() {
    assert_eq!(shape(&[], &[HTTP]), ["80/TCP 30080/TCP TCP:traffic-port 30s"]);
    let both = [(Protocol::Tcp, 53, 30053), (Protocol::Udp, 53, 30053), (Protocol::Udp, 54, 30054)];
    assert_eq!(
        shape(&[], &both),
        ["53/TCP_UDP 30053/TCP_UDP TCP:traffic-port 30s", "54/UDP 30054/UDP TCP:traffic-port 30s"]
    );
    let secure = [HTTP, (Protocol::Tcp, 443, 30443)];
    let certificate = ("aws-load-balancer-ssl-cert", "arn:c");
    let (some, speaks) =
        (("aws-load-balancer-ssl-ports", "p443"), ("aws-load-balancer-backend-protocol", "ssl"));
    assert_eq!(
        shape(&[certificate, some], &secure),
        ["80/TCP 30080/TCP TCP:traffic-port 30s", "443/TLS 30443/TCP TCP:traffic-port 30s"]
    );
    assert_eq!(shape(&[certificate, speaks], &[HTTP]), ["80/TLS 30080/TLS TCP:traffic-port 30s"]);
    let checks = [
        ("aws-load-balancer-healthcheck-protocol", "http"),
        ("aws-load-balancer-healthcheck-port", "8080"),
        ("aws-load-balancer-healthcheck-interval", "10"),
    ];
    assert_eq!(shape(&checks, &[HTTP]), ["80/TCP 30080/TCP HTTP:8080/ 10s"]);
}

#[test]
fn what_aws_cannot_do_is_refused_and_named() {
    let both = [(Protocol::Tcp, 53, 30053), (Protocol::Udp, 53, 30054)];
    let quic = [(Protocol::Udp, 443, 30443), (Protocol::Tcp, 443, 30443)];
    let affinity = |mut service: Service| {
        service.client_ip_affinity = Some(Default::default());
        service
    };
    let with = |annotation: (&str, &str)| service(&[NLB, annotation], &[HTTP]);
    let families = |mut service: Service, of: &[IpFamily], policy: IpFamilyPolicy| {
        service.ip_families = of.iter().map(|one| (*one).into()).collect();
        service.ip_family_policy = policy.into();
        service
    };
    let dual = [IpFamily::Ipv4, IpFamily::Ipv6];
    let (plain, udp) = (service(&[NLB], &[HTTP]), service(&[NLB], &[(Protocol::Udp, 53, 30053)]));
    let of_v6 = Service { source_ranges: vec!["2001:db8::/32".to_owned()], ..plain.clone() };
    use ErrorReason::{InvalidConfiguration, UnsupportedFeature};
    for (service, reason, field) in [
        (service(&[NLB], &[]), InvalidConfiguration, "spec.ports"),
        (
            service(&[NLB], &[(Protocol::Tcp, 80, 0)]),
            UnsupportedFeature,
            "spec.allocateLoadBalancerNodePorts",
        ),
        (service(&[NLB], &[(Protocol::Sctp, 80, 30080)]), UnsupportedFeature, "spec.ports[0].protocol"),
        (service(&[NLB], &both), UnsupportedFeature, "spec.ports[1].nodePort"),
        // In either order: without the certificate, clients would talk in the clear.
        (service(&[NLB, CERTIFICATE], &quic), UnsupportedFeature, "spec.ports[1].nodePort"),
        (service(&[NLB, CERTIFICATE], &[quic[1], quic[0]]), UnsupportedFeature, "spec.ports[1].nodePort"),
        (
            Service { load_balancer_ip: "192.0.2.1".to_owned(), ..plain.clone() },
            InvalidConfiguration,
            "spec.loadBalancerIP",
        ),
        (of_v6, UnsupportedFeature, "spec.loadBalancerSourceRanges"),
        (affinity(with(CERTIFICATE)), UnsupportedFeature, "spec.sessionAffinity"),
        (
            families(plain, &[IpFamily::Ipv6], IpFamilyPolicy::SingleStack),
            UnsupportedFeature,
            "spec.ipFamilies",
        ),
        (families(udp, &dual, IpFamilyPolicy::RequireDualStack), UnsupportedFeature, "spec.ipFamilyPolicy"),
        (
            with(("aws-load-balancer-healthcheck-interval", "ten")),
            InvalidConfiguration,
            "healthcheck-interval",
        ),
        (with(("aws-load-balancer-healthcheck-port", "http")), InvalidConfiguration, "healthcheck-port"),
        (
            with(("aws-load-balancer-healthcheck-protocol", "icmp")),
            InvalidConfiguration,
            "healthcheck-protocol",
        ),
        (with(("aws-load-balancer-access-log-enabled", "yes")), InvalidConfiguration, "access-log-enabled"),
        (
            with(("aws-load-balancer-target-group-attributes", "x=1")),
            InvalidConfiguration,
            "target-group-attributes",
        ),
        (
            with(("aws-load-balancer-additional-resource-tags", "team=shop,cloudprovider.ccm/applied=x")),
            InvalidConfiguration,
            "additional-resource-tags",
        ),
        (
            with(("aws-load-balancer-extra-security-groups", "sg-1")),
            InvalidConfiguration,
            "extra-security-groups",
        ),
    ] {
        let error = wanted(&service).unwrap_err();
        assert_eq!(error.reason(), reason, "{field}: {error}");
        assert!(error.fields().iter().any(|(path, _)| path.contains(field)), "{error:?}");
    }
}

#[test]
fn both_families_are_served_where_nodes_need_not_know_their_clients() {
    let of = |ranges: &[&str], protocol| {
        let mut service = service(&[NLB], &[(protocol, 80, 30080)]);
        service.ip_families = vec![IpFamily::Ipv6.into(), IpFamily::Ipv4.into()];
        service.ip_family_policy = IpFamilyPolicy::PreferDualStack.into();
        service.source_ranges = ranges.iter().map(|one| (*one).to_owned()).collect();
        wanted(&service).unwrap().families
    };
    assert_eq!(of(&[], Protocol::Tcp), Families::DualIfPossible);
    assert_eq!(of(&["192.0.2.0/24"], Protocol::Tcp), Families::V4);
    assert_eq!(of(&[], Protocol::Udp), Families::V4);
}

#[test]
fn whoever_restricts_clients_has_them_told_apart() {
    let of = |attributes: &str, ranges: &[&str]| {
        let mut service = service(&[NLB, ("aws-load-balancer-target-group-attributes", attributes)], &[HTTP]);
        service.source_ranges = ranges.iter().map(|one| (*one).to_owned()).collect();
        let wanted = wanted(&service).unwrap();
        (wanted.group_attributes.get(PRESERVE).cloned(), wanted.hides_clients())
    };
    let (hidden, some) = ("preserve_client_ip.enabled=false", &["192.0.2.0/24"][..]);
    assert_eq!(of("", &[]), (None, false), "as AWS has it");
    assert_eq!(of("", some), (Some("true".to_owned()), false), "whatever a former annotation said");
    assert_eq!(of(hidden, &[]), (Some("false".to_owned()), false));
    assert_eq!(of(hidden, some), (Some("false".to_owned()), true));
}

#[test]
fn nodes_are_selected_by_labels() {
    let selecting = service(&[NLB, ("aws-load-balancer-target-node-labels", "pool=web,fast")], &[HTTP]);
    let labels = node_labels(&selecting);
    let node = |pairs: &[(&str, &str)]| {
        let labels = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeRef { labels, ..NodeRef::default() }
    };
    assert!(has_labels(&node(&[("pool", "web"), ("fast", "yes")]), &labels));
    assert!(!has_labels(&node(&[("pool", "web")]), &labels));
    assert!(!has_labels(&node(&[("pool", "db"), ("fast", "")]), &labels));
}
