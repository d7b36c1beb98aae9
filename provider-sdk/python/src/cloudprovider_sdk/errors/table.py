"""The gRPC code of each reason, read from the options of the enum in `errors.proto`."""

from typing import Final

import grpc
from google.protobuf.descriptor import EnumDescriptor, EnumValueDescriptor

from cloudprovider_sdk import proto as pb


def _code_of(value: EnumValueDescriptor) -> grpc.StatusCode:
    traits = value.GetOptions().Extensions[pb.reason]
    if not traits.codes or not traits.retry:
        raise ValueError(f"reason {value.name} names no code, or no retry class")
    return grpc.StatusCode[traits.codes[0]]


def read(enum: EnumDescriptor) -> dict[int, grpc.StatusCode]:
    """Read the codes of all reasons. Raises `ValueError` if a reason lacks a code or a retry class."""
    return {value.number: _code_of(value) for value in enum.values}


_CODES: Final = read(pb.ErrorReason.DESCRIPTOR)


def code_of(reason: pb.ErrorReason.ValueType) -> grpc.StatusCode:
    """Return the gRPC code of a reason when a whole call fails with it.

    Reasons that the contract has only for items get the closest code.
    """
    return _CODES[reason]
