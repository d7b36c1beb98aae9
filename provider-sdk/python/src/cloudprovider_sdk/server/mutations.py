"""Runs mutations: each until it is done or its term ends, one at a time for each natural key, none with a stale revision.

In: an admitted request and the method that serves it. Out: its response. Refuses what must not run; of a batch, only the
items concerned.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.call import Call
from cloudprovider_sdk.checks import Revisions, Term
from cloudprovider_sdk.contract import LONGEST_DEADLINE_SECONDS
from cloudprovider_sdk.errors import ProviderError
from cloudprovider_sdk.lifecycle import Lifecycle
from cloudprovider_sdk.server import answers
from cloudprovider_sdk.server.lanes import Same, Subject, fingerprint, subjects

Work = Callable[[], Coroutine[Any, Any, Any]]
Refused = list[tuple[str, pb.ItemError]]


class Mutations:
    """The running mutations and the accepted revisions of one provider."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._revisions = Revisions()
        self._running: dict[Same, asyncio.Task[Any]] = {}
        self._busy: set[tuple[str, str, str]] = set()

    async def run(self, call: Call, term: Term | None, request: Any, empty: Any, work: Work) -> Any:
        """Run a mutation, or join the identical running one. It goes on if its caller is cancelled, but ends with its term.

        Refused items are removed from `request` before `work` begins; if none is left, their results go into `empty` instead.
        """
        same = fingerprint(request), term
        running = self._running.get(same)
        if running is None:
            refused = self._refuse_items(request) if hasattr(request, "items") else self._refuse_whole(request)
            running = self._begin(same, subjects(request), _run(call, request, empty, work, refused), call.give_up)
            if term is not None:
                # Not of the task: what the method leaves behind when it answers must hear of the end as well.
                term.give_up.add(call.give_up)
                term.tasks.add(running)
        if term is not None:
            await asyncio.wait({running, term.ended}, return_when=asyncio.FIRST_COMPLETED)
            if term.over:
                raise term.stale()
        return await asyncio.shield(running)

    def _begin(
        self, same: Same, about: list[Subject], work: Coroutine[Any, Any, Any], give_up: asyncio.Event
    ) -> asyncio.Task[Any]:
        """Run a mutation as its own task; its keys stay busy until it ends."""
        keys = {subject.key for subject in about}
        task = self._lifecycle.spawn(work, give_up)
        self._running[same] = task
        self._busy |= keys

        def ended(_: asyncio.Task[Any]) -> None:
            del self._running[same]
            self._busy.difference_update(keys)

        task.add_done_callback(ended)
        return task

    def _refuse_whole(self, request: Any) -> Refused:
        for subject in subjects(request):
            self._accept(subject)
        return []

    def _refuse_items(self, request: Any) -> Refused:
        kept, refused = [], []
        for item, key, subject in zip(request.items, answers.keys(request), subjects(request), strict=True):
            try:
                self._accept(subject)
                kept.append(item)
            except ProviderError as error:
                refused.append((key, errors.to_item(error)))
        if refused:
            del request.items[:]
            request.items.extend(kept)
        return refused

    def _accept(self, subject: Subject) -> None:
        self._revisions.accept(subject.cluster, subject.name, subject.revision)
        if subject.key in self._busy:
            raise errors.concurrent_operation(subject.name)


async def _run(call: Call, request: Any, empty: Any, work: Work, refused: Refused) -> Any:
    answer = empty
    if not refused or request.items:
        try:
            # Callers have their own deadlines; this ends work that nobody waits for any more.
            async with asyncio.timeout(LONGEST_DEADLINE_SECONDS):
                answer = await work()
        except TimeoutError:
            # A thread of the method's must stop, too: its key is free from now on.
            call.give_up.set()
            raise
    for key, error in refused:
        answers.refuse(answer, key, error)
    return answer
