//! Network balancers: the same as the published provider's, in fewer calls, and nothing left behind.

use std::collections::{BTreeMap, HashMap};

use cloudprovider_proto::v1alpha1::{
    Adoption, BackendSet, BatchUpdateLoadBalancersRequest, DeleteLoadBalancerRequest,
    EnsureLoadBalancerRequest, EnsureLoadBalancerResponse, Fencing, GetLoadBalancerRequest, IpFamily,
    ListLoadBalancersRequest, LoadBalancer, LoadBalancerState, LoadBalancerUpdate, LoadBalancerUpdateResult,
    NodeRef, Ownership, Protocol, Service, ServicePort, ServiceRef, TrafficPolicy, UpdateOutcome,
};
use serde_json::{Value, json};
use tonic::Status;

use crate::aws::{Aws, Instance, Provider, cluster};

/// Balancers have security groups.
pub(crate) const MANAGED: &str = "NLBSecurityGroupMode = Managed";
pub(crate) const SERVE: [&str; 1] = ["--load-balancers=classic"];
/// Certificates of IAM are known to the emulator without being made.
pub(crate) const CERTIFICATE: (&str, &str) =
    ("aws-load-balancer-ssl-cert", "arn:aws:iam::123456789012:server-certificate/web");
pub(crate) const POLICY: (&str, &str) =
    ("aws-load-balancer-ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01");
/// The nodes let all balancers in by one rule.
pub(crate) const SHARED: [&str; 2] = ["--load-balancers=classic", "--shared-node-rule"];
pub(crate) const LEGACY: Adoption = Adoption::AdoptByLegacyName;

pub(crate) fn service(
    number: usize,
    annotations: &[(&str, &str)],
    ports: &[(Protocol, i32, i32)],
) -> Service {
    let nlb = [("aws-load-balancer-type", "nlb")];
    let annotations: HashMap<_, _> = nlb
        .iter()
        .chain(annotations)
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
            name: format!("web-{number}"),
            uid: format!("{number:08}-0000-4000-8000-5e7c1a9e0000"),
        }),
        annotations,
        ports: ports.iter().map(port).collect(),
        ip_families: vec![IpFamily::Ipv4.into()],
        ..Service::default()
    }
}

fn web(number: usize) -> Service {
    service(number, &[], &[(Protocol::Tcp, 80, 30_000 + number as i32)])
}

/// Network balancers of every kind that both providers make.
fn kinds() -> Vec<Service> {
    let (tcp, secure) = ((Protocol::Tcp, 80, 30080), (Protocol::Tcp, 443, 30443));
    let local = |service| Service {
        external_traffic_policy: TrafficPolicy::Local.into(),
        health_check_node_port: 32000,
        ..service
    };
    let ranges = |service| Service {
        source_ranges: vec!["192.0.2.0/24".to_owned(), "198.51.100.0/24".to_owned()],
        ..service
    };
    let checks = [
        ("aws-load-balancer-healthcheck-protocol", "HTTP"),
        ("aws-load-balancer-healthcheck-path", "/ready"),
        ("aws-load-balancer-healthcheck-port", "8080"),
        ("aws-load-balancer-healthcheck-interval", "10"),
        ("aws-load-balancer-healthcheck-healthy-threshold", "4"),
        ("aws-load-balancer-healthcheck-unhealthy-threshold", "4"),
    ];
    let attributes = ("aws-load-balancer-target-group-attributes", "proxy_protocol_v2.enabled=true");
    let (some, speaks_tls) =
        (("aws-load-balancer-ssl-ports", "443"), ("aws-load-balancer-backend-protocol", "ssl"));
    vec![
        service(1, &[], &[tcp]),
        service(2, &[], &[(Protocol::Tcp, 80, 30082), secure]),
        service(3, &[], &[(Protocol::Udp, 53, 30053)]),
        local(service(4, &[], &[(Protocol::Tcp, 80, 30084)])),
        ranges(service(5, &[], &[(Protocol::Tcp, 80, 30085)])),
        service(6, &checks, &[(Protocol::Tcp, 80, 30086)]),
        service(
            7,
            &[("aws-load-balancer-cross-zone-load-balancing-enabled", "true")],
            &[(Protocol::Tcp, 80, 30087)],
        ),
        service(
            8,
            &[("aws-load-balancer-additional-resource-tags", "team=shop,cost")],
            &[(Protocol::Tcp, 80, 30088)],
        ),
        service(9, &[attributes], &[(Protocol::Tcp, 80, 30089)]),
        service(10, &[("aws-load-balancer-internal", "true")], &[(Protocol::Tcp, 80, 30090)]),
        ranges(local(service(11, &[], &[(Protocol::Udp, 53, 30091)]))),
        service(12, &[CERTIFICATE, POLICY, some], &[(Protocol::Tcp, 80, 30092), (Protocol::Tcp, 443, 30192)]),
        service(13, &[CERTIFICATE, speaks_tls], &[(Protocol::Tcp, 443, 30093)]),
    ]
}

/// Two instances, the second of which is in another security group.
pub(crate) async fn in_two_groups(aws: &mut Aws) -> Vec<Instance> {
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let other: String = aws.tell("security-group other").await;
    aws.tell::<serde_json::Value>(&format!("put-in {} {other}", instances[1].id)).await;
    instances
}

pub(crate) fn nodes(instances: &[Instance]) -> Vec<NodeRef> {
    instances.iter().map(Instance::node).collect()
}

pub(crate) async fn try_ensure(
    provider: &Provider,
    service: &Service,
    nodes: &[NodeRef],
    digest: &str,
    adoption: Adoption,
) -> Result<EnsureLoadBalancerResponse, Status> {
    let request = EnsureLoadBalancerRequest {
        cluster: cluster(),
        fencing: Some(Fencing::default()),
        service: Some(service.clone()),
        backends: Some(BackendSet { nodes: nodes.to_vec(), ..BackendSet::default() }),
        desired_digest: digest.to_owned(),
        revision: 0,
        adoption: adoption.into(),
    };
    provider.balancers().ensure_load_balancer(request).await.map(tonic::Response::into_inner)
}

/// AWS throttles the creation once: the balancer alone waits for its turn, and nothing is wrong.
pub(crate) async fn is_throttled(
    aws: &mut Aws,
    provider: &Provider,
    service: &Service,
    nodes: &[NodeRef],
    digest: &str,
) {
    let busy = r#"rules {"action":"elasticloadbalancing:CreateLoadBalancer","times":1}"#;
    aws.tell::<serde_json::Value>(busy).await;
    let answer = try_ensure(provider, service, nodes, digest, Adoption::Refuse).await.unwrap();
    assert_eq!(answer.in_progress.unwrap().reason, "PACED");
}

/// Asks until nothing is in progress.
pub(crate) async fn ensure(
    provider: &Provider,
    service: &Service,
    nodes: &[NodeRef],
    digest: &str,
) -> LoadBalancer {
    for _ in 0..20 {
        let answer = try_ensure(provider, service, nodes, digest, LEGACY).await.unwrap();
        if answer.in_progress.is_none() {
            return answer.load_balancer.unwrap();
        }
    }
    panic!("the balancer of {service:?} does not come about");
}

/// Gives all Services these nodes.
pub(crate) async fn try_update(
    provider: &Provider,
    services: &[Service],
    nodes: &[NodeRef],
    digest: &str,
) -> Result<Vec<LoadBalancerUpdateResult>, Status> {
    let item = |service: &Service| LoadBalancerUpdate {
        service: Some(service.clone()),
        desired_digest: digest.to_owned(),
        revision: 0,
    };
    let request = BatchUpdateLoadBalancersRequest {
        cluster: cluster(),
        fencing: Some(Fencing::default()),
        backends: Some(BackendSet { nodes: nodes.to_vec(), ..BackendSet::default() }),
        items: services.iter().map(item).collect(),
    };
    Ok(provider.balancers().batch_update_load_balancers(request).await?.into_inner().results)
}

/// How many of them were updated.
pub(crate) async fn update(
    provider: &Provider,
    services: &[Service],
    nodes: &[NodeRef],
    digest: &str,
) -> usize {
    let results = try_update(provider, services, nodes, digest).await.unwrap();
    results.iter().filter(|one| one.outcome() == UpdateOutcome::Updated).count()
}

pub(crate) async fn try_delete(
    provider: &Provider,
    service: &Service,
    adoption: Adoption,
) -> Result<bool, Status> {
    let request = DeleteLoadBalancerRequest {
        cluster: cluster(),
        fencing: Some(Fencing::default()),
        service: service.r#ref.clone(),
        adoption: adoption.into(),
        ..DeleteLoadBalancerRequest::default()
    };
    let answer = provider.balancers().delete_load_balancer(request).await?;
    Ok(answer.into_inner().in_progress.is_none())
}

pub(crate) async fn get(provider: &Provider, service: &Service) -> LoadBalancer {
    let request = GetLoadBalancerRequest { cluster: cluster(), service: service.r#ref.clone() };
    let answer = provider.balancers().get_load_balancer(request).await.unwrap();
    answer.into_inner().load_balancer.unwrap()
}

/// All of the cluster's balancers, page by page.
pub(crate) async fn list(native: &Provider, page_size: i32) -> BTreeMap<String, String> {
    let (mut all, mut page_token) = (BTreeMap::new(), String::new());
    loop {
        let request = ListLoadBalancersRequest { cluster: cluster(), page_size, page_token };
        let page = native.balancers().list_load_balancers(request).await.unwrap().into_inner();
        assert!(page.load_balancers.len() <= page_size as usize);
        let of = |one: LoadBalancer| (one.service.unwrap().name, one.applied_digest);
        all.extend(page.load_balancers.into_iter().map(of));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

/// Everything that AWS has for Services.
pub(crate) async fn left(aws: &mut Aws) -> Vec<String> {
    aws.tell("left").await
}

#[tokio::test]
async fn a_balancer_is_made_edited_followed_and_deleted_and_nothing_is_left() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 3").await;
    let [first, both] = [&instances[..1], &instances[..2]].map(nodes);
    let native = aws.native(&SERVE).await;
    let mut service = web(1);
    let made = ensure(&native, &service, &first, "class-service-one").await;
    assert_eq!(made.state(), LoadBalancerState::Active);
    assert!(made.ingress[0].hostname.contains(".elb.us-east-1.amazonaws.com"), "{made:?}");
    assert_eq!((made.applied_digest.as_str(), made.ownership()), ("class-service-one", Ownership::ByUid));
    let name = made.name.clone();
    let ids = |instances: &[Instance]| {
        let mut ids: Vec<_> = instances.iter().map(|one| one.id.clone()).collect();
        ids.sort();
        ids.join(" ")
    };
    let expected = |of: &[Instance]| format!("30001/TCP used by 1: [{}]", ids(of));
    assert!(left(&mut aws).await[1].ends_with(&expected(&instances[..1])), "{:?}", left(&mut aws).await);

    assert_eq!(update(&native, &[service.clone()], &both, "class-service-two").await, 1);
    assert!(left(&mut aws).await[1].ends_with(&expected(&instances[..2])));
    assert_eq!(get(&native, &service).await.applied_digest, "class-service-two");

    // Another node port is another group; the old one and its rule go.
    service.ports[0].node_port = 30_002;
    service.ports.push(ServicePort {
        port: 443,
        node_port: 30_443,
        protocol: Protocol::Tcp.into(),
        ..ServicePort::default()
    });
    let edited = ensure(&native, &service, &both, "class-other-two").await;
    assert_eq!(edited.ingress, made.ingress);
    let lines = left(&mut aws).await;
    let has = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!((has("30001"), has("/TCP used by 1"), has("client=")), (0, 2, 2), "{lines:?}");
    assert_eq!(lines[0], format!("balancer {name} [80 443]"));

    assert!(try_delete(&native, &service, Adoption::Refuse).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
    assert_eq!(get(&native, &service).await.state(), LoadBalancerState::Absent);
    assert!(try_delete(&native, &service, Adoption::Refuse).await.unwrap(), "again");
}

#[tokio::test]
async fn each_provider_takes_over_what_the_other_made_without_changing_it() {
    taken_over("", kinds()).await;
}

#[tokio::test]
async fn each_provider_takes_over_security_groups_without_changing_them() {
    // TLS and the protocols that the published one refuses aside, a port is a rule.
    taken_over(MANAGED, kinds().into_iter().take(6).collect()).await;
}

/// What one provider makes, the other finds as it has to be: nothing but tags of ours changes on the way there and back.
pub(crate) async fn taken_over(setting: &str, kinds: Vec<Service>) {
    let kinds = || kinds.clone();
    let mut aws = Aws::start().await;
    aws.configure(setting);
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let nodes = nodes(&instances);
    let published = aws.published().await;
    for service in kinds() {
        ensure(&published, &service, &nodes, "one").await;
    }
    let made = left(&mut aws).await;
    // It writes the path of health checks over HTTP each time.
    let then = aws.tell("calls").await;
    for service in kinds() {
        ensure(&published, &service, &nodes, "one").await;
    }
    let always = aws.changes_since(&then).await;

    let native = aws.native(&SERVE).await;
    for service in kinds() {
        let refused = try_ensure(&native, &service, &nodes, "one", Adoption::Refuse).await.unwrap_err();
        assert!(refused.message().contains("former controller"), "{refused}");
        assert_eq!(get(&native, &service).await.ownership(), Ownership::ByLegacyName);
    }
    let then = aws.tell("calls").await;
    for service in kinds() {
        ensure(&native, &service, &nodes, "one").await;
    }
    let tags = "elasticloadbalancing:AddTags".to_owned();
    let changes = aws.changes_since(&then).await;
    assert_eq!(changes.keys().collect::<Vec<_>>(), [&tags], "{changes:?}");
    assert_eq!(left(&mut aws).await, made);

    let then = aws.tell("calls").await;
    for service in kinds() {
        ensure(&published, &service, &nodes, "one").await;
    }
    assert_eq!(aws.changes_since(&then).await, always, "on the way back");
    assert_eq!(left(&mut aws).await, made);

    // And what ours makes is what the published one would have made.
    for service in kinds() {
        assert!(try_delete(&native, &service, Adoption::Refuse).await.unwrap());
    }
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
    // As many as AWS allows at once, by two processes.
    for services in kinds().chunks(6) {
        let native = aws.native(&SERVE).await;
        for service in services {
            ensure(&native, service, &nodes, "one").await;
        }
    }
    assert_eq!(left(&mut aws).await, made);
    let then = aws.tell("calls").await;
    for service in kinds() {
        ensure(&published, &service, &nodes, "one").await;
    }
    assert_eq!(aws.changes_since(&then).await, always);
}

/// How many of these calls are of Elastic Load Balancing.
pub(crate) fn of_balancing(calls: &BTreeMap<String, u32>) -> u32 {
    let of_balancing = calls.iter().filter(|(action, _)| action.starts_with("elasticloadbalancing:"));
    of_balancing.map(|one| one.1).sum()
}

/// What lets whom in at the nodes.
fn rules_of_nodes(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.strip_prefix("rule of nodes: ")).collect()
}

#[tokio::test]
async fn one_rule_lets_more_balancers_in_than_aws_allows_rules() {
    const COMMON: &str = "everything from k8s-balancers-emulated";
    let mut aws = Aws::start().await;
    aws.configure(MANAGED);
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let (one, both) = (nodes(&instances[..1]), nodes(&instances));
    // AWS allows 60 in a group, and ten new balancers at once.
    let services: Vec<_> = (1..=61).map(web).collect();
    for services in services.chunks(10) {
        let native = aws.native(&SHARED).await;
        for service in services {
            ensure(&native, service, &one, "class-service-one").await;
        }
    }
    let native = aws.native(&SHARED).await;
    let results = try_update(&native, &services, &both, "class-service-two").await.unwrap();
    let failed: Vec<_> = results.iter().filter(|one| one.outcome() != UpdateOutcome::Updated).collect();
    assert!(failed.is_empty(), "{failed:?}");
    let mut edited = web(1);
    edited.source_ranges.push("192.0.2.0/24".to_owned());
    ensure(&native, &edited, &both, "class-other-two").await;
    let lines = left(&mut aws).await;
    assert_eq!(rules_of_nodes(&lines), [COMMON], "{lines:?}");
    let guards =
        |line: &&String| line.starts_with("balancer ") && line.contains(" in k8s-balancers-emulated");
    assert_eq!(lines.iter().filter(guards).count(), services.len());
    let own = |line: &&String| line.starts_with("rule of k8s-shop-web1-") && line.contains("192.0.2.0/24");
    assert!(lines.iter().any(|line| own(&line)), "its own group restricts its clients: {lines:?}");

    for service in &services[1..] {
        assert!(try_delete(&native, service, Adoption::Refuse).await.unwrap());
    }
    assert_eq!(rules_of_nodes(&left(&mut aws).await), [COMMON]);
    // Without the flag the last one gets rules of its own again, before the common one goes.
    let native = aws.native(&SERVE).await;
    ensure(&native, &edited, &both, "class-other-two").await;
    let lines = left(&mut aws).await;
    let clients = |rule: &&str| rule.contains(" from 192.0.2.0/24: kubernetes.io/rule/nlb/client=");
    assert_eq!(rules_of_nodes(&lines).iter().filter(|rule| clients(rule)).count(), 1, "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("k8s-balancers")), "{lines:?}");
    let native = aws.native(&SHARED).await;
    ensure(&native, &edited, &both, "class-other-two").await;
    assert_eq!(rules_of_nodes(&left(&mut aws).await), [COMMON]);
    assert!(try_delete(&native, &edited, Adoption::Refuse).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

#[tokio::test]
async fn another_cloud_config_makes_other_balancers_and_is_told_to_the_host() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let (one, both) = (nodes(&instances[..1]), nodes(&instances));
    let mut classic = web(2);
    classic.annotations.clear();
    let services = [web(1), classic];
    let native = aws.native(&SERVE).await;
    let before = native.wants().await.load_balancer_settings;
    for service in &services {
        ensure(&native, service, &one, "class-service-one").await;
    }
    aws.configure("NodeIPFamilies = ipv4");
    let native = aws.native(&SERVE).await;
    assert_eq!(native.wants().await.load_balancer_settings, before, "it makes no other balancer");
    for setting in [
        "ClusterServiceLoadBalancerHealthProbeMode = Shared",
        "ClusterServiceSharedLoadBalancerHealthProbePort = 10257",
    ] {
        let before = native.wants().await.load_balancer_settings;
        aws.configure(setting);
        let native = aws.native(&SERVE).await;
        let told = native.wants().await.load_balancer_settings;
        assert!(told != before && told.len() <= 64, "{setting}: {told}, {before} before");
    }
    let native = aws.native(&SERVE).await;
    // Until the host ensures them, nodes come and go all the same.
    assert_eq!(update(&native, &services, &both, "class-service-two").await, 2);
    for service in &services {
        ensure(&native, service, &both, "class-other-two").await;
    }
    let lines = left(&mut aws).await;
    assert!(lines.iter().any(|line| line.contains(" checks HTTP:10257/healthz ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains(" tcp 10257-10257 ")), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("10256")), "{lines:?}");
}

#[tokio::test]
async fn whoever_waits_for_a_new_balancer_asks_for_nothing_else() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    aws.tell::<serde_json::Value>("serving provisioning").await;
    for _ in 0..3 {
        let answer = try_ensure(&native, &web(1), &nodes, "class-service-one", Adoption::Refuse).await;
        let answer = answer.unwrap();
        let told = answer.load_balancer.unwrap();
        assert_eq!(answer.in_progress.unwrap().reason, "PROVISIONING");
        assert_eq!((told.state(), told.ingress.len()), (LoadBalancerState::Pending, 1), "{told:?}");
        assert_eq!(told.applied_digest, "class-service-one", "everything is applied that there is to apply");
    }
    // All that were made together are looked at together, once in a while.
    let then: BTreeMap<String, u32> = aws.tell("calls").await;
    for _ in 0..20 {
        let again = try_ensure(&native, &web(1), &nodes, "class-service-one", Adoption::Refuse).await;
        assert!(again.unwrap().in_progress.is_some());
    }
    let now: BTreeMap<String, u32> = aws.tell("calls").await;
    let more: u32 = now.values().sum::<u32>() - then.values().sum::<u32>();
    assert!(more <= 2, "{more} calls, {then:?} before, {now:?} after");
    // A node that comes in the meantime does not wait for that.
    assert_eq!(update(&native, &[web(1)], &[], "class-service-none").await, 1);
    aws.tell::<serde_json::Value>("serving active").await;
    let begun = std::time::Instant::now();
    loop {
        let last = try_ensure(&native, &web(1), &[], "class-service-none", Adoption::Refuse).await.unwrap();
        if last.in_progress.is_none() {
            assert_eq!(last.load_balancer.unwrap().state(), LoadBalancerState::Active);
            return;
        }
        assert!(begun.elapsed().as_secs() < 60, "{last:?}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

/// Elastic addresses or, inside the network, private ones: each in the subnet that stands at its place.
#[tokio::test]
async fn a_balancer_has_the_addresses_that_its_service_names() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let elastic: [String; 2] = [aws.tell("address").await, aws.tell("address").await];
    let [first, second] = ["us-east-1a", "us-east-1b"].map(|zone| aws.subnets[zone].clone());
    let (backwards, private) = (format!("{second},{first}"), ["10.0.0.9".to_owned(), "10.0.64.9".to_owned()]);
    let internal = ("aws-load-balancer-internal", "true");
    let (of_elastic, of_private) =
        ("aws-load-balancer-eip-allocations", "aws-load-balancer-private-ipv4-addresses");
    let web = |annotations: &[(&str, &str)]| service(1, annotations, &[(Protocol::Tcp, 80, 30_001)]);
    let (native, published) = (aws.native(&SERVE).await, aws.published().await);
    for (annotation, what) in [(of_elastic, "1 allocations"), (of_private, "1 addresses")] {
        let one = web(&[internal, (annotation, "one")]);
        let refused = try_ensure(&native, &one, &nodes, "one", Adoption::Refuse).await.unwrap_err();
        assert!(refused.message().contains(&format!("{what} for 2 subnets")), "{refused}");
    }
    let twice = format!("{first}, {first}");
    let twice = web(&[("aws-load-balancer-subnets", &twice)]);
    let refused = try_ensure(&native, &twice, &nodes, "twice", Adoption::Refuse).await.unwrap_err();
    assert!(refused.message().contains("in one zone, us-east-1a"), "{refused}");
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
    let (all_elastic, all_private) = (elastic.join(","), private.join(","));
    let rows = [
        (web(&[(of_elastic, &all_elastic)]), &elastic),
        (web(&[internal, (of_private, &all_private)]), &private),
        // The published one does as EC2 lists them.
        (
            web(&[internal, ("aws-load-balancer-subnets", &backwards), (of_private, "10.0.64.9,10.0.0.9")]),
            &private,
        ),
    ];
    let at = |[in_first, in_second]: &[String; 2]| {
        let mut all = [format!("{first}={in_first}"), format!("{second}={in_second}")];
        all.sort();
        format!(" at [{}]", all.join(" "))
    };
    for (service, addresses) in rows {
        ensure(&native, &service, &nodes, "one").await;
        let made = left(&mut aws).await;
        assert!(made[0].ends_with(&at(addresses)), "{made:?}, not{}", at(addresses));
        let then = aws.tell("calls").await;
        ensure(&published, &service, &nodes, "one").await;
        assert_eq!(aws.changes_since(&then).await, BTreeMap::new());
        assert!(try_delete(&native, &service, Adoption::Refuse).await.unwrap());
        assert_eq!(left(&mut aws).await, Vec::<String>::new());
    }
    // Both pair alike.
    let service = web(&[internal, (of_private, &all_private)]);
    ensure(&published, &service, &nodes, "one").await;
    let made = left(&mut aws).await;
    assert!(made[0].ends_with(&at(&private)), "{made:?}, not{}", at(&private));
    let then = aws.tell("calls").await;
    ensure(&native, &service, &nodes, "one").await;
    assert_eq!(aws.changes_since(&then).await.keys().collect::<Vec<_>>(), ["elasticloadbalancing:AddTags"]);
    assert_eq!(left(&mut aws).await, made);
}

/// Of nodes that have the labels which a Service names, and of those alone.
#[tokio::test]
async fn a_service_selects_its_nodes_by_labels() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let with_label = |at: usize, pool: &str| NodeRef {
        labels: [("pool".to_owned(), pool.to_owned())].into(),
        ..instances[at].node()
    };
    let before = [with_label(0, "web"), with_label(1, "batch")];
    let after = [with_label(0, "batch"), with_label(1, "web")];
    let by = ("aws-load-balancer-target-node-labels", "pool=web");
    let of_network = service(1, &[by], &[(Protocol::Tcp, 80, 30_001)]);
    let of_classic = crate::classic::classic(2, &[by], &[(80, 30_002)]);
    let native = aws.native(&["--load-balancers=classic", "--target-node-labels=pool"]).await;
    let published = aws.published().await;
    for service in [of_network, of_classic] {
        let mut expect = async |at: usize| {
            let all: Vec<Value> = aws.tell("balancers").await;
            assert_eq!(all[0]["instances"], json!([instances[at].id]));
        };
        ensure(&native, &service, &before, "one").await;
        expect(0).await;
        ensure(&published, &service, &before, "one").await;
        expect(0).await;
        let services = [service];
        assert_eq!(update(&native, &services, &after, "two").await, 1);
        expect(1).await;
        assert_eq!(update(&published, &services, &before, "three").await, 1);
        expect(0).await;
        assert!(try_delete(&native, &services[0], LEGACY).await.unwrap());
    }
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_node_joins_many_balancers_and_a_restart_reads_them_in_few_calls() {
    let mut aws = Aws::start().await;
    // A size that nothing was made for.
    let count = 21 + usize::from(std::process::id() as u8) % 9;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 3").await;
    let (two, three) = (nodes(&instances[..2]), nodes(&instances));
    let services: Vec<_> = (1..=count).map(web).collect();
    // AWS allows ten new ones at once, and then one every five seconds; a new process knows of none yet.
    for services in services.chunks(10) {
        let native = aws.native(&SERVE).await;
        for service in services {
            ensure(&native, service, &two, "class-service-two").await;
        }
    }
    let native = aws.native(&SERVE).await;
    assert_eq!(update(&native, &services, &two, "class-service-two").await, count);
    let before = of_balancing(&aws.tell("calls").await);
    assert_eq!(update(&native, &services, &three, "class-service-three").await, count);
    let join = of_balancing(&aws.tell("calls").await) - before;
    // Each registers the node; its tags are told of twenty at once.
    assert!(join as usize <= count + count.div_ceil(20), "{count} balancers took {join} calls");

    drop(native);
    let native = aws.native(&SERVE).await;
    let before = of_balancing(&aws.tell("calls").await);
    let listed = list(&native, 500).await;
    assert_eq!(listed.len(), count);
    assert!(listed.values().all(|digest| digest == "class-service-three"));
    let restart = of_balancing(&aws.tell("calls").await) - before;
    // A page of either kind, and the tags.
    assert!(restart as usize <= 2 + count.div_ceil(20), "{restart} calls");
    // Whoever has no memory yet reads what is there.
    assert_eq!(update(&native, &services, &two, "class-service-two").await, count);
    let lines = left(&mut aws).await;
    assert!(lines.iter().all(|line| !line.contains(&instances[2].id)), "{lines:?}");
}

/// What all of them need is read once for all of them.
#[tokio::test]
async fn a_restart_opens_the_nodes_to_many_balancers_with_one_look_at_rules_and_subnets() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let native = aws.native(&SERVE).await;
    let ranges = vec!["192.0.2.0/24".to_owned()];
    let services: Vec<_> =
        (1..=3).map(|number| Service { source_ranges: ranges.clone(), ..web(number) }).collect();
    for service in &services {
        ensure(&native, service, &nodes(&instances[..1]), "class-service-one").await;
    }
    let native = aws.native(&SERVE).await;
    let before: BTreeMap<String, u32> = aws.tell("calls").await;
    assert_eq!(update(&native, &services, &nodes(&instances), "class-service-two").await, 3);
    let after: BTreeMap<String, u32> = aws.tell("calls").await;
    let made = |action: &str| after[action] - before[action];
    assert_eq!((made("ec2:DescribeSecurityGroups"), made("ec2:DescribeSubnets")), (1, 1));
}

/// Every call that changes something fails once before it has happened, and once after it, and the provider is killed.
#[tokio::test]
async fn whoever_is_killed_at_any_call_leaves_one_balancer_and_then_nothing() {
    killed("", &SERVE, wishes()).await;
}

#[tokio::test]
async fn whoever_is_killed_leaves_nothing_that_balancers_had_in_common() {
    killed(MANAGED, &SHARED, wishes()).await;
}

#[tokio::test]
async fn whoever_is_killed_leaves_no_security_group_either() {
    killed(MANAGED, &SERVE, wishes()).await;
}

/// A Service, and what it is edited to.
fn wishes() -> [Service; 2] {
    let first = service(1, &[], &[(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 443, 30443)]);
    let ranges = vec!["192.0.2.0/24".to_owned()];
    let mut second = Service { source_ranges: ranges, ..first.clone() };
    second.ports[0].node_port = 30081;
    second.ports.truncate(1);
    let cross = "service.beta.kubernetes.io/aws-load-balancer-cross-zone-load-balancing-enabled";
    second.annotations.insert(cross.to_owned(), "true".to_owned());
    [first, second]
}

pub(crate) async fn killed(setting: &str, flags: &[&str], [first, second]: [Service; 2]) {
    let mut aws = Aws::start().await;
    aws.configure(setting);
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let (one, two) = (nodes(&instances[..1]), nodes(&instances));

    let native = aws.native(flags).await;
    let then = aws.tell("calls").await;
    ensure(&native, &first, &one, "one").await;
    let made = left(&mut aws).await;
    let creating = aws.changes_since(&then).await;
    let then = aws.tell("calls").await;
    ensure(&native, &second, &two, "two").await;
    let edited = left(&mut aws).await;
    let editing = aws.changes_since(&then).await;
    let then = aws.tell("calls").await;
    assert!(try_delete(&native, &second, Adoption::Refuse).await.unwrap());
    let deleting = aws.changes_since(&then).await;
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
    drop(native);

    let faults = |calls: &BTreeMap<String, u32>| {
        let each =
            calls.iter().flat_map(|(action, count)| (0..*count).map(move |skip| (action.clone(), skip)));
        let how = [r#""lost":true"#, r#""code":"InternalFailure","status":500"#];
        each.flat_map(move |(action, skip)| {
            how.map(|how| format!(r#"rules {{"action":"{action}","times":1,"skip":{skip},{how}}}"#))
        })
        .collect::<Vec<_>>()
    };
    let mut tried = 0;
    for (step, calls) in [(0, &creating), (1, &editing), (2, &deleting)] {
        for fault in faults(calls) {
            let native = aws.native(flags).await;
            if step > 0 {
                ensure(&native, &first, &one, "one").await;
            }
            aws.tell::<serde_json::Value>(&fault).await;
            let hit = match step {
                0 => try_ensure(&native, &first, &one, "one", Adoption::Refuse).await.is_err(),
                1 => try_ensure(&native, &second, &two, "two", Adoption::Refuse).await.is_err(),
                _ => try_delete(&native, &first, Adoption::Refuse).await.is_err(),
            };
            tried += usize::from(hit);
            drop(native);
            aws.tell::<serde_json::Value>("rules").await;
            let native = aws.native(flags).await;
            if step < 2 {
                let (service, nodes, digest, expected) =
                    if step == 0 { (&first, &one, "one", &made) } else { (&second, &two, "two", &edited) };
                ensure(&native, service, nodes, digest).await;
                assert_eq!(left(&mut aws).await, *expected, "after {fault}");
            }
            while !try_delete(&native, &first, Adoption::Refuse).await.unwrap() {}
            assert_eq!(left(&mut aws).await, Vec::<String>::new(), "after {fault}");
        }
    }
    assert!(tried >= 30, "only {tried} faults were met");
}

#[tokio::test]
async fn instances_that_do_not_run_wait_and_keep_nobody_out() {
    let mut aws = Aws::start().await;
    let [runs, stopped, gone, hidden]: [Instance; 4] =
        aws.tell::<Vec<_>>("launch us-east-1a 4").await.try_into().unwrap();
    let native = aws.native(&SERVE).await;
    let service = web(1);
    for command in
        [format!("stop {}", stopped.id), format!("terminate {}", gone.id), format!("hide {}", hidden.id)]
    {
        aws.tell::<serde_json::Value>(&command).await;
    }
    let created = Some(std::time::SystemTime::now().into());
    let young = NodeRef { creation_time: created, ..hidden.node() };
    let all = [runs.node(), stopped.node(), gone.node(), young];
    let answer = try_ensure(&native, &service, &all, "all", Adoption::Refuse).await.unwrap();
    assert_eq!(answer.in_progress.as_ref().unwrap().reason, "WAITING_FOR_INSTANCES");
    assert!(left(&mut aws).await[1].ends_with(&format!("[{}]", runs.id)));
    let soon = answer.in_progress.as_ref().and_then(|waits| waits.retry_after.as_ref()).unwrap().seconds;
    aws.tell::<serde_json::Value>(&format!("show {}", hidden.id)).await;
    let answer = try_ensure(&native, &service, &all, "all", Adoption::Refuse).await.unwrap();
    let waits = answer.in_progress.unwrap();
    assert_eq!(
        (soon, waits.retry_after.unwrap().seconds),
        (15, 300),
        "somebody may have stopped it for days"
    );
    aws.tell::<serde_json::Value>(&format!("start {}", stopped.id)).await;
    ensure(&native, &service, &all, "all").await;
    let mut ids = [runs.id.clone(), stopped.id.clone(), hidden.id.clone()];
    ids.sort();
    assert!(left(&mut aws).await[1].ends_with(&format!("[{}]", ids.join(" "))), "{:?}", left(&mut aws).await);
    // EC2 forgets all of them for a minute: nobody is taken out, and nothing is closed.
    for one in [&runs, &stopped, &hidden] {
        aws.tell::<serde_json::Value>(&format!("hide {}", one.id)).await;
    }
    let before = left(&mut aws).await;
    let native = aws.native(&SERVE).await;
    ensure(&native, &service, &[runs.node(), stopped.node(), hidden.node()], "fewer").await;
    assert_eq!(left(&mut aws).await, before);
    let all = [runs.node(), stopped.node(), hidden.node()];
    assert_eq!(update(&native, std::slice::from_ref(&service), &all, "again").await, 1);
    assert_eq!(left(&mut aws).await, before);
    // One stops that is a target already: it stays one, and nobody waits for it.
    for one in [&runs, &stopped, &hidden] {
        aws.tell::<serde_json::Value>(&format!("show {}", one.id)).await;
    }
    aws.tell::<serde_json::Value>(&format!("stop {}", stopped.id)).await;
    let native = aws.native(&SERVE).await;
    assert_eq!(update(&native, &[service], &all, "stopped").await, 1);
    assert_eq!(left(&mut aws).await, before);
}

#[tokio::test]
async fn a_full_quota_is_named_and_the_rest_goes_on() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let native = aws.native(&SERVE).await;
    let service = web(1);
    ensure(&native, &service, &nodes(&instances[..1]), "one").await;
    let rule =
        r#"rules {"action":"ec2:AuthorizeSecurityGroupIngress","code":"RulesPerSecurityGroupLimitExceeded"}"#;
    aws.tell::<serde_json::Value>(rule).await;
    let mut edited = service.clone();
    edited.source_ranges = vec!["192.0.2.0/24".to_owned()];
    let refused =
        try_ensure(&native, &edited, &nodes(&instances), "two", Adoption::Refuse).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert!(refused.message().contains("RulesPerSecurityGroupLimitExceeded"), "{refused}");
    assert!(refused.message().contains("--shared-node-rule"), "{refused}");
    let lines = left(&mut aws).await;
    assert!(lines[1].contains(&instances[1].id), "the balancer follows its nodes: {lines:?}");
    let open = lines.iter().filter(|line| line.contains("0.0.0.0/0: kubernetes.io/rule/nlb/client")).count();
    assert_eq!(open, 1, "and its clients still reach it: {lines:?}");
}

#[tokio::test]
async fn a_balancer_of_another_cluster_stays_as_it_is() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 1").await;
    let native = aws.native(&SERVE).await;
    let service = web(1);
    ensure(&native, &service, &nodes(&instances), "one").await;
    let made = left(&mut aws).await;
    let mut other = DeleteLoadBalancerRequest {
        cluster: cluster(),
        fencing: Some(Fencing::default()),
        service: service.r#ref.clone(),
        adoption: LEGACY.into(),
        ..DeleteLoadBalancerRequest::default()
    };
    other.cluster.as_mut().unwrap().uid = "cluster-2".to_owned();
    native.balancers().delete_load_balancer(other).await.unwrap();
    assert_eq!(left(&mut aws).await, made);
}

#[tokio::test]
async fn a_balancer_is_guarded_by_a_group_of_its_own_or_by_given_ones() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let unguarded = web(2);
    ensure(&aws.native(&SERVE).await, &unguarded, &nodes, "one").await;
    let without = left(&mut aws).await;

    aws.configure(MANAGED);
    let native = aws.native(&SERVE).await;
    let then = aws.tell("calls").await;
    ensure(&native, &unguarded, &nodes, "two").await;
    assert_eq!(left(&mut aws).await, without, "AWS gives no group to a balancer that was made without");
    let tags = ("elasticloadbalancing:AddTags".to_owned(), 2);
    assert_eq!(aws.changes_since(&then).await.into_iter().next(), Some(tags), "a change begins, and is done");

    let rules = |lines: &[String]| {
        let own = lines.iter().filter_map(|line| line.strip_prefix("rule of k8s-shop-web1-"));
        own.map(|line| line.split_once(": ").unwrap().1.trim_end_matches(": ").to_owned()).collect::<Vec<_>>()
    };
    let guard = |lines: &[String]| {
        let line = lines.iter().find(|line| line.starts_with("balancer a00000001")).unwrap();
        line.split_once("] in ").map(|(_, groups)| groups.to_owned()).unwrap_or_default()
    };
    let ranged = |ports: &[(Protocol, i32, i32)]| Service {
        source_ranges: vec!["192.0.2.0/24".to_owned()],
        ..service(1, &[], ports)
    };
    let (tcp, udp) = ((Protocol::Tcp, 80, 30_001), (Protocol::Udp, 53, 30_053));
    ensure(&native, &ranged(&[tcp, udp]), &nodes, "one").await;
    let lines = left(&mut aws).await;
    let expected =
        ["icmp 3-4 from 192.0.2.0/24", "tcp 80-80 from 192.0.2.0/24", "udp 53-53 from 192.0.2.0/24"];
    assert_eq!(rules(&lines), expected);
    assert!(guard(&lines).starts_with("k8s-shop-web1-"), "{lines:?}");

    let mut everybody = service(1, &[], &[tcp]);
    everybody.ip_families.push(IpFamily::Ipv6.into());
    ensure(&native, &everybody, &nodes, "two").await;
    let lines = left(&mut aws).await;
    assert_eq!(rules(&lines), ["icmp 3-4 from 0.0.0.0/0", "tcp 80-80 from 0.0.0.0/0", "tcp 80-80 from ::/0"]);

    let given = ("aws-load-balancer-security-groups", &*aws.security_group.clone());
    ensure(&native, &service(1, &[given], &[tcp]), &nodes, "three").await;
    let lines = left(&mut aws).await;
    assert_eq!((rules(&lines).len(), guard(&lines)), (0, "nodes".to_owned()), "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("security group")), "{lines:?}");

    ensure(&native, &service(1, &[], &[tcp]), &nodes, "four").await;
    assert!(guard(&left(&mut aws).await).starts_with("k8s-shop-web1-"));
    // The setting goes: what guards the balancer is edited all the same.
    aws.leave_out(&["NLBSecurityGroupMode"]);
    let native = aws.native(&SERVE).await;
    let more = [tcp, (Protocol::Tcp, 443, 30_443)];
    ensure(&native, &service(1, &[], &more), &nodes, "five").await;
    let lines = left(&mut aws).await;
    assert!(rules(&lines).contains(&"tcp 443-443 from 0.0.0.0/0".to_owned()), "{lines:?}");
    // AWS still uses the group when the balancer has gone: the next look finds it all the same.
    let used = r#"rules {"action":"ec2:DeleteSecurityGroup","code":"DependencyViolation"}"#;
    aws.tell::<serde_json::Value>(used).await;
    assert!(!try_delete(&native, &everybody, Adoption::Refuse).await.unwrap());
    aws.tell::<serde_json::Value>("rules").await;
    for service in [&everybody, &unguarded] {
        assert!(try_delete(&native, service, Adoption::Refuse).await.unwrap());
    }
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}
