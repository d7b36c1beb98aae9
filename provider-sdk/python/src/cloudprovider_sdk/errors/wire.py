"""Converts errors to gRPC statuses and back, within the contract's size limits, and to errors of one item."""

import itertools
import logging
import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

import grpc
from google.protobuf import any_pb2, message
from google.rpc import error_details_pb2, status_pb2

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.contract import ERROR_DOMAIN, MAX_ERROR_DETAIL_BYTES
from cloudprovider_sdk.errors.provider_error import ProviderError, cut
from cloudprovider_sdk.errors.table import code_of

D = TypeVar("D", bound=message.Message)

_log = logging.getLogger("cloudprovider_sdk")

_SHOWN: Final = 10
_logged: ContextVar[Iterator[int]] = ContextVar("logged")
"""Counts the causes that a call logs; outside of calls, all are."""

_DETAILS: Final = "grpc-status-details-bin"
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_VALUE_BYTES: Final = 256
"""Longest value of one entry of the details; the total has its own limit."""


class Status(NamedTuple):
    """The arguments of `ServicerContext.abort`."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]


def to_status(error: ProviderError) -> Status:
    """Return the code from the table, `ErrorInfo`, and `RetryInfo`, `BadRequest` and `QuotaFailure` if they have content.

    Drops what does not fit into 4 KiB: quotas first, then fields, then metadata.
    """
    code = code_of(error.reason)
    fields, quotas = _short(error.fields), _short(error.quotas)
    metadata = [(key, value) for key, value in _short(tuple(sorted(error.metadata.items()))) if _KEY.fullmatch(key)]
    while True:
        details = _encode(error, fields, quotas, metadata)
        if len(details) < MAX_ERROR_DETAIL_BYTES or not (quotas or fields or metadata):
            return Status(code, error.message, ((_DETAILS, details),))
        (quotas or fields or metadata).pop()


def count_causes() -> None:
    """Begin a call: it logs the causes of ten items' errors, since a cloud that is away fails all items of a batch alike."""
    _logged.set(itertools.count())


def to_item(error: ProviderError) -> pb.ItemError:
    """Return the error as an item error. UNSPECIFIED becomes INTERNAL_ERROR, as the contract reads it."""
    if error.__cause__ is not None and next(_logged.get(itertools.repeat(0))) < _SHOWN:
        _log.warning("%s: %s", error, error.__cause__)
    item = pb.ItemError(reason=error.reason or pb.ERROR_REASON_INTERNAL_ERROR, message=error.message)
    if error.retry_after is not None:
        item.retry_after.FromTimedelta(timedelta(seconds=error.retry_after))
    return item


def from_call(failed: grpc.aio.AioRpcError) -> ProviderError | None:
    """Parse a status, for tests and clients; None if it has no `ErrorInfo` of the contract and so proves nothing."""
    encoded = dict(failed.trailing_metadata() or ()).get(_DETAILS)
    if not isinstance(encoded, bytes):
        return None
    details = status_pb2.Status.FromString(encoded).details
    info = _unpack(details, error_details_pb2.ErrorInfo())
    if info is None or info.domain != ERROR_DOMAIN:
        return None
    retry = _unpack(details, error_details_pb2.RetryInfo())
    bad = _unpack(details, error_details_pb2.BadRequest()) or error_details_pb2.BadRequest()
    quota = _unpack(details, error_details_pb2.QuotaFailure()) or error_details_pb2.QuotaFailure()
    name = f"ERROR_REASON_{info.reason}"
    # A reason from a newer contract is read as UNSPECIFIED.
    known = name in pb.ErrorReason.keys()  # noqa: SIM118
    return ProviderError(
        pb.ErrorReason.Value(name) if known else pb.ERROR_REASON_UNSPECIFIED,
        failed.details() or "",
        retry_after=retry.retry_delay.ToTimedelta().total_seconds() if retry else None,
        metadata=info.metadata,
        fields=tuple((one.field, one.description) for one in bad.field_violations),
        quotas=tuple((one.subject, one.description) for one in quota.violations),
    )


def _short(pairs: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [(cut(left, MAX_VALUE_BYTES), cut(right, MAX_VALUE_BYTES)) for left, right in pairs]


def _encode(
    error: ProviderError,
    fields: list[tuple[str, str]],
    quotas: list[tuple[str, str]],
    metadata: list[tuple[str, str]],
) -> bytes:
    info = error_details_pb2.ErrorInfo(reason=error.reason_name, domain=ERROR_DOMAIN, metadata=dict(metadata))
    status = status_pb2.Status(code=code_of(error.reason).value[0], message=error.message)
    _add(status, info)
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromTimedelta(timedelta(seconds=error.retry_after))
        _add(status, retry)
    if fields:
        bad = error_details_pb2.BadRequest()
        for path, why in fields:
            bad.field_violations.add(field=path, description=why)
        _add(status, bad)
    if quotas:
        quota = error_details_pb2.QuotaFailure()
        for subject, what in quotas:
            quota.violations.add(subject=subject, description=what)
        _add(status, quota)
    return status.SerializeToString()


def _add(status: status_pb2.Status, detail: message.Message) -> None:
    status.details.add().Pack(detail)


def _unpack(details: Iterable[any_pb2.Any], into: D) -> D | None:
    return into if any(detail.Unpack(into) for detail in details) else None
