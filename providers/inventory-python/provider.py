"""Serves an inventory's machines as instances and, with `--allocations`, load balancers on addresses from its pools."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path

import cloudprovider_sdk as sdk
from cloudprovider_sdk import proto as pb

from allocations import Allocations
from balancers import Balancers
from inventory import PREFIX, Contents, Found, Inventory

WANTS = pb.Wants(identity=pb.NodeFields(system_uuid=True), backend=pb.NodeFields(addresses=True))


class Machines(sdk.Instances, sdk.CloudProvider):
    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory

    async def batch_get_instances(self, call: sdk.Call, request: pb.BatchGetInstancesRequest) -> pb.BatchGetInstancesResponse:
        contents = self.inventory.read()
        return pb.BatchGetInstancesResponse(results=[look_up(contents, query) for query in request.queries])

    async def watch_instances(self, call: sdk.Call, request: pb.WatchInstancesRequest) -> sdk.InstanceWatch:
        try:
            known = self.inventory.read().machines
        except sdk.ProviderError:
            known = {}  # Whatever it holds once it can be read is news.
        return sdk.InstanceWatch(self.changes(known))

    async def changes(self, known: Mapping[str, Found]) -> AsyncIterator[pb.InstanceChanged]:
        """Yield what differs from `known`, which was read before the watch was said to have started."""
        while True:
            try:
                now = self.inventory.read().machines
                for one in {**known, **now}:  # In the file's order.
                    if now.get(one) != known.get(one):
                        yield pb.InstanceChanged(provider_id=one)
                known = now
            except sdk.ProviderError:
                pass  # BatchGetInstances and GetStatus report it.
            await asyncio.sleep(1)

    async def get_status(self, call: sdk.Call) -> pb.GetStatusResponse:
        condition = pb.ProviderCondition(type=pb.CONDITION_TYPE_CLOUD_REACHABLE, status=pb.CONDITION_STATUS_TRUE)
        try:
            self.inventory.read()
        except sdk.ProviderError as error:
            condition.status, condition.reason = pb.CONDITION_STATUS_FALSE, "InventoryUnusable"
            condition.message = error.message
        return pb.GetStatusResponse(conditions=[condition])


def look_up(contents: Contents, query: pb.InstanceQuery) -> pb.InstanceResult:
    """Find by provider ID if the node has one, else by system UUID, else by name."""
    key, node, machines = query.key, query.node, contents.machines
    if node.provider_id:
        if not node.provider_id.startswith(PREFIX) or node.provider_id == PREFIX:
            return sdk.results.not_owned(key)
        found = machines.get(node.provider_id)
    else:
        of_name = (one for one in machines.values() if one[1].name == node.name)
        found = machines.get(contents.ids.get(node.system_uuid, "")) or next(of_name, None)
    return sdk.results.found(key, *found) if found else sdk.results.absent(query)


def provider(flags: argparse.Namespace) -> sdk.Provider:
    inventory = Inventory(flags.inventory)
    machines = Machines(inventory)
    balancers = Balancers(Allocations(flags.allocations), inventory) if flags.allocations else None
    # The allocations file keeps each digest.
    durable = [pb.CAPABILITY_DURABLE_DIGEST] if balancers else []
    capabilities = pb.GetCapabilitiesResponse(wants=WANTS, capabilities=durable)
    capabilities.intervals.bookmark_interval.FromTimedelta(timedelta(seconds=flags.bookmark_interval))
    return sdk.Provider(
        "inventory",
        provider_id_prefixes=[PREFIX],
        capabilities=capabilities,
        status=machines,
        instances=machines,
        load_balancers=balancers,
    )


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(description="Serves the machines in a YAML file to ccm-host.")
    flags.add_argument("--inventory", type=Path, required=True, metavar="FILE", help="machines and pools (YAML)")
    flags.add_argument("--allocations", type=Path, metavar="FILE", help="who has which address; without it, no balancers")
    flags.add_argument("--bookmark-interval", type=float, default=30, metavar="SECONDS", help="shorter for tests")
    return flags


if __name__ == "__main__":
    sdk.main(provider, parser())
