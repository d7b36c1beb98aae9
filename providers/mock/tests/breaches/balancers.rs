//! Load balancers.

use std::time::Duration;

use crate::support::*;
use cloudprovider_sdk::proto::*;
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
    mock.ensure("patient", "d").await.unwrap();
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
    mock.breach("ingress-valid").await;
    let way = mock.balancer(SERVICE).await.ingress.pop().unwrap();
    assert_eq!((way.ip.as_str(), way.hostname.as_str()), ("", ""));
    mock.breach("ingress-valid/no-ip").await;
    assert_eq!(mock.balancer(SERVICE).await.ingress.pop().unwrap().ip, "300.300.300.300");
    mock.breach("annotation-prefix").await;
    assert!(
        mock.ensure(SERVICE, "d").await.unwrap().service_annotations.contains_key("elsewhere.example/owner")
    );
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
    mock.breach("delete-not-elsewhere").await;
    assert_eq!(reason(&mock.delete(SERVICE).await.unwrap_err()), ErrorReason::ImplementedElsewhere);
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
        backend_sets: vec![BackendSet::default()],
        items: vec![item],
    };
    let answer = mock.balancers().batch_update_load_balancers(update).await.unwrap().into_inner();
    assert_eq!(answer.results[0].error.as_ref().unwrap().reason(), ErrorReason::NeedsEnsure);
}
