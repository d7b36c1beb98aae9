//! Routes, owners, leaders, errors and messages.

use std::time::Duration;

use crate::{delete, support::*};
use cloudprovider_sdk::{ProviderError, proto::*};
use provider_mock::{
    breach::CANARY,
    cloud::{NewLegacyBalancer, NewRoute},
};
use serde_json::json;
use tonic::Code;

#[tokio::test]
async fn routes() {
    let mock = Mock::start(&["--seed-instances", "2"]).await;
    let ensure = async |cidr: &str| {
        let items = vec![RouteToEnsure {
            key: "k".into(),
            destination_cidr: cidr.into(),
            target: Some(node("node-0")),
        }];
        let request = BatchEnsureRoutesRequest { cluster: cluster(), fencing: fencing(), items };
        mock.routes()
            .batch_ensure_routes(request)
            .await
            .unwrap()
            .into_inner()
            .results
            .remove(0)
            .route
            .unwrap()
    };
    let honest = ensure("10.1.0.0/24").await;
    mock.breach("route-canonical").await;
    assert_eq!(ensure("10.1.0.0/24").await.destination_cidr, "10.1.0.255/24");
    assert_eq!(ensure("2001:db8::/64").await.destination_cidr, "2001:0DB8:0000:0000:0000:0000:0000:0000/64");
    mock.breach("route-echo-target").await;
    assert_eq!(ensure("10.1.0.0/24").await.target.unwrap().name, "another-node");
    mock.breach("route-echo-target/missing").await;
    assert_eq!(ensure("10.1.0.0/24").await.target, None);
    mock.breach("route-ownership").await;
    assert_eq!(ensure("10.1.0.0/24").await.ownership(), Ownership::Unspecified);
    mock.breach("route-ownership/all-ours").await;
    let former = NewRoute { destination_cidr: "10.8.0.0/24".into(), ..Default::default() };
    let former = mock.admin.create_route(&former).await.unwrap();
    let list = ListRoutesRequest { cluster: cluster(), ..Default::default() };
    let listed = mock.routes().list_routes(list).await.unwrap().into_inner().routes;
    assert!(listed.iter().all(|route| route.ownership() == Ownership::ByUid), "{listed:?}");
    mock.admin.delete_route(&former.route.id).await.unwrap();
    mock.breach("route-changed").await;
    let elsewhere = json!({"target": {"node": "node-1", "provider_id": ""}});
    mock.admin.patch_route("10.1.0.0/24", &elsewhere).await.unwrap();
    let items = vec![RouteToDelete { key: "k".into(), route: Some(honest) }];
    let request = BatchDeleteRoutesRequest { cluster: cluster(), fencing: fencing(), items };
    let deleted = mock.routes().batch_delete_routes(request).await.unwrap().into_inner().results.remove(0);
    assert_eq!(deleted.error, None);
    assert_eq!(mock.admin.routes().await.unwrap().len(), 1, "removed though it was re-pointed");
}

#[tokio::test]
async fn whose_it_is_and_who_leads() {
    let mock = Mock::start(&["--advertise", "without=leadership"]).await;
    let foreign = NewLegacyBalancer {
        service_uid: SERVICE.into(),
        cluster_uid: "another".into(),
        ..Default::default()
    };
    mock.admin.create_legacy_balancer(&foreign).await.unwrap();
    let route =
        NewRoute { cluster_uid: "another".into(), destination_cidr: "10.9.0.0/24".into(), target: None };
    let route = mock.admin.create_route(&route).await.unwrap();
    mock.breach("cluster-owns-by-uid").await;
    mock.delete(SERVICE).await.unwrap();
    assert_eq!(mock.balancer_count().await, 0);
    let listed = Route { id: route.route.id, destination_cidr: "10.9.0.0/24".into(), ..Default::default() };
    let items = vec![RouteToDelete { key: "k".into(), route: Some(listed) }];
    let request = BatchDeleteRoutesRequest { cluster: cluster(), fencing: fencing(), items };
    mock.routes().batch_delete_routes(request).await.unwrap();
    assert_eq!(mock.admin.routes().await.unwrap(), []);
    let nobody = BatchGetInstancesRequest { cluster: None, ..batch(&["x"]) };
    let refused = mock.instances().batch_get_instances(nobody.clone()).await.unwrap_err();
    assert_eq!(reason(&refused), ErrorReason::InvalidArgumentShape, "R:cluster-uid-required");
    mock.breach("cluster-uid-required").await;
    mock.instances().batch_get_instances(nobody).await.unwrap();
    let of = |epoch, revision| {
        let fencing = Some(Fencing { scope: "s".into(), epoch });
        EnsureLoadBalancerRequest { fencing, ..ensure("led", "d", revision) }
    };
    let try_it = async |epoch, revision| mock.balancers().ensure_load_balancer(of(epoch, revision)).await;
    try_it(9, 9).await.unwrap();
    try_it(8, 9).await.expect("without Lead, anybody may call");
    assert_eq!(reason(&try_it(9, 8).await.unwrap_err()), ErrorReason::StaleRevision);
    mock.breach("stale-revision").await;
    try_it(9, 8).await.unwrap();
}

#[tokio::test]
async fn work_after_the_deadline() {
    let mock = Mock::start(&[]).await;
    mock.breach("deadline-honoured").await;
    let hurried = within(ensure(SERVICE, "d", 1), Duration::from_millis(100));
    mock.balancers().ensure_load_balancer(hurried).await.unwrap_err();
    assert_eq!(mock.balancer_count().await, 0);
    let late = async { while mock.balancer_count().await == 0 {} };
    tokio::time::timeout(PATIENCE, late).await.expect("the work is done in the end");
    mock.breach("deadline-honoured/answered").await;
    mock.ensure("quick", "d").await.expect("a cloud that is quick shows nothing");
    mock.admin.patch_conditions(&json!({"latency_ms": 1})).await.unwrap();
    let before = mock.balancer_count().await;
    // The answer comes shortly before the deadline: on a busy machine, too.
    let hurried = within(ensure("answered", "d", 1), Duration::from_secs(1));
    assert_eq!(
        mock.balancers().ensure_load_balancer(hurried).await.unwrap_err().code(),
        Code::DeadlineExceeded
    );
    let late = async { while mock.balancer_count().await == before {} };
    tokio::time::timeout(PATIENCE, late).await.expect("the work is done in the end");
}

#[tokio::test]
async fn errors() {
    let mock = Mock::start(&["--seed-instances", "1"]).await;
    let with_error = async |breach: &str| {
        mock.breach(breach).await;
        mock.fault("error,reason=RETRY_LATER,retry-after=1s").await;
        mock.list(0, "").await.unwrap_err()
    };
    // A fault that makes an error decides before later ones are asked, but every one sees the answer.
    let bare = with_error("error-info").await;
    assert_eq!((bare.code(), bare.details().len()), (Code::Unavailable, 0));
    assert_eq!(
        ProviderError::from_status(&with_error("error-info/domain").await).map(|error| error.reason()),
        None
    );
    let unknown = ProviderError::from_status(&with_error("error-info/reason").await).unwrap();
    assert_eq!(unknown.reason(), ErrorReason::Unspecified);
    let once = ProviderError::retry_later(Duration::from_secs(1), "a fault of the mock").to_status();
    assert!(with_error("error-info/doubled").await.details().len() > once.details().len());
    assert!(with_error("error-size").await.details().len() > 4096);
    assert!(with_error("error-no-secret").await.message().contains(CANARY));
    mock.breach("error-order").await;
    let denied = json!({"denied_actions": ["instances:read", "instances:list"]});
    mock.admin.patch_conditions(&denied).await.unwrap();
    let result = mock.get_one("node-0").await;
    assert_eq!((result.state(), result.authoritative), (InstanceState::Absent, true));
    assert_eq!(mock.list(0, "").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn requests_that_are_large() {
    let mock = Mock::start(&["--seed-instances", "1"]).await;
    let mut large = batch(&["node-0"]);
    large.queries[0].node.as_mut().unwrap().system_uuid = "x".repeat(5 << 20);
    mock.instances().batch_get_instances(timely(large.clone())).await.unwrap();
    mock.breach("message-limit").await;
    let refused = mock.instances().batch_get_instances(timely(large)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn messages() {
    let mock = Mock::start(&["--seed-instances", "1", "--advertise", "max-message-bytes=4194304"]).await;
    mock.breach("unknown-enum").await;
    assert_eq!(mock.get_one("node-0").await.state, 99);
    mock.breach("unknown-field").await;
    assert_eq!(mock.get_one("node-0").await.state(), InstanceState::Running, "unknown fields are skipped");
    mock.breach("message-size").await;
    let large = mock.get(&["node-0"]).await.unwrap_err();
    assert!(large.message().contains("message length too large"), "{large}");
    mock.breach("answer-parts/flat").await;
    let flat = mock.get(&["node-0"]).await.unwrap();
    assert!(flat.len() > 2_000_000, "{}", flat.len());
    mock.breach("answer-parts/deep").await;
    let deep = mock.get(&["node-0"]).await.unwrap();
    assert_eq!(deep.len(), 2);
    let unheard = &deep[1];
    assert!(unheard.instance.as_ref().unwrap().addresses.len() > 2_000_000);
    mock.breach("required-missing").await;
    assert_eq!(mock.get_one("node-0").await.instance, None);
}

#[tokio::test]
async fn leadership() {
    let mock = Mock::start(&[]).await;
    let by = |epoch| Some(Fencing { scope: "lease".into(), epoch });
    let lead = async |epoch, seconds| {
        let valid_for = Some(prost_types::Duration { seconds, nanos: 0 });
        mock.base()
            .lead(LeadRequest { cluster: cluster(), fencing: by(epoch), valid_for, valid_until: None })
            .await
    };
    let change = async |epoch| {
        let delete = DeleteLoadBalancerRequest { fencing: by(epoch), ..delete("nobody") };
        mock.balancers().delete_load_balancer(delete).await
    };
    assert_eq!(reason(&change(1).await.unwrap_err()), ErrorReason::StaleLeader);
    mock.breach("lead-needed").await;
    change(1).await.unwrap();
    mock.clear().await;
    lead(2, 600).await.unwrap();
    assert_eq!(reason(&lead(1, 600).await.unwrap_err()), ErrorReason::StaleLeader);
    mock.breach("lead-takes-over").await;
    lead(1, 600).await.unwrap();
    mock.breach("lead-ends").await;
    lead(2, 0).await.unwrap();
    change(2).await.unwrap();
    mock.clear().await;
    for breach in ["lead-background", "lead-ends/work-goes-on"] {
        mock.breach(breach).await;
        lead(2, 0).await.unwrap();
        mock.admin.reset_calls().await.unwrap();
        let by_nobody = EnsureLoadBalancerRequest { fencing: by(2), ..ensure("u", "d", 1) };
        mock.balancers().ensure_load_balancer(by_nobody).await.unwrap_err();
        let writes = async {
            while !mock.admin.call_summary().await.unwrap().cloud.contains_key("balancers:write") {}
        };
        tokio::time::timeout(PATIENCE, writes).await.expect("the cloud is written to, led or not");
    }
}
