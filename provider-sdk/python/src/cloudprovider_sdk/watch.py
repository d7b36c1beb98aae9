"""What a provider returns for a watch: changes, and resume tokens if it supports them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cloudprovider_sdk import proto as pb


@dataclass(frozen=True, slots=True)
class Bookmark:
    """All changes up to this token have been sent. Sent at once, and repeated with every heartbeat until the next bookmark."""

    resume_token: str


@dataclass(frozen=True, slots=True)
class InstanceWatch:
    """An open watch.

    `events` is read no faster than the caller reads. When it ends, the caller's stream ends with OK; when it raises, with
    that error. Either way the host watches again, and sweeps.
    """

    events: AsyncIterator[pb.InstanceChanged | Bookmark]
    resumed: bool = False
    """The caller's resume token was honoured: no change since it is missing."""


class ChangeFeed:
    """A source of changes for any number of watches: publish changes on one side, open watches on the other.

    It buffers `capacity` changes for a slow reader; a watch that falls further behind ends, so that no change is lost silently.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = max(1, capacity)
        self._readers: set[_Reader] = set()

    def publish(self, change: pb.InstanceChanged) -> None:
        """Tell every open watch that an instance has changed; any thread may call it.

        Does nothing without a watch: a new one starts with a sweep.
        """
        for reader in list(self._readers):
            reader.loop.call_soon_threadsafe(self._hand, reader, change)

    def _hand(self, reader: "_Reader", change: pb.InstanceChanged) -> None:
        if reader.waiting.qsize() < self._capacity:
            reader.waiting.put_nowait(change)
        else:
            self._readers.discard(reader)
            reader.waiting.put_nowait(None)

    def watch(self) -> InstanceWatch:
        """Open a watch from now on, to be returned by `watch_instances`."""
        reader = _Reader(self._readers)
        self._readers.add(reader)
        return InstanceWatch(reader)


class _Reader(AsyncIterator[pb.InstanceChanged]):
    """The changes of one watch. Unlike a generator, it can be closed before its first change is requested."""

    def __init__(self, among: "set[_Reader]") -> None:
        self.loop = asyncio.get_running_loop()
        self.waiting: asyncio.Queue[pb.InstanceChanged | None] = asyncio.Queue()
        self._among = among

    async def __anext__(self) -> pb.InstanceChanged:
        change = await self.waiting.get()
        if change is None:
            raise StopAsyncIteration
        return change

    async def aclose(self) -> None:
        """Stop buffering changes."""
        self._among.discard(self)
