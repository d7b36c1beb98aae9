"""A whole provider that knows instances and nothing else."""

import cloudprovider_sdk as sdk
from cloudprovider_sdk import proto as pb

Servers = dict[str, tuple[pb.InstanceState.ValueType, str]]


class Cloud(sdk.Instances):
    """Here a list of servers by id, in your provider a client of its API."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers

    async def batch_get_instances(self, call: sdk.Call, request: pb.BatchGetInstancesRequest) -> pb.BatchGetInstancesResponse:
        return pb.BatchGetInstancesResponse(results=[self.look_up(query) for query in request.queries])

    def look_up(self, query: pb.InstanceQuery) -> pb.InstanceResult:
        key, node = query.key, query.node
        scheme, _, server = node.provider_id.partition("://")
        if node.provider_id and (scheme != "example" or not server):
            return sdk.results.not_owned(key)
        server = server or node.name  # A new node has no provider ID yet.
        if server not in self.servers:
            return sdk.results.absent(query)
        state, address = self.servers[server]
        instance = pb.Instance(provider_id=f"example://{server}", instance_type="small", zone="eu-1")
        instance.addresses.add(type=pb.NODE_ADDRESS_TYPE_INTERNAL_IP, address=address)
        return sdk.results.found(key, state, instance)


if __name__ == "__main__":
    servers: Servers = {
        "node-1": (pb.INSTANCE_STATE_RUNNING, "10.0.0.1"),
        "node-2": (pb.INSTANCE_STATE_STOPPED, "10.0.0.2"),
    }
    sdk.main(lambda _: sdk.Provider("example", provider_id_prefixes=["example://"], instances=Cloud(servers)))
