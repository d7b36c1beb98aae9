//! What never reaches a method, and in which order it is looked at.

use cloudprovider_sdk::ProviderError;
use cloudprovider_sdk::proto::*;
use tonic::Code;

use crate::cloud::Cloud;
use crate::fixture::{reason, serve};
use crate::requests::{batch, cluster, ensure, fencing, service, update, updates};

#[tokio::test]
async fn without_leadership_anybody_may_call() {
    let cloud = Cloud::new();
    cloud.go.add_permits(10);
    let provider = cloud.builder().without_leadership().build().unwrap();
    let served = serve(provider).await;
    let mut client = served.load_balancers().await;
    for epoch in [5, 4] {
        let request = EnsureLoadBalancerRequest { fencing: fencing(epoch), ..ensure("a") };
        client.ensure_load_balancer(request).await.unwrap();
    }
}

#[tokio::test]
async fn bad_shapes_are_refused_with_the_field() {
    let served = serve(Cloud::new().provider()).await;
    let mut client = served.instances().await;
    let no_cluster = BatchGetInstancesRequest { cluster: None, ..batch(&["a"]) };
    for (request, wanted, field) in [
        (no_cluster, ErrorReason::InvalidArgumentShape, Some("cluster")),
        (batch(&[]), ErrorReason::InvalidArgumentShape, Some("queries")),
        (batch(&["a", "a"]), ErrorReason::InvalidArgumentShape, Some("queries[1].key")),
        (batch(&["a", "b", "c", "d"]), ErrorReason::BatchTooLarge, None),
    ] {
        let status = client.batch_get_instances(request).await.unwrap_err();
        let error = ProviderError::from_status(&status).unwrap();
        assert_eq!((status.code(), error.reason()), (Code::InvalidArgument, wanted));
        assert_eq!(error.fields().first().map(|(field, _)| field.as_str()), field);
    }
}

/// [R:stale-revision]
#[tokio::test]
async fn overtaken_states_are_refused() {
    let cloud = Cloud::new();
    cloud.go.add_permits(10);
    let served = serve(cloud.provider()).await;
    let mut client = served.load_balancers().await;
    let at = |revision| EnsureLoadBalancerRequest { revision, ..ensure("a") };
    client.ensure_load_balancer(at(10)).await.unwrap();
    client.ensure_load_balancer(at(10)).await.unwrap();
    let status = client.ensure_load_balancer(at(9)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::Aborted, ErrorReason::StaleRevision));
    let delete = DeleteLoadBalancerRequest {
        cluster: cluster(),
        fencing: fencing(0),
        service: service("a", "uid-a").unwrap().r#ref,
        revision: 12,
        ..Default::default()
    };
    client.delete_load_balancer(delete).await.unwrap();
    let status = client.ensure_load_balancer(at(11)).await.unwrap_err();
    assert_eq!(reason(&status), ErrorReason::StaleRevision, "an Ensure that a Delete overtook");
}

/// [R:stale-revision] [R:batch-keys]
#[tokio::test]
async fn overtaken_items_do_not_cost_the_others() {
    let served = serve(Cloud::new().provider()).await;
    let mut client = served.load_balancers().await;
    client.batch_update_load_balancers(updates(vec![update("a", 5), update("b", 5)])).await.unwrap();
    let items = vec![update("a", 4), update("b", 6), update("c", 0)];
    let answer = client.batch_update_load_balancers(updates(items)).await.unwrap().into_inner();
    let mut results: Vec<_> = answer
        .results
        .iter()
        .map(|result| {
            (result.service_uid.as_str(), result.outcome(), result.error.as_ref().map(ItemError::reason))
        })
        .collect();
    results.sort_by_key(|(uid, ..)| *uid);
    let stale = Some(ErrorReason::StaleRevision);
    assert_eq!(
        results,
        [
            ("a", UpdateOutcome::NotUpdated, stale),
            ("b", UpdateOutcome::Updated, None),
            ("c", UpdateOutcome::Updated, None)
        ]
    );
    let all_stale =
        client.batch_update_load_balancers(updates(vec![update("a", 1)])).await.unwrap().into_inner();
    assert_eq!(all_stale.results.len(), 1);
}

/// [R:page-size]
#[tokio::test]
async fn a_method_sees_a_page_size_within_the_limit() {
    let served = serve(Cloud::new().provider()).await;
    let mut client = served.instances().await;
    for (asked, seen) in [(0, "50"), (7, "7"), (1000, "50")] {
        let request = ListInstancesRequest { cluster: cluster(), page_size: asked, ..Default::default() };
        assert_eq!(client.list_instances(request).await.unwrap().into_inner().next_page_token, seen);
    }
}
