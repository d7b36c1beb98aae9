"""What each request must hold, by table."""

from typing import Any

import pytest
from cloud import Cloud
from fixture import CLUSTER, batch, delete, ensure, service, update

from cloudprovider_sdk import ProviderError, checks
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.checks import Fences, Revisions
from cloudprovider_sdk.method import METHODS

ADVERTISED = (
    Cloud()
    .provider(
        capabilities=pb.GetCapabilitiesResponse(
            limits=pb.Limits(
                max_batch_instances=3, max_batch_load_balancers=3, max_batch_routes=3, max_batch_volumes=3, max_page_size=50
            )
        )
    )
    .advertised
)
SHAPE = pb.ERROR_REASON_INVALID_ARGUMENT_SHAPE
LARGE = pb.ERROR_REASON_BATCH_TOO_LARGE
NODE = pb.NodeRef(name="node-1")


def routes(*destinations: str, key: str | None = None) -> pb.BatchEnsureRoutesRequest:
    items = [
        pb.RouteToEnsure(key=key if key is not None else cidr, destination_cidr=cidr, target=NODE) for cidr in destinations
    ]
    return pb.BatchEnsureRoutesRequest(cluster=CLUSTER, fencing=pb.Fencing(), items=items)


def unroutes(*destinations: str, **route: str) -> pb.BatchDeleteRoutesRequest:
    whole: dict[str, Any] = {"id": "r", **route}
    items = [pb.RouteToDelete(key=cidr, route=pb.Route(destination_cidr=cidr, **whole)) for cidr in destinations]
    return pb.BatchDeleteRoutesRequest(cluster=CLUSTER, fencing=pb.Fencing(), items=items)


def volumes(*ids: str) -> pb.BatchGetVolumeLabelsRequest:
    queries = [pb.VolumeQuery(key=one, name="pv", plugin="p", volume_id=one) for one in ids]
    return pb.BatchGetVolumeLabelsRequest(cluster=CLUSTER, queries=queries)


def changed(request: Any, **fields: Any) -> Any:
    copy = type(request)()
    copy.CopyFrom(request)
    for path, value in fields.items():
        *parents, last = path.split("__")
        at = copy
        for parent in parents:
            at = getattr(at, parent) if not parent.isdigit() else at[int(parent)]
        if value is None:
            at.ClearField(last)
        else:
            setattr(at, last, value)
    return copy


SSH = pb.AddSshKeyToAllInstancesRequest(cluster=CLUSTER, fencing=pb.Fencing(), user="u", public_key="k")
GET = pb.GetLoadBalancerRequest(cluster=CLUSTER, service=service("s").ref)
NAMED_WITH_NODES = ensure("s")
NAMED_WITH_NODES.backends.MergeFrom(pb.BackendSet(nodes=[NODE], nodes_omitted=True))
LIST = pb.ListRoutesRequest(cluster=CLUSTER)
GOOD = [
    batch("a", "b"),
    pb.WatchInstancesRequest(cluster=CLUSTER),
    LIST,
    SSH,
    pb.LeadRequest(cluster=CLUSTER, fencing=pb.Fencing()),
    GET,
    ensure("s"),
    update("s", "t"),
    delete("s"),
    routes("10.0.0.0/24", "10.0.1.0/24"),
    unroutes("10.0.0.0/24"),
    volumes("v"),
    pb.ListInstancesRequest(cluster=CLUSTER),
    pb.ListLoadBalancersRequest(cluster=CLUSTER),
    pb.ListClustersRequest(cluster=CLUSTER),
    pb.GetControlPlaneEndpointRequest(cluster=CLUSTER, cluster_name="c"),
]


@pytest.mark.parametrize("request_", GOOD, ids=lambda one: type(one).__name__)
def test_a_good_request_passes_and_needs_its_cluster(request_: Any) -> None:
    """[R:cluster-uid-required]."""
    checks.check(request_, ADVERTISED)
    for bad in (changed(request_, cluster=None), changed(request_, cluster__uid=""), changed(request_, cluster__uid="x" * 65)):
        with pytest.raises(ProviderError) as refused:
            checks.check(bad, ADVERTISED)
        assert refused.value.reason == SHAPE
    if hasattr(request_, "fencing"):
        with pytest.raises(ProviderError, match="fencing is missing"):
            checks.check(changed(request_, fencing=None), ADVERTISED)


def test_every_request_that_reaches_a_cloud_has_its_row() -> None:
    shaped = {method.request for method in METHODS if "cluster" in method.request.DESCRIPTOR.fields_by_name}
    assert shaped == {type(request) for request in GOOD}


@pytest.mark.parametrize(
    ("request_", "reason", "field"),
    [
        (batch(), SHAPE, "queries"),
        (batch("a", "b", "c", "d"), LARGE, None),
        (changed(batch("a"), queries__0__key=""), SHAPE, "queries[0].key"),
        (changed(batch("a", "b"), queries__1__key="key-a"), SHAPE, "queries[1].key"),
        (changed(batch("a"), queries__0__key="x" * 1025), SHAPE, "queries[0].key"),
        (changed(batch("a"), queries__0__node=None), SHAPE, "queries[0].node.name"),
        (changed(batch("a"), queries__0__node__provider_id="x" * 1025), SHAPE, "queries[0].node.provider_id"),
        (changed(ensure("s"), backends__nodes_omitted=True, backends__digest=None), SHAPE, "backends.digest"),
        (NAMED_WITH_NODES, SHAPE, "backends.nodes"),
        (changed(LIST, page_size=-1), SHAPE, "page_size"),
        (changed(LIST, page_token="x" * 1025), SHAPE, "page_token"),
        (changed(SSH, user=""), SHAPE, "user"),
        (changed(SSH, public_key="ä" * (8 << 10) + "x"), SHAPE, "public_key"),
        (changed(GET, service__uid=""), SHAPE, "service.uid"),
        (changed(GET, service__namespace=""), SHAPE, "service.namespace"),
        (changed(ensure("s"), service=None), SHAPE, "service.ref.uid"),
        (changed(ensure("s"), backends=None), SHAPE, "backends"),
        (changed(ensure("s"), desired_digest=""), SHAPE, "desired_digest"),
        (changed(delete("s"), service__name=""), SHAPE, "service.name"),
        (update(), SHAPE, "items"),
        (update("a", "b", "c", "d"), LARGE, None),
        (update("a", "a"), SHAPE, "items[1].service.ref.uid"),
        (changed(update("a"), items__0__backend_set=1), SHAPE, "items[0].backend_set"),
        (changed(update("a"), items__0__desired_digest=""), SHAPE, "items[0].desired_digest"),
        (routes(), SHAPE, "items"),
        (routes("a", "b", "c", "d"), LARGE, None),
        (routes("10.0.0.0/24", "10.0.0.0/25", key="k"), SHAPE, "items[1].key"),
        (changed(routes("a", "b"), items__1__destination_cidr="a"), SHAPE, "items[1].destination_cidr"),
        (changed(routes("a"), items__0__target=None), SHAPE, "items[0].target.name"),
        (unroutes("a", id=""), SHAPE, "items[0].route.id"),
        (unroutes("a", "b", "c", "d"), LARGE, None),
        (volumes(), SHAPE, "queries"),
        (volumes("a", "b", "c", "d"), LARGE, None),
        (changed(volumes("a"), queries__0__plugin=""), SHAPE, "queries[0].plugin"),
        (pb.GetControlPlaneEndpointRequest(cluster=CLUSTER), SHAPE, "cluster_name"),
    ],
)
def test_what_is_out_of_shape_is_refused_and_named(request_: Any, reason: int, field: str | None) -> None:
    with pytest.raises(ProviderError) as refused:
        checks.check(request_, ADVERTISED)
    assert refused.value.reason == reason
    assert [path for path, _ in refused.value.fields] == ([field] if field else [])


def test_fencing_compares_within_a_scope_only() -> None:
    """[R:fencing]."""
    fences = Fences()

    def stale(scope: str, epoch: int) -> bool:
        try:
            fences.check(pb.Fencing(scope=scope, epoch=epoch))
        except ProviderError as error:
            return error.reason == pb.ERROR_REASON_STALE_LEADER
        return False

    assert not stale("lease-a", 5)
    assert not stale("lease-a", 5)
    assert stale("lease-a", 4)
    assert not stale("lease-b", 1), "another scope"
    assert not stale("lease-a", 0), "election is off"
    assert not stale("lease-a", 6)
    assert stale("lease-a", 5)


def test_revisions_grow_by_service_within_bounded_memory() -> None:
    """[R:stale-revision]."""
    revisions = Revisions(remembered=2)

    def refused(cluster: str, uid: str, revision: int) -> bool:
        try:
            revisions.accept(cluster, uid, revision)
        except ProviderError:
            return True
        return False

    assert not refused("c", "s", 10)
    assert not refused("c", "s", 10), "the same call again"
    assert refused("c", "s", 9)
    assert not refused("c", "s", 0), "0 is never refused"
    assert not refused("d", "s", 1), "another cluster"
    assert not refused("c", "s", 11)
    assert not refused("c", "t", 5), "the third: the one whose last change is longest ago is forgotten"
    assert not refused("d", "s", 1)
    assert refused("c", "t", 4)
