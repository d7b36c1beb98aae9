"""Pages of a list, with tokens that keep the contract's promises whatever the cloud's own tokens do.

In: all items of a list, or the token of a cloud that cuts lists itself. Out: a token of at most 1 KiB, which can be used again
for as long as it is valid, and of which is known whether it was issued: it is signed with a key of this process, together with
its list, its cluster and the time.
"""

import base64
import hashlib
import heapq
import hmac
import secrets
import struct
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.contract import MAX_PAGE_SIZE, TOKEN_VALIDITY_SECONDS

T = TypeVar("T")

_SIGNATURE = 32
_CLAIM = struct.Struct(">d?")
"""The time, and whether the meaning is kept here."""
_NUMBER = struct.Struct(">Q")
_LONGEST_WITHIN = 1024 // 4 * 3 - _SIGNATURE - _CLAIM.size
"""The longest position that fits into a token of 1 KiB."""
_MOST_KEPT = 4096
"""The number of oversized cloud tokens kept in memory; the oldest are dropped first and count as expired."""


class PageRequest(Protocol):
    """Any request for a page."""

    page_size: int
    page_token: str

    @property
    def cluster(self) -> pb.ClusterRef:
        """On whose behalf."""


class Pager:
    """Cuts lists into pages, or passes on a cloud's own pages; one per provider suffices.

    `validity` is what `Intervals.page_token_validity` promises; a cloud must take its own tokens for as long.
    """

    def __init__(self, validity: float = TOKEN_VALIDITY_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._validity = validity
        self._clock = clock
        self._secret = secrets.token_bytes(_SIGNATURE)
        self._kept: dict[int, tuple[float, str]] = {}
        self._last = 0

    def page(self, request: PageRequest, items: Iterable[T], key: Callable[[T], str]) -> tuple[list[T], str]:
        """Return the requested page of `items`, and the token of the next one, empty after the last.

        Keys are unique, and stay the same while an item lives; a walk goes by their order, so that what comes and goes
        meanwhile hides nothing else. Raises `page_token_expired` and `invalid_token`.
        """
        after = self.open(request)
        size = request.page_size or MAX_PAGE_SIZE
        rest = (item for item in items if not request.page_token or key(item) > after)
        # Only what is on the page has to be in order.
        page = heapq.nsmallest(size + 1, rest, key=key)
        if len(page) <= size:
            return page, ""
        page.pop()
        return page, self.seal(request, key(page[-1]))

    def open(self, request: PageRequest) -> str:
        """Return the cloud's own token from which the request continues; empty for the first page.

        Look at it before the cloud is asked. Raises `page_token_expired` and `invalid_token`.
        """
        if not request.page_token:
            return ""
        try:
            token = base64.b64decode(request.page_token, altchars=b"-_", validate=True)
        except ValueError:
            raise errors.invalid_token() from None
        signature, claim = token[:_SIGNATURE], token[_SIGNATURE:]
        if len(claim) < _CLAIM.size or not hmac.compare_digest(signature, self._sign(request, claim)):
            raise errors.invalid_token()
        issued, kept = _CLAIM.unpack_from(claim)
        if self._clock() - issued > self._validity:
            raise errors.page_token_expired()
        meaning = claim[_CLAIM.size :]
        if not kept:
            return meaning.decode()
        (number,) = _NUMBER.unpack(meaning)
        if number not in self._kept:
            raise errors.page_token_expired()
        return self._kept[number][1]

    def seal(self, request: PageRequest, cloud_token: str) -> str:
        """Return the token of the next page, which represents the cloud's own; empty after the last page."""
        if not cloud_token:
            return ""
        now, meaning = self._clock(), cloud_token.encode()
        kept = len(meaning) > _LONGEST_WITHIN
        if kept:
            meaning = _NUMBER.pack(self._keep(cloud_token, now))
        claim = _CLAIM.pack(now, kept) + meaning
        return base64.urlsafe_b64encode(self._sign(request, claim) + claim).decode()

    def _keep(self, text: str, now: float) -> int:
        self._kept = {number: one for number, one in self._kept.items() if now - one[0] <= self._validity}
        if len(self._kept) >= _MOST_KEPT:
            del self._kept[min(self._kept)]
        self._last += 1
        self._kept[self._last] = (now, text)
        return self._last

    def _sign(self, request: PageRequest, claim: bytes) -> bytes:
        scope = f"{type(request).__name__} {request.cluster.uid}\0".encode()
        return hmac.digest(self._secret, scope + claim, hashlib.sha256)
