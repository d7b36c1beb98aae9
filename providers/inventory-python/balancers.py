"""Load balancers: each Service of type LoadBalancer gets an address from the inventory's pools."""

import cloudprovider_sdk as sdk
from cloudprovider_sdk import Call, errors
from cloudprovider_sdk import proto as pb

import pools
from allocations import Allocations, Row
from inventory import Inventory


class Balancers(sdk.LoadBalancers):
    def __init__(self, allocations: Allocations, inventory: Inventory) -> None:
        self.allocations, self.inventory = allocations, inventory

    async def ensure_load_balancer(self, call: Call, request: pb.EnsureLoadBalancerRequest) -> pb.EnsureLoadBalancerResponse:
        pools.check(request.service)
        rows, ref = self.allocations.read(), request.service.ref
        before = rows.pop(key_of(call, ref), None)
        row = {
            "cluster": call.cluster.uid,
            "namespace": ref.namespace,
            "name": ref.name,
            "uid": ref.uid,
            "address": self.address(request.service, before, {row["address"] for row in rows.values()}),
            **pools.asked(request.service),
            "digest": request.desired_digest,
            "backends": backends(request.backends),
        }
        if row != before:
            self.allocations.write({**rows, key_of(call, ref): row})
        return pb.EnsureLoadBalancerResponse(load_balancer=balancer(row))

    def address(self, service: pb.Service, before: Row | None, taken: set[str]) -> str:
        if before and pools.keeps(service, before["address"]):
            return str(before["address"])
        return pools.choose(service, self.inventory.read().pools, taken)

    async def batch_update_load_balancers(
        self, call: Call, request: pb.BatchUpdateLoadBalancersRequest
    ) -> pb.BatchUpdateLoadBalancersResponse:
        rows, answer = self.allocations.read(), pb.BatchUpdateLoadBalancersResponse()
        for item in request.items:
            ref, result = item.service.ref, answer.results.add(service_uid=item.service.ref.uid)
            if row := rows.get(key_of(call, ref)):
                row |= {"digest": item.desired_digest, "backends": backends(request.backends)}
                result.outcome = pb.UPDATE_OUTCOME_UPDATED
            else:
                result.outcome = pb.UPDATE_OUTCOME_NOT_UPDATED
                result.error.CopyFrom(errors.to_item(errors.needs_ensure(ref.name)))
        self.allocations.write(rows)
        return answer

    async def delete_load_balancer(self, call: Call, request: pb.DeleteLoadBalancerRequest) -> pb.DeleteLoadBalancerResponse:
        rows = self.allocations.read()
        if rows.pop(key_of(call, request.service), None):
            self.allocations.write(rows)
        return pb.DeleteLoadBalancerResponse()

    async def get_load_balancer(self, call: Call, request: pb.GetLoadBalancerRequest) -> pb.GetLoadBalancerResponse:
        row = self.allocations.read().get(key_of(call, request.service))
        absent = pb.LoadBalancer(service=request.service, state=pb.LOAD_BALANCER_STATE_ABSENT)
        return pb.GetLoadBalancerResponse(load_balancer=balancer(row) if row else absent)

    async def list_load_balancers(self, call: Call, request: pb.ListLoadBalancersRequest) -> pb.ListLoadBalancersResponse:
        ours = (row for row in self.allocations.read().values() if row["cluster"] == call.cluster.uid)
        page, token = sdk.page(request, ours, lambda row: row["uid"])
        return pb.ListLoadBalancersResponse(load_balancers=map(balancer, page), next_page_token=token)


def key_of(call: Call, service: pb.ServiceRef) -> str:
    return f"{call.cluster.uid}/{service.uid}"


def backends(nodes: pb.BackendSet) -> dict[str, list[str]]:
    return {node.name: [one.address for one in node.addresses] for node in nodes.nodes}


def balancer(row: Row) -> pb.LoadBalancer:
    return pb.LoadBalancer(
        service=pb.ServiceRef(namespace=row["namespace"], name=row["name"], uid=row["uid"]),
        id=row["address"],
        name=f"{row['namespace']}/{row['name']}",
        state=pb.LOAD_BALANCER_STATE_ACTIVE,
        ownership=pb.OWNERSHIP_BY_UID,
        applied_digest=row["digest"],
        ingress=[pb.LoadBalancerIngress(ip=row["address"], ip_mode=pb.INGRESS_IP_MODE_VIP)],
    )
