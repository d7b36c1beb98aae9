//! Routes, and who may change them.

use crate::support::*;
use cloudprovider_sdk::proto::*;
use provider_mock::cloud::NewRoute;
use tonic::Code;

#[tokio::test]
async fn a_former_leader_is_refused_by_every_mutation() {
    let mock = Mock::start(&["--seed-instances", "1"]).await;
    let with = |epoch| Some(Fencing { scope: "lease".into(), epoch });
    let lead = LeadRequest { cluster: cluster(), fencing: with(5), valid_for: None, valid_until: None };
    mock.base().lead(lead).await.unwrap();
    let routes = BatchEnsureRoutesRequest {
        cluster: cluster(),
        fencing: with(4),
        items: vec![route("10.1.0.0/24", "node-0")],
    };
    let stale = mock.routes().batch_ensure_routes(routes).await.unwrap_err();
    assert_eq!(
        (stale.code(), reason(&stale)),
        (Code::FailedPrecondition, ErrorReason::StaleLeader),
        "R:lead-needed"
    );
}

fn route(cidr: &str, name: &str) -> RouteToEnsure {
    RouteToEnsure { key: cidr.into(), destination_cidr: cidr.into(), target: Some(node(name)) }
}

/// E4: a cloud whose routes have room for a tag, and one whose routes have none.
#[tokio::test]
async fn a_route_says_whose_it_is_where_it_can() {
    for (told, ours, theirs) in [
        ("page-size=2", Ownership::ByUid, Ownership::ByLegacyName),
        ("without=route-ownership", Ownership::Unspecified, Ownership::Unspecified),
    ] {
        let mock = Mock::start(&["--seed-instances", "1", "--advertise", told]).await;
        let former = NewRoute { destination_cidr: "10.8.0.0/24".into(), ..Default::default() };
        mock.admin.create_route(&former).await.unwrap();
        let ensured = async |cidr: &str| {
            let items = vec![route(cidr, "node-0")];
            let request = BatchEnsureRoutesRequest { cluster: cluster(), fencing: fencing(), items };
            let results = mock.routes().batch_ensure_routes(request).await.unwrap().into_inner().results;
            results[0].route.as_ref().unwrap().ownership()
        };
        let listed = async || {
            let request = ListRoutesRequest { cluster: cluster(), ..Default::default() };
            let routes = mock.routes().list_routes(request).await.unwrap().into_inner().routes;
            routes.iter().map(|route| (route.destination_cidr.clone(), route.ownership())).collect::<Vec<_>>()
        };
        assert_eq!(ensured("10.1.0.0/24").await, ours, "{told}");
        let (made, found) = (("10.1.0.0/24".to_owned(), ours), ("10.8.0.0/24".to_owned(), theirs));
        assert_eq!(listed().await, [found, made.clone()], "{told}");
        assert_eq!(ensured("10.8.0.0/24").await, ours, "{told}: a former controller's is taken over");
        assert_eq!(listed().await, [("10.8.0.0/24".to_owned(), ours), made], "{told}");
    }
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
