"""Refuses requests whose revision of a Service is older than the latest accepted one."""

from typing import Final

from cloudprovider_sdk import errors

_REMEMBERED: Final = 1 << 16
"""The number of Services remembered. Beyond it, the least recently changed one is forgotten, as after a restart."""


class Revisions:
    """The highest accepted revision of each Service, by (cluster uid, service uid), least recently changed first."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._accepted: dict[tuple[str, str], int] = {}
        self._remembered = remembered

    def accept(self, cluster: str, service: str, revision: int) -> None:
        """Accept a revision, or refuse one below the highest accepted one.

        An equal revision repeats the same call; 0 is neither refused nor recorded.
        """
        if not revision:
            return
        key = (cluster, service)
        accepted = self._accepted.get(key, 0)
        if revision < accepted:
            raise errors.stale_revision(service, revision=revision, accepted=accepted)
        self._accepted.pop(key, None)
        self._accepted[key] = revision
        if len(self._accepted) > self._remembered:
            del self._accepted[next(iter(self._accepted))]
