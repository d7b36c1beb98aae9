"""Backend sets received with their nodes, so that later requests may refer to them by digest alone."""

from typing import Any, Final

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb

_MOST: Final = 16
"""The number of sets kept. Beyond it, the least recently used ones are forgotten, as after a restart."""
_MESSAGES: Final = 4
"""The memory limit in messages of the largest size: the last four sets, which the contract requires, always fit."""


class BackendSets:
    """Sets by (cluster uid, digest), the one used last at the end. A method always sees whole sets."""

    def __init__(self, max_message_bytes: int) -> None:
        self._most_bytes = max_message_bytes * _MESSAGES
        self._kept: dict[tuple[str, str], pb.BackendSet] = {}
        self._bytes = 0

    def complete(self, request: Any) -> None:
        """Keep the set of a request if it came with its nodes, and fill it in otherwise."""
        if not isinstance(request, pb.EnsureLoadBalancerRequest | pb.BatchUpdateLoadBalancersRequest):
            return
        given = request.backends
        key = (request.cluster.uid, given.digest)
        known = self._take(key)
        if not given.nodes_omitted:
            if given.digest:
                known = pb.BackendSet()
                known.CopyFrom(given)
                self._put(key, known)
        elif known is None:
            raise errors.unknown_backend_set(given.digest)
        else:
            given.CopyFrom(known)
            self._put(key, known)
        while len(self._kept) > _MOST or self._bytes > self._most_bytes:
            self._take(next(iter(self._kept)))

    def _take(self, key: tuple[str, str]) -> pb.BackendSet | None:
        known = self._kept.pop(key, None)
        self._bytes -= 0 if known is None else known.ByteSize()
        return known

    def _put(self, key: tuple[str, str], known: pb.BackendSet) -> None:
        self._kept[key] = known
        self._bytes += known.ByteSize()
