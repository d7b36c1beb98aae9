"""What a provider gives for a watch: changes, and tokens if it can resume."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cloudprovider_sdk import proto as pb


@dataclass(frozen=True, slots=True)
class Bookmark:
    """All changes up to this token were given: sent at once, and repeated with every heartbeat until the next one."""

    resume_token: str


@dataclass(frozen=True, slots=True)
class InstanceWatch:
    """An open watch.

    `events` is read no faster than the caller takes it. When it ends, the caller's stream ends with OK; when it raises, with
    the error. Either way the host watches again and sweeps.
    """

    events: AsyncIterator[pb.InstanceChanged | Bookmark]
    resumed: bool = False
    """The caller's resume token was honoured: nothing since it is missing."""


class ChangeFeed:
    """A source of changes for any number of watches: publish on one side, hand out watches on the other.

    It keeps `capacity` changes for a slow reader; a watch that falls behind by more ends, so that no change is lost silently.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = max(1, capacity)
        self._readers: set[_Reader] = set()

    def publish(self, change: pb.InstanceChanged) -> None:
        """Tell every open watch that an instance changed. Without a watch nothing happens: a new one starts with a sweep."""
        for reader in list(self._readers):
            if reader.waiting.qsize() < self._capacity:
                reader.waiting.put_nowait(change)
            else:
                self._readers.discard(reader)
                reader.waiting.put_nowait(None)

    def watch(self) -> InstanceWatch:
        """Open a watch from now: the answer of `watch_instances`."""
        reader = _Reader(self._readers)
        self._readers.add(reader)
        return InstanceWatch(reader)


class _Reader(AsyncIterator[pb.InstanceChanged]):
    """The changes of one watch. Unlike a generator it can be closed before its first change was asked for."""

    def __init__(self, among: "set[_Reader]") -> None:
        self.waiting: asyncio.Queue[pb.InstanceChanged | None] = asyncio.Queue()
        self._among = among

    async def __anext__(self) -> pb.InstanceChanged:
        change = await self.waiting.get()
        if change is None:
            raise StopAsyncIteration
        return change

    async def aclose(self) -> None:
        """Nobody reads any more."""
        self._among.discard(self)
