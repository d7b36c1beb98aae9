"""Pages of a list, by key: no snapshot is kept, and a walk sees everything that was there from its start to its end once.

In: all items and what orders them. Out: one page, and the token for the next. A token names the last key of its page; it is
signed with a key of this process, so that one of another epoch, or of another cluster, is known as never issued.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.contract import MAX_PAGE_SIZE, TOKEN_VALIDITY_SECONDS

T = TypeVar("T")


class PageRequest(Protocol):
    """Any request for a page."""

    page_size: int
    page_token: str

    @property
    def cluster(self) -> pb.ClusterRef:
        """On whose behalf."""


class Pager:
    """Cuts lists into pages; one for a provider will do. `validity` is what `Intervals.page_token_validity` promises."""

    def __init__(self, validity: float = TOKEN_VALIDITY_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._validity = validity
        self._clock = clock
        self._secret = secrets.token_bytes(32)

    def page(self, request: PageRequest, items: Iterable[T], key: Callable[[T], str]) -> tuple[list[T], str]:
        """Answer the page that is asked for and the token of the next one, empty after the last.

        `key` must be unique, shorter than 600 bytes, and stay the same while the item lives. Raises `page_token_expired` and
        `invalid_token`.
        """
        after = self._open(request) if request.page_token else None
        rest = sorted((item for item in items if after is None or key(item) > after), key=key)
        size = request.page_size or MAX_PAGE_SIZE
        page = rest[:size]
        return page, self._seal(request, key(page[-1])) if len(rest) > size else ""

    def _seal(self, request: PageRequest, last: str) -> str:
        claim = f"{self._clock()} {last}".encode()
        return base64.urlsafe_b64encode(self._sign(request, claim) + claim).decode()

    def _open(self, request: PageRequest) -> str:
        try:
            token = base64.b64decode(request.page_token, altchars=b"-_", validate=True)
        except ValueError:
            raise errors.invalid_token() from None
        signature, claim = token[:32], token[32:]
        if not hmac.compare_digest(signature, self._sign(request, claim)):
            raise errors.invalid_token()
        issued, _, last = claim.decode().partition(" ")
        if self._clock() - float(issued) > self._validity:
            raise errors.page_token_expired()
        return last

    def _sign(self, request: PageRequest, claim: bytes) -> bytes:
        scope = f"{type(request).__name__} {request.cluster.uid} ".encode()
        return hmac.digest(self._secret, scope + claim, hashlib.sha256)
