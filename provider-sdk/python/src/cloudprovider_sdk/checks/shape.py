"""Checks the shape of each request: what the contract says of its fields (`options.proto`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.advertised import Advertised

_PACKAGE: Final = pb.ClusterRef.DESCRIPTOR.file.package


@dataclass(frozen=True, slots=True)
class _Field:
    """What there is to check of a field."""

    name: str
    shape: pb.FieldShape
    is_list: bool
    is_text: bool
    inside: "tuple[_Field, ...]"


@cache
def _plan(message: Descriptor) -> tuple[_Field, ...]:
    fields = (_planned(field) for field in message.fields)
    return tuple(one for one in fields if one.inside or one.shape.ByteSize())


def _planned(field: FieldDescriptor) -> _Field:
    shape, part = field.GetOptions().Extensions[pb.shape], field.message_type
    ours = part is not None and part.file.package == _PACKAGE and not part.GetOptions().map_entry
    inside = _plan(part) if ours and not shape.unchecked else ()
    return _Field(field.name, shape, field.is_repeated, field.type == field.TYPE_STRING, inside)


def check(request: Message, advertised: Advertised) -> None:
    """Raise if the request violates the contract."""
    _message(request, _plan(request.DESCRIPTOR), "", advertised)


def fit(request: Any, advertised: Advertised) -> None:
    """Clamp the page size, so that methods need not: the maximum if the request has none or a larger one."""
    if "page_token" in request.DESCRIPTOR.fields_by_name:
        request.page_size = min(request.page_size or advertised.max_page_size, advertised.max_page_size)


def items(request: Any) -> int | None:
    """Return the number of items of a batch; None if the request is not a batch."""
    batch = (field for field in _plan(request.DESCRIPTOR) if field.shape.limit)
    return next((len(getattr(request, field.name)) for field in batch), None)


def _message(message: Any, plan: tuple[_Field, ...], path: str, advertised: Advertised) -> None:
    for field in plan:
        at, value, shape = path + field.name, getattr(message, field.name), field.shape
        if field.is_list:
            if shape.empty_with and getattr(message, shape.empty_with) and value:
                raise errors.invalid_argument_shape(at, f"is not empty although {shape.empty_with} is set")
            _list(value, field, at, advertised)
        elif field.is_text:
            _text(value, shape, at, with_neighbour=bool(shape.required_with and getattr(message, shape.required_with)))
        elif isinstance(value, Message):
            if message.HasField(field.name):
                _message(value, field.inside, at + ".", advertised)
            elif shape.required:
                raise errors.invalid_argument_shape(at, "is missing")
        elif shape.not_negative and value < 0:
            raise errors.invalid_argument_shape(at, "is negative")


def _text(value: str, shape: pb.FieldShape, path: str, *, with_neighbour: bool) -> None:
    if not value and (shape.required or with_neighbour):
        raise errors.invalid_argument_shape(path, "is missing")
    if shape.max_bytes and len(value) * 4 > shape.max_bytes and len(value.encode()) > shape.max_bytes:
        raise errors.invalid_argument_shape(path, f"has more than {shape.max_bytes} bytes")


def _list(values: Sequence[Any], field: _Field, path: str, advertised: Advertised) -> None:
    shape = field.shape
    if shape.required and not values:
        raise errors.invalid_argument_shape(path, "is empty")
    if shape.limit and len(values) > (most := getattr(advertised, shape.limit)):
        raise errors.batch_too_large(len(values), most)
    if field.inside:
        for entry, value in enumerate(values):
            _message(value, field.inside, f"{path}[{entry}].", advertised)
    for way in shape.unique:
        seen: set[str] = set()
        for entry, value in enumerate(map(attrgetter(way), values)):
            if value in seen:
                raise errors.invalid_argument_shape(f"{path}[{entry}].{way}", "is a duplicate")
            seen.add(value)
