//! Classic balancers: the same as the published provider's, beside network balancers, and nothing left behind.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider_proto::v1alpha1::{Adoption, LoadBalancerState, Protocol, Service, TrafficPolicy};

use crate::aws::{Aws, Instance};
use crate::balancers::{
    self, CERTIFICATE, LEGACY, POLICY, SERVE, ensure, get, in_two_groups, is_throttled, killed, left, list,
    nodes, of_balancing, taken_over, try_delete, try_ensure, try_update, update,
};

const TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";
const GIVEN: &str = "aws-load-balancer-security-groups";
const EXTRA: &str = "aws-load-balancer-extra-security-groups";

/// Which TCP ports lead to which node ports.
pub(crate) fn classic(number: usize, annotations: &[(&str, &str)], ports: &[(i32, i32)]) -> Service {
    let ports: Vec<_> = ports.iter().map(|(port, node_port)| (Protocol::Tcp, *port, *node_port)).collect();
    let mut service = balancers::service(number, annotations, &ports);
    service.annotations.remove(TYPE);
    service
}

fn web(number: usize) -> Service {
    classic(number, &[], &[(80, 30_000 + number as i32)])
}

/// Classic balancers of every kind.
fn kinds() -> Vec<Service> {
    let checks = [
        ("aws-load-balancer-healthcheck-protocol", "HTTP"),
        ("aws-load-balancer-healthcheck-path", "/ready"),
        ("aws-load-balancer-healthcheck-port", "8080"),
        ("aws-load-balancer-healthcheck-interval", "20"),
        ("aws-load-balancer-healthcheck-timeout", "4"),
        ("aws-load-balancer-healthcheck-healthy-threshold", "3"),
        ("aws-load-balancer-healthcheck-unhealthy-threshold", "4"),
    ];
    let settings = [
        ("aws-load-balancer-cross-zone-load-balancing-enabled", "true"),
        ("aws-load-balancer-connection-draining-enabled", "true"),
        ("aws-load-balancer-connection-draining-timeout", "120"),
        ("aws-load-balancer-connection-idle-timeout", "90"),
        ("aws-load-balancer-access-log-enabled", "true"),
        ("aws-load-balancer-access-log-emit-interval", "5"),
        ("aws-load-balancer-access-log-s3-bucket-name", "logs"),
        ("aws-load-balancer-access-log-s3-bucket-prefix", "web"),
    ];
    let speaks = |protocol| ("aws-load-balancer-backend-protocol", protocol);
    let some = ("aws-load-balancer-ssl-ports", "443");
    let ranges = vec!["192.0.2.0/24".to_owned(), "198.51.100.0/24".to_owned()];
    vec![
        web(1),
        classic(2, &[], &[(80, 30_002), (443, 30_102)]),
        Service {
            external_traffic_policy: TrafficPolicy::Local.into(),
            health_check_node_port: 32_000,
            ..web(3)
        },
        Service { source_ranges: ranges, ..web(4) },
        classic(5, &checks, &[(80, 30_005)]),
        classic(6, &settings, &[(80, 30_006)]),
        classic(7, &[("aws-load-balancer-additional-resource-tags", "team=shop,cost")], &[(80, 30_007)]),
        classic(8, &[("aws-load-balancer-proxy-protocol", "*")], &[(80, 30_008), (81, 30_108)]),
        classic(9, &[("aws-load-balancer-internal", "true")], &[(80, 30_009)]),
        classic(10, &[CERTIFICATE, POLICY, some], &[(80, 30_010), (443, 30_110)]),
        classic(11, &[CERTIFICATE, speaks("http")], &[(443, 30_011)]),
        classic(12, &[speaks("http")], &[(80, 30_012)]),
    ]
}

#[tokio::test]
async fn each_provider_takes_over_classic_balancers_without_changing_them() {
    taken_over("", kinds()).await;
}

#[tokio::test]
async fn whoever_is_killed_at_any_call_leaves_one_classic_balancer_and_then_nothing() {
    let first = classic(1, &[CERTIFICATE], &[(443, 30_001), (80, 30_002)]);
    let proxy = ("aws-load-balancer-proxy-protocol", "*");
    let mut second = classic(1, &[CERTIFICATE, POLICY, proxy], &[(443, 30_003)]);
    second.source_ranges.push("192.0.2.0/24".to_owned());
    killed("", &SERVE, [first, second]).await;
}

/// The lines about the balancer of the Service of this number.
fn about(lines: &[String], number: usize) -> Vec<&str> {
    let begin = format!("classic a{number:08}");
    let of = |line: &String| line.starts_with(&begin);
    lines.iter().filter(|line| of(line)).map(|line| line.split_once(": ").unwrap().1).collect()
}

#[tokio::test]
async fn a_classic_balancer_is_edited_in_place_and_followed() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 3").await;
    let native = aws.native(&SERVE).await;
    let first = classic(1, &[CERTIFICATE], &[(443, 30_001)]);
    let made = ensure(&native, &first, &nodes(&instances[..1]), "class-service-one").await;
    assert_eq!(made.state(), LoadBalancerState::Active);
    assert!(made.ingress[0].hostname.ends_with(".us-east-1.elb.amazonaws.com"), "{made:?}");

    let other = (CERTIFICATE.0, "arn:aws:iam::123456789012:server-certificate/other");
    let mut edited = classic(1, &[other], &[(443, 30_001), (80, 30_002)]);
    let then = aws.tell("calls").await;
    ensure(&native, &edited, &nodes(&instances[..1]), "class-other-one").await;
    let changes = aws.changes_since(&then).await;
    let made_new = |action: &str| changes.get(&format!("elasticloadbalancing:{action}")).copied();
    assert_eq!(made_new("SetLoadBalancerListenerSSLCertificate"), Some(1), "{changes:?}");
    assert_eq!(made_new("DeleteLoadBalancerListeners"), None, "the port is never closed");
    let lines = left(&mut aws).await;
    let of = about(&lines, 1);
    assert!(of.contains(&&*format!("SSL 443 to TCP 30001 {} []", other.1)), "{of:?}");
    assert!(of.contains(&&*format!("SSL 80 to TCP 30002 {} []", other.1)), "{of:?}");

    // Another node port: AWS has one listener for a port.
    edited.ports[0].node_port = 30_003;
    ensure(&native, &edited, &nodes(&instances[..1]), "class-third-one").await;
    assert!(about(&left(&mut aws).await, 1).iter().any(|line| line.starts_with("SSL 443 to TCP 30003 ")));

    let with = |lines: Vec<String>, of: &[Instance]| {
        let mut ids: Vec<_> = of.iter().map(|one| one.id.clone()).collect();
        ids.sort();
        about(&lines, 1)[0..].iter().any(|line| line.ends_with(&format!(" with [{}]", ids.join(" "))))
    };
    assert_eq!(update(&native, &[edited.clone()], &nodes(&instances), "class-third-all").await, 1);
    assert!(with(left(&mut aws).await, &instances), "{:?}", left(&mut aws).await);
    assert_eq!(get(&native, &edited).await.applied_digest, "class-third-all");
    assert_eq!(update(&native, &[edited.clone()], &nodes(&instances[1..]), "class-third-two").await, 1);
    assert!(with(left(&mut aws).await, &instances[1..]));

    assert!(try_delete(&native, &edited, Adoption::Refuse).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
    assert_eq!(get(&native, &edited).await.state(), LoadBalancerState::Absent);
}

#[tokio::test]
async fn a_group_that_a_user_gives_to_two_balancers_stays_open_until_neither_has_it() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let given: String = aws.tell("security-group given").await;
    let extra: String = aws.tell("security-group extra").await;
    let native = aws.native(&SERVE).await;
    let two = [1, 2]
        .map(|number| classic(number, &[(GIVEN, &given), (EXTRA, &extra)], &[(80, 30_000 + number as i32)]));
    let open = |lines: &[String]| {
        let lines = lines.iter().filter_map(|line| line.strip_prefix("rule of nodes: everything from "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for service in &two {
        ensure(&native, service, &nodes, "one").await;
    }
    let lines = left(&mut aws).await;
    assert_eq!(open(&lines), ["given"], "the extra group is for something else");
    let guards =
        |line: &&String| line.ends_with(" in given in extra") || line.ends_with(" in extra in given");
    assert_eq!(lines.iter().filter(guards).count(), 2, "{lines:?}");

    // One gets a group of its own, the other one is served as before; and back.
    ensure(&native, &web(1), &nodes, "two").await;
    let own = web(1).r#ref.unwrap().uid.replace('-', "");
    let own = format!("k8s-elb-a{}", &own[..31]);
    let mut both = vec!["given".to_owned(), own.clone()];
    both.sort();
    assert_eq!(open(&left(&mut aws).await), both);
    ensure(&native, &two[0], &nodes, "three").await;
    let lines = left(&mut aws).await;
    assert_eq!(
        (open(&lines), lines.iter().any(|line| line.contains(&own))),
        (vec!["given".to_owned()], false)
    );

    assert!(try_delete(&native, &two[0], Adoption::Refuse).await.unwrap());
    assert_eq!(open(&left(&mut aws).await), ["given"]);
    assert!(try_delete(&native, &two[1], Adoption::Refuse).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_group_whose_rule_somebody_else_made_keeps_it() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    // As that of a control plane: the nodes let it in before any Service has it.
    let given: String = aws.tell("security-group given").await;
    aws.tell::<serde_json::Value>(&format!("let-in {given}")).await;
    let before = left(&mut aws).await;
    assert_eq!(before, ["rule of nodes: everything from given"]);
    let native = aws.native(&SERVE).await;
    for service in [classic(1, &[(GIVEN, &given)], &[(80, 30_001)]), web(1)] {
        ensure(&native, &service, &nodes, "one").await;
        assert!(left(&mut aws).await.contains(&before[0]));
    }
    ensure(&native, &classic(1, &[(GIVEN, &given)], &[(80, 30_001)]), &nodes, "two").await;
    assert!(try_delete(&native, &web(1), Adoption::Refuse).await.unwrap());
    assert_eq!(left(&mut aws).await, before);
}

#[tokio::test]
async fn the_cloud_config_names_the_group_of_all_classic_balancers() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let shared: String = aws.tell("security-group shared").await;
    ensure(&aws.native(&SERVE).await, &web(1), &nodes, "one").await;
    aws.configure(&format!("ElbSecurityGroup = {shared}"));
    let native = aws.native(&SERVE).await;
    for number in [1, 2] {
        ensure(&native, &web(number), &nodes, "two").await;
    }
    let lines = left(&mut aws).await;
    let rules: Vec<_> = lines.iter().filter(|line| line.starts_with("rule of ")).collect();
    assert_eq!(rules, ["rule of nodes: everything from shared"], "{lines:?}");
    for number in [1, 2] {
        assert!(try_delete(&native, &web(number), Adoption::Refuse).await.unwrap());
    }
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_node_joins_classic_balancers_in_two_calls_for_each() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let native = aws.native(&SERVE).await;
    let services: Vec<_> = (1..=5).map(web).collect();
    for service in &services {
        ensure(&native, service, &nodes(&instances[..1]), "class-service-one").await;
    }
    let before = aws.tell::<BTreeMap<String, u32>>("calls").await;
    assert_eq!(update(&native, &services, &nodes(&instances), "class-service-two").await, 5);
    let after = aws.tell::<BTreeMap<String, u32>>("calls").await;
    let made = |action: &str| after.get(action).unwrap_or(&0) - before.get(action).unwrap_or(&0);
    let all = ["RegisterInstancesWithLoadBalancer", "AddTags", "DescribeLoadBalancers", "DescribeTags"];
    let all = all.map(|action| made(&format!("elasticloadbalancing:{action}")));
    assert_eq!((all, made("ec2:DescribeSecurityGroups")), ([5, 5, 1, 1], 1));
    // As many as there are: what was in the balancers is not asked for again.
    assert_eq!(of_balancing(&after) - of_balancing(&before), 12);
}

#[tokio::test]
async fn both_kinds_are_listed_and_follow_their_nodes_together() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let native = aws.native(&SERVE).await;
    let network =
        |number: usize| balancers::service(number, &[], &[(Protocol::Tcp, 80, 30_000 + number as i32)]);
    let services = [web(1), network(2), web(3), network(4), web(5)];
    for service in &services {
        ensure(&native, service, &nodes(&instances[..1]), "class-service-one").await;
    }
    let by_default = aws.native(&["--load-balancers=network"]).await;
    let named = classic(6, &[("aws-load-balancer-type", "")], &[(80, 30_006)]);
    ensure(&by_default, &named, &nodes(&instances[..1]), "class-service-one").await;
    assert!(left(&mut aws).await.iter().any(|line| line.starts_with("group k8s-shop-web6-")));

    assert_eq!(update(&native, &services, &nodes(&instances), "class-service-two").await, 5);
    for page_size in [1, 2, 100] {
        let all = list(&native, page_size).await;
        let names: BTreeSet<_> = all.keys().map(String::as_str).collect();
        assert_eq!(names, ["web-1", "web-2", "web-3", "web-4", "web-5", "web-6"].into());
        assert_eq!(all.values().filter(|digest| *digest == "class-service-two").count(), 5, "{all:?}");
    }
    let lines = left(&mut aws).await;
    let missing = |line: &&String| {
        line.starts_with("classic ") && line.contains(" with ") || line.starts_with("group k8s")
    };
    assert_eq!(lines.iter().filter(missing).filter(|line| line.contains(&instances[1].id)).count(), 5);
}

#[tokio::test]
async fn a_service_that_names_no_type_keeps_the_balancer_that_it_has() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let (one, both) = (nodes(&instances[..1]), nodes(&instances));
    for (before, now, kind) in [("classic", "network", "classic "), ("network", "classic", "listener ")] {
        let native = aws.native(&[&format!("--load-balancers={before}")]).await;
        ensure(&native, &web(1), &one, "class-one-nodes").await;
        let native = aws.native(&[&format!("--load-balancers={now}")]).await;
        let edited = classic(1, &[], &[(80, 30_001), (443, 30_101)]);
        ensure(&native, &edited, &one, "class-two-nodes").await;
        assert_eq!(update(&native, std::slice::from_ref(&edited), &both, "class-two-others").await, 1);
        let lines = left(&mut aws).await;
        let balancers: Vec<_> = lines.iter().filter(|line| line.starts_with("balancer ")).collect();
        assert!(balancers.len() == 1 && balancers[0].contains("[80 443]"), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with(kind)), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains(&instances[1].id)), "{lines:?}");
        assert!(try_delete(&native, &edited, Adoption::Refuse).await.unwrap());
        assert_eq!(left(&mut aws).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_balancer_that_would_change_its_type_is_refused_stays_and_follows_its_nodes() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let (one, both) = (nodes(&instances[..1]), nodes(&instances));
    let native = aws.native(&SERVE).await;
    let network = balancers::service(1, &[], &[(Protocol::Tcp, 80, 30_001)]);
    let mut named = web(1);
    named.annotations.insert(TYPE.to_owned(), "classic".to_owned());
    for (is, wanted) in [(web(1), network.clone()), (network, named)] {
        ensure(&native, &is, &one, "one").await;
        let before = left(&mut aws).await;
        let refused = try_ensure(&native, &wanted, &one, "two", LEGACY).await.unwrap_err();
        assert!(refused.message().contains("aws-load-balancer-type"), "{refused}");
        assert_eq!(left(&mut aws).await, before);
        // It follows its nodes, also where nobody remembers it.
        let native = aws.native(&SERVE).await;
        assert_eq!(update(&native, std::slice::from_ref(&wanted), &both, "two").await, 1);
        let lines = left(&mut aws).await;
        assert!(lines.iter().any(|line| line.contains(&instances[1].id)), "{lines:?}");
        assert!(try_delete(&native, &wanted, Adoption::Refuse).await.unwrap(), "whatever type it has now");
        assert_eq!(left(&mut aws).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_listener_that_aws_refuses_leaves_every_port_open() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    ensure(&native, &classic(1, &[], &[(80, 30_001), (81, 30_002)]), &nodes, "one").await;
    let before = left(&mut aws).await;
    let edited = classic(1, &[CERTIFICATE], &[(80, 30_001), (81, 30_002)]);
    for _ in 0..2 {
        let missing = r#"rules {"action":"elasticloadbalancing:CreateLoadBalancerListeners","code":"CertificateNotFound","times":1}"#;
        aws.tell::<serde_json::Value>(missing).await;
        let refused = try_ensure(&native, &edited, &nodes, "two", LEGACY).await.unwrap_err();
        assert!(refused.message().contains("aws-load-balancer-ssl-cert"), "{refused}");
        assert_eq!(left(&mut aws).await, before, "as it was");
    }
    ensure(&native, &edited, &nodes, "two").await;
    let lines = left(&mut aws).await;
    assert_eq!(about(&lines, 1).iter().filter(|line| line.starts_with("SSL 8")).count(), 2, "{lines:?}");
}

/// A port that AWS has closed to open it otherwise is opened, however busy AWS is.
#[tokio::test]
async fn a_listener_is_replaced_although_aws_is_busy() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    ensure(&native, &classic(1, &[], &[(80, 30_001)]), &nodes, "one").await;
    for (node_port, how) in [(30_002, r#""times":3"#), (30_003, r#""times":1,"lost":true"#)] {
        let busy = format!(r#"rules {{"action":"elasticloadbalancing:CreateLoadBalancerListeners",{how}}}"#);
        aws.tell::<serde_json::Value>(&busy).await;
        let edited = classic(1, &[], &[(80, node_port)]);
        let answer = try_ensure(&native, &edited, &nodes, "two", LEGACY).await;
        let lines = left(&mut aws).await;
        let open = format!("TCP 80 to TCP {node_port} ");
        assert!(about(&lines, 1).iter().any(|line| line.starts_with(&open)), "{answer:?} {lines:?}");
        answer.unwrap();
    }
}

/// AWS says so in its own words: those of EC2 stand for what was made just now.
#[tokio::test]
async fn a_group_that_does_not_exist_is_named_to_whoever_gave_it() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    let unknown = r#"rules {"action":"ec2:AuthorizeSecurityGroupIngress","code":"InvalidGroup.NotFound"},{"action":"elasticloadbalancing:CreateLoadBalancer","code":"InvalidSecurityGroup"}"#;
    aws.tell::<serde_json::Value>(unknown).await;
    let wrong = classic(1, &[(GIVEN, "sg-00000000000000000")], &[(80, 30_001)]);
    let refused = try_ensure(&native, &wrong, &nodes, "one", LEGACY).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains(GIVEN), "{refused}");
}

/// Whoever starts anew believes the digest, and opens nothing.
#[tokio::test]
async fn what_is_not_open_to_a_balancer_is_not_told_as_applied() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let native = aws.native(&SERVE).await;
    ensure(&native, &web(1), &nodes(&instances[..1]), "class-service-one").await;
    let down =
        r#"rules {"action":"ec2:DescribeSecurityGroups","code":"InternalError","status":500,"times":1}"#;
    aws.tell::<serde_json::Value>(down).await;
    let results = try_update(&native, &[web(1)], &nodes(&instances), "class-service-two").await.unwrap();
    assert!(results[0].error.is_some(), "{results:?}");
    assert!(left(&mut aws).await.iter().any(|line| line.contains(&instances[1].id)), "it gets its nodes");
    assert_eq!(get(&native, &web(1)).await.applied_digest, "class-service-one");
    assert_eq!(update(&native, &[web(1)], &nodes(&instances), "class-service-two").await, 1);
    assert_eq!(get(&native, &web(1)).await.applied_digest, "class-service-two");
}

/// One of the nodes' groups is full: the nodes of the others are reached all the same.
#[tokio::test]
async fn nodes_whose_group_is_full_keep_no_other_nodes_closed() {
    let mut aws = Aws::start().await;
    let instances = in_two_groups(&mut aws).await;
    let native = aws.native(&SERVE).await;
    // The first is that of the balancer's own group.
    let full = r#"rules {"action":"ec2:AuthorizeSecurityGroupIngress","code":"RulesPerSecurityGroupLimitExceeded","skip":1,"times":1}"#;
    aws.tell::<serde_json::Value>(full).await;
    let failed = try_ensure(&native, &web(1), &nodes(&instances), "one", LEGACY).await.unwrap_err();
    assert!(failed.message().contains("RulesPerSecurityGroupLimitExceeded"), "{failed}");
    let open =
        |lines: &[String]| lines.iter().filter(|line| line.contains(": everything from k8s-elb-")).count();
    let lines = left(&mut aws).await;
    assert_eq!(open(&lines), 1, "{lines:?}");
    ensure(&native, &web(1), &nodes(&instances), "one").await;
    assert_eq!(open(&left(&mut aws).await), 2);
}

/// Whom the nodes do not let in yet does not take the place of who gets through.
#[tokio::test]
async fn a_balancer_keeps_its_groups_until_the_nodes_let_the_new_ones_in() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let [former, new]: [String; 2] =
        [aws.tell("security-group former").await, aws.tell("security-group new").await];
    // Which of its groups has the rules is unclear.
    aws.tell::<serde_json::Value>(&format!("put-in {} {former},{new}", instances[1].id)).await;
    let (nodes, both) = (nodes(&instances[..1]), nodes(&instances));
    let native = aws.native(&SERVE).await;
    ensure(&native, &classic(1, &[(GIVEN, &former)], &[(80, 30_001)]), &nodes, "one").await;
    let before = left(&mut aws).await;
    let edited = classic(1, &[(GIVEN, &new)], &[(80, 30_001)]);
    for how in [
        r#""code":"RulesPerSecurityGroupLimitExceeded""#,
        r#""code":"InternalFailure","status":500"#,
        r#""code":"SomethingElse""#,
    ] {
        aws.tell::<serde_json::Value>(&format!(
            r#"rules {{"action":"ec2:AuthorizeSecurityGroupIngress",{how}}}"#
        ))
        .await;
        try_ensure(&native, &edited, &nodes, "two", LEGACY).await.unwrap_err();
        assert_eq!(left(&mut aws).await, before, "{how}");
    }
    aws.tell::<serde_json::Value>("rules").await;
    let failed = try_ensure(&native, &edited, &both, "two", LEGACY).await.unwrap_err();
    assert!(failed.message().contains("has several security groups"), "{failed}");
    let lines = left(&mut aws).await;
    assert!(lines.iter().any(|line| line.ends_with("] in former")), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with("everything from former")), "{lines:?}");
    ensure(&native, &edited, &nodes, "two").await;
    assert!(left(&mut aws).await.iter().any(|line| line.ends_with("] in new")));
}

/// Groups by which nobody is let in change all the same.
#[tokio::test]
async fn extra_groups_change_although_a_group_of_nodes_is_full() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let other: String = aws.tell("security-group other").await;
    let [former, new]: [String; 2] =
        [aws.tell("security-group former").await, aws.tell("security-group new").await];
    let native = aws.native(&SERVE).await;
    let of = |extra: &str| classic(1, &[(EXTRA, extra)], &[(80, 30_001)]);
    aws.tell::<serde_json::Value>(&format!("put-in {} {other}", instances[1].id)).await;
    ensure(&native, &of(&former), &nodes(&instances[..1]), "one").await;
    let full =
        r#"rules {"action":"ec2:AuthorizeSecurityGroupIngress","code":"RulesPerSecurityGroupLimitExceeded"}"#;
    aws.tell::<serde_json::Value>(full).await;
    try_ensure(&native, &of(&new), &nodes(&instances), "two", LEGACY).await.unwrap_err();
    let lines = left(&mut aws).await;
    assert!(lines.iter().any(|line| line.contains(" new") && line.contains("] in k8s-elb-")), "{lines:?}");
}

#[tokio::test]
async fn a_group_of_its_own_that_becomes_an_extra_one_stays() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let given: String = aws.tell("security-group given").await;
    let native = aws.native(&SERVE).await;
    ensure(&native, &web(1), &nodes, "one").await;
    let balancers: Vec<serde_json::Value> = aws.tell("balancers").await;
    let own = balancers[0]["groups"][0].as_str().unwrap().to_owned();
    let edited = classic(1, &[(GIVEN, &given), (EXTRA, &own)], &[(80, 30_001)]);
    ensure(&native, &edited, &nodes, "two").await;
    let lines = left(&mut aws).await;
    assert!(lines.iter().any(|line| line.starts_with("security group k8s-elb-")), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with(": everything from given")), "{lines:?}");
}

/// AWS documents ten tags in one place, and fifty in another.
#[tokio::test]
async fn tags_for_which_there_is_no_room_keep_nothing_else_from_working() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let [former, new]: [String; 2] =
        [aws.tell("security-group former").await, aws.tell("security-group new").await];
    let native = aws.native(&SERVE).await;
    let first = classic(1, &[(GIVEN, &former)], &[(80, 30_001)]);
    ensure(&native, &first, &nodes(&instances[..1]), "one").await;
    // The first tells that a change begins.
    let full = r#"rules {"action":"elasticloadbalancing:AddTags","code":"TooManyTags","skip":1}"#;
    aws.tell::<serde_json::Value>(full).await;
    let tags = ("aws-load-balancer-additional-resource-tags", "a=1");
    let edited = classic(1, &[(GIVEN, &new), tags], &[(80, 30_001), (81, 30_002)]);
    let failed = try_ensure(&native, &edited, &nodes(&instances), "two", LEGACY).await.unwrap_err();
    assert_eq!(failed.code(), tonic::Code::ResourceExhausted, "{failed}");
    assert!(failed.message().contains("aws-load-balancer-additional-resource-tags"), "{failed}");
    let lines = left(&mut aws).await;
    let has = |what: &str| about(&lines, 1).iter().any(|line| line.contains(what));
    assert!(has("TCP 81 to TCP 30002") && has(&instances[1].id), "{lines:?}");
    assert!(!lines.iter().any(|line| line.ends_with("everything from former")), "{lines:?}");
    assert_eq!(get(&native, &edited).await.applied_digest, "");
    aws.tell::<serde_json::Value>("rules").await;
    let then = aws.tell("calls").await;
    ensure(&native, &edited, &nodes(&instances), "two").await;
    let tagged = aws.changes_since(&then).await;
    assert_eq!(
        tagged,
        [("elasticloadbalancing:AddTags".to_owned(), 2)].into(),
        "the user's, and that all is done"
    );
}

#[tokio::test]
async fn of_two_that_give_up_a_group_the_last_one_closes_it() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let given: String = aws.tell("security-group given").await;
    let native = aws.native(&SERVE).await;
    let two = [1, 2].map(|number| classic(number, &[(GIVEN, &given)], &[(80, 30_000 + number as i32)]));
    for service in &two {
        ensure(&native, service, &nodes, "one").await;
    }
    let [one, other] = [1, 2].map(web);
    tokio::join!(ensure(&native, &one, &nodes, "two"), ensure(&native, &other, &nodes, "two"));
    let lines = left(&mut aws).await;
    assert!(!lines.iter().any(|line| line.ends_with("everything from given")), "{lines:?}");
    for service in &two {
        ensure(&native, service, &nodes, "three").await;
    }
    let gone = tokio::join!(
        try_delete(&native, &one, Adoption::Refuse),
        try_delete(&native, &other, Adoption::Refuse)
    );
    assert!(gone.0.unwrap() && gone.1.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

/// One comes as the last one goes.
#[tokio::test]
async fn a_group_that_a_user_gives_to_one_that_comes_outlives_the_last_one_that_had_it() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let given: String = aws.tell("security-group given").await;
    let native = aws.native(&SERVE).await;
    let [goes, comes] =
        [1, 2].map(|number| classic(number, &[(GIVEN, &given)], &[(80, 30_000 + number as i32)]));
    ensure(&native, &goes, &nodes, "one").await;
    is_throttled(&mut aws, &native, &comes, &nodes, "one").await;
    let (_, gone) =
        tokio::join!(ensure(&native, &comes, &nodes, "one"), try_delete(&native, &goes, Adoption::Refuse));
    assert!(gone.unwrap());
    let lines = left(&mut aws).await;
    assert!(lines.iter().any(|line| line.ends_with(": everything from given")), "{lines:?}");
    assert!(try_delete(&native, &comes, Adoption::Refuse).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_group_that_becomes_an_extra_one_is_let_in_no_more() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let given: String = aws.tell("security-group given").await;
    let native = aws.native(&SERVE).await;
    ensure(&native, &classic(1, &[(GIVEN, &given)], &[(80, 30_001)]), &nodes, "one").await;
    let edited = classic(1, &[(EXTRA, &given)], &[(80, 30_001)]);
    ensure(&native, &edited, &nodes, "two").await;
    let lines = left(&mut aws).await;
    let open: Vec<_> = lines.iter().filter(|line| line.starts_with("rule of nodes")).collect();
    assert!(matches!(open[..], [own] if own.contains("from k8s-elb-")), "{lines:?}");
    assert!(try_delete(&native, &edited, Adoption::Refuse).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

#[tokio::test]
async fn clients_are_exchanged_where_there_is_no_room_for_both() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    // Two rules for each, of which AWS allows 60.
    let of = |ranges: std::ops::Range<u8>| Service {
        source_ranges: ranges.map(|one| format!("192.0.2.{one}/32")).collect(),
        ..web(1)
    };
    ensure(&native, &of(0..25), &nodes, "one").await;
    ensure(&native, &of(6..31), &nodes, "two").await;
    let lines = left(&mut aws).await;
    let lets_in = |one: u8| lines.iter().any(|line| line.contains(&format!("192.0.2.{one}/32")));
    assert!((6..31).all(lets_in) && !(0..6).any(lets_in), "{lines:?}");
    // What never fits is named, and the rest goes on.
    let refused = try_ensure(&native, &of(100..140), &nodes, "three", LEGACY).await.unwrap_err();
    assert!(refused.message().contains("RulesPerSecurityGroupLimitExceeded"), "{refused}");
    assert!(
        !left(&mut aws).await.iter().any(|line| line.contains("192.0.2.6/32")),
        "nor who is no client any more"
    );
}

/// The next attempt would not know which it was.
#[tokio::test]
async fn a_former_group_is_closed_before_anything_else_can_fail() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let [former, given] =
        [aws.tell::<String>("security-group former").await, aws.tell("security-group given").await];
    let native = aws.native(&SERVE).await;
    let with = |group: &str| classic(1, &[(GIVEN, group)], &[(80, 30_001)]);
    ensure(&native, &with(&former), &nodes, "one").await;
    // Its own group is looked for, the nodes are opened, and closed to the former one; then somebody is looked for who has closed them.
    let busy = r#"rules {"action":"ec2:DescribeSecurityGroups","times":1,"skip":3}"#;
    aws.tell::<serde_json::Value>(busy).await;
    try_ensure(&native, &with(&given), &nodes, "two", LEGACY).await.unwrap_err();
    ensure(&native, &with(&given), &nodes, "two").await;
    let lines = left(&mut aws).await;
    let rules: Vec<_> = lines.iter().filter(|line| line.starts_with("rule of ")).collect();
    assert_eq!(rules, ["rule of nodes: everything from given"], "{lines:?}");
}

/// Neither a group that another balancer has, nor one that somebody else lets in.
#[tokio::test]
async fn an_update_looks_for_nothing_that_it_would_not_close() {
    let mut aws = Aws::start().await;
    let instances = in_two_groups(&mut aws).await;
    let given: String = aws.tell("security-group given").await;
    let let_in: String = aws.tell("security-group let-in").await;
    aws.tell::<serde_json::Value>(&format!("let-in {let_in}")).await;
    let native = aws.native(&SERVE).await;
    let two = [1, 2].map(|number| classic(number, &[(GIVEN, &given)], &[(80, 30_000 + number as i32)]));
    let alone = [classic(3, &[(GIVEN, &let_in)], &[(80, 30_003)])];
    for (services, stay) in [(&two[..], &instances[..1]), (&alone[..], &[])] {
        for service in services {
            ensure(&native, service, &nodes(&instances[..1]), "class-service-one").await;
        }
        if services.len() == 2 {
            assert_eq!(update(&native, services, &nodes(&instances), "class-service-both").await, 2);
        }
        let before = aws.tell::<BTreeMap<String, u32>>("calls").await;
        update(&native, services, &nodes(stay), "class-service-stay").await;
        let after = aws.tell::<BTreeMap<String, u32>>("calls").await;
        let made = |action: &str| after.get(action).unwrap_or(&0) - before.get(action).unwrap_or(&0);
        let read = ["elasticloadbalancing:DescribeLoadBalancers", "ec2:DescribeSecurityGroups"].map(made);
        assert_eq!(read, [1, 1], "{} of them", services.len());
    }
    // Whoever has it last closes it.
    let open = |lines: &[String]| lines.iter().filter(|line| line.ends_with("everything from given")).count();
    assert_eq!(open(&left(&mut aws).await), 2);
    assert!(try_delete(&native, &two[0], Adoption::Refuse).await.unwrap());
    update(&native, &two[1..], &nodes(&instances[..1]), "class-service-last").await;
    assert_eq!(open(&left(&mut aws).await), 1);
}
