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
        self._readers: set[asyncio.Queue[pb.InstanceChanged | None]] = set()

    def publish(self, change: pb.InstanceChanged) -> None:
        """Tell every open watch that a machine changed. Without a watch nothing happens: a new one starts with a sweep."""
        for reader in list(self._readers):
            if reader.qsize() < self._capacity:
                reader.put_nowait(change)
            else:
                self._readers.discard(reader)
                reader.put_nowait(None)

    def watch(self) -> InstanceWatch:
        """Open a watch from now: the answer of `watch_instances`."""
        reader: asyncio.Queue[pb.InstanceChanged | None] = asyncio.Queue()
        self._readers.add(reader)
        return InstanceWatch(self._read(reader))

    async def _read(self, reader: asyncio.Queue[pb.InstanceChanged | None]) -> AsyncIterator[pb.InstanceChanged]:
        try:
            while (change := await reader.get()) is not None:
                yield change
        finally:
            self._readers.discard(reader)
