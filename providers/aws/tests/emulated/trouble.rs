//! Network balancers in trouble: what AWS does not do or does not know, and what others do at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use cloudprovider_proto::v1alpha1::{
    BackendSet, BatchUpdateLoadBalancersRequest, ErrorReason, Fencing, LoadBalancerState, LoadBalancerUpdate,
    Protocol, Service, TrafficPolicy, UpdateOutcome,
};
use tonic::Status;

use crate::aws::{Aws, Instance, Provider, cluster};
use crate::balancers::{
    LEGACY, MANAGED, SERVE, SHARED, ensure, get, in_two_groups, is_throttled, left, nodes, service,
    try_delete, try_ensure, try_update, update,
};

/// The number tells its name, and not its node port.
fn web(number: usize, node_port: i32) -> Service {
    service(number, &[], &[(Protocol::Tcp, 80, node_port)])
}

/// The same, whose nodes are checked on a port of their own.
fn checked_elsewhere(service: &Service) -> Service {
    Service {
        external_traffic_policy: TrafficPolicy::Local.into(),
        health_check_node_port: 32000,
        ..service.clone()
    }
}

/// Whether the nodes let clients of this balancer in, and nobody else's, on this port.
fn is_open(lines: &[String], name: &str, port: i32) -> bool {
    let to_port = |line: &&String| line.starts_with("rule of nodes:") && line.contains(&port.to_string());
    let rules: Vec<_> = lines.iter().filter(to_port).collect();
    matches!(rules[..], [rule] if rule.ends_with(&format!("/nlb/client={name}")))
}

fn says(status: &Status, words: &str) {
    assert!(status.message().contains(words), "{status}");
}

/// Asks until there is an answer.
async fn until<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..300 {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("it never came");
}

/// One that waits for AWS is told so; one that AWS gave up, or that somebody deleted meanwhile, is not waited for.
#[tokio::test]
async fn a_balancer_that_never_serves_is_not_waited_for() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    let service = web(1, 30080);
    aws.tell::<serde_json::Value>("serving provisioning").await;
    let begun = try_ensure(&native, &service, &nodes, "one", LEGACY).await.unwrap();
    assert_eq!(begun.in_progress.unwrap().reason, "PROVISIONING");
    aws.tell::<serde_json::Value>("serving failed").await;
    // What was read of all new balancers at once is good for a while.
    let failed = until(async || try_ensure(&native, &service, &nodes, "one", LEGACY).await.err()).await;
    says(&failed, "the emulator was told so; delete the Service and make it again");
    let told = get(&native, &service).await;
    assert!(told.ingress.is_empty() && told.state() == LoadBalancerState::Pending, "{told:?}");

    aws.tell::<serde_json::Value>("serving provisioning").await;
    let native = aws.native(&SERVE).await;
    let begun = try_ensure(&native, &service, &nodes, "two", LEGACY).await.unwrap();
    let name = begun.load_balancer.unwrap().name;
    aws.tell::<serde_json::Value>(&format!("unmake {name}")).await;
    aws.tell::<serde_json::Value>("serving active").await;
    let again = until(async || {
        let again = try_ensure(&native, &service, &nodes, "two", LEGACY).await.unwrap();
        again.load_balancer.filter(|_| again.in_progress.is_none())
    })
    .await;
    assert_eq!(again.state(), LoadBalancerState::Active, "it is made again");
}

/// Two edits in one apply, the second of which the host sends first.
#[tokio::test]
async fn a_node_port_that_changes_hands_stays_open() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    let one = ensure(&native, &web(1, 30080), &nodes, "one").await.name;
    let two = ensure(&native, &web(2, 30080), &nodes, "one").await.name;
    ensure(&native, &web(1, 30081), &nodes, "two").await;
    let lines = left(&mut aws).await;
    assert!(is_open(&lines, &one, 30081) && is_open(&lines, &two, 30080), "{lines:?}");
    assert!(try_delete(&native, &web(1, 30081), LEGACY).await.unwrap());
    let lines = left(&mut aws).await;
    assert!(is_open(&lines, &two, 30080), "{lines:?}");
    assert!(try_delete(&native, &web(2, 30080), LEGACY).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_keeps_a_deletion_is_told_with_its_remedy() {
    let mut aws = Aws::start().await;
    aws.configure(MANAGED);
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    let service = web(1, 30080);
    ensure(&native, &service, &nodes, "one").await;
    let protected = r#"rules {"action":"elasticloadbalancing:DeleteLoadBalancer","code":"OperationNotPermitted","message":"deletion protection is enabled"}"#;
    aws.tell::<serde_json::Value>(protected).await;
    let kept = try_delete(&native, &service, LEGACY).await.unwrap_err();
    says(&kept, "deletion protection is enabled; switch off its deletion protection");
    // What was deleted just now is still listed, and its tags are not known any more.
    let gone =
        r#"rules {"action":"elasticloadbalancing:DescribeTags","code":"LoadBalancerNotFound","times":1}"#;
    aws.tell::<serde_json::Value>(gone).await;
    while !try_delete(&native, &service, LEGACY).await.unwrap() {}
    let lines = left(&mut aws).await;
    assert!(!lines.iter().any(|line| line.contains("/nlb/") || line.starts_with("group")), "{lines:?}");
}

/// A balancer that gets another group leaves its own behind, which AWS keeps for as long as a rule names it.
#[tokio::test]
async fn a_rule_that_keeps_a_former_group_is_named() {
    let of = |annotations: &[(&str, &str)]| {
        let network = service(1, annotations, &[(Protocol::Tcp, 80, 30080)]);
        [network, crate::classic::classic(1, annotations, &[(80, 30080)])]
    };
    for kind in [0, 1] {
        let mut aws = Aws::start().await;
        aws.configure(MANAGED);
        aws.configure("DisableSecurityGroupIngress");
        let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
        let given: String = aws.tell("security-group given").await;
        let native = aws.native(&SERVE).await;
        ensure(&native, &of(&[])[kind], &nodes, "one").await;
        let balancers: Vec<serde_json::Value> = aws.tell("balancers").await;
        let own = balancers[0]["groups"][0].as_str().unwrap().to_owned();
        aws.tell::<serde_json::Value>(&format!("let-in {own}")).await;
        let edited = &of(&[("aws-load-balancer-security-groups", &given)])[kind];
        let kept = try_ensure(&native, edited, &nodes, "two", LEGACY).await.unwrap_err();
        says(&kept, &format!("AWS keeps security group {own}"));
        says(&kept, &format!("[{:?}] name it: remove these rules", aws.security_group));
    }
}

/// A group of targets has room for so many. The others serve.
#[tokio::test]
async fn who_finds_no_room_keeps_nobody_else_out() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let native = aws.native(&SERVE).await;
    let service = service(1, &[], &[(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 81, 30081)]);
    ensure(&native, &service, &nodes(&instances[..1]), "one").await;
    let full = r#"rules {"action":"elasticloadbalancing:RegisterTargets","code":"TooManyTargets"}"#;
    aws.tell::<serde_json::Value>(full).await;
    let refused = try_update(&native, std::slice::from_ref(&service), &nodes(&instances[1..]), "other").await;
    let error = refused.unwrap().remove(0).error.unwrap();
    assert_eq!(error.reason(), ErrorReason::QuotaExceeded, "{error:?}");
    let lines = left(&mut aws).await;
    assert!(
        !lines.iter().any(|line| line.contains(&instances[0].id)),
        "nobody is sent to who has gone: {lines:?}"
    );
}

#[tokio::test]
async fn a_group_takes_as_many_targets_as_it_has_room_for() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 4").await;
    let native = aws.native(&SERVE).await;
    let full = r#"rules {"action":"elasticloadbalancing:RegisterTargets","code":"TooManyTargets","times":1}"#;
    aws.tell::<serde_json::Value>(full).await;
    let refused = try_ensure(&native, &web(1, 30080), &nodes(&instances), "all", LEGACY).await.unwrap_err();
    says(&refused, "TooManyTargets");
    let lines = left(&mut aws).await;
    let targets = lines.iter().find_map(|line| line.split_once(" used by 1: ")).unwrap().1;
    assert_eq!(targets.split(' ').count(), 2, "{lines:?}");
}

/// The new rules come in the place of the old ones, but not before the listener has moved.
#[tokio::test]
async fn the_port_that_serves_stays_open_where_no_other_fits_beside_it() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    // Two rules for each, and one for each of two subnets, of which AWS allows 60.
    let of = |clients: std::ops::Range<u8>, node_port| Service {
        source_ranges: clients.map(|one| format!("192.0.2.{one}/32")).collect(),
        ..web(1, node_port)
    };
    let open = |lines: &[String], port: i32| {
        let rule = format!("rule of nodes: tcp {port}-{port} from ");
        lines.iter().filter(|line| line.starts_with(&rule)).count()
    };
    ensure(&native, &of(0..29, 30080), &nodes, "one").await;
    let refused = r#"rules {"action":"elasticloadbalancing:CreateTargetGroup","code":"TooManyTargetGroups"}"#;
    aws.tell::<serde_json::Value>(refused).await;
    let failed = try_ensure(&native, &of(0..29, 30081), &nodes, "two", LEGACY).await.unwrap_err();
    says(&failed, "TooManyTargetGroups");
    let lines = left(&mut aws).await;
    assert_eq!((open(&lines, 30080), open(&lines, 30081)), (31, 0), "{lines:?}");
    aws.tell::<serde_json::Value>("rules").await;
    let answer = try_ensure(&native, &of(0..29, 30081), &nodes, "two", LEGACY).await.unwrap();
    assert!(answer.in_progress.is_none(), "at once");
    let lines = left(&mut aws).await;
    assert_eq!((open(&lines, 30080), open(&lines, 30081)), (0, 31), "{lines:?}");
    // Whoever is no client any more makes room all the same.
    ensure(&native, &of(29..58, 30082), &nodes, "three").await;
    let lines = left(&mut aws).await;
    assert_eq!((open(&lines, 30081), open(&lines, 30082)), (0, 31), "{lines:?}");
}

/// A port that is gone makes room, though more take its place than go.
#[tokio::test]
async fn what_fits_once_a_port_is_gone_is_opened() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    // Two rules for each, and one for each of two subnets, and two for the other: 58 of the 60 that AWS allows.
    let source_ranges = (0..27).map(|one| format!("192.0.2.{one}/32")).collect();
    ensure(&native, &Service { source_ranges, ..web(1, 30080) }, &nodes, "one").await;
    ensure(&native, &web(2, 30081), &nodes, "one").await;
    let three = [82, 83, 84].map(|port| (Protocol::Tcp, port, 30_000 + port));
    ensure(&native, &service(2, &[], &three), &nodes, "two").await;
    let lines = left(&mut aws).await;
    let open =
        |port: i32| lines.iter().any(|line| line.contains(&format!("tcp {port}-{port} from 0.0.0.0/0")));
    assert_eq!([30081, 30082, 30083, 30084].map(open), [false, true, true, true], "{lines:?}");
}

/// AWS tags twenty at once, and none if one of them is gone.
#[tokio::test]
async fn a_balancer_that_somebody_deleted_keeps_no_other_from_its_tags() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let native = aws.native(&SERVE).await;
    let services = [1, 2, 3].map(|number| web(number, 30_080 + number as i32));
    for service in &services {
        ensure(&native, service, &nodes(&instances[..1]), "class-service-one").await;
    }
    let gone = r#"rules {"action":"elasticloadbalancing:AddTags","code":"LoadBalancerNotFound","times":2}"#;
    aws.tell::<serde_json::Value>(gone).await;
    let results = try_update(&native, &services, &nodes(&instances), "class-service-two").await.unwrap();
    let mut errors: Vec<_> =
        results.iter().map(|one| one.error.as_ref().map(|error| error.reason())).collect();
    errors.sort();
    assert_eq!(errors, [None, None, Some(ErrorReason::NeedsEnsure)], "{results:?}");
}

/// What a call that AWS refuses leaves unchanged is not read again: that would be throttled, too.
#[tokio::test]
async fn whoever_is_throttled_goes_on_with_what_is_known() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 3").await;
    let native = aws.native(&SERVE).await;
    let service = Service { source_ranges: vec!["192.0.2.0/24".to_owned()], ..web(1, 30080) };
    ensure(&native, &service, &nodes(&instances[..1]), "class-service-one").await;
    // Another process knows nothing of it at first.
    let native = aws.native(&SERVE).await;
    let services = std::slice::from_ref(&service);
    let mut read = Vec::new();
    for (action, some) in [
        ("ec2:DescribeSecurityGroups", &instances[..2]),
        ("elasticloadbalancing:RegisterTargets", &instances),
        ("elasticloadbalancing:AddTags", &instances),
        ("elasticloadbalancing:DeregisterTargets", &instances[1..]),
    ] {
        let before: BTreeMap<String, u32> = aws.tell("calls").await;
        aws.tell::<serde_json::Value>(&format!(r#"rules {{"action":"{action}","times":1}}"#)).await;
        let results = try_update(&native, services, &nodes(some), "class-service-two").await.unwrap();
        let reason = results[0].error.as_ref().map(|error| error.reason());
        assert_eq!(reason, Some(ErrorReason::RateLimited), "{action}: {results:?}");
        let after: BTreeMap<String, u32> = aws.tell("calls").await;
        let made = |name: &str| {
            let of =
                |calls: &BTreeMap<String, u32>| calls.get(&format!("elasticloadbalancing:{name}")).copied();
            of(&after).unwrap_or_default() - of(&before).unwrap_or_default()
        };
        read.push((made("DescribeTargetHealth"), made("DescribeTargetGroupAttributes")));
    }
    assert_eq!(read, [(1, 1), (0, 0), (0, 0), (0, 0)]);
    assert_eq!(update(&native, services, &nodes(&instances[1..]), "class-service-three").await, 1);
    let lines = left(&mut aws).await;
    assert!(!lines.iter().any(|line| line.contains(&instances[0].id)), "{lines:?}");
}

/// Another replica led meanwhile, and its provider changed what this one remembers.
#[tokio::test]
async fn what_is_remembered_ends_with_the_term() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 3").await;
    let (one, other) = (aws.native(&SERVE).await, aws.native(&SERVE).await);
    let service = web(1, 30080);
    let of_term = |epoch: u64| Fencing { scope: "lease".to_owned(), epoch };
    let update_of = async |native: &Provider, epoch: u64, some: &[Instance], digest: &str| {
        native.lead(of_term(epoch)).await;
        let item = LoadBalancerUpdate {
            service: Some(service.clone()),
            desired_digest: digest.to_owned(),
            revision: 0,
        };
        let request = BatchUpdateLoadBalancersRequest {
            cluster: cluster(),
            fencing: Some(of_term(epoch)),
            backends: Some(BackendSet { nodes: nodes(some), ..BackendSet::default() }),
            items: vec![item],
        };
        let results = native.balancers().batch_update_load_balancers(request).await.unwrap();
        assert_eq!(results.into_inner().results[0].outcome(), UpdateOutcome::Updated);
    };
    ensure(&one, &service, &nodes(&instances[..2]), "class-web-12").await;
    update_of(&other, 2, &instances, "class-web-123").await;
    update_of(&one, 3, &instances[..2], "class-web-12").await;
    let lines = left(&mut aws).await;
    assert!(!lines.iter().any(|line| line.contains(&instances[2].id)), "{lines:?}");
    assert_eq!(get(&one, &service).await.applied_digest, "class-web-12");
}

/// AWS refuses all of a call for one rule that is there: here for the one by which nodes hear how large packets may be.
#[tokio::test]
async fn an_answer_about_rules_that_is_lost_keeps_no_other_balancer_waiting() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    let services = [1, 2, 3].map(|number| web(number, 30_080 + number as i32));
    for service in &services {
        ensure(&native, service, &[], "class-service-none").await;
    }
    let lost = r#"rules {"action":"ec2:AuthorizeSecurityGroupIngress","times":1,"lost":true}"#;
    aws.tell::<serde_json::Value>(lost).await;
    let results = try_update(&native, &services, &nodes, "class-service-one").await.unwrap();
    let failed: Vec<_> = results.iter().filter_map(|one| one.error.as_ref()).collect();
    let reasons: Vec<_> = failed.iter().map(|error| error.reason()).collect();
    assert_eq!(reasons, [ErrorReason::CloudApiUnavailable], "{failed:?}");
    assert_eq!(update(&native, &services, &nodes, "class-service-one").await, 3);
    let lines = left(&mut aws).await;
    assert_eq!(lines.iter().filter(|line| line.contains("/nlb/client=")).count(), 3, "{lines:?}");
}

/// Somebody has removed its tags, or could not set them.
#[tokio::test]
async fn a_group_of_a_balancers_own_is_known_by_its_name_alone() {
    let mut aws = Aws::start().await;
    aws.configure(MANAGED);
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    for service in [web(1, 30080), crate::classic::classic(1, &[], &[(80, 30080)])] {
        let native = aws.native(&SERVE).await;
        ensure(&native, &service, &nodes, "one").await;
        let made = left(&mut aws).await;
        let own = made.iter().find_map(|line| line.strip_prefix("security group ")).unwrap().to_owned();
        assert!(try_delete(&native, &service, LEGACY).await.unwrap());
        aws.tell::<String>(&format!("security-group {own}")).await;
        ensure(&native, &service, &nodes, "one").await;
        assert_eq!(left(&mut aws).await, made);
        assert!(try_delete(&native, &service, LEGACY).await.unwrap());
        assert_eq!(left(&mut aws).await, Vec::<String>::new());
        // One that is left of a former attempt, too.
        aws.tell::<String>(&format!("security-group {own}")).await;
        assert!(try_delete(&native, &service, LEGACY).await.unwrap());
        assert_eq!(left(&mut aws).await, Vec::<String>::new());
    }
}

/// A listener has clients for as long as it is there.
#[tokio::test]
async fn a_port_of_a_full_group_stays_open_until_its_listener_has_moved() {
    let of = |ports: &[(Protocol, i32, i32)]| {
        let source_ranges: Vec<_> = (0..29).map(|one| format!("192.0.2.{one}/32")).collect();
        let ports_of_classic: Vec<_> = ports.iter().map(|(_, port, node_port)| (*port, *node_port)).collect();
        let network = Service { source_ranges: source_ranges.clone(), ..service(1, &[], ports) };
        let classic = crate::classic::classic(1, &[], &ports_of_classic);
        [network, Service { source_ranges, ..classic }]
    };
    for (kind, action, code) in [
        (0, "CreateListener", "TooManyListeners"),
        (1, "CreateLoadBalancerListeners", "InvalidConfigurationRequest"),
    ] {
        let mut aws = Aws::start().await;
        aws.configure(MANAGED);
        let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
        let native = aws.native(&SERVE).await;
        ensure(&native, &of(&[(Protocol::Tcp, 80, 30080)])[kind], &nodes, "one").await;
        // Two rules for each client, of which AWS allows 60.
        let open = |lines: &[String], port: i32| {
            let rule = format!(": tcp {port}-{port} from 192.0.2.");
            lines.iter().filter(|line| line.starts_with("rule of k8s-") && line.contains(&rule)).count()
        };
        let edited = &of(&[(Protocol::Tcp, 81, 30080)])[kind];
        let refused = format!(r#"rules {{"action":"elasticloadbalancing:{action}","code":"{code}"}}"#);
        aws.tell::<serde_json::Value>(&refused).await;
        let failed = try_ensure(&native, edited, &nodes, "two", LEGACY).await.unwrap_err();
        says(&failed, "the emulator was told to refuse");
        let lines = left(&mut aws).await;
        assert_eq!((open(&lines, 80), open(&lines, 81)), (29, 0), "{lines:?}");
        aws.tell::<serde_json::Value>("rules").await;
        let answer = try_ensure(&native, edited, &nodes, "two", LEGACY).await.unwrap();
        assert!(answer.in_progress.is_none(), "at once");
        let lines = left(&mut aws).await;
        assert_eq!((open(&lines, 80), open(&lines, 81)), (0, 29), "{lines:?}");
    }
}

/// What has been served by the rule of all balancers goes on by it.
#[tokio::test]
async fn a_balancer_keeps_what_it_has_in_common_until_the_nodes_know_itself() {
    // At last there is room, or first once more there is none and then there is.
    for until in ["", r#""times":1"#] {
        let mut aws = Aws::start().await;
        aws.configure(MANAGED);
        let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
        let service = web(1, 30080);
        ensure(&aws.native(&SHARED).await, &service, &nodes, "one").await;
        let shared = left(&mut aws).await;
        let native = aws.native(&SERVE).await;
        let full =
            r#""action":"ec2:AuthorizeSecurityGroupIngress","code":"RulesPerSecurityGroupLimitExceeded""#;
        aws.tell::<serde_json::Value>(&format!("rules {{{full}}}")).await;
        let failed = try_ensure(&native, &service, &nodes, "two", LEGACY).await.unwrap_err();
        says(&failed, "RulesPerSecurityGroupLimitExceeded");
        assert_eq!(left(&mut aws).await, shared);
        let rules = if until.is_empty() { "rules".to_owned() } else { format!("rules {{{full},{until}}}") };
        aws.tell::<serde_json::Value>(&rules).await;
        ensure(&native, &service, &nodes, "two").await;
        assert!(!left(&mut aws).await.iter().any(|line| line.contains("k8s-balancers")), "{until}");
        assert!(try_delete(&native, &service, LEGACY).await.unwrap());
        assert_eq!(left(&mut aws).await, Vec::<String>::new());
    }
}

/// Its name can be guessed, by whoever may make groups.
#[tokio::test]
async fn what_balancers_have_in_common_has_the_clusters_tag() {
    let mut aws = Aws::start().await;
    aws.configure(MANAGED);
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let service = web(1, 30080);
    let native = aws.native(&SHARED).await;
    ensure(&native, &service, &nodes, "one").await;
    let made = left(&mut aws).await;
    let common = made.iter().find_map(|line| line.strip_prefix("security group k8s-balancers-")).unwrap();
    let common = format!("k8s-balancers-{common}");
    assert!(try_delete(&native, &service, LEGACY).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
    aws.tell::<String>(&format!("security-group {common}")).await;
    let stays = left(&mut aws).await;
    let refused = try_ensure(&native, &service, &nodes, "two", LEGACY).await.unwrap_err();
    says(&refused, &format!("security group {common} has not the cluster's tag"));
    assert!(!left(&mut aws).await.iter().any(|line| line.contains("everything from")));
    let native = aws.native(&SERVE).await;
    ensure(&native, &service, &nodes, "three").await;
    assert!(try_delete(&native, &service, LEGACY).await.unwrap());
    assert_eq!(left(&mut aws).await, stays);
}

/// Clients come in by the groups that it has.
#[tokio::test]
async fn a_balancer_gets_no_group_of_its_own_that_has_no_room_for_its_clients() {
    let mut aws = Aws::start().await;
    aws.configure(MANAGED);
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let given: String = aws.tell("security-group given").await;
    let native = aws.native(&SERVE).await;
    let of = |annotations: &[(&str, &str)]| {
        // Two rules for each, of which AWS allows 60.
        let source_ranges: Vec<_> = (0..31).map(|one| format!("192.0.2.{one}/32")).collect();
        let classic = crate::classic::classic(2, annotations, &[(80, 30081)]);
        let network = service(1, annotations, &[(Protocol::Tcp, 80, 30080)]);
        [network, Service { source_ranges, ..classic }]
    };
    let guards = |lines: &[String]| lines.iter().filter(|line| line.ends_with("] in given")).count();
    for (at, service) in of(&[("aws-load-balancer-security-groups", &given)]).iter().enumerate() {
        ensure(&native, service, &nodes, "one").await;
        if at == 0 {
            let full = r#"rules {"action":"ec2:AuthorizeSecurityGroupIngress","code":"RulesPerSecurityGroupLimitExceeded"}"#;
            aws.tell::<serde_json::Value>(full).await;
        }
        let failed = try_ensure(&native, &of(&[])[at], &nodes, "two", LEGACY).await.unwrap_err();
        says(&failed, "RulesPerSecurityGroupLimitExceeded");
        let lines = left(&mut aws).await;
        assert_eq!(guards(&lines), at + 1, "{lines:?}");
        aws.tell::<serde_json::Value>("rules").await;
    }
    for service in of(&[]) {
        assert!(try_delete(&native, &service, LEGACY).await.unwrap());
    }
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

/// What all have in common goes on to be how the nodes know it.
#[tokio::test]
async fn a_balancer_that_waits_for_room_needs_no_rules_of_its_own_on_the_nodes() {
    let mut aws = Aws::start().await;
    aws.configure(MANAGED);
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let given: String = aws.tell("security-group given").await;
    let native = aws.native(&SHARED).await;
    let of = |annotations: &[(&str, &str)]| service(1, annotations, &[(Protocol::Tcp, 80, 30080)]);
    ensure(&native, &of(&[("aws-load-balancer-security-groups", &given)]), &nodes, "one").await;
    let of_nodes = |lines: Vec<String>| {
        lines.into_iter().filter(|line| line.starts_with("rule of nodes") || line.contains("] in ")).collect()
    };
    let before: Vec<_> = of_nodes(left(&mut aws).await);
    let full = r#"rules {"action":"ec2:AuthorizeSecurityGroupIngress","code":"RulesPerSecurityGroupLimitExceeded","times":1}"#;
    aws.tell::<serde_json::Value>(full).await;
    let failed = try_ensure(&native, &of(&[]), &nodes, "two", LEGACY).await.unwrap_err();
    says(&failed, "RulesPerSecurityGroupLimitExceeded");
    assert_eq!(of_nodes(left(&mut aws).await), before);
    ensure(&native, &of(&[]), &nodes, "two").await;
    assert!(try_delete(&native, &of(&[]), LEGACY).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

/// Of several groups of targets, one call for each: what was left undone is known, and not read again.
#[tokio::test]
async fn whoever_is_throttled_between_two_ports_forgets_neither() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 3").await;
    let native = aws.native(&SERVE).await;
    let service = service(1, &[], &[(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 81, 30081)]);
    ensure(&native, &service, &nodes(&instances), "class-service-all").await;
    let services = std::slice::from_ref(&service);
    let unknown = r#"{"action":"elasticloadbalancing:DeregisterTargets","code":"InvalidTarget","times":1}"#;
    let busy = |skip: u32| {
        format!(r#"{{"action":"elasticloadbalancing:DeregisterTargets","times":1,"skip":{skip}}}"#)
    };
    // Before the first, between the two, and in the middle of one that AWS takes apart.
    for rules in [busy(0), busy(1), format!("{unknown},{}", busy(1))] {
        ensure(&native, &service, &nodes(&instances), "class-service-all").await;
        aws.tell::<serde_json::Value>(&format!("rules {rules}")).await;
        let results = try_update(&native, services, &nodes(&instances[..1]), "class-service-one").await;
        let reason = results.unwrap()[0].error.as_ref().map(|error| error.reason());
        assert_eq!(reason, Some(ErrorReason::RateLimited), "{rules}");
        let before: BTreeMap<String, u32> = aws.tell("calls").await;
        assert_eq!(update(&native, services, &nodes(&instances[..1]), "class-service-one").await, 1);
        let after: BTreeMap<String, u32> = aws.tell("calls").await;
        let health = "elasticloadbalancing:DescribeTargetHealth";
        assert_eq!(after[health] - before[health], 0, "{rules}");
        let lines = left(&mut aws).await;
        let gone = |line: &&String| instances[1..].iter().any(|one| line.contains(&one.id));
        assert!(!lines.iter().any(|line| gone(&line)), "{rules}: {lines:?}");
    }
}

/// Whoever may come no more stays out, although something else of the same edit fails, and nobody takes the half of it for what
/// was applied before.
#[tokio::test]
async fn a_range_that_is_narrowed_is_narrow_whatever_else_fails() {
    let more = [(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 81, 30081)];
    let moved = [(Protocol::Tcp, 80, 30090)];
    let (listeners, groups) =
        (("CreateListener", "TooManyListeners"), ("CreateTargetGroup", "TooManyTargetGroups"));
    for (setting, flags, (action, code), ports) in [
        ("", &SERVE[..], listeners, &more[..]),
        ("", &SERVE, groups, &moved),
        (MANAGED, &SERVE, listeners, &more),
        (MANAGED, &SHARED, listeners, &more),
    ] {
        let mut aws = Aws::start().await;
        aws.configure(setting);
        let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
        let native = aws.native(flags).await;
        ensure(&native, &web(1, 30080), &nodes, "open").await;
        let refused = format!(r#"rules {{"action":"elasticloadbalancing:{action}","code":"{code}"}}"#);
        aws.tell::<serde_json::Value>(&refused).await;
        let edited = Service { source_ranges: vec!["192.0.2.0/24".to_owned()], ..service(1, &[], ports) };
        let failed = try_ensure(&native, &edited, &nodes, "narrow", LEGACY).await.unwrap_err();
        says(&failed, code);
        let lines = left(&mut aws).await;
        let lets = |from: &str| lines.iter().any(|line| line.starts_with("rule of") && line.contains(from));
        assert!(!lets("0.0.0.0/0"), "{setting} {action}: {lines:?}");
        let serves = if flags == SHARED { ": tcp 80-80 from" } else { "30080-30080 from" };
        assert!(lets(&format!("{serves} 192.0.2.0/24")), "what serves goes on: {lines:?}");
        assert_eq!(get(&native, &edited).await.applied_digest, "");
        aws.tell::<serde_json::Value>("rules").await;
        ensure(&native, &edited, &nodes, "narrow").await;
        assert!(try_delete(&native, &edited, LEGACY).await.unwrap());
        assert_eq!(left(&mut aws).await, Vec::<String>::new());
    }
}

/// Nodes would see the balancer's own address, and let everybody in.
#[tokio::test]
async fn clients_that_cannot_be_told_apart_are_kept_out_by_the_balancer_or_not_at_all() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let hidden = ("aws-load-balancer-target-group-attributes", "preserve_client_ip.enabled=false");
    let restricted = Service {
        source_ranges: vec!["192.0.2.0/24".to_owned()],
        external_traffic_policy: TrafficPolicy::Local.into(),
        health_check_node_port: 32000,
        ..service(1, &[hidden], &[(Protocol::Tcp, 80, 30080)])
    };
    let refused =
        try_ensure(&aws.native(&SERVE).await, &restricted, &nodes, "one", LEGACY).await.unwrap_err();
    says(&refused, "serves everybody");
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
    aws.configure(MANAGED);
    ensure(&aws.native(&SERVE).await, &restricted, &nodes, "one").await;
    let lines = left(&mut aws).await;
    let of_nodes: Vec<_> = lines.iter().filter(|line| line.starts_with("rule of nodes: tcp 30080")).collect();
    assert!(!of_nodes.is_empty() && of_nodes.iter().all(|line| line.contains("from 10.")), "{lines:?}");
    // Another process knows nothing of it, and opens the nodes that come.
    let again = aws.native(&SERVE).await;
    assert_eq!(update(&again, std::slice::from_ref(&restricted), &nodes, "two").await, 1);
    assert_eq!(left(&mut aws).await, lines);
}

/// AWS refuses all targets of a call for one that it does not take, although it runs.
#[tokio::test]
async fn an_instance_that_aws_does_not_take_keeps_nobody_out() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 3").await;
    let native = aws.native(&SERVE).await;
    let service = web(1, 30080);
    let refuse = |action: &str, id: &str| {
        format!(
            r#"rules {{"action":"elasticloadbalancing:{action}","code":"InvalidTarget","times":1,"message":"cannot be registered: '{id}'"}}"#
        )
    };
    aws.tell::<serde_json::Value>(&refuse("RegisterTargets", &instances[2].id)).await;
    let answer = try_ensure(&native, &service, &nodes(&instances), "all", LEGACY).await.unwrap();
    assert_eq!(answer.in_progress.unwrap().reason, "WAITING_FOR_INSTANCES");
    let has = |lines: &[String], some: &[&Instance]| {
        let mut ids: Vec<_> = some.iter().map(|one| &*one.id).collect();
        ids.sort_unstable();
        lines.iter().any(|line| line.ends_with(&format!("[{}]", ids.join(" "))))
    };
    let lines = left(&mut aws).await;
    assert!(has(&lines, &[&instances[0], &instances[1]]), "{lines:?}");
    ensure(&native, &service, &nodes(&instances), "all").await;

    // Of those that leave, AWS has forgotten one, and takes out none.
    aws.tell::<serde_json::Value>(&refuse("DeregisterTargets", &instances[2].id)).await;
    let updated = update(&native, std::slice::from_ref(&service), &nodes(&instances[..1]), "one").await;
    assert_eq!(updated, 1);
    let lines = left(&mut aws).await;
    assert!(has(&lines, &[&instances[0], &instances[2]]), "{lines:?}");
}

/// One rule lets the checks of both in.
#[tokio::test]
async fn of_two_that_are_checked_on_one_port_and_go_together_no_rule_stays() {
    let mut aws = Aws::start().await;
    aws.configure("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    let [one, two] = [web(1, 30080), web(2, 30081)];
    for _ in 0..3 {
        ensure(&native, &one, &nodes, "one").await;
        ensure(&native, &two, &nodes, "one").await;
        let gone = tokio::join!(try_delete(&native, &one, LEGACY), try_delete(&native, &two, LEGACY));
        assert!(gone.0.unwrap() && gone.1.unwrap());
        assert_eq!(left(&mut aws).await, Vec::<String>::new());
    }
}

/// One goes while the other is checked elsewhere from now on.
#[tokio::test]
async fn of_two_that_give_up_the_port_of_their_checks_together_no_rule_stays() {
    let mut aws = Aws::start().await;
    aws.configure("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    let [goes, stays] = [web(1, 30080), web(2, 30081)];
    let moved = checked_elsewhere(&stays);
    for _ in 0..3 {
        ensure(&native, &goes, &nodes, "one").await;
        ensure(&native, &stays, &nodes, "one").await;
        let (_, gone) =
            tokio::join!(ensure(&native, &moved, &nodes, "two"), try_delete(&native, &goes, LEGACY));
        assert!(gone.unwrap());
        let lines = left(&mut aws).await;
        assert!(!lines.iter().any(|line| line.contains("10256")), "{lines:?}");
    }
}

/// It has the name of one that has gone, and the group has not the cluster's tag.
#[tokio::test]
async fn a_rule_for_checks_goes_with_the_last_balancer_from_a_group_of_former_nodes_too() {
    let mut aws = Aws::start().await;
    aws.configure("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let instances = in_two_groups(&mut aws).await;
    let native = aws.native(&SERVE).await;
    let [one, two] = [web(1, 30080), web(2, 30081)];
    for service in [&one, &two] {
        ensure(&native, service, &nodes(&instances), "both").await;
    }
    assert!(try_delete(&native, &one, LEGACY).await.unwrap());
    assert_eq!(update(&native, std::slice::from_ref(&two), &nodes(&instances[..1]), "one").await, 1);
    assert!(try_delete(&native, &two, LEGACY).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

/// The set of nodes is what it was before the next call, of whoever goes on.
#[tokio::test]
async fn an_update_that_ended_midway_leaves_nothing_of_nodes_that_are_no_more() {
    let mut aws = Aws::start().await;
    let instances = in_two_groups(&mut aws).await;
    for (service, register) in [
        (web(1, 30080), "RegisterTargets"),
        (crate::classic::classic(2, &[], &[(80, 30081)]), "RegisterInstancesWithLoadBalancer"),
    ] {
        let mut native = aws.native(&SERVE).await;
        ensure(&native, &service, &nodes(&instances[..1]), "class-service-one").await;
        let before = left(&mut aws).await;
        let services = std::slice::from_ref(&service);
        for action in [
            "ec2:AuthorizeSecurityGroupIngress",
            &format!("elasticloadbalancing:{register}"),
            "elasticloadbalancing:AddTags",
        ] {
            for is_killed in [true, false] {
                let fault = format!(r#"rules {{"action":"{action}","times":1,"lost":{is_killed}}}"#);
                aws.tell::<serde_json::Value>(&fault).await;
                assert_eq!(update(&native, services, &nodes(&instances), "class-service-two").await, 0);
                if is_killed {
                    native = aws.native(&SERVE).await;
                }
                let back = update(&native, services, &nodes(&instances[..1]), "class-service-one").await;
                assert_eq!((back, left(&mut aws).await), (1, before.clone()), "{fault}");
            }
        }
    }
}

/// What nobody has opened in this process may be open all the same.
#[tokio::test]
async fn whoever_begins_anew_with_no_nodes_closes_those_that_there_were() {
    let mut aws = Aws::start().await;
    let some = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    for service in [web(1, 30080), crate::classic::classic(2, &[], &[(80, 30081)])] {
        ensure(&aws.native(&SERVE).await, &service, &some, "class-service-one").await;
        assert_eq!(update(&aws.native(&SERVE).await, &[service], &[], "class-service-none").await, 1);
        let lines = left(&mut aws).await;
        assert!(!lines.iter().any(|line| line.starts_with("rule of nodes")), "{lines:?}");
    }
}

/// The other groups and balancers would fare no better.
#[tokio::test]
async fn whoever_is_throttled_about_rules_asks_for_no_other() {
    let mut aws = Aws::start().await;
    let instances = in_two_groups(&mut aws).await;
    let both = nodes(&instances);
    let native = aws.native(&SERVE).await;
    let classic = |number: i32| crate::classic::classic(number as usize, &[], &[(80, 30_080 + number)]);
    for services in [[1, 2, 3].map(|number| web(number as usize, 30_080 + number)), [4, 5, 6].map(classic)] {
        for service in &services {
            ensure(&native, service, &[], "class-service-none").await;
        }
        let asked = async |aws: &mut Aws| {
            let calls: BTreeMap<String, u32> = aws.tell("calls").await;
            calls.get("ec2:AuthorizeSecurityGroupIngress").copied().unwrap_or_default()
        };
        aws.tell::<serde_json::Value>(r#"rules {"action":"ec2:AuthorizeSecurityGroupIngress"}"#).await;
        let before = asked(&mut aws).await;
        let failed = try_ensure(&native, &services[0], &both, "class-service-both", LEGACY).await;
        assert_eq!(failed.unwrap_err().code(), tonic::Code::ResourceExhausted);
        assert_eq!(asked(&mut aws).await - before, 1, "of two groups");
        let results = try_update(&native, &services, &both, "class-service-both").await.unwrap();
        let errors = results.iter().filter_map(|one| one.error.as_ref());
        let reasons: Vec<_> = errors.map(|error| error.reason()).collect();
        assert_eq!(reasons, [ErrorReason::RateLimited; 3]);
        assert_eq!(asked(&mut aws).await - before, 2, "of three balancers");
        aws.tell::<serde_json::Value>("rules").await;
        assert_eq!(update(&native, &services, &both, "class-service-both").await, 3);
    }
}

/// One comes as the last one goes.
#[tokio::test]
async fn what_balancers_have_in_common_outlives_the_last_one_if_another_comes() {
    let mut aws = Aws::start().await;
    aws.configure(MANAGED);
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SHARED).await;
    let [goes, comes] = [web(1, 30080), web(2, 30081)];
    ensure(&native, &goes, &nodes, "one").await;
    is_throttled(&mut aws, &native, &comes, &nodes, "one").await;
    let (_, gone) = tokio::join!(ensure(&native, &comes, &nodes, "one"), try_delete(&native, &goes, LEGACY));
    gone.unwrap();
    let lines = left(&mut aws).await;
    let has = |line: &&String| line.starts_with("balancer ") && line.contains(" k8s-balancers-");
    let rules: Vec<_> = lines.iter().filter(|line| line.starts_with("rule of nodes")).collect();
    assert_eq!(lines.iter().filter(has).count(), 1, "{lines:?}");
    assert!(matches!(rules[..], [rule] if rule.contains("everything from k8s-balancers-")), "{lines:?}");
    for service in [&goes, &comes] {
        while !try_delete(&native, service, LEGACY).await.unwrap() {}
    }
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

/// The other nodes let its checks in before AWS knows that it has any.
#[tokio::test]
async fn checks_of_one_that_comes_get_through_although_the_last_other_one_goes() {
    let mut aws = Aws::start().await;
    aws.configure("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let instances = in_two_groups(&mut aws).await;
    let native = aws.native(&SERVE).await;
    let [goes, comes] = [web(1, 30080), web(2, 30081)];
    ensure(&native, &goes, &nodes(&instances[..1]), "one").await;
    let nodes = nodes(&instances[1..]);
    is_throttled(&mut aws, &native, &comes, &nodes, "other").await;
    let (_, gone) =
        tokio::join!(ensure(&native, &comes, &nodes, "other"), try_delete(&native, &goes, LEGACY));
    assert!(gone.unwrap());
    let lines = left(&mut aws).await;
    assert!(lines.iter().any(|line| line.starts_with("rule of other: tcp 10256-10256")), "{lines:?}");
    assert!(try_delete(&native, &comes, LEGACY).await.unwrap());
    assert_eq!(left(&mut aws).await, Vec::<String>::new());
}

/// The nodes would not let its clients in there.
#[tokio::test]
async fn a_listener_moves_to_no_port_that_could_not_be_opened() {
    let mut aws = Aws::start().await;
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    ensure(&native, &web(1, 30080), &nodes, "one").await;
    let before = left(&mut aws).await;
    let busy = r#"rules {"action":"ec2:AuthorizeSecurityGroupIngress","times":1}"#;
    aws.tell::<serde_json::Value>(busy).await;
    let failed = try_ensure(&native, &web(1, 30081), &nodes, "two", LEGACY).await.unwrap_err();
    assert_eq!((failed.code(), left(&mut aws).await), (tonic::Code::ResourceExhausted, before));
    let name = ensure(&native, &web(1, 30081), &nodes, "two").await.name;
    let lines = left(&mut aws).await;
    assert!(is_open(&lines, &name, 30081), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("30080")), "{lines:?}");
}

/// Where a node's group was not known, it stayed open.
#[tokio::test]
async fn nodes_that_ec2_forgot_for_a_while_are_closed_when_they_go() {
    let mut aws = Aws::start().await;
    let instances = in_two_groups(&mut aws).await;
    let native = aws.native(&SERVE).await;
    let service = web(1, 30080);
    ensure(&native, &service, &nodes(&instances[..1]), "class-service-one").await;
    let before = left(&mut aws).await;
    ensure(&native, &service, &nodes(&instances), "class-service-both").await;
    let both = left(&mut aws).await;
    aws.tell::<serde_json::Value>(&format!("hide {}", instances[1].id)).await;
    for is_ensured in [false, true] {
        let native = aws.native(&SERVE).await;
        let services = std::slice::from_ref(&service);
        if is_ensured {
            ensure(&native, &service, &nodes(&instances), "class-service-both").await;
        } else {
            assert_eq!(update(&native, services, &nodes(&instances), "class-service-again").await, 1);
        }
        assert_eq!(left(&mut aws).await, both);
        assert_eq!(update(&native, services, &nodes(&instances[..1]), "class-service-one").await, 1);
        assert_eq!(left(&mut aws).await, before);
        aws.tell::<serde_json::Value>(&format!("show {}", instances[1].id)).await;
        ensure(&aws.native(&SERVE).await, &service, &nodes(&instances), "class-service-both").await;
        aws.tell::<serde_json::Value>(&format!("hide {}", instances[1].id)).await;
    }
}

/// Its checks get through by a rule that nobody takes along.
#[tokio::test]
async fn whoever_is_checked_as_before_looks_at_rules_once() {
    let mut aws = Aws::start().await;
    aws.configure("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let nodes = nodes(&aws.tell::<Vec<Instance>>("launch us-east-1a 1").await);
    let native = aws.native(&SERVE).await;
    let [one, moves] = [web(1, 30080), web(2, 30081)];
    let moved = checked_elsewhere(&moves);
    // The rule by which both are checked has the name of the one that moves.
    ensure(&native, &moves, &nodes, "one").await;
    ensure(&native, &one, &nodes, "one").await;
    ensure(&native, &moved, &nodes, "two").await;
    for service in [&one, &moved] {
        let before: BTreeMap<String, u32> = aws.tell("calls").await;
        ensure(&native, service, &nodes, "three").await;
        let after: BTreeMap<String, u32> = aws.tell("calls").await;
        let groups = "ec2:DescribeSecurityGroups";
        assert_eq!(after[groups] - before[groups], 1);
    }
    assert!(left(&mut aws).await.iter().any(|line| line.contains("tcp 10256-10256")));
    assert!(try_delete(&native, &one, LEGACY).await.unwrap());
    assert!(!left(&mut aws).await.iter().any(|line| line.contains("10256")));
}
