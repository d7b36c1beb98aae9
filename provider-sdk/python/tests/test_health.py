"""Health, reflection, and Discovery."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cloud import Cloud
from fixture import clients, served, serving
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from cloudprovider_sdk import Provider, contract
from cloudprovider_sdk.gen.ccm.discovery.v1 import discovery_pb2

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


@contextlib.contextmanager
def stopping(provider: Provider) -> Iterator[None]:
    """Stop, with a mutation that still runs.

    With nothing to wait for, the server closes its connections at once; a client that writes at that moment loses what it
    has not read yet.
    """
    done = asyncio.Event()
    provider.lifecycle.spawn(done.wait())
    provider.stop()
    yield
    done.set()


async def test_health_is_known_for_each_service_and_follows_the_provider(tmp_path: Path) -> None:
    provider = Cloud().provider()
    async with serving(provider, tmp_path) as it, it.channel() as channel:
        health: Any = HealthStub(channel)

        async def status(service: str) -> int:
            found: int = (await health.Check(HealthCheckRequest(service=service))).status
            return found

        assert [await status(name) for name in ("", *provider.service_names)] == [SERVING] * 5
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await status(contract.ROUTES)
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
        stream = health.Watch(HealthCheckRequest(service=contract.INSTANCES))
        assert (await stream.read()).status == SERVING
        assert provider.set_serving(False, contract.INSTANCES)
        assert (await stream.read()).status == NOT_SERVING
        assert await status("") == SERVING
        assert not provider.set_serving(True, contract.ROUTES)
        provider.set_serving(True)
        assert (await stream.read()).status == SERVING
        with stopping(provider):
            assert (await stream.read()).status == NOT_SERVING
            assert await stream.read() == grpc.aio.EOF


async def test_a_thread_may_set_health_and_stop(tmp_path: Path) -> None:
    asyncio.get_running_loop().set_debug(enabled=True)  # Then it refuses a thread that is not its own.
    provider = Cloud().provider()
    async with serving(provider, tmp_path) as it, it.channel() as channel:
        health: Any = HealthStub(channel)
        stream = health.Watch(HealthCheckRequest())
        assert (await stream.read()).status == SERVING
        assert await asyncio.to_thread(provider.set_serving, False)
        assert (await stream.read()).status == NOT_SERVING
        await asyncio.to_thread(provider.stop)
        await it.running


async def test_a_watch_of_an_unknown_service_stays_open(tmp_path: Path) -> None:
    provider = Cloud().provider()
    async with serving(provider, tmp_path) as it, it.channel() as channel:
        health: Any = HealthStub(channel)
        stream = health.Watch(HealthCheckRequest(service="x.Y"))
        assert (await stream.read()).status == HealthCheckResponse.SERVICE_UNKNOWN
        with stopping(provider):
            assert await stream.read() == grpc.aio.EOF


async def test_info_names_exactly_what_is_served(tmp_path: Path) -> None:
    """[R:discovery-services]."""
    provider = Cloud().provider(vendor_version="1.2", process_epoch="epoch-1")
    async with served(provider, tmp_path) as there:
        info = await there.discovery.GetInfo(discovery_pb2.GetInfoRequest(host_name="test"))
    wanted = [contract.DISCOVERY, contract.CLOUD_PROVIDER, contract.INSTANCES, contract.LOAD_BALANCERS, contract.HEALTH]
    assert list(info.services) == wanted
    assert (info.name, info.vendor_version, info.process_epoch) == ("test", "1.2", "epoch-1")
    assert list(info.provider_id_prefixes) == ["test://"]
    assert info.sdk_name == "cloudprovider-sdk (python)"


async def test_each_start_has_an_epoch_of_its_own() -> None:
    """[R:discovery-epoch]."""
    assert Cloud().provider().info.process_epoch != Cloud().provider().info.process_epoch


@pytest.mark.parametrize("wanted", [False, True])
async def test_reflection_is_served_if_asked_for(tmp_path: Path, wanted: bool) -> None:
    async with serving(Cloud().provider(), tmp_path, reflection=wanted) as it, it.channel() as channel:
        stub: Any = ServerReflectionStub(channel)
        ask = ServerReflectionRequest(file_containing_symbol=contract.INSTANCES)
        # The refusal does not wait for a message, and grpc reports one sent after it as an error of its own.
        stream = stub.ServerReflectionInfo(iter([ask] if wanted else []))
        info = await clients(channel).discovery.GetInfo(discovery_pb2.GetInfoRequest())
        assert (contract.REFLECTION in info.services) is wanted
        if not wanted:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stream.read()
            assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
            return
        answer = await stream.read()
        files = [FileDescriptorProto.FromString(one) for one in answer.file_descriptor_response.file_descriptor_proto]
        assert "ccm/cloudprovider/v1alpha1/instances.proto" in [file.name for file in files]
