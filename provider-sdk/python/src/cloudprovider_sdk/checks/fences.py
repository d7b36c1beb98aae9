"""Tells a former leader from the present one, by memory: what one sidecar can know."""

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb


class Fences:
    """The highest epoch seen of each scope. A scope is a Lease: there is a new one only when somebody deleted the old one."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}

    def check(self, fencing: pb.Fencing) -> None:
        """Refuse an epoch below the highest of the same scope. Epoch 0 (election is off) is never refused nor kept."""
        if not fencing.epoch:
            return
        highest = self._highest.get(fencing.scope, 0)
        if fencing.epoch < highest:
            raise errors.stale_leader(fencing.scope, epoch=fencing.epoch, highest=highest)
        self._highest[fencing.scope] = fencing.epoch
