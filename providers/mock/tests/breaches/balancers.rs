//! Load balancers.

use std::time::Duration;

use crate::support::*;
use cloudprovider_sdk::proto::*;
use serde_json::json;
use tonic::Code;

#[tokio::test]
async fn balancers_that_are_doubled() {
    let mock = Mock::start(&[]).await;
    mock.breach("ensure-idempotent").await;
    mock.ensure(SERVICE, "d").await.unwrap();
    assert_eq!(mock.balancer_count().await, 1);
    mock.ensure(SERVICE, "d").await.unwrap();
    assert_eq!(mock.balancer_count().await, 2);
    mock.breach("ensure-after-lost-answer").await;
    mock.ensure("lost", "d").await.unwrap_err();
    assert_eq!(mock.balancer_count().await, 3, "the work was done");
    mock.ensure("lost", "d").await.unwrap();
    assert_eq!(mock.balancer_count().await, 4);
}

#[tokio::test]
async fn balancers_that_are_broken() {
    let mock = Mock::start(&[]).await;
    mock.ensure(SERVICE, "d").await.unwrap();
    mock.breach("ensure-keeps-working").await;
    mock.ensure(SERVICE, "d2").await.unwrap_err();
    assert!(mock.admin.balancer("ns/web").await.unwrap().ingress.is_empty());
    mock.breach("mutation-finishes").await;
    let hurried = within(ensure("hurried", "d", 1), Duration::from_millis(100));
    mock.balancers().ensure_load_balancer(hurried).await.unwrap_err();
    let half = async {
        loop {
            if mock.admin.balancer("hurried").await.is_ok_and(|balancer| balancer.ingress.is_empty()) {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, half).await.unwrap();
    mock.breach("mutation-finishes/given-up").await;
    let left = within(ensure("left", "d", 1), Duration::from_millis(100));
    mock.balancers().ensure_load_balancer(left).await.unwrap_err();
    mock.ensure("patient", "d").await.unwrap();
    assert!(mock.admin.balancer("left").await.is_err(), "it was given up");
    assert_eq!(mock.admin.balancer("patient").await.unwrap().ingress.len(), 1);
}

#[tokio::test]
async fn what_is_said_of_balancers() {
    let mock = Mock::start(&[]).await;
    mock.ensure(SERVICE, "d").await.unwrap();
    mock.breach("applied-digest").await;
    assert_eq!(mock.balancer(SERVICE).await.applied_digest, "a-digest-of-something-else");
    mock.breach("applied-digest/missing").await;
    assert_eq!(mock.balancer(SERVICE).await.applied_digest, "");
    mock.admin.patch_conditions(&json!({"provisioning_ms": 3_600_000})).await.unwrap();
    mock.breach("applied-digest/too-early").await;
    let begun = mock.ensure("slow", "half").await.unwrap().load_balancer.unwrap();
    assert_eq!((begun.state(), begun.applied_digest.as_str()), (LoadBalancerState::Pending, "half"));
    mock.breach("get-reads-through").await;
    mock.balancer(SERVICE).await;
    mock.admin.delete_balancer("ns/web").await.unwrap();
    assert_eq!(mock.balancer(SERVICE).await.state(), LoadBalancerState::Active);
    mock.clear().await;
    mock.admin.delete_balancer("slow").await.unwrap();
    mock.admin.patch_conditions(&json!({"provisioning_ms": 0})).await.unwrap();
    mock.ensure(SERVICE, "d").await.unwrap();
    mock.breach("durable-digest").await;
    assert_eq!(mock.balancer(SERVICE).await.applied_digest, "", "applied by who knew of no breach");
    mock.ensure(SERVICE, "d").await.unwrap();
    assert_eq!(mock.balancer(SERVICE).await.applied_digest, "d");
    mock.breach("ingress-valid").await;
    let way = mock.balancer(SERVICE).await.ingress.pop().unwrap();
    assert_eq!((way.ip.as_str(), way.hostname.as_str()), ("", ""));
    mock.breach("ingress-valid/no-ip").await;
    assert_eq!(mock.balancer(SERVICE).await.ingress.pop().unwrap().ip, "300.300.300.300");
    mock.breach("annotation-prefix").await;
    let annotations = mock.ensure(SERVICE, "d").await.unwrap().service.unwrap().annotations;
    assert!(annotations.contains_key("elsewhere.example/owner"));
}

#[tokio::test]
async fn work_that_goes_on() {
    let mock = Mock::start(&["--provisioning-delay", "1h"]).await;
    mock.breach("in-progress-not-error").await;
    assert_eq!(reason(&mock.ensure(SERVICE, "d").await.unwrap_err()), ErrorReason::RetryLater);
    for (breach, wanted) in [
        ("retry-after-positive", Some(0)),
        ("retry-after-positive/negative", Some(-5)),
        ("retry-after-positive/missing", None),
    ] {
        mock.breach(breach).await;
        let progress = mock.ensure(SERVICE, "d").await.unwrap().in_progress.unwrap();
        assert_eq!(progress.retry_after.map(|after| after.seconds), wanted, "{breach}");
    }
}

#[tokio::test]
async fn deletion() {
    let mock = Mock::start(&[]).await;
    mock.breach("delete-absent-ok").await;
    assert_eq!(mock.delete(SERVICE).await.unwrap_err().code(), Code::NotFound);
    mock.clear().await;
    mock.ensure(SERVICE, "d").await.unwrap();
    mock.breach("delete-by-key").await;
    assert_eq!(reason(&mock.delete(SERVICE).await.unwrap_err()), ErrorReason::InvalidArgumentShape);
    mock.breach("delete-by-key/ignored").await;
    mock.delete(SERVICE).await.unwrap();
    assert_eq!(mock.balancer_count().await, 1);
    mock.breach("delete-by-key/after-restart").await;
    mock.delete(SERVICE).await.unwrap();
    assert_eq!(mock.balancer_count().await, 1, "it was made before");
    mock.breach("delete-leaves-nothing").await;
    let held = async || mock.admin.held(CLUSTER).await.unwrap().len();
    assert_eq!(held().await, 2);
    mock.delete(SERVICE).await.unwrap();
    assert_eq!((mock.balancer_count().await, held().await), (0, 1), "the firewall stays");
    mock.breach("delete-not-elsewhere").await;
    assert_eq!(reason(&mock.delete(SERVICE).await.unwrap_err()), ErrorReason::ImplementedElsewhere);
}

#[tokio::test]
async fn balancers_that_are_built_otherwise() {
    let mock = Mock::start(&[]).await;
    let mut whole = ensure(SERVICE, "d", 0);
    let service = whole.service.as_mut().unwrap();
    service.ports.push(ServicePort { port: 53, node_port: 30053, ..service.ports[0].clone() });
    service.ports[1].set_protocol(Protocol::Udp);
    service.source_ranges = vec!["192.0.2.0/24".into()];
    service.ip_families = vec![IpFamily::Ipv6.into()];
    service.set_external_traffic_policy(TrafficPolicy::Local);
    service.health_check_node_port = 32000;
    let mut seen = std::collections::HashMap::new();
    for part in ["", "backends", "source-ranges", "ports", "node-ports", "protocol", "family", "health-check"]
    {
        mock.clear().await;
        if !part.is_empty() {
            mock.breach(&format!("built-as-asked/{part}")).await;
        }
        mock.balancers().ensure_load_balancer(whole.clone()).await.unwrap();
        seen.insert(part, mock.admin.balancer("ns/web").await.unwrap());
    }
    let (good, ports) = (&seen[""], |part: &str| seen[part].ports.clone());
    assert_eq!((good.backends.len(), good.source_ranges.len(), good.health_check_port), (1, 1, 32000));
    assert!(good.ingress[0].ip.unwrap().is_ipv6());
    assert_eq!(seen["backends"].backends.len(), 0);
    assert_eq!(seen["source-ranges"].source_ranges.len(), 0);
    assert_eq!(ports("ports").len(), 1);
    assert_eq!(ports("node-ports")[1].node_port, 53);
    assert_eq!(ports("protocol")[1].protocol, provider_mock::cloud::Protocol::Tcp);
    assert!(seen["family"].ingress[0].ip.unwrap().is_ipv4());
    assert_eq!(seen["health-check"].health_check_port, 0);
}

#[tokio::test]
async fn a_batch_of_which_only_the_first_item_is_done() {
    let mock = Mock::start(&[]).await;
    mock.ensure("other", "d").await.unwrap();
    mock.ensure(SERVICE, "d").await.unwrap();
    mock.breach("update-every-item").await;
    let item = |name| LoadBalancerUpdate {
        service: Some(service(name)),
        desired_digest: "e".into(),
        ..LoadBalancerUpdate::default()
    };
    let update = BatchUpdateLoadBalancersRequest {
        cluster: cluster(),
        fencing: fencing(),
        backends: Some(BackendSet { nodes: vec![node("n"), node("m")], ..BackendSet::default() }),
        items: vec![item("other"), item(SERVICE)],
    };
    let answer = mock.balancers().batch_update_load_balancers(update).await.unwrap().into_inner();
    let outcomes: Vec<_> = answer.results.iter().map(LoadBalancerUpdateResult::outcome).collect();
    assert_eq!(outcomes, [UpdateOutcome::Updated; 2]);
    let backends = async |name: &str| mock.admin.balancer(name).await.unwrap().backends.len();
    assert_eq!((backends("other").await, backends(SERVICE).await), (2, 1));
}

#[tokio::test]
async fn updates_and_ways_in() {
    let mock = Mock::start(&[]).await;
    mock.breach("ingress-required").await;
    let made = mock.ensure(SERVICE, "d").await.unwrap().load_balancer.unwrap();
    assert_eq!((made.state(), made.ingress), (LoadBalancerState::Active, Vec::new()));
    mock.breach("update-backends-only").await;
    let item = LoadBalancerUpdate {
        service: Some(service(SERVICE)),
        desired_digest: "e".into(),
        ..LoadBalancerUpdate::default()
    };
    let update = BatchUpdateLoadBalancersRequest {
        cluster: cluster(),
        fencing: fencing(),
        backends: Some(BackendSet::default()),
        items: vec![item],
    };
    let answer = mock.balancers().batch_update_load_balancers(update).await.unwrap().into_inner();
    assert_eq!(answer.results[0].error.as_ref().unwrap().reason(), ErrorReason::NeedsEnsure);
}

#[tokio::test]
async fn sets_that_are_forgotten_or_mixed() {
    let mock = Mock::start(&[]).await;
    let set = |digest: &str, nodes: usize| BackendSet {
        digest: digest.to_owned(),
        nodes: (0..nodes).map(|at| node(&format!("node-{at}"))).collect(),
        nodes_omitted: nodes == 0,
    };
    let send = async |cluster: &str, set: BackendSet| {
        let mut request = ensure(SERVICE, "d", 0);
        request.cluster.as_mut().unwrap().uid = cluster.to_owned();
        request.backends = Some(set);
        let answer = mock.balancers().ensure_load_balancer(request).await;
        answer.map(drop).map_err(|status| reason(&status))
    };
    let backends = async || mock.admin.balancer("ns/web").await.unwrap().backends.len();
    let (unknown, shape) = (Err(ErrorReason::UnknownBackendSet), Err(ErrorReason::InvalidArgumentShape));
    assert_eq!(send(CLUSTER, set("two", 0)).await, unknown);
    send(CLUSTER, set("two", 2)).await.unwrap();
    send(CLUSTER, set("one", 1)).await.unwrap();
    send(CLUSTER, set("two", 0)).await.unwrap();
    assert_eq!(backends().await, 2);
    for (breach, one, two) in [
        ("set-by-digest", unknown, unknown),
        ("set-by-digest/all-but-one", Ok(()), unknown),
        ("set-by-digest/empty", Ok(()), Ok(())),
        ("set-unknown", Ok(()), Ok(())),
        ("set-needs-capability", Ok(()), Ok(())),
    ] {
        mock.breach(breach).await;
        send(CLUSTER, set("two", 2)).await.unwrap();
        send(CLUSTER, set("one", 1)).await.unwrap();
        assert_eq!(
            (send(CLUSTER, set("one", 0)).await, send(CLUSTER, set("two", 0)).await),
            (one, two),
            "{breach}"
        );
    }
    assert_eq!(backends().await, 0, "taken for an empty set");
    mock.breach("set-per-cluster").await;
    send(CLUSTER, set("two", 2)).await.unwrap();
    let passed = Err(ErrorReason::OwnedByOtherCluster);
    assert_eq!(send("other", set("two", 0)).await, passed);
    mock.clear().await;
    assert_eq!(send("another", set("two", 0)).await, unknown);
    assert_eq!(send("another", BackendSet { nodes: vec![node("n")], ..set("two", 0) }).await, shape);
}
