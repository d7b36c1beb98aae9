"""Runs a provider's background work: starts it with each term, cancels it when the term ends."""

import asyncio
import logging
from typing import Any

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.checks.leadership import Term
from cloudprovider_sdk.lifecycle import Lifecycle
from cloudprovider_sdk.provider import WhileLeading

_log = logging.getLogger("cloudprovider_sdk")

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class Background:
    """The background work of each cluster's current term."""

    def __init__(self, work: WhileLeading | None, lifecycle: Lifecycle) -> None:
        self._work = work
        self._lifecycle = lifecycle
        self._last: dict[str, asyncio.Task[None]] = {}

    def begin(self, term: Term, cluster: pb.ClusterRef) -> None:
        """Start the work of a term, once the former term's work has ended. A graceful stop waits until it has ended."""
        if self._work is not None:
            work = self._run(self._work, term, cluster, self._last.get(cluster.uid))
            self._last[cluster.uid] = self._lifecycle.spawn(work)

    async def _run(self, work: WhileLeading, term: Term, cluster: pb.ClusterRef, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        stop = asyncio.ensure_future(self._lifecycle.stop.wait())
        ends: set[asyncio.Future[Any]] = {stop, term.ended}
        pause = _FIRST_PAUSE
        # After a failure it runs again: its term may last for months, and nobody else does the work meanwhile.
        while not (term.over or self._lifecycle.stop.is_set()):
            failed = await _once(work, cluster, term, ends)
            if failed is None:
                break
            _log.error("the background work failed; while its term lasts, it runs again in %g s", pause, exc_info=failed)
            await asyncio.wait(ends, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            pause = min(2 * pause, _LONGEST_PAUSE)
        stop.cancel()


async def _once(work: WhileLeading, cluster: pb.ClusterRef, term: Term, ends: set[asyncio.Future[Any]]) -> BaseException | None:
    """Run the work until it returns, fails or must end; return its failure."""

    async def begun() -> None:
        # Within the task: it may fail before there is anything to await.
        await work(cluster)

    running = asyncio.ensure_future(begun())
    term.tasks.add(running)
    await asyncio.wait({running, *ends}, return_when=asyncio.FIRST_COMPLETED)
    by_itself = running.done() and not term.over
    running.cancel()
    await asyncio.wait({running})
    if running.cancelled():
        return asyncio.CancelledError("the work was cancelled, and not by us") if by_itself else None
    return running.exception()
