"""A watch: its frames, its heartbeat, its end."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cloud import CANARY, Cloud
from fixture import CLUSTER, PATIENCE, clients, refused, served, serving, until
from google.protobuf.duration_pb2 import Duration

from cloudprovider_sdk import ChangeFeed
from cloudprovider_sdk import proto as pb


def watch(token: str = "") -> pb.WatchInstancesRequest:
    return pb.WatchInstancesRequest(cluster=CLUSTER, resume_token=token)


def paced(**seconds: float) -> pb.GetCapabilitiesResponse:
    intervals = pb.Intervals()
    for name, value in seconds.items():
        duration = Duration()
        duration.FromTimedelta(timedelta(seconds=value))
        getattr(intervals, name).CopyFrom(duration)
    return pb.GetCapabilitiesResponse(intervals=intervals)


async def test_the_first_frame_is_started_and_changes_follow(tmp_path: Path) -> None:
    """[R:watch-started]."""
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        stream: Any = there.instances.WatchInstances(watch())
        assert (await stream.read()).started == pb.WatchStarted(resumed=False)
        change = pb.InstanceChanged(provider_id="test://1")
        cloud.feed.publish(change)
        assert (await stream.read()).changed == change
        stream.cancel()
        await until(cloud.calls[0].caller_gone.is_set)
        await until(lambda: not cloud.feed._readers)


async def test_a_bookmark_comes_at_least_every_interval(tmp_path: Path) -> None:
    """[R:watch-bookmark]."""
    provider = Cloud().provider(capabilities=paced(bookmark_interval=0.02))
    async with served(provider, tmp_path) as there:
        stream: Any = there.instances.WatchInstances(watch("bookmark"))
        assert (await stream.read()).started.resumed
        token = ""
        async with asyncio.timeout(PATIENCE):
            # On a busy machine a bookmark may be due before the provider's is there.
            while not token:
                token = (await stream.read()).bookmark.resume_token
            later = [(await stream.read()).bookmark.resume_token for _ in range(2)]
        assert [token, *later] == ["token-7"] * 3


async def test_a_stream_ends_at_its_greatest_age_with_ok(tmp_path: Path) -> None:
    provider = Cloud().provider(capabilities=paced(watch_max_age=0.02))
    async with served(provider, tmp_path) as there:
        stream: Any = there.instances.WatchInstances(watch())
        assert [frame.WhichOneof("frame") async for frame in stream] == ["started"]


async def test_a_stop_ends_streams_and_says_why(tmp_path: Path) -> None:
    provider = Cloud().provider()
    async with serving(provider, tmp_path) as it, it.channel() as channel:
        stream: Any = clients(channel).instances.WatchInstances(watch())
        await stream.read()
        provider.stop()
        assert (await refused(stream.read())).reason == pb.ERROR_REASON_SHUTTING_DOWN


async def test_errors_of_a_watch_are_errors_of_the_contract(tmp_path: Path) -> None:
    async with served(Cloud().provider(), tmp_path) as there:
        expired: Any = there.instances.WatchInstances(watch("expired"))
        assert (await refused(expired.read())).reason == pb.ERROR_REASON_RESUME_TOKEN_EXPIRED
        broken: Any = there.instances.WatchInstances(watch("broken"))
        assert (await broken.read()).started.resumed
        assert (await broken.read()).changed.provider_id == "test://1"
        error = await refused(broken.read())
        assert error.reason == pb.ERROR_REASON_INTERNAL_ERROR
        assert CANARY not in f"{error}{error.metadata}"


async def test_a_token_that_was_not_honoured_is_refused(tmp_path: Path) -> None:
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        never_issued: Any = there.instances.WatchInstances(watch("never issued"))
        assert (await refused(never_issued.read())).reason == pb.ERROR_REASON_INVALID_TOKEN
        assert not cloud.feed._readers


async def test_a_slow_reader_is_ended_and_loses_nothing_silently() -> None:
    feed = ChangeFeed(capacity=2)
    slow = feed.watch().events
    changes = [pb.InstanceChanged(provider_id=f"test://{at}") for at in range(4)]
    for change in changes:
        feed.publish(change)
    assert [change async for change in slow] == changes[:2]
    feed.publish(changes[0])


async def test_a_thread_may_publish() -> None:
    asyncio.get_running_loop().set_debug(enabled=True)  # Then it refuses a thread that is not its own.
    feed = ChangeFeed()
    waiting = asyncio.ensure_future(anext(feed.watch().events))
    await asyncio.sleep(0)
    change = pb.InstanceChanged(node_name="a")
    await asyncio.to_thread(feed.publish, change)
    assert await waiting == change


@pytest.mark.parametrize("capacity", [0, -1])
async def test_a_feed_keeps_at_least_one_change(capacity: int) -> None:
    feed = ChangeFeed(capacity)
    events = feed.watch().events
    feed.publish(pb.InstanceChanged(node_name="a"))
    assert (await anext(events)) == pb.InstanceChanged(node_name="a")
