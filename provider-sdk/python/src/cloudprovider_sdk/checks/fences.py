"""Distinguishes a former leader from the current one by what this process remembers."""

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb


class Fences:
    """The highest epoch seen in each scope. A scope is a Lease; a new one appears only if somebody deleted the Lease."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}

    def check(self, fencing: pb.Fencing) -> None:
        """Refuse an epoch below the highest of the same scope. Epoch 0 (election is off) is neither refused nor recorded."""
        if not fencing.epoch:
            return
        highest = self._highest.get(fencing.scope, 0)
        if fencing.epoch < highest:
            raise errors.stale_leader(fencing.scope, epoch=fencing.epoch, highest=highest)
        self._highest[fencing.scope] = fencing.epoch
