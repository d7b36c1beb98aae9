"""One call, from its context to its end."""

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from cloud import CANARY, Cloud
from fixture import CLUSTER, PATIENCE, batch, clients, delete, ensure, refused, served, serving, until, update
from prometheus_client import CollectorRegistry

from cloudprovider_sdk import Instances, Provider, logs
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.gen.ccm.discovery.v1 import discovery_pb2
from cloudprovider_sdk.server import mutations
from cloudprovider_sdk.server.threads import Threads


@pytest.mark.parametrize("name", ["broken", "cancelled", "ends the process"])
async def test_a_stray_exception_is_an_internal_error_without_its_text(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Cloud().provider(), tmp_path) as it, it.channel() as channel:
        error = await refused(clients(channel).instances.BatchGetInstances(batch(name)))
        assert error.reason == pb.ERROR_REASON_INTERNAL_ERROR
        assert error.metadata["request_id"]
        assert CANARY not in f"{error.message}{error.metadata}"
        assert any(record.exc_info for record in caplog.records), "the team must find the cause in the log"
        await clients(channel).instances.BatchGetInstances(batch("fine"))


async def test_a_method_that_returns_nothing_is_an_internal_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """[R:error-info]."""
    registry = CollectorRegistry()
    async with served(Cloud().provider(registry=registry), tmp_path) as there:
        watch = there.instances.WatchInstances(pb.WatchInstancesRequest(cluster=CLUSTER, resume_token="nothing"))
        for call in (
            there.instances.BatchGetInstances(batch("nothing")),
            there.load_balancers.EnsureLoadBalancer(ensure("nothing")),
            watch.read(),
        ):
            error = await refused(call)
            assert error.reason == pb.ERROR_REASON_INTERNAL_ERROR
            assert error.metadata["request_id"]
    assert "BatchGetInstancesResponse" in caplog.text, "the team must find the cause in the log"
    counted = {
        sample.labels["method"]: (sample.labels["code"], sample.labels["reason"])
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "cloudprovider_rpc_duration_seconds_count"
    }
    methods = ("BatchGetInstances", "EnsureLoadBalancer", "WatchInstances")
    assert counted == dict.fromkeys(methods, ("INTERNAL", "INTERNAL_ERROR"))


async def test_a_typed_error_arrives_as_it_was_raised(tmp_path: Path) -> None:
    async with served(Cloud().provider(), tmp_path) as cloud:
        error = await refused(cloud.instances.BatchGetInstances(batch("throttled")))
        assert (error.reason, error.retry_after) == (pb.ERROR_REASON_RATE_LIMITED, 9)


async def test_a_time_limit_of_the_methods_own_says_that_the_cloud_is_down(tmp_path: Path) -> None:
    async with served(Cloud().provider(), tmp_path) as cloud:
        error = await refused(cloud.instances.BatchGetInstances(batch("slow cloud"), timeout=60))
        assert error.reason == pb.ERROR_REASON_CLOUD_API_UNAVAILABLE


async def test_the_own_limit_of_a_mutation_of_one_object_is_that_objects_failure(tmp_path: Path) -> None:
    """D3: one Service that hangs in a cloud that works is that Service's failure; many at once, or a read, show the cloud."""
    slow = "takes too long"
    async with served(Cloud().provider(), tmp_path) as cloud:
        error = await refused(cloud.load_balancers.EnsureLoadBalancer(ensure(slow)))
        assert error.reason == pb.ERROR_REASON_INTERNAL_ERROR
        assert error.message == "the provider gave up after 0s: its call to the cloud did not return in time"
        error = await refused(cloud.load_balancers.BatchUpdateLoadBalancers(update(slow)))
        assert error.reason == pb.ERROR_REASON_INTERNAL_ERROR
        error = await refused(cloud.load_balancers.BatchUpdateLoadBalancers(update(slow, "other")))
        assert error.reason == pb.ERROR_REASON_CLOUD_API_UNAVAILABLE


async def test_a_method_is_told_about_its_call(tmp_path: Path) -> None:
    cloud = Cloud()
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with served(cloud.provider(), tmp_path) as there:
        headers = (("traceparent", traceparent), ("x-request-id", "req-7"))
        await there.instances.BatchGetInstances(batch("fine"), timeout=30, metadata=headers)
        await there.instances.BatchGetInstances(batch("fine"))
    told, without = cloud.calls
    assert (told.service, told.method) == ("ccm.cloudprovider.v1alpha1.Instances", "BatchGetInstances")
    assert (told.cluster.uid, told.request_id, told.traceparent) == ("cluster-1", "req-7", traceparent)
    remaining = told.remaining()
    assert remaining is not None
    assert 20 < remaining <= 31, "gRPC rounds up on the wire"
    assert (without.deadline, without.remaining(), without.traceparent) == (None, None, None)
    assert without.request_id


async def test_a_mutation_is_finished_when_the_caller_is_gone(tmp_path: Path) -> None:
    """[R:mutation-finishes]."""
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        call = there.load_balancers.EnsureLoadBalancer(ensure("slow"))
        await until(lambda: cloud.began == 1)
        call.cancel()
        await until(cloud.calls[0].caller_gone.is_set)
        assert not cloud.finished
        cloud.go.set()
        await until(lambda: cloud.finished == 1)


async def test_a_mutation_is_finished_when_its_deadline_passed(tmp_path: Path) -> None:
    """[R:mutation-finishes]."""
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        # On a busy machine the first may pass before the call has arrived.
        for timeout in (0.3, 3, PATIENCE):
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await there.load_balancers.EnsureLoadBalancer(ensure("slow"), timeout=timeout)
            assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            if cloud.began:
                break
        await until(lambda: cloud.began == 1)
        cloud.go.set()
        await until(lambda: cloud.finished == 1)


async def test_a_mutation_that_takes_too_long_is_told_to_give_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "LONGEST_DEADLINE_SECONDS", 0.2)
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await there.load_balancers.EnsureLoadBalancer(ensure("slow"))
        assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert cloud.calls[0].give_up.is_set()


async def test_a_read_is_given_up_with_its_caller(tmp_path: Path) -> None:
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        call = there.instances.BatchGetInstances(batch("hang"))
        await until(lambda: cloud.began == 1)
        call.cancel()
        await until(lambda: cloud.given_up == 1)


async def test_equal_mutations_at_once_are_one(tmp_path: Path) -> None:
    cloud = Cloud()
    async with served(cloud.provider(leadership=False), tmp_path) as there:
        first = there.load_balancers.EnsureLoadBalancer(ensure("slow", epoch=1))
        await until(lambda: cloud.began == 1)
        second = there.load_balancers.EnsureLoadBalancer(ensure("slow", epoch=2))
        # An answered later call shows that the second one has arrived.
        await there.instances.BatchGetInstances(batch("fine"))
        cloud.go.set()
        assert (await first).load_balancer.id == (await second).load_balancer.id == "lb-1"
        assert cloud.began == 1
        again = await there.load_balancers.EnsureLoadBalancer(ensure("slow", epoch=2))
        assert again.load_balancer.id == "lb-2", "an answer is not kept"


async def test_a_conflicting_mutation_is_refused_while_one_runs(tmp_path: Path) -> None:
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        balancers = there.load_balancers
        first = balancers.EnsureLoadBalancer(ensure("slow"))
        await until(lambda: cloud.began == 1)
        for conflicting in (
            balancers.EnsureLoadBalancer(ensure("slow", digest="other")),
            balancers.DeleteLoadBalancer(delete("slow")),
        ):
            assert (await refused(conflicting)).reason == pb.ERROR_REASON_CONCURRENT_OPERATION
        answer = await balancers.BatchUpdateLoadBalancers(update("slow", "other"))
        found = {one.service_uid: one.error.reason for one in answer.results}
        assert found == {"slow": pb.ERROR_REASON_CONCURRENT_OPERATION, "other": pb.ERROR_REASON_UNSPECIFIED}
        assert cloud.updated == [["other"]]
        only = await balancers.BatchUpdateLoadBalancers(update("slow"))
        assert [one.error.reason for one in only.results] == [pb.ERROR_REASON_CONCURRENT_OPERATION]
        cloud.go.set()
        await first
        await balancers.DeleteLoadBalancer(delete("slow"))


async def test_overtaken_items_of_a_batch_are_answered_and_the_others_done(tmp_path: Path) -> None:
    """[R:stale-revision]."""
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        await there.load_balancers.EnsureLoadBalancer(ensure("a", revision=9))
        stale = await refused(there.load_balancers.EnsureLoadBalancer(ensure("a", revision=8)))
        assert stale.reason == pb.ERROR_REASON_STALE_REVISION
        answer = await there.load_balancers.BatchUpdateLoadBalancers(update("a", "b", revision=8))
        outcomes = {one.service_uid: (one.outcome, one.error.reason) for one in answer.results}
        assert outcomes == {
            "a": (pb.UPDATE_OUTCOME_NOT_UPDATED, pb.ERROR_REASON_STALE_REVISION),
            "b": (pb.UPDATE_OUTCOME_UPDATED, pb.ERROR_REASON_UNSPECIFIED),
        }
        late = await refused(there.load_balancers.DeleteLoadBalancer(delete("a", revision=7)))
        assert late.reason == pb.ERROR_REASON_STALE_REVISION


async def test_without_leadership_anybody_may_call(tmp_path: Path) -> None:
    async with served(Cloud().provider(leadership=False), tmp_path) as there:
        answer = await there.base.GetCapabilities(pb.GetCapabilitiesRequest())
        assert pb.CAPABILITY_LEADERSHIP not in answer.capabilities
        for epoch in (5, 4):
            await there.load_balancers.EnsureLoadBalancer(ensure("a", epoch=epoch))


async def test_each_key_is_answered_once_whatever_the_provider_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """[R:batch-keys]."""
    async with served(Cloud().provider(), tmp_path) as there:
        answer = await there.instances.BatchGetInstances(batch("wrong keys", "lacking", "fine"))
        states = {one.key: one.state for one in answer.results}
        assert len(answer.results) == 3
        assert states == {
            "key-wrong keys": pb.INSTANCE_STATE_UNSPECIFIED,
            "key-lacking": pb.INSTANCE_STATE_UNSPECIFIED,
            "key-fine": pb.INSTANCE_STATE_ABSENT,
        }
        assert any(record.levelno == logging.ERROR for record in caplog.records)


async def test_page_sizes_are_within_the_limit(tmp_path: Path) -> None:
    cloud = Cloud()
    limits = pb.GetCapabilitiesResponse(limits=pb.Limits(max_page_size=50))
    async with served(cloud.provider(capabilities=limits), tmp_path) as there:
        for size in (0, 1, 50, 51, 2**31 - 1):
            request = pb.ListInstancesRequest(cluster=batch("x").cluster, page_size=size)
            await there.instances.ListInstances(request)
    assert cloud.page_sizes == [50, 1, 50, 50, 50]


async def test_an_optional_rpc_that_is_not_implemented_is_not_served(tmp_path: Path) -> None:
    async with served(Cloud().provider(), tmp_path) as there:
        request = pb.AddSshKeyToAllInstancesRequest(
            cluster=batch("x").cluster, fencing=pb.Fencing(), user="a", public_key="ssh-ed25519 AAAA"
        )
        error = await refused(there.instances.AddSshKeyToAllInstances(request))
        assert error.reason == pb.ERROR_REASON_METHOD_NOT_SUPPORTED


async def test_what_is_advertised_is_what_is_implemented(tmp_path: Path) -> None:
    class Least(Instances):
        async def batch_get_instances(self, call: object, request: object) -> pb.BatchGetInstancesResponse:
            raise AssertionError

    async with served(Cloud().provider(), tmp_path) as there:
        answer = await there.base.GetCapabilities(pb.GetCapabilitiesRequest())
        wanted = [
            pb.CAPABILITY_INSTANCES_WATCH,
            pb.CAPABILITY_INSTANCES_LIST,
            pb.CAPABILITY_BACKEND_SETS_BY_DIGEST,
            pb.CAPABILITY_LEADERSHIP,
        ]
        assert list(answer.capabilities) == wanted
        assert not (await there.base.GetStatus(pb.GetStatusRequest())).conditions
    least = Provider("least", provider_id_prefixes=["least://"], instances=Least())
    assert not least.advertised.capabilities


async def test_messages_may_be_as_large_as_advertised(tmp_path: Path) -> None:
    async with served(Cloud().provider(), tmp_path) as there:
        fits, too_large = batch("fine"), batch("fine")
        fits.queries[0].node.annotations["x"] = "x" * (5 << 20)
        too_large.queries[0].node.annotations["x"] = "x" * (17 << 20)
        await there.instances.BatchGetInstances(fits)
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await there.instances.BatchGetInstances(too_large)
        assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await there.instances.BatchGetInstances(batch("huge"))


async def test_a_batch_above_the_limit_is_to_be_split(tmp_path: Path) -> None:
    limits = pb.GetCapabilitiesResponse(limits=pb.Limits(max_batch_instances=2))
    async with served(Cloud().provider(capabilities=limits), tmp_path) as there:
        error = await refused(there.instances.BatchGetInstances(batch("a", "b", "c")))
        assert (error.reason, error.metadata["max"]) == (pb.ERROR_REASON_BATCH_TOO_LARGE, "2")


@contextlib.contextmanager
def logged_as_json() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    logs.setup("json")
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        root.handlers[:] = before
        root.setLevel(level)


async def test_log_lines_within_a_call_name_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logged_as_json():
        async with served(Cloud().provider(), tmp_path) as there:
            await refused(there.instances.BatchGetInstances(batch("throttled"), metadata=(("x-request-id", "req-9"),)))
    printed = capsys.readouterr().err
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [line["message"] for line in lines if line.get("request_id") == "req-9"][-1] == "refused"
    assert CANARY not in printed
    assert "[redacted]" in printed


async def test_the_log_says_which_items_failed_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logged_as_json():
        async with served(Cloud().provider(), tmp_path) as there:
            names = ["fine", *(f"down-{at}" for at in range(12))]
            answer = await there.instances.BatchGetInstances(batch(*names))
    assert "refused" not in str(answer), "the cause stays here"
    printed = capsys.readouterr().err
    assert CANARY not in printed
    lines = [json.loads(line) for line in printed.splitlines()]
    named = [(line["item"], line["reason"]) for line in lines if "item" in line]
    assert named == [(f"down-{at}", "CLOUD_API_UNAVAILABLE") for at in range(10)]
    causes = [line["message"] for line in lines if "OSError" in line["message"] or "refused password" in line["message"]]
    assert len(causes) == 10, causes
    assert [line["items"] for line in lines if line["message"] == "more items of the batch failed"] == [2]
    assert any("key-down-3 refused" in line["message"] for line in lines)


async def test_calls_at_once_do_not_wait_for_each_other(tmp_path: Path) -> None:
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        hanging = [there.instances.BatchGetInstances(batch("hang")) for _ in range(15)]
        await until(lambda: cloud.began == 15)
        await there.instances.BatchGetInstances(batch("fine"))
        # With the last place taken, another host can still introduce itself.
        hanging.append(there.instances.BatchGetInstances(batch("hang")))
        await until(lambda: cloud.began == 16)
        await there.discovery.GetInfo(discovery_pb2.GetInfoRequest(), timeout=PATIENCE)
        for call in hanging:
            call.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


async def test_no_more_calls_run_at_once_than_are_advertised(tmp_path: Path) -> None:
    cloud = Cloud()
    limits = pb.GetCapabilitiesResponse(limits=pb.Limits(max_concurrent_mutations=1))
    async with served(cloud.provider(capabilities=limits), tmp_path) as there:
        first = there.load_balancers.EnsureLoadBalancer(ensure("slow"))
        await until(lambda: cloud.began == 1)
        second = there.load_balancers.DeleteLoadBalancer(delete("other"))
        await there.instances.BatchGetInstances(batch("fine"))
        assert not second.done()
        cloud.go.set()
        await first
        await second


async def test_blocking_calls_have_a_thread_each(tmp_path: Path) -> None:
    async with serving(Cloud().provider(), tmp_path):
        everybody = threading.Barrier(24)
        await asyncio.gather(*(asyncio.to_thread(everybody.wait, PATIENCE) for _ in range(24)))


def test_a_blocking_call_waits_for_a_thread_that_may_run() -> None:
    threads, go = Threads(1), threading.Event()
    first, second, failing = threads.submit(go.wait), threads.submit(threading.get_ident), threads.submit(int, "x")
    assert not second.running()
    assert not second.done()
    go.set()
    assert first.result(PATIENCE)
    assert second.result(PATIENCE) != threading.get_ident()
    assert isinstance(failing.exception(PATIENCE), ValueError)
    assert threads.submit(int, "7").result(PATIENCE) == 7
