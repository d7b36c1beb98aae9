"""A whole provider for a small cloud, whose REST API tests/small-cloud describes.

It serves instances with a watch, load balancers that keep their digest, and routes. Every call reads the cloud anew. The SDK
does the rest: leadership, one mutation at a time for each Service, shapes, deadlines, sets of backends, pages.
"""

import argparse
import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

import cloudprovider_sdk as sdk
from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb

PREFIX = "small://"
AT_ONCE = 16
"""How many requests of one batch run at once."""
CALL_WITHIN = 30.0
"""Bounds one request, in seconds."""

Thing = dict[str, Any]
"""A server, a balancer or a route, as the API has it."""
In = TypeVar("In")
Out = TypeVar("Out")


class NotFoundError(Exception):
    """The cloud has no such object."""


class ChangedError(Exception):
    """The object has changed."""


class Client(sdk.CloudProvider):
    """Calls the cloud's API, and remembers how the last call ended."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=CALL_WITHIN, trust_env=False)
        self.last: pb.ErrorReason.ValueType = pb.ERROR_REASON_UNSPECIFIED

    async def call(self, method: str, path: str, body: Thing | None = None) -> Any:
        """Send a request and return the answer. An answer that is an error becomes the contract's."""
        try:
            answer = await self._send(method, path, body)
        except sdk.ProviderError as error:
            self.last = error.reason
            raise
        self.last = pb.ERROR_REASON_UNSPECIFIED
        return answer

    async def _send(self, method: str, path: str, body: Thing | None) -> Any:
        try:
            answer = await self.http.request(method, path, json=body)
        except httpx.TransportError as error:
            raise errors.cloud_api_unavailable() from error
        match answer.status_code:
            case 200:
                return answer.json()
            case 401:
                raise errors.cloud_credentials_invalid()
            case 403:
                raise errors.cloud_permission_denied(f"{method} {path}")
            case 404:
                raise NotFoundError(path)
            case 409:
                raise ChangedError(path)
            case 422:
                raise errors.quota_exceeded("the project", answer.text)
            case 429:
                raise errors.rate_limited(float(answer.headers.get("Retry-After", 1)))
            case 503:
                raise errors.cloud_api_unavailable()
        raise errors.internal() from RuntimeError(f"{method} {path}: status {answer.status_code}")

    async def get_status(self, call: sdk.Call) -> pb.GetStatusResponse:
        """Tell how the last call ended."""
        answer = pb.GetStatusResponse()
        for of, reason in (
            (pb.CONDITION_TYPE_CLOUD_REACHABLE, pb.ERROR_REASON_CLOUD_API_UNAVAILABLE),
            (pb.CONDITION_TYPE_CREDENTIALS_VALID, pb.ERROR_REASON_CLOUD_CREDENTIALS_INVALID),
        ):
            failed = self.last == reason
            status = pb.CONDITION_STATUS_FALSE if failed else pb.CONDITION_STATUS_TRUE
            answer.conditions.add(type=of, status=status, reason="LastCallFailed" if failed else "")
        return answer


class Servers(sdk.Instances):
    """The instances behind nodes."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def batch_get_instances(self, call: sdk.Call, request: pb.BatchGetInstancesRequest) -> pb.BatchGetInstancesResponse:
        """Answer all queries from one list."""
        found = defaultdict[str, list[Thing]](list)  # By provider ID, and by the name of a node that has none yet.
        for server in await self.client.call("GET", "/servers"):
            found[PREFIX + server["id"]].append(server)
            found[server["name"]].append(server)
        results = [look_up(query, found[query.node.provider_id or query.node.name]) for query in request.queries]
        return pb.BatchGetInstancesResponse(results=results)

    async def watch_instances(self, call: sdk.Call, request: pb.WatchInstancesRequest) -> sdk.InstanceWatch:
        """Watch from a moment before the watch is said to have started."""
        last = (await self.client.call("GET", "/changes?after=-1"))["last"]
        return sdk.InstanceWatch(self._changes(last))

    async def _changes(self, last: int) -> AsyncIterator[pb.InstanceChanged]:
        while True:
            changes = await self.client.call("GET", f"/changes?after={last}")
            for server in changes["servers"]:
                yield pb.InstanceChanged(provider_id=PREFIX + server)
            last = changes["last"]


def look_up(query: pb.InstanceQuery, found: list[Thing]) -> pb.InstanceResult:
    provider_id = query.node.provider_id
    if provider_id and (not provider_id.startswith(PREFIX) or provider_id == PREFIX):
        return sdk.results.not_owned(query.key)
    if not found:
        return sdk.results.absent(query)
    if len(found) > 1:
        return sdk.results.unknown(query.key, errors.instance_ambiguous(query.node.name))
    server = found[0]
    instance = pb.Instance(
        provider_id=PREFIX + server["id"], name=server["name"], instance_type=server["type"], zone=server["zone"]
    )
    instance.addresses.add(type=pb.NODE_ADDRESS_TYPE_INTERNAL_IP, address=server["ip"])
    stopped = server["status"] == "stopped"
    return sdk.results.found(query.key, pb.INSTANCE_STATE_STOPPED if stopped else pb.INSTANCE_STATE_RUNNING, instance)


class Balancers(sdk.LoadBalancers):
    """Their name has both uids; a tag has the digest."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ensure_load_balancer(
        self, call: sdk.Call, request: pb.EnsureLoadBalancerRequest
    ) -> pb.EnsureLoadBalancerResponse:
        made = await self.client.call("PUT", path_of(call, request.service.ref), wanted(call, request))
        answer = pb.EnsureLoadBalancerResponse(load_balancer=balancer(made))
        if made["status"] != "active":
            answer.in_progress.reason, answer.in_progress.message = "BUILDING", "the cloud builds the balancer"
            answer.in_progress.retry_after.FromSeconds(1)
        return answer

    async def batch_update_load_balancers(
        self, call: sdk.Call, request: pb.BatchUpdateLoadBalancersRequest
    ) -> pb.BatchUpdateLoadBalancersResponse:
        servers = servers_of(request.backends)

        async def update(item: pb.LoadBalancerUpdate) -> pb.LoadBalancerUpdateResult:
            result = pb.LoadBalancerUpdateResult(service_uid=item.service.ref.uid, outcome=pb.UPDATE_OUTCOME_NOT_UPDATED)
            try:
                change = {"servers": servers, "tags": {"digest": item.desired_digest}}
                await self.client.call("PATCH", path_of(call, item.service.ref), change)
                result.outcome = pb.UPDATE_OUTCOME_UPDATED
            except NotFoundError:  # An update creates nothing.
                result.error.CopyFrom(errors.to_item(errors.needs_ensure(item.service.ref.uid)))
            except sdk.ProviderError as error:
                result.error.CopyFrom(errors.to_item(error))
            return result

        return pb.BatchUpdateLoadBalancersResponse(results=await each(request.items, update))

    async def delete_load_balancer(
        self, call: sdk.Call, request: pb.DeleteLoadBalancerRequest
    ) -> pb.DeleteLoadBalancerResponse:
        await self.client.call("DELETE", path_of(call, request.service))
        return pb.DeleteLoadBalancerResponse()

    async def get_load_balancer(self, call: sdk.Call, request: pb.GetLoadBalancerRequest) -> pb.GetLoadBalancerResponse:
        try:
            found = balancer(await self.client.call("GET", path_of(call, request.service)))
        except NotFoundError:
            found = pb.LoadBalancer(service=request.service, state=pb.LOAD_BALANCER_STATE_ABSENT)
        return pb.GetLoadBalancerResponse(load_balancer=found)

    async def list_load_balancers(self, call: sdk.Call, request: pb.ListLoadBalancersRequest) -> pb.ListLoadBalancersResponse:
        found = await self.client.call("GET", f"/balancers?cluster={quote(call.cluster.uid)}")
        page, token = sdk.page(request, found, lambda one: str(one["name"]))
        return pb.ListLoadBalancersResponse(load_balancers=map(balancer, page), next_page_token=token)


def path_of(call: sdk.Call, service: pb.ServiceRef) -> str:
    return f"/balancers/{quote(call.cluster.uid, safe='')}.{quote(service.uid, safe='')}"


def wanted(call: sdk.Call, request: pb.EnsureLoadBalancerRequest) -> Thing:
    """Translate a Service. What this cloud cannot do is refused by name, before anything changes."""
    service = request.service
    if service.load_balancer_ip:
        raise errors.unsupported_feature("spec.loadBalancerIP", "the cloud chooses addresses")
    if service.HasField("client_ip_affinity"):
        raise errors.unsupported_feature("spec.sessionAffinity", "the cloud's balancers know none")
    if any(port.node_port == 0 for port in service.ports):
        raise errors.unsupported_feature("spec.allocateLoadBalancerNodePorts", "the cloud reaches pods by node ports")
    for at, port in enumerate(service.ports):
        if port.protocol == pb.PROTOCOL_UNSPECIFIED:
            raise errors.unsupported_feature(f"spec.ports[{at}].protocol", "the cloud does not know it")
    families = [pb.IpFamily.Name(family).removeprefix("IP_FAMILY_") for family in service.ip_families]
    local = service.external_traffic_policy == pb.TRAFFIC_POLICY_LOCAL
    return {
        "tags": {
            "cluster": call.cluster.uid,
            "namespace": service.ref.namespace,
            "service": service.ref.name,
            "uid": service.ref.uid,
            "digest": request.desired_digest,
        },
        "ports": [
            {
                "protocol": pb.Protocol.Name(port.protocol).removeprefix("PROTOCOL_"),
                "port": port.port,
                "node_port": port.node_port,
            }
            for port in service.ports
        ],
        "families": families or ["IPV4"],
        "sources": list(service.source_ranges),
        "check": service.health_check_node_port if local else 0,
        "servers": servers_of(request.backends),
    }


def servers_of(backends: pb.BackendSet) -> list[str]:
    """Return the servers behind a balancer; a node without an instance gets no traffic."""
    ids = (node.provider_id for node in backends.nodes)
    return [one.removeprefix(PREFIX) for one in ids if one.startswith(PREFIX)]


def balancer(found: Thing) -> pb.LoadBalancer:
    tags, active = found["tags"], found["status"] == "active"
    out = pb.LoadBalancer(name=found["name"], ownership=pb.OWNERSHIP_BY_UID, applied_digest=tags["digest"] if active else "")
    out.service.MergeFrom(pb.ServiceRef(namespace=tags["namespace"], name=tags["service"], uid=tags["uid"]))
    out.state = pb.LOAD_BALANCER_STATE_ACTIVE if active else pb.LOAD_BALANCER_STATE_PENDING
    for address in found["addresses"]:
        out.ingress.add(ip=address, ip_mode=pb.INGRESS_IP_MODE_VIP)
    return out


class Routes(sdk.Routes):
    """Their name has the cluster's uid and the destination."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def list_routes(self, call: sdk.Call, request: pb.ListRoutesRequest) -> pb.ListRoutesResponse:
        found = await self.client.call("GET", f"/routes?cluster={quote(call.cluster.uid)}")
        page, token = sdk.page(request, found, lambda one: str(one["name"]))
        return pb.ListRoutesResponse(routes=map(route, page), next_page_token=token)

    async def batch_ensure_routes(self, call: sdk.Call, request: pb.BatchEnsureRoutesRequest) -> pb.BatchEnsureRoutesResponse:
        async def ensure(item: pb.RouteToEnsure) -> pb.RouteResult:
            node, cidr = item.target, item.destination_cidr
            # The cloud finds a server by its name, too, as long as the node has no provider ID.
            server = node.provider_id.removeprefix(PREFIX) or node.name
            asked = {"cidr": cidr, "server": server, "tags": {"cluster": call.cluster.uid, "node": node.name}}
            try:
                made = await self.client.call("PUT", f"/routes/{quote(f'{call.cluster.uid} {cidr}', safe='')}", asked)
                return pb.RouteResult(key=item.key, route=route(made))
            except NotFoundError:
                return pb.RouteResult(key=item.key, error=errors.to_item(errors.instance_not_found(node.name)))
            except sdk.ProviderError as error:
                return pb.RouteResult(key=item.key, error=errors.to_item(error))

        return pb.BatchEnsureRoutesResponse(results=await each(request.items, ensure))

    async def batch_delete_routes(self, call: sdk.Call, request: pb.BatchDeleteRoutesRequest) -> pb.BatchDeleteRoutesResponse:
        async def delete(item: pb.RouteToDelete) -> pb.RouteDeletion:
            listed, server = item.route, item.route.target.provider_id.removeprefix(PREFIX)
            if listed.ownership != pb.OWNERSHIP_BY_UID or not listed.id.startswith(f"{call.cluster.uid} "):
                return pb.RouteDeletion(key=item.key, error=errors.to_item(errors.owned_by_other_cluster(listed.id)))
            try:
                # The cloud compares the target, so that nobody changes it in between.
                await self.client.call("DELETE", f"/routes/{quote(listed.id, safe='')}?server={quote(server)}")
                return pb.RouteDeletion(key=item.key)
            except ChangedError:
                return pb.RouteDeletion(key=item.key, error=errors.to_item(errors.route_changed(listed.id)))
            except sdk.ProviderError as error:
                return pb.RouteDeletion(key=item.key, error=errors.to_item(error))

        return pb.BatchDeleteRoutesResponse(results=await each(request.items, delete))


def route(found: Thing) -> pb.Route:
    return pb.Route(
        id=found["name"],
        destination_cidr=found["cidr"],
        target=pb.NodeRef(name=found["tags"]["node"], provider_id=PREFIX + found["server"]),
        state=pb.ROUTE_STATE_BLACKHOLE if found["status"] == "broken" else pb.ROUTE_STATE_ACTIVE,
        ownership=pb.OWNERSHIP_BY_UID,
    )


async def each(items: Iterable[In], work: Callable[[In], Awaitable[Out]]) -> list[Out]:
    """Run the items of a batch, several at once; the results are in their order."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(item: In) -> Out:
        async with places:
            return await work(item)

    # If one fails as a whole, the others end with it: nothing goes on once the call has been answered.
    async with asyncio.TaskGroup() as group:
        results = [group.create_task(one(item)) for item in items]
    return [result.result() for result in results]


async def provider(flags: argparse.Namespace) -> sdk.Provider:
    client = Client(flags.cloud, flags.token_file.read_text().strip())
    durable = [pb.CAPABILITY_DURABLE_DIGEST, pb.CAPABILITY_ROUTE_OWNERSHIP]
    capabilities = pb.GetCapabilitiesResponse(capabilities=durable)
    capabilities.intervals.bookmark_interval.FromSeconds(1)
    return sdk.Provider(
        "small",
        provider_id_prefixes=[PREFIX],
        capabilities=capabilities,
        status=client,
        instances=Servers(client),
        load_balancers=Balancers(client),
        routes=Routes(client),
    )


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(description="Serves a small cloud to ccm-host.")
    flags.add_argument("--cloud", required=True, metavar="URL", help="the cloud's API")
    flags.add_argument("--token-file", type=Path, required=True, metavar="FILE", help="the token for it")
    return flags


if __name__ == "__main__":
    sdk.main(provider, parser())
