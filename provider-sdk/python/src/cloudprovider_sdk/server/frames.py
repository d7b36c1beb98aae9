"""The frames of a watch: the started frame, changes, heartbeats, and a timely end.

In: the provider's events. Out: the contract's frames. The provider decides what has changed; this module decides when a stream
starts, beats and ends.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.advertised import Advertised
from cloudprovider_sdk.watch import Bookmark, InstanceWatch

_HEARTBEAT_SHARE = 0.75
"""Bookmarks are due at least every interval, so they are sent a little more often."""


Frames = AsyncGenerator[pb.WatchInstancesResponse, None]


async def frames(watch: InstanceWatch, advertised: Advertised, stop: asyncio.Event) -> Frames:
    """Return the frames of an open watch. Raises SHUTTING_DOWN on a stop, and whatever the provider raises."""
    try:
        yield pb.WatchInstancesResponse(started=pb.WatchStarted(resumed=watch.resumed))
        async with aclosing(_changes(watch, advertised, stop)) as changes:
            async for frame in changes:
                yield frame
    finally:
        await close(watch)


async def _changes(watch: InstanceWatch, advertised: Advertised, stop: asyncio.Event) -> Frames:
    clock = asyncio.get_running_loop().time
    every = advertised.bookmark_interval * _HEARTBEAT_SHARE
    end, beat, token = clock() + advertised.watch_max_age, clock() + every, ""
    stopped = asyncio.create_task(stop.wait())
    following: asyncio.Task[Any] = _next(watch)
    try:
        while True:
            left = min(beat, end) - clock()
            if left > 0:
                await asyncio.wait({following, stopped}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                raise errors.shutting_down()
            if clock() >= end:
                return
            # The heartbeat goes before changes, or a busy stream would never send one.
            if clock() >= beat:
                beat = clock() + every
                yield _bookmark(token)
            elif following.done():
                event = following.result()
                if event is None:
                    return
                following = _next(watch)
                if isinstance(event, Bookmark):
                    token = event.resume_token
                    yield _bookmark(token)
                else:
                    yield pb.WatchInstancesResponse(changed=event)
    finally:
        for task in (following, stopped):
            task.cancel()
        await asyncio.gather(following, stopped, return_exceptions=True)


def _next(watch: InstanceWatch) -> asyncio.Task[Any]:
    async def following() -> pb.InstanceChanged | Bookmark | None:
        return await anext(watch.events, None)

    return asyncio.create_task(following())


async def close(watch: InstanceWatch) -> None:
    """Tell the provider that nobody reads the watch any more."""
    end = getattr(watch.events, "aclose", None)
    if end is not None:
        await end()


def _bookmark(token: str) -> pb.WatchInstancesResponse:
    return pb.WatchInstancesResponse(bookmark=pb.WatchBookmark(resume_token=token))
