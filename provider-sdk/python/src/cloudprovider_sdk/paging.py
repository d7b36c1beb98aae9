"""Pages of a list, with tokens that keep the contract's promises whatever the cloud's own tokens do.

In: all items of a list, or the page token of a cloud that cuts its lists itself. Out: a token of at most 1 KiB, which can be
used repeatedly while it is valid. It is signed with a secret of this process, together with its list, its cluster and the time,
so that a token that was never issued is told from one that has expired.
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
"""When the token was issued, and whether the position is kept in memory."""
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
        """The cluster that the list belongs to."""


class Pager:
    """Cuts lists into pages, or passes on a cloud's own pages; a provider needs only one.

    `validity` is the advertised `Intervals.page_token_validity`; a cloud must accept its own tokens for as long.
    """

    def __init__(self, validity: float = TOKEN_VALIDITY_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._validity = validity
        self._clock = clock
        self._secret = secrets.token_bytes(_SIGNATURE)
        self._kept: dict[int, tuple[float, str]] = {}
        self._last = 0

    def page(self, request: PageRequest, items: Iterable[T], key: Callable[[T], str]) -> tuple[list[T], str]:
        """Return the requested page of `items`, and the token of the next page, which is empty after the last.

        Keys are unique, and constant while an item exists. Pages are in the order of keys, so that items that come or go
        in between hide no others. Raises `page_token_expired` and `invalid_token`.
        """
        after = self.open(request)
        size = request.page_size or MAX_PAGE_SIZE
        rest = (item for item in items if not request.page_token or key(item) > after)
        # Only the items on the page have to be sorted.
        page = heapq.nsmallest(size + 1, rest, key=key)
        if len(page) <= size:
            return page, ""
        page.pop()
        return page, self.seal(request, key(page[-1]))

    def open(self, request: PageRequest) -> str:
        """Return the cloud's own token from which the request continues; empty for the first page.

        Call it before the cloud. Raises `page_token_expired` and `invalid_token`.
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
        """Return the token of the next page, which stands for the cloud's own; empty after the last page."""
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
