//! Network balancers in trouble: what AWS does not do or does not know, and what others do at the same time.

use std::time::Duration;

use cloudprovider_proto::v1alpha1::{LoadBalancerState, Protocol, Service};
use tonic::Status;

use crate::aws::{Aws, Instance};
use crate::balancers::{
    LEGACY, MANAGED, SERVE, ensure, get, left, nodes, service, try_delete, try_ensure, update,
};

/// The number tells its name, and not its node port.
fn web(number: usize, node_port: i32) -> Service {
    service(number, &[], &[(Protocol::Tcp, 80, node_port)])
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
