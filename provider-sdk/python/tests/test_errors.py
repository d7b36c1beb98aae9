"""The one error type: its code, its details, its sizes."""

import inspect
import re
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.errors import ProviderError, table
from cloudprovider_sdk.errors.wire import to_status

CONTRACT = Path(__file__).parents[3] / "proto/ccm/cloudprovider/v1alpha1/errors.proto"
ARGUMENTS: dict[str, Any] = {"float": 7.0, "int": 3, "str": "x", "Sequence": ["x", "y"]}


def back(error: ProviderError) -> ProviderError:
    status = to_status(error)
    failed = grpc.aio.AioRpcError(status.code, grpc.aio.Metadata(), grpc.aio.Metadata(*status.trailers), status.message)
    found = errors.from_call(failed)
    assert found is not None
    return found


def test_codes_are_those_of_the_contract() -> None:
    """[R:error-info]."""
    text = CONTRACT.read_text()
    rows = re.findall(r"((?:  //[^\n]*\n)+)  (ERROR_REASON_\w+) = ", text)
    assert len(rows) == len(pb.ErrorReason.keys())
    for comment, name in rows:
        told = re.findall(r"\b[Cc]ode ([A-Z_]+)", comment)
        if told:
            assert errors.code_of(pb.ErrorReason.Value(name)).name == told[0], name


def test_a_reason_without_a_code_or_a_class_does_not_pass() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="bare.proto", package="bare", syntax="proto3")
    file.enum_type.add(name="Bare").value.add(name="NAKED", number=0)
    half = file.enum_type.add(name="Half").value.add(name="HALF", number=0)
    half.options.Extensions[pb.reason].codes.append("ABORTED")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    for enum in ("bare.Bare", "bare.Half"):
        with pytest.raises(ValueError, match="names no code, or no retry class"):
            table.read(pool.FindEnumTypeByName(enum))


def test_every_condition_keeps_what_it_says_over_the_wire() -> None:
    seen = set()
    for name, condition in inspect.getmembers(errors, inspect.isfunction):
        if name.startswith("_") or condition.__module__ != errors.__name__:
            continue
        parameters = inspect.signature(condition).parameters.values()
        given = {p.name: ARGUMENTS[p.annotation.__name__] for p in parameters if p.kind is not p.VAR_KEYWORD}
        error = condition(**given)
        again = back(error)
        for field in ("reason", "message", "retry_after", "metadata", "fields", "quotas"):
            assert getattr(again, field) == getattr(error, field), (name, field)
        if "retry_after" in given:
            assert again.retry_after == 7.0
        seen.add(error.reason)
    missing = {*pb.ErrorReason.values()} - seen
    assert missing == {pb.ERROR_REASON_UNSPECIFIED, pb.ERROR_REASON_PEER_NOT_TRUSTED}


def test_details_stay_below_four_kib() -> None:
    """[R:error-size]."""
    long = "ä" * 4000
    error = ProviderError(
        pb.ERROR_REASON_QUOTA_EXCEEDED,
        long,
        metadata={f"key-{at}": long for at in range(20)} | {"bad key": "x"},
        fields=tuple((f"spec.{at}", long) for at in range(20)),
        quotas=tuple((f"quota {at}", long) for at in range(20)),
    )
    (_, details), *more = to_status(error).trailers
    assert not more
    assert len(details) < 4096
    again = back(error)
    assert len(again.message.encode()) <= 1024
    assert not again.quotas
    assert again.metadata, "metadata goes last"
    assert "bad key" not in again.metadata


def test_no_secret_leaves() -> None:
    """[R:error-no-secret]."""
    error = ProviderError(
        pb.ERROR_REASON_RETRY_LATER,
        "password=canary-hunter2",
        metadata={"api_token": "canary-hunter2", "said": "Bearer canary-hunter2"},
        fields=(("spec", "token: canary-hunter2"),),
        quotas=(("a", "secret=canary-hunter2"),),
    )
    assert "canary" not in repr(to_status(error))
    assert "canary" not in str(error)


def test_a_status_without_our_details_proves_nothing() -> None:
    bare = grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), grpc.aio.Metadata())
    assert errors.from_call(bare) is None


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ProviderError(pb.ERROR_REASON_UNSPECIFIED, "x"), pb.ItemError(reason=pb.ERROR_REASON_INTERNAL_ERROR, message="x")),
        (
            errors.needs_ensure("s"),
            pb.ItemError(reason=pb.ERROR_REASON_NEEDS_ENSURE, message='the balancer of "s" must be ensured'),
        ),
    ],
)
def test_an_error_of_an_item(error: ProviderError, wanted: pb.ItemError) -> None:
    assert errors.to_item(error) == wanted


def test_an_items_error_says_when_to_come_back() -> None:
    assert errors.to_item(errors.metadata_not_ready(2.5)).retry_after.ToTimedelta().total_seconds() == 2.5
