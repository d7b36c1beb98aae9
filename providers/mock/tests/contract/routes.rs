//! Routes, and who may change them.

use crate::support::*;
use cloudprovider_sdk::proto::*;
use tonic::Code;

#[tokio::test]
async fn a_former_leader_is_refused_by_every_mutation() {
    let mock = Mock::start(&["--seed-instances", "1", "--advertise", "without=leadership"]).await;
    let with = |epoch| Some(Fencing { scope: "lease".into(), epoch });
    mock.balancers()
        .ensure_load_balancer(EnsureLoadBalancerRequest { fencing: with(5), ..ensure(SERVICE, "d", 1) })
        .await
        .unwrap();
    let routes = BatchEnsureRoutesRequest {
        cluster: cluster(),
        fencing: with(4),
        items: vec![route("10.1.0.0/24", "node-0")],
    };
    let stale = mock.routes().batch_ensure_routes(routes).await.unwrap_err();
    assert_eq!(
        (stale.code(), reason(&stale)),
        (Code::FailedPrecondition, ErrorReason::StaleLeader),
        "R:fencing"
    );
}

fn route(cidr: &str, name: &str) -> RouteToEnsure {
    RouteToEnsure { key: cidr.into(), destination_cidr: cidr.into(), target: Some(node(name)) }
}

#[tokio::test]
async fn routes_are_ensured_listed_and_deleted_as_listed() {
    let mock = Mock::start(&["--seed-instances", "2"]).await;
    let ensure = async |name: &str| {
        let items =
            vec![route("10.1.0.0/24", name), route("2001:db8:1::/64", name), route("10.2.0.0/24", "ghost")];
        let request = BatchEnsureRoutesRequest { cluster: cluster(), fencing: fencing(), items };
        mock.routes().batch_ensure_routes(request).await.unwrap().into_inner().results
    };
    let results = ensure("node-0").await;
    let route = results[0].route.clone().unwrap();
    assert_eq!(route.target.unwrap().name, "node-0", "R:route-echo-target");
    assert_eq!(results[2].error.as_ref().unwrap().reason(), ErrorReason::InstanceNotFound);
    let list = async || {
        let request = ListRoutesRequest { cluster: cluster(), ..Default::default() };
        mock.routes().list_routes(request).await.unwrap().into_inner().routes
    };
    let listed = list().await;
    assert_eq!(listed.len(), 2);
    let delete = async |routes: Vec<Route>| {
        let items = routes
            .into_iter()
            .map(|route| RouteToDelete { key: route.id.clone(), route: Some(route) })
            .collect();
        let request = BatchDeleteRoutesRequest { cluster: cluster(), fencing: fencing(), items };
        mock.routes().batch_delete_routes(request).await.unwrap().into_inner().results
    };
    ensure("node-1").await;
    let changed = delete(listed).await;
    assert!(
        changed.iter().all(|one| one.error.as_ref().unwrap().reason() == ErrorReason::RouteChanged),
        "R:route-changed"
    );
    mock.admin.delete_instance("node-1").await.unwrap();
    let listed = list().await;
    assert!(listed.iter().all(|route| route.state() == RouteState::Blackhole));
    assert!(delete(listed).await.iter().all(|one| one.error.is_none()));
    assert_eq!(list().await, []);
}
