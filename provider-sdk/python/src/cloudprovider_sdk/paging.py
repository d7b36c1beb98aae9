"""Pages of a list, with tokens of the contract's form whatever the cloud's own tokens look like.

In: all items of a list, or the page token of a cloud that cuts its lists itself. Out: a token of at most 8 KiB, which names its
list and its cluster, so that no other list takes it. It is no secret: only the host has it.
"""

import base64
import heapq
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.contract import MAX_PAGE_SIZE

T = TypeVar("T")

_LONGEST: Final = 8 << 10
"""The contract's limit."""


class PageRequest(Protocol):
    """Any request for a page."""

    page_size: int
    page_token: str

    @property
    def cluster(self) -> pb.ClusterRef:
        """The cluster that the list belongs to."""


def page(request: PageRequest, items: Iterable[T], key: Callable[[T], str]) -> tuple[list[T], str]:
    """Return the requested page of `items`, and the token of the next page, which is empty after the last.

    Keys are unique, and constant while an item exists. Pages are in the order of keys, so that items that come or go in
    between hide no others. Raises `invalid_token`.
    """
    after = open_page_token(request)
    size = request.page_size or MAX_PAGE_SIZE
    rest = (item for item in items if not request.page_token or key(item) > after)
    # Only the items on the page have to be sorted.
    found = heapq.nsmallest(size + 1, rest, key=key)
    if len(found) <= size:
        return found, ""
    found.pop()
    return found, seal_page_token(request, key(found[-1]))


def open_page_token(request: PageRequest) -> str:
    """Return the cloud's own token from which the request continues; empty for the first page.

    Call it before the cloud. Raises `invalid_token`; raise it, too, if the cloud takes its own token no more.
    """
    token, owner = request.page_token, _owner(request)
    try:
        plain = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise errors.invalid_token() from None
    if token and not plain.startswith(owner):
        raise errors.invalid_token()
    return plain.removeprefix(owner)


def seal_page_token(request: PageRequest, cloud_token: str) -> str:
    """Return the token of the next page, which stands for the cloud's own; empty after the last page.

    Raises `ValueError` if the cloud's token is too long for one of the contract.
    """
    if not cloud_token:
        return ""
    token = base64.urlsafe_b64encode((_owner(request) + cloud_token).encode()).decode().rstrip("=")
    if len(token) > _LONGEST:
        raise ValueError(f"the cloud's page token has {len(cloud_token)} bytes")
    return token


def _owner(request: PageRequest) -> str:
    """Return what a token begins with: its list and its cluster."""
    return f"{type(request).__name__} {request.cluster.uid}\0"
