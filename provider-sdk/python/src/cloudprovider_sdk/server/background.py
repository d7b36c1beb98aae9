"""Runs a provider's background work: starts it with each term, cancels it when the term ends."""

import asyncio
import logging
from typing import Any

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.checks.leadership import Term
from cloudprovider_sdk.lifecycle import Lifecycle
from cloudprovider_sdk.provider import WhileLeading

_log = logging.getLogger("cloudprovider_sdk")


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
        if term.over or self._lifecycle.stop.is_set():
            return
        stop = asyncio.ensure_future(self._lifecycle.stop.wait())
        running = asyncio.ensure_future(work(cluster))
        ends: set[asyncio.Future[Any]] = {running, stop, term.ended}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        running.cancel()
        await asyncio.wait({running})
        if not running.cancelled() and (failed := running.exception()):
            _log.error("the background work failed; it starts again with the next term", exc_info=failed)
