"""The stop: running work is finished, but for no longer than agreed."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import grpc
import pytest
from cloud import Cloud
from fixture import CLUSTER, FAR, PATIENCE, ZERO, batch, clients, ensure, jump, lead, refused, serving, until
from google.protobuf.duration_pb2 import Duration

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.server import run

EXAMPLE = Path(__file__).parents[1] / "examples" / "instances_only.py"
CLOUD = Path(__file__).with_name("cloud.py")


async def test_a_stop_waits_for_a_mutation_whose_caller_is_gone(tmp_path: Path) -> None:
    cloud = Cloud()
    async with serving(cloud.provider(), tmp_path) as it, it.channel() as channel:
        call = clients(channel).load_balancers.EnsureLoadBalancer(ensure("slow"))
        await until(lambda: cloud.began == 1)
        call.cancel()
        await until(cloud.calls[0].caller_gone.is_set)
        it.provider.stop()
        await asyncio.sleep(0)
        assert not it.running.done()
        cloud.go.set()
        await it.running
        assert cloud.finished == 1


async def test_a_call_that_runs_is_answered_during_a_stop(tmp_path: Path) -> None:
    cloud = Cloud()
    async with serving(cloud.provider(), tmp_path) as it, it.channel() as channel:
        call = clients(channel).load_balancers.EnsureLoadBalancer(ensure("slow"))
        await until(lambda: cloud.began == 1)
        it.provider.stop()
        cloud.go.set()
        assert (await call).load_balancer.id == "lb-1"


async def test_a_leader_renews_its_term_until_its_last_mutation_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = Cloud()
    async with serving(cloud.provider(), tmp_path) as it, it.channel() as channel:
        there = clients(channel)
        await lead(there, 1, Duration(seconds=10))
        call = there.load_balancers.EnsureLoadBalancer(ensure("slow", epoch=1))
        await until(lambda: cloud.began == 1)
        it.provider.stop()
        async with it.channel() as another:
            await lead(clients(another), 1, FAR)
        error = await refused(there.instances.BatchGetInstances(batch("a")))
        assert error.reason == pb.ERROR_REASON_SHUTTING_DOWN
        jump(monkeypatch, 11)
        cloud.go.set()
        assert (await call).load_balancer.id == "lb-1"


@pytest.mark.parametrize("mutates", [True, False])
async def test_a_leader_may_step_down_from_a_provider_that_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutates: bool
) -> None:
    """[R:lead-ends]."""
    monkeypatch.setattr(run, "_STEP_DOWN", PATIENCE)  # A busy machine takes longer.
    cloud = Cloud()
    async with serving(cloud.provider(), tmp_path) as it, it.channel() as channel:
        there = clients(channel)
        await lead(there, 1, FAR)
        call = there.load_balancers.EnsureLoadBalancer(ensure("slow", epoch=1)) if mutates else None
        await until(lambda: cloud.began == mutates)
        it.provider.stop()
        async with it.channel() as another:
            await lead(clients(another), 1, ZERO)
        if call is not None:
            assert (await refused(call)).reason == pb.ERROR_REASON_STALE_LEADER
        async with asyncio.timeout(PATIENCE / 2):
            await it.running
        assert not cloud.finished


async def test_a_leader_that_says_nothing_does_not_keep_the_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_STEP_DOWN", PATIENCE / 2)
    async with serving(Cloud().provider(), tmp_path) as it, it.channel() as channel:
        await lead(clients(channel), 1, FAR)
        it.provider.stop()
        await lead(clients(channel), 1, FAR)
        jump(monkeypatch, PATIENCE / 2)
        async with asyncio.timeout(PATIENCE / 4):
            await it.running


async def test_after_the_grace_a_mutation_is_told_to_give_up(tmp_path: Path) -> None:
    cloud = Cloud()
    async with serving(cloud.provider(), tmp_path, shutdown_grace=0.05) as it, it.channel() as channel:
        call = clients(channel).load_balancers.EnsureLoadBalancer(ensure("stubborn"))
        await until(lambda: cloud.began == 1)
        it.provider.stop()
        await it.running
        assert cloud.given_up == 1
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            await call


async def test_a_mutation_that_does_not_give_up_ends_with_the_process(tmp_path: Path) -> None:
    cloud = Cloud()
    async with serving(cloud.provider(), tmp_path, shutdown_grace=0.05) as it, it.channel() as channel:
        call = clients(channel).load_balancers.EnsureLoadBalancer(ensure("slow"))
        await until(lambda: cloud.began == 1)
        it.provider.stop()
        await it.running
        assert not cloud.finished
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            await call


def test_a_stop_that_comes_too_late_does_nothing(tmp_path: Path) -> None:
    provider = Cloud().provider()

    async def serve() -> None:
        async with serving(provider, tmp_path):
            pass

    asyncio.run(serve())
    provider.stop()


async def sidecar(path: Path, *flags: str, program: Path = EXAMPLE) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        *(f"--endpoint=unix://{path}", *flags),
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")},
        stderr=asyncio.subprocess.PIPE,
    )


async def test_the_example_serves_until_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "ccm" / "provider.sock"
    process = await sidecar(path, "--log-format=json")
    async with asyncio.timeout(PATIENCE), grpc.aio.insecure_channel(f"unix:{path}") as channel:
        answer = await clients(channel).instances.BatchGetInstances(batch("node-1", "gone"), wait_for_ready=True)
        assert {one.key: one.state for one in answer.results} == {"key-node-1": 2, "key-gone": 5}
        process.send_signal(signal.SIGTERM)
        _, printed = await process.communicate()
    assert process.returncode == 0, printed
    assert not path.exists()
    assert b'"message": "serving"' in printed


@pytest.mark.parametrize("second", [None, signal.SIGTERM, signal.SIGINT])
async def test_a_thread_that_hangs_does_not_keep_the_process(tmp_path: Path, second: signal.Signals | None) -> None:
    path = tmp_path / "ccm" / "provider.sock"
    process = await sidecar(path, f"--shutdown-grace={3600 if second else 0}", program=CLOUD)
    try:
        async with asyncio.timeout(PATIENCE), grpc.aio.insecure_channel(f"unix:{path}") as channel:
            there = clients(channel)
            await there.instances.BatchGetInstances(batch("fine"), wait_for_ready=True)
            call = there.load_balancers.EnsureLoadBalancer(ensure("hangs in a thread"))
            # An answered later call shows that it has arrived; the end of a watch, that the signal has.
            watch = there.instances.WatchInstances(pb.WatchInstancesRequest(cluster=CLUSTER))
            await watch.read()
            process.send_signal(second or signal.SIGTERM)
            assert (await refused(watch.read())).reason == pb.ERROR_REASON_SHUTTING_DOWN
            if second:
                process.send_signal(second)
            assert await process.wait() == (-second if second else 0)
            call.cancel()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_what_is_in_the_way_is_told_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    process = await sidecar(tmp_path / "provider.sock")
    _, printed = await process.communicate()
    assert process.returncode == 1
    assert printed.decode().startswith("error: the directory")
    assert b"Traceback" not in printed
