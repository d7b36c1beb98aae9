"""Serves a provider on its own socket, and creates clients for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from cloudprovider_sdk import Endpoint, Provider, ServeOptions, Server, errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.errors import ProviderError
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.cloud_provider_pb2_grpc import CloudProviderStub
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.instances_pb2_grpc import InstancesStub
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.load_balancers_pb2_grpc import LoadBalancersStub
from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1.routes_pb2_grpc import RoutesStub
from cloudprovider_sdk.gen.ccm.discovery.v1.discovery_pb2_grpc import DiscoveryStub

PATIENCE = 60.0
"""Longer than anything here takes."""


@dataclass
class Served:
    provider: Provider
    server: Server
    running: asyncio.Task[None]
    socket: Path

    def channel(self) -> grpc.aio.Channel:
        size = 64 << 20
        options = [("grpc.max_send_message_length", size), ("grpc.max_receive_message_length", size)]
        # Channels with equal arguments share a connection, but each test needs its own.
        return grpc.aio.insecure_channel(f"unix:{self.socket}", [*options, ("grpc.use_local_subchannel_pool", 1)])


@contextlib.asynccontextmanager
async def serving(provider: Provider, directory: Path, **options: Any) -> AsyncIterator[Served]:
    path = directory / "ccm" / "provider.sock"
    given = replace(ServeOptions(endpoint=Endpoint(path=path), shutdown_grace=PATIENCE), **options)
    server = Server(provider, given)
    running = asyncio.create_task(server.run(signals=False))
    try:
        yield Served(provider, server, running, path)
    finally:
        provider.lifecycle.terms.clear()  # No host is left that could step down.
        provider.stop()
        async with asyncio.timeout(PATIENCE):
            await running


@dataclass
class Clients:
    discovery: DiscoveryStub
    base: CloudProviderStub
    instances: InstancesStub
    load_balancers: LoadBalancersStub
    routes: RoutesStub


def clients(channel: grpc.aio.Channel) -> Clients:
    return Clients(
        DiscoveryStub(channel),
        CloudProviderStub(channel),
        InstancesStub(channel),
        LoadBalancersStub(channel),
        RoutesStub(channel),
    )


@contextlib.asynccontextmanager
async def served(provider: Provider, directory: Path, **options: Any) -> AsyncIterator[Clients]:
    async with serving(provider, directory, **options) as it, it.channel() as channel:
        yield clients(channel)


async def refused(call: Any) -> ProviderError:
    """The error of a call that carries the contract's details."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        async with asyncio.timeout(PATIENCE):
            await call
    error = errors.from_call(raised.value)
    assert error is not None, raised.value
    assert raised.value.code() == errors.code_of(error.reason)
    return error


async def until(condition: Callable[[], bool]) -> None:
    """Fails instead of hanging."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


def jump(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Advances the clock of the running loop."""
    loop = asyncio.get_running_loop()
    before = loop.time
    monkeypatch.setattr(loop, "time", lambda: before() + seconds)


CLUSTER = pb.ClusterRef(uid="cluster-1", name="test")
FAR = Duration(seconds=600)
ZERO = Duration()


async def lead(there: Clients, epoch: int, valid_for: Duration | None) -> None:
    fencing = pb.Fencing(scope="lease", epoch=epoch)
    await there.base.Lead(pb.LeadRequest(cluster=CLUSTER, fencing=fencing, valid_for=valid_for))


def batch(*names: str) -> pb.BatchGetInstancesRequest:
    queries = [pb.InstanceQuery(key=f"key-{name}", node=pb.NodeRef(name=name)) for name in names]
    return pb.BatchGetInstancesRequest(cluster=CLUSTER, queries=queries)


def service(uid: str) -> pb.Service:
    return pb.Service(ref=pb.ServiceRef(namespace="default", name=uid, uid=uid))


def ensure(uid: str, *, revision: int = 0, epoch: int = 0, digest: str = "d") -> pb.EnsureLoadBalancerRequest:
    return pb.EnsureLoadBalancerRequest(
        cluster=CLUSTER,
        fencing=pb.Fencing(scope="lease", epoch=epoch),
        service=service(uid),
        backends=pb.BackendSet(digest="b"),
        desired_digest=digest,
        revision=revision,
    )


def update(*uids: str, revision: int = 0) -> pb.BatchUpdateLoadBalancersRequest:
    items = [pb.LoadBalancerUpdate(service=service(uid), desired_digest="d", revision=revision) for uid in uids]
    return pb.BatchUpdateLoadBalancersRequest(
        cluster=CLUSTER, fencing=pb.Fencing(), backends=pb.BackendSet(digest="b"), items=items
    )


def delete(uid: str, *, revision: int = 0) -> pb.DeleteLoadBalancerRequest:
    return pb.DeleteLoadBalancerRequest(cluster=CLUSTER, fencing=pb.Fencing(), service=service(uid).ref, revision=revision)
