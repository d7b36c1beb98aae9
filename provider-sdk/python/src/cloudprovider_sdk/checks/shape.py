"""Checks the shape of each request: required fields, unique keys, and sizes."""

from collections.abc import Callable
from typing import Any, Final

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.advertised import Advertised
from cloudprovider_sdk.checks import parts

_USER: Final = 32
_PUBLIC_KEY: Final = 16 << 10
_CIDR: Final = 64
"""Longest CIDR: an IPv6 address with an embedded IPv4 one, and a prefix."""


def check(request: Any, advertised: Advertised) -> None:
    """Raise if the request violates the contract."""
    if _is_page(request):
        parts.page(request)
    elif shape := _SHAPES.get(type(request)):
        shape(request, advertised)


def fit(request: Any, advertised: Advertised) -> None:
    """Clamp the page size, so that methods need not: the maximum if the request has none or a larger one."""
    if _is_page(request):
        request.page_size = min(request.page_size or advertised.max_page_size, advertised.max_page_size)


def items(request: Any) -> int | None:
    """Return the number of items of a batch; None if the request is not a batch."""
    match request:
        case pb.BatchGetInstancesRequest() | pb.BatchGetVolumeLabelsRequest():
            return len(request.queries)
        case pb.BatchUpdateLoadBalancersRequest() | pb.BatchEnsureRoutesRequest() | pb.BatchDeleteRoutesRequest():
            return len(request.items)
    return None


def _is_page(request: Any) -> bool:
    return "page_token" in request.DESCRIPTOR.fields_by_name


def _watch_instances(request: pb.WatchInstancesRequest, _: Advertised) -> None:
    parts.cluster(request)
    parts.short("resume_token", request.resume_token, parts.LONG)


def _add_ssh_key(request: pb.AddSshKeyToAllInstancesRequest, _: Advertised) -> None:
    parts.mutation(request)
    parts.text("user", request.user, _USER)
    parts.text("public_key", request.public_key, _PUBLIC_KEY)


def _lead(request: pb.LeadRequest, _: Advertised) -> None:
    parts.mutation(request)


def _get_load_balancer(request: pb.GetLoadBalancerRequest, _: Advertised) -> None:
    parts.cluster(request)
    parts.service("service", request.service)


def _ensure_load_balancer(request: pb.EnsureLoadBalancerRequest, _: Advertised) -> None:
    parts.mutation(request)
    parts.service("service.ref", request.service.ref)
    parts.present(request, "backends")
    parts.backend_set("backends", request.backends)
    parts.digest("desired_digest", request.desired_digest)


def _delete_load_balancer(request: pb.DeleteLoadBalancerRequest, _: Advertised) -> None:
    parts.mutation(request)
    parts.service("service", request.service)


def _get_control_plane_endpoint(request: pb.GetControlPlaneEndpointRequest, _: Advertised) -> None:
    parts.cluster(request)
    parts.text("cluster_name", request.cluster_name, parts.LONG)


def _batch_get_instances(request: pb.BatchGetInstancesRequest, advertised: Advertised) -> None:
    parts.cluster(request)
    parts.batch("queries", len(request.queries), advertised.max_batch_instances)
    parts.unique((f"queries[{at}].key", query.key) for at, query in enumerate(request.queries))
    for at, query in enumerate(request.queries):
        parts.node(f"queries[{at}].node", query.node)


def _batch_update_load_balancers(request: pb.BatchUpdateLoadBalancersRequest, advertised: Advertised) -> None:
    parts.mutation(request)
    parts.batch("items", len(request.items), advertised.max_batch_load_balancers)
    parts.present(request, "backends")
    parts.backend_set("backends", request.backends)
    for at, item in enumerate(request.items):
        parts.service(f"items[{at}].service.ref", item.service.ref)
        parts.digest(f"items[{at}].desired_digest", item.desired_digest)
    parts.unique((f"items[{at}].service.ref.uid", item.service.ref.uid) for at, item in enumerate(request.items))


def _batch_ensure_routes(request: pb.BatchEnsureRoutesRequest, advertised: Advertised) -> None:
    parts.mutation(request)
    parts.batch("items", len(request.items), advertised.max_batch_routes)
    parts.unique((f"items[{at}].key", item.key) for at, item in enumerate(request.items))
    for at, item in enumerate(request.items):
        parts.node(f"items[{at}].target", item.target)
    destinations = ((f"items[{at}].destination_cidr", item.destination_cidr) for at, item in enumerate(request.items))
    parts.unique(destinations, _CIDR)


def _batch_delete_routes(request: pb.BatchDeleteRoutesRequest, advertised: Advertised) -> None:
    parts.mutation(request)
    parts.batch("items", len(request.items), advertised.max_batch_routes)
    parts.unique((f"items[{at}].key", item.key) for at, item in enumerate(request.items))
    for at, item in enumerate(request.items):
        parts.text(f"items[{at}].route.id", item.route.id, parts.LONG)
        parts.text(f"items[{at}].route.destination_cidr", item.route.destination_cidr, _CIDR)


def _batch_get_volume_labels(request: pb.BatchGetVolumeLabelsRequest, advertised: Advertised) -> None:
    parts.cluster(request)
    parts.batch("queries", len(request.queries), advertised.max_batch_volumes)
    parts.unique((f"queries[{at}].key", query.key) for at, query in enumerate(request.queries))
    for at, query in enumerate(request.queries):
        parts.text(f"queries[{at}].name", query.name, parts.LONG)
        parts.text(f"queries[{at}].plugin", query.plugin, parts.LONG)
        parts.text(f"queries[{at}].volume_id", query.volume_id, parts.LONG)


_SHAPES: Final[dict[type, Callable[[Any, Advertised], None]]] = {
    pb.LeadRequest: _lead,
    pb.BatchGetInstancesRequest: _batch_get_instances,
    pb.WatchInstancesRequest: _watch_instances,
    pb.AddSshKeyToAllInstancesRequest: _add_ssh_key,
    pb.GetLoadBalancerRequest: _get_load_balancer,
    pb.EnsureLoadBalancerRequest: _ensure_load_balancer,
    pb.BatchUpdateLoadBalancersRequest: _batch_update_load_balancers,
    pb.DeleteLoadBalancerRequest: _delete_load_balancer,
    pb.BatchEnsureRoutesRequest: _batch_ensure_routes,
    pb.BatchDeleteRoutesRequest: _batch_delete_routes,
    pb.BatchGetVolumeLabelsRequest: _batch_get_volume_labels,
    pb.GetControlPlaneEndpointRequest: _get_control_plane_endpoint,
}
"""By type. All page requests share one shape; requests that this package answers itself need none."""
