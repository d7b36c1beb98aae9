//! Tables of requests and what the contract says of them.

use super::*;
use crate::ProviderError;
use crate::proto::*;

fn advertised() -> Advertised {
    let limits = Limits {
        max_batch_instances: 3,
        max_batch_load_balancers: 3,
        max_batch_routes: 3,
        max_batch_volumes: 3,
        max_page_size: 50,
        ..Default::default()
    };
    Advertised::new(GetCapabilitiesResponse { limits: Some(limits), ..Default::default() })
}

fn cluster() -> Option<ClusterRef> {
    Some(ClusterRef { uid: "c-1".into(), name: String::new() })
}

fn node() -> Option<NodeRef> {
    Some(NodeRef { name: "n".into(), ..Default::default() })
}

fn service(uid: &str) -> Option<Service> {
    Some(Service { r#ref: service_ref(uid), ..Default::default() })
}

fn service_ref(uid: &str) -> Option<ServiceRef> {
    Some(ServiceRef { namespace: "ns".into(), name: "svc".into(), uid: uid.into() })
}

fn instances(keys: &[&str]) -> BatchGetInstancesRequest {
    let queries = keys.iter().map(|key| InstanceQuery { key: (*key).into(), node: node() }).collect();
    BatchGetInstancesRequest { cluster: cluster(), queries, ..Default::default() }
}

fn update(uid: &str, backend_set: u32) -> LoadBalancerUpdate {
    LoadBalancerUpdate { service: service(uid), backend_set, desired_digest: "d".into(), revision: 0 }
}

fn updates(items: Vec<LoadBalancerUpdate>) -> BatchUpdateLoadBalancersRequest {
    let backend_sets = vec![BackendSet::default()];
    BatchUpdateLoadBalancersRequest {
        cluster: cluster(),
        fencing: Some(Fencing::default()),
        backend_sets,
        items,
    }
}

fn ensure() -> EnsureLoadBalancerRequest {
    EnsureLoadBalancerRequest {
        cluster: cluster(),
        fencing: Some(Fencing::default()),
        service: service("s"),
        backends: Some(BackendSet::default()),
        desired_digest: "d".into(),
        ..Default::default()
    }
}

/// A set that is named by its digest, though it may have nodes.
fn named(digest: &str, nodes: usize) -> Option<BackendSet> {
    let nodes = vec![NodeRef::default(); nodes];
    Some(BackendSet { digest: digest.into(), nodes, nodes_omitted: true })
}

fn route(key: &str, cidr: &str) -> RouteToEnsure {
    RouteToEnsure { key: key.into(), destination_cidr: cidr.into(), target: node() }
}

fn routes(items: Vec<RouteToEnsure>) -> BatchEnsureRoutesRequest {
    BatchEnsureRoutesRequest { cluster: cluster(), fencing: Some(Fencing::default()), items }
}

fn volume(key: &str) -> VolumeQuery {
    let text = || "x".to_owned();
    VolumeQuery { key: key.into(), name: text(), plugin: text(), volume_id: text(), ..Default::default() }
}

/// What a request is refused with: reason and field; nothing when it is as the contract wants it.
fn refused(request: &impl Shape) -> Option<(ErrorReason, String)> {
    let error = request.check(&advertised()).err()?;
    let field = error.fields().first().map(|(field, _)| field.clone()).unwrap_or_default();
    Some((error.reason(), field))
}

fn shape(field: &str) -> Option<(ErrorReason, String)> {
    Some((ErrorReason::InvalidArgumentShape, field.into()))
}

const TOO_LARGE: Option<(ErrorReason, String)> = Some((ErrorReason::BatchTooLarge, String::new()));

#[test]
fn batches_of_instances() {
    for (keys, wanted) in [
        (&["a", "b", "c"][..], None),
        (&["a", "b", "c", "d"], TOO_LARGE),
        (&[], shape("queries")),
        (&["a", ""], shape("queries[1].key")),
        (&["a", "b", "a"], shape("queries[2].key")),
    ] {
        assert_eq!(refused(&instances(keys)), wanted, "{keys:?}");
    }
    let mut nameless = instances(&["a"]);
    nameless.queries[0].node = None;
    assert_eq!(refused(&nameless), shape("queries[0].node"));
    nameless.queries[0].node = Some(NodeRef::default());
    assert_eq!(refused(&nameless), shape("queries[0].node.name"));
    let long = "k".repeat(1025);
    assert_eq!(refused(&instances(&[&long])), shape("queries[0].key"));
}

#[test]
fn a_batch_too_large_says_the_maximum() {
    let error = instances(&["a", "b", "c", "d"]).check(&advertised()).unwrap_err();
    assert_eq!(error.metadata()["max"], "3");
}

#[test]
fn every_request_needs_a_cluster_uid() {
    fn without<Q: Shape>(request: Q) {
        assert_eq!(refused(&request), shape("cluster"), "{}", std::any::type_name::<Q>());
    }
    without(BatchGetInstancesRequest::default());
    without(WatchInstancesRequest::default());
    without(ListInstancesRequest::default());
    without(AddSshKeyToAllInstancesRequest::default());
    without(GetLoadBalancerRequest::default());
    without(EnsureLoadBalancerRequest::default());
    without(BatchUpdateLoadBalancersRequest::default());
    without(DeleteLoadBalancerRequest::default());
    without(ListLoadBalancersRequest::default());
    without(ListRoutesRequest::default());
    without(BatchEnsureRoutesRequest::default());
    without(BatchDeleteRoutesRequest::default());
    without(BatchGetVolumeLabelsRequest::default());
    without(ListClustersRequest::default());
    without(GetControlPlaneEndpointRequest::default());
    let nameless = Some(ClusterRef { uid: String::new(), name: "prod".into() });
    assert_eq!(
        refused(&WatchInstancesRequest { cluster: nameless, ..Default::default() }),
        shape("cluster.uid")
    );
}

#[test]
fn mutations_need_fencing() {
    assert_eq!(refused(&EnsureLoadBalancerRequest { fencing: None, ..ensure() }), shape("fencing"));
    assert_eq!(refused(&BatchEnsureRoutesRequest { fencing: None, ..routes(vec![]) }), shape("fencing"));
}

#[test]
fn one_balancer() {
    assert_eq!(refused(&ensure()), None);
    for (request, field) in [
        (EnsureLoadBalancerRequest { service: None, ..ensure() }, "service"),
        (EnsureLoadBalancerRequest { service: Some(Service::default()), ..ensure() }, "service.ref"),
        (EnsureLoadBalancerRequest { service: service(""), ..ensure() }, "service.ref.uid"),
        (EnsureLoadBalancerRequest { backends: None, ..ensure() }, "backends"),
        (EnsureLoadBalancerRequest { backends: named("", 0), ..ensure() }, "backends.digest"),
        (EnsureLoadBalancerRequest { backends: named("d", 1), ..ensure() }, "backends.nodes"),
        (EnsureLoadBalancerRequest { desired_digest: String::new(), ..ensure() }, "desired_digest"),
        (EnsureLoadBalancerRequest { desired_digest: "d".repeat(129), ..ensure() }, "desired_digest"),
    ] {
        assert_eq!(refused(&request), shape(field));
    }
}

#[test]
fn batches_of_balancers() {
    for (items, wanted) in [
        (vec![update("a", 0), update("b", 0)], None),
        (vec![], shape("items")),
        (vec![update("a", 1)], shape("items[0].backend_set")),
        (vec![update("a", 0), update("a", 0)], shape("items[1].service.ref.uid")),
        ((0..4).map(|at| update(&at.to_string(), 0)).collect(), TOO_LARGE),
    ] {
        assert_eq!(refused(&updates(items)), wanted);
    }
}

#[test]
fn batches_of_routes() {
    for (items, wanted) in [
        (vec![route("a", "10.0.0.0/24"), route("b", "10.0.1.0/24")], None),
        (vec![route("a", "10.0.0.0/24"), route("b", "10.0.0.0/24")], shape("items[1].destination_cidr")),
        (vec![route("a", "10.0.0.0/24"), route("a", "10.0.1.0/24")], shape("items[1].key")),
        (vec![route("a", "")], shape("items[0].destination_cidr")),
        (vec![RouteToEnsure { target: None, ..route("a", "10.0.0.0/24") }], shape("items[0].target")),
        ((0..4).map(|at| route(&at.to_string(), &at.to_string())).collect(), TOO_LARGE),
    ] {
        assert_eq!(refused(&routes(items)), wanted);
    }
    let item = RouteToDelete { key: "a".into(), route: Some(Route::default()) };
    let fencing = Some(Fencing::default());
    let request = BatchDeleteRoutesRequest { cluster: cluster(), fencing, items: vec![item] };
    assert_eq!(refused(&request), shape("items[0].route.id"));
}

#[test]
fn batches_of_volumes() {
    for (queries, wanted) in [
        (vec![volume("a"), volume("b")], None),
        (vec![volume("a"), volume("a")], shape("queries[1].key")),
        (vec![VolumeQuery { volume_id: String::new(), ..volume("a") }], shape("queries[0].volume_id")),
        ((0..4).map(|at| volume(&at.to_string())).collect(), TOO_LARGE),
    ] {
        assert_eq!(refused(&BatchGetVolumeLabelsRequest { cluster: cluster(), queries }), wanted);
    }
}

#[test]
fn page_sizes_fit_the_limit() {
    for (asked, seen) in [(0, 50), (1, 1), (50, 50), (51, 50), (i32::MAX, 50)] {
        let mut request = ListRoutesRequest { cluster: cluster(), page_size: asked, ..Default::default() };
        assert_eq!(refused(&request), None);
        request.fit(&advertised());
        assert_eq!(request.page_size, seen);
    }
    let negative = ListInstancesRequest { cluster: cluster(), page_size: -1, ..Default::default() };
    assert_eq!(refused(&negative), shape("page_size"));
}

/// [R:fencing]
#[test]
fn fencing_compares_within_a_scope_only() {
    let fences = Fences::default();
    let stale = |scope: &str, epoch| {
        let checked = fences.check(&Fencing { scope: scope.into(), epoch });
        checked.err().as_ref().map(ProviderError::reason) == Some(ErrorReason::StaleLeader)
    };
    assert!(!stale("lease-a", 5));
    assert!(!stale("lease-a", 5));
    assert!(stale("lease-a", 4));
    assert!(!stale("lease-b", 1), "another scope");
    assert!(!stale("lease-a", 0), "election is off");
    assert!(!stale("", 0));
    assert!(!stale("lease-a", 6));
    assert!(stale("lease-a", 5));
}

/// [R:stale-revision]
#[test]
fn revisions_grow_by_service() {
    let revisions = Revisions::default();
    let refused =
        |cluster: &str, service: &str, revision| revisions.accept(cluster, service, revision).is_err();
    assert!(!refused("c", "s", 10));
    assert!(!refused("c", "s", 10), "the same call again");
    assert!(refused("c", "s", 9));
    assert!(!refused("c", "s", 0), "0 is never refused");
    assert!(!refused("c", "t", 1) && !refused("d", "s", 1), "another key");
    assert!(!refused("c", "s", 11));
    assert!(refused("c", "s", 10));
    let error = revisions.accept("c", "s", 3).unwrap_err();
    assert_eq!(error.reason(), ErrorReason::StaleRevision);
}
