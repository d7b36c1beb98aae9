"""Which host leads which cluster, according to `Lead`.

In: what leaders say of themselves. Out: the `Term` under which a mutation runs, or its refusal.
"""

import asyncio
from dataclasses import dataclass, field

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.errors import ProviderError


class Term:
    """How long something is led. Lives on one event loop, by whose clock it is counted."""

    def __init__(self, leader: pb.Fencing) -> None:
        self._leader = leader
        self._loop = asyncio.get_running_loop()
        self._until: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when nobody leads under it any more. Never cancel it: give it to `asyncio.wait`."""

    @property
    def over(self) -> bool:
        """Looks at the clock, too: a process that was paused may not have heard its timer yet."""
        return self.ended.done() or (self._until is not None and self._until <= self._loop.time())

    def lasts(self, seconds: float | None) -> None:
        """Say how long it lasts from now on: without a number, until somebody else leads."""
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
        """Nobody leads under it any more."""
        if not self.ended.done():
            self.ended.set_result(None)

    def stale(self) -> ProviderError:
        """Return what a mutation of it gets once it is over."""
        return stale(self._leader)


@dataclass(slots=True)
class _Office:
    """What is known of the leaders of one cluster."""

    holder: tuple[str, int]
    """Scope and epoch of the last that led."""
    term: Term
    former: set[str] = field(default_factory=set)
    """Leases that were replaced by another one: their leaders never come back."""


class Leadership:
    """Who leads, by uid of the cluster."""

    def __init__(self) -> None:
        self._offices: dict[str, _Office] = {}

    def hear(self, cluster: str, leader: pb.Fencing, valid_for: float | None) -> Term | None:
        """Hear a leader; without `valid_for` it leads until somebody else does.

        A term is answered where one begins: a renewed one goes on. Raises STALE_LEADER.
        """
        holder = (leader.scope, leader.epoch)
        office = self._offices.get(cluster)
        if office is not None:
            scope, epoch = office.holder
            lower = leader.scope == scope and leader.epoch < epoch
            # A host that was started without leader election by mistake.
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
        """Return the term under which a mutation runs; None where leader election is off and nobody ever led.

        Raises STALE_LEADER for anybody but the present leader.
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
    """Return the refusal of who does not lead."""
    metadata = {"epoch": str(caller.epoch)} | ({} if leader is None else {"leader": str(leader)})
    message = f'epoch {caller.epoch} of lease "{caller.scope}" does not lead'
    return ProviderError(pb.ERROR_REASON_STALE_LEADER, message, metadata=metadata)
