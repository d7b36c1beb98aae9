"""Which host leads which cluster, according to `Lead`.

In: calls of `Lead`. Out: the `Term` under which a mutation runs, or its refusal.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.errors import ProviderError


class Term:
    """One leader's term. Lives on one event loop, and uses its clock."""

    def __init__(self, leader: pb.Fencing) -> None:
        self._leader = leader
        self._loop = asyncio.get_running_loop()
        self._until: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when the term has ended. Never cancel it: pass it to `asyncio.wait`."""
        self.give_up = WeakSet[asyncio.Event]()
        """What tells its mutations to give up. Each is kept by the mutation, and by what that leaves behind."""
        self.tasks = WeakSet[asyncio.Task[Any]]()
        """What runs under it. Cancelled at once, and not by a callback: after a standstill of the process, answers of the cloud
        may have arrived, with which they would go on before it."""

    @property
    def over(self) -> bool:
        """Also checks the clock: in a process that was paused, the timer may not have fired yet."""
        return self.ended.done() or (self._until is not None and self._until <= self._loop.time())

    def lasts(self, seconds: float | None) -> None:
        """Let the term last this many seconds from now; with None, until somebody else leads."""
        if self._timer is not None:
            self._timer.cancel()
        self._until = self._timer = None
        if seconds is None:
            return
        if seconds <= 0:
            self.end()
            return
        self._until = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._until, self.end)

    def end(self) -> None:
        """End the term."""
        if not self.ended.done():
            self.ended.set_result(None)
            for told in self.give_up:
                told.set()
            for task in self.tasks:
                task.cancel()

    def stale(self) -> ProviderError:
        """Return the error for mutations of this term once it is over."""
        return stale(self._leader)


@dataclass(slots=True)
class _Office:
    """The leaders of one cluster."""

    holder: tuple[str, int]
    """Scope and epoch of the latest leader."""
    term: Term
    former: set[str] = field(default_factory=set)
    """Leases that another Lease has replaced: their leaders never come back."""


class Leadership:
    """Who leads each cluster, by cluster uid."""

    def __init__(self) -> None:
        self._offices: dict[str, _Office] = {}

    def hear(self, cluster: str, leader: pb.Fencing, valid_for: float | None) -> Term | None:
        """Start, renew or replace a term; without `valid_for` it lasts until somebody else leads.

        Returns the term if a new one begins, None for a renewal. Raises STALE_LEADER.
        """
        holder = (leader.scope, leader.epoch)
        office = self._offices.get(cluster)
        if office is not None:
            scope, epoch = office.holder
            lower = leader.scope == scope and leader.epoch < epoch
            # Probably a host that was started without leader election by mistake.
            unelected = not leader.scope and bool(scope) and not office.term.over
            if leader.scope in office.former or lower or unelected:
                raise stale(leader, epoch)
            if office.holder == holder and not office.term.over:
                office.term.lasts(valid_for)
                return None
            office.term.end()
            if scope and scope != leader.scope:
                office.former.add(scope)
            office.holder, office.term = holder, Term(leader)
        else:
            office = self._offices[cluster] = _Office(holder, Term(leader))
        office.term.lasts(valid_for)
        return None if office.term.over else office.term

    def term(self, cluster: str, caller: pb.Fencing) -> Term | None:
        """Return the term under which a mutation runs; None if leader election is off and nobody has ever led.

        Raises STALE_LEADER for anybody but the current leader.
        """
        office = self._offices.get(cluster)
        if office is None:
            if caller.epoch:
                raise stale(caller)
            return None
        if office.holder != (caller.scope, caller.epoch) or office.term.over:
            raise stale(caller, office.holder[1])
        return office.term


def stale(caller: pb.Fencing, leader: int | None = None) -> ProviderError:
    """Return the error for a caller that does not lead."""
    metadata = {"epoch": str(caller.epoch)} | ({} if leader is None else {"leader": str(leader)})
    message = f'epoch {caller.epoch} of lease "{caller.scope}" does not lead'
    return ProviderError(pb.ERROR_REASON_STALE_LEADER, message, metadata=metadata)
