"""The life of a served provider: whether it accepts work, whether it is stopping, and which mutations are running."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class Lifecycle:
    """Shared between the provider, the server and every RPC. Lives on one event loop; any thread may set health and stop it."""

    def __init__(self, services: Iterable[str]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        """The server's, once there is one."""
        self.stop = asyncio.Event()
        """The provider is stopping: it accepts no new work, and streams end."""
        self.mutations: set[asyncio.Task[Any]] = set()
        """The running mutations, and background work."""
        self._give_up = WeakSet[asyncio.Event]()
        self.terms: set[asyncio.Future[None]] = set()
        """The ends of the terms of those who lead."""
        self._serving = dict.fromkeys(["", *services], True)
        self.changed = asyncio.Event()
        """Set, and replaced, when the health of any service changes."""

    def health(self, service: str) -> bool | None:
        """Return whether a service ("" for the whole provider) accepts work; None if it is not served."""
        serving = self._serving.get(service)
        return None if serving is None else serving and not self.stop.is_set()

    def set_serving(self, serving: bool, service: str | None = None) -> bool:
        """Set whether one service, or every service, accepts work. False if the service is not served."""
        names = list(self._serving) if service is None else [name for name in self._serving if name == service]
        self._serving.update(dict.fromkeys(names, serving))
        self._on_loop(self._tell)
        return bool(names)

    def begin_stop(self) -> None:
        """Begin to stop: health first, so that callers see it before their streams end."""
        self._on_loop(self._begin_stop)

    def spawn(self, mutation: Coroutine[Any, Any, T], give_up: asyncio.Event | None = None) -> asyncio.Task[T]:
        """Run a mutation as its own task, which does not end when its caller disconnects."""
        task = asyncio.create_task(mutation)
        self.mutations.add(task)
        task.add_done_callback(self.mutations.discard)
        if give_up is not None:
            self._give_up.add(give_up)
        return task

    def give_up(self) -> None:
        """Tell all mutations, and what they left behind, that the grace period is over."""
        for told in self._give_up:
            told.set()

    async def mutations_end(self, within: float) -> bool:
        """Wait for the running mutations; False if the time is over first."""
        return await _end(self.mutations, within)

    def begin_term(self, ended: asyncio.Future[None]) -> None:
        """Count a term until it ends."""
        self.terms.add(ended)
        ended.add_done_callback(self.terms.discard)

    async def terms_end(self, within: float) -> bool:
        """Wait until nobody leads; False if the time is over first."""
        return await _end(self.terms, within)

    def _on_loop(self, change: Callable[[], None]) -> None:
        if self.loop is None:
            change()
            return
        with suppress(RuntimeError):  # The loop is closed: nobody is served any more.
            self.loop.call_soon_threadsafe(change)

    def _begin_stop(self) -> None:
        self.stop.set()
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


async def _end(futures: Collection[asyncio.Future[Any]], within: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            while futures:
                await asyncio.wait(futures)
    return not futures
