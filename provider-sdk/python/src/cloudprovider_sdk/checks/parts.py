"""Checks of the parts that requests share. Each raises INVALID_ARGUMENT_SHAPE or BATCH_TOO_LARGE."""

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import Message

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb

LONG: Final = 1 << 10
_PAGE_TOKEN: Final = 8 << 10
"""Longest key, provider ID, token and volume id in bytes."""
_UID: Final = 64
_NAME: Final = 253
_DIGEST: Final = 128


def text(field: str, value: str, most: int) -> None:
    """Check a required text of limited length."""
    if not value:
        raise errors.invalid_argument_shape(field, "is missing")
    short(field, value, most)


def short(field: str, value: str, most: int) -> None:
    """Check an optional text of limited length."""
    if len(value.encode()) > most:
        raise errors.invalid_argument_shape(field, f"has more than {most} bytes")


def present(of: Message, field: str, path: str | None = None) -> None:
    """Check that a required message is present."""
    if not of.HasField(field):
        raise errors.invalid_argument_shape(path or field, "is missing")


def cluster(request: Any) -> None:
    """Check the cluster, which every request that reaches a cloud carries."""
    present(request, "cluster")
    text("cluster.uid", request.cluster.uid, _UID)
    short("cluster.name", request.cluster.name, _NAME)


def mutation(request: Any) -> None:
    """Check the fields that every mutation carries."""
    cluster(request)
    present(request, "fencing")


def page(request: Any) -> None:
    """Check the fields that every page request carries."""
    cluster(request)
    if request.page_size < 0:
        raise errors.invalid_argument_shape("page_size", "is negative")
    short("page_token", request.page_token, _PAGE_TOKEN)


def batch(field: str, size: int, most: int) -> None:
    """Check that a batch has at least one item, and no more than advertised."""
    if not size:
        raise errors.invalid_argument_shape(field, "is empty")
    if size > most:
        raise errors.batch_too_large(size, most)


def unique(paths: Iterable[tuple[str, str]], most: int = LONG) -> None:
    """Check that all values are unique; `paths` are (path, value)."""
    seen: set[str] = set()
    for path, value in paths:
        text(path, value, most)
        if value in seen:
            raise errors.invalid_argument_shape(path, "is a duplicate")
        seen.add(value)


def node(field: str, value: pb.NodeRef) -> None:
    """Check the fields of a node."""
    text(f"{field}.name", value.name, _NAME)
    short(f"{field}.provider_id", value.provider_id, LONG)


def service(field: str, value: pb.ServiceRef) -> None:
    """Check the fields of a Service's reference."""
    text(f"{field}.uid", value.uid, _UID)
    text(f"{field}.name", value.name, _NAME)
    text(f"{field}.namespace", value.namespace, _NAME)


def backend_set(field: str, value: pb.BackendSet) -> None:
    """Check that a set with nodes_omitted has a digest and no nodes."""
    if not value.nodes_omitted:
        short(f"{field}.digest", value.digest, _DIGEST)
    elif value.nodes:
        raise errors.invalid_argument_shape(f"{field}.nodes", "are present although nodes_omitted is set")
    else:
        digest(f"{field}.digest", value.digest)


def digest(field: str, value: str) -> None:
    """Check a required digest."""
    text(field, value, _DIGEST)
