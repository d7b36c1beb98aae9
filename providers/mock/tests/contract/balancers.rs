//! Load balancers.

use crate::support::*;
use cloudprovider_sdk::proto::*;
use provider_mock::cloud::{NewLegacyBalancer, Quota};
use serde_json::json;
use tonic::Code;

#[tokio::test]
async fn a_balancer_lives_from_ensure_to_delete() {
    let mock = Mock::start(&["--seed-instances", "2"]).await;
    let made =
        mock.balancers().ensure_load_balancer(timely(ensure(SERVICE, "d1", 1))).await.unwrap().into_inner();
    let balancer = made.load_balancer.unwrap();
    assert_eq!((balancer.state(), balancer.applied_digest.as_str()), (LoadBalancerState::Active, "d1"));
    assert_eq!(balancer.ingress[0].ip, "192.0.2.1");
    assert_eq!(
        made.service.unwrap_or_default().annotations["status.mock.cloudprovider.ccm/load-balancer-id"],
        balancer.id
    );
    let again = mock.balancers().ensure_load_balancer(ensure(SERVICE, "d1", 1)).await.unwrap().into_inner();
    assert_eq!(again.load_balancer, Some(balancer.clone()), "R:ensure-idempotent");
    let item =
        LoadBalancerUpdate { service: Some(service(SERVICE)), desired_digest: "d2".into(), revision: 2 };
    let absent = LoadBalancerUpdate { service: Some(service("other")), ..item.clone() };
    let set = BackendSet {
        digest: "two".into(),
        nodes: vec![node("node-0"), node("node-1")],
        nodes_omitted: false,
    };
    let update = BatchUpdateLoadBalancersRequest {
        cluster: cluster(),
        fencing: fencing(),
        backends: Some(set),
        items: vec![item, absent],
    };
    let results = mock.balancers().batch_update_load_balancers(update).await.unwrap().into_inner().results;
    let outcomes: Vec<_> = results
        .iter()
        .map(|result| (result.outcome(), result.error.as_ref().map(ItemError::reason)))
        .collect();
    let needs_ensure = (UpdateOutcome::NotUpdated, Some(ErrorReason::NeedsEnsure));
    assert_eq!(outcomes, [(UpdateOutcome::Updated, None), needs_ensure]);
    let cloud = mock.admin.balancer("ns/web").await.unwrap();
    assert_eq!(
        (cloud.backends.len(), cloud.backends[1].provider_id.as_str()),
        (2, "mock://mock-1b/i-00000002")
    );
    let stale = mock.balancers().ensure_load_balancer(ensure(SERVICE, "d0", 1)).await.unwrap_err();
    assert_eq!(
        (stale.code(), reason(&stale)),
        (Code::Aborted, ErrorReason::StaleRevision),
        "R:stale-revision"
    );
    let delete = DeleteLoadBalancerRequest {
        cluster: cluster(),
        fencing: fencing(),
        service: Some(service_ref(SERVICE)),
        revision: 3,
        ..Default::default()
    };
    for _ in 0..2 {
        let gone = mock.balancers().delete_load_balancer(delete.clone()).await.unwrap().into_inner();
        assert_eq!(gone.in_progress, None, "R:delete-absent-ok");
    }
    let get = GetLoadBalancerRequest { cluster: cluster(), service: Some(service_ref(SERVICE)) };
    let state =
        mock.balancers().get_load_balancer(get).await.unwrap().into_inner().load_balancer.unwrap().state();
    assert_eq!(state, LoadBalancerState::Absent);
}

#[tokio::test]
async fn slow_balancers_are_in_progress_and_drift_is_seen() {
    let mock = Mock::start(&["--provisioning-delay", "1h", "--deletion-delay", "1h"]).await;
    let made = mock.balancers().ensure_load_balancer(ensure(SERVICE, "d1", 1)).await.unwrap().into_inner();
    let balancer = made.load_balancer.unwrap();
    assert_eq!((balancer.state(), balancer.applied_digest.as_str()), (LoadBalancerState::Pending, ""));
    assert_eq!(made.in_progress.unwrap().retry_after.unwrap().seconds, 5);
    mock.admin.patch_balancer("ns/web", &json!({})).await.unwrap();
    let list = ListLoadBalancersRequest { cluster: cluster(), ..Default::default() };
    let listed = mock.balancers().list_load_balancers(list).await.unwrap().into_inner().load_balancers;
    assert_eq!(
        (listed.len(), listed[0].sync_state(), listed[0].ownership()),
        (1, SyncState::Drifted, Ownership::ByUid)
    );
    let delete = DeleteLoadBalancerRequest {
        cluster: cluster(),
        fencing: fencing(),
        service: Some(service_ref(SERVICE)),
        ..Default::default()
    };
    let going = mock.balancers().delete_load_balancer(delete).await.unwrap().into_inner();
    assert_eq!(going.in_progress.unwrap().reason, "DELETING");
}

#[tokio::test]
async fn what_is_not_ours_or_makes_no_sense_is_refused_with_its_reason() {
    let mock = Mock::start(&[]).await;
    let legacy = async |uid: &str, cluster_uid: &str| {
        let wish = NewLegacyBalancer {
            service_uid: uid.into(),
            cluster_uid: cluster_uid.into(),
            ..Default::default()
        };
        mock.admin.create_legacy_balancer(&wish).await.unwrap();
    };
    legacy("legacy", "").await;
    legacy("foreign", "another-cluster").await;
    mock.admin.set_quota(&Quota { max_balancers: Some(2), ..Quota::default() }).await.unwrap();
    let annotated = |name: &str, value: &str| {
        let mut request = ensure("annotated", "d", 1);
        let key = format!("mock.cloudprovider.ccm/{name}");
        request.service.as_mut().unwrap().annotations.insert(key, value.into());
        request
    };
    let mut sctp = ensure("sctp", "d", 1);
    sctp.service.as_mut().unwrap().ports[0].protocol = Protocol::Sctp.into();
    let mut elsewhere = ensure("elsewhere", "d", 1);
    elsewhere.service.as_mut().unwrap().load_balancer_class = "other".into();
    for (request, code, wanted) in [
        (ensure("legacy", "d", 1), Code::FailedPrecondition, ErrorReason::AdoptionRefused),
        (ensure("foreign", "d", 1), Code::AlreadyExists, ErrorReason::OwnedByOtherCluster),
        (ensure("third", "d", 1), Code::ResourceExhausted, ErrorReason::QuotaExceeded),
        (annotated("refuse", "no"), Code::InvalidArgument, ErrorReason::InvalidConfiguration),
        (sctp, Code::InvalidArgument, ErrorReason::UnsupportedFeature),
        (elsewhere, Code::FailedPrecondition, ErrorReason::ImplementedElsewhere),
    ] {
        let status = mock.balancers().ensure_load_balancer(request).await.unwrap_err();
        assert_eq!((status.code(), reason(&status)), (code, wanted));
    }
    let adopt = EnsureLoadBalancerRequest {
        adoption: Adoption::AdoptByLegacyName.into(),
        ..ensure("legacy", "d", 1)
    };
    let adopted = mock.balancers().ensure_load_balancer(adopt).await.unwrap().into_inner();
    assert_eq!(adopted.load_balancer.unwrap().ownership(), Ownership::ByUid);
}
