"""Checks a provider before it is served: everything advertised exists and is within the contract's bounds."""

import re
from typing import Final

from cloudprovider_sdk import contract
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.gen.ccm.discovery.v1.discovery_pb2 import GetInfoResponse

_LABEL: Final = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"(?=.{{1,63}}\Z){_LABEL}(\.{_LABEL})*")
_LONGEST_TEXT: Final = 64
_PACKAGE: Final = pb.Capability.DESCRIPTOR.file.package
_INTERVALS: Final = (
    "resume_token_validity",
    "bookmark_interval",
    "watch_max_age",
    "instance_sweep",
)
_NEEDS: Final = {
    value.number: service
    for value in pb.Capability.DESCRIPTOR.values
    if (service := value.GetOptions().Extensions[pb.capability].service)
}
"""The service that must be served for each capability, without its package."""


def check(info: GetInfoResponse, answer: pb.GetCapabilitiesResponse) -> None:
    """Raise `ValueError` that names the value and the remedy."""
    _identity(info)
    _capabilities(info, answer)
    _limits(answer)


def _identity(info: GetInfoResponse) -> None:
    version, epoch = len(info.vendor_version.encode()), len(info.process_epoch.encode())
    if not _SUBDOMAIN.fullmatch(info.name):
        raise ValueError(
            f"the name {info.name!r} is not a DNS subdomain of at most 63 bytes; use lowercase letters, digits, '-' and '.'"
        )
    if version > _LONGEST_TEXT:
        raise ValueError(f"vendor_version has {version} bytes; it may have {_LONGEST_TEXT}")
    if not 1 <= epoch <= _LONGEST_TEXT:
        raise ValueError(f"process_epoch has {epoch} bytes; it needs 1 to {_LONGEST_TEXT}")
    if "" in info.provider_id_prefixes:
        raise ValueError('a provider-ID prefix is empty; write for example "aws://"')
    if contract.INSTANCES in info.services and not info.provider_id_prefixes:
        raise ValueError("instances are served without a provider-ID prefix; give provider_id_prefixes")


def _capabilities(info: GetInfoResponse, answer: pb.GetCapabilitiesResponse) -> None:
    for at, capability in enumerate(answer.capabilities):
        if capability not in _NEEDS or capability in answer.capabilities[:at]:
            raise ValueError(f"capability number {capability} is unknown, unspecified or duplicate")
        if (needed := f"{_PACKAGE}.{_NEEDS[capability]}") not in info.services:
            raise ValueError(
                f"{pb.Capability.Name(capability)} is advertised but {needed} is not served; "
                "give its implementation or drop the capability"
            )
    if answer.load_balancer_classes and contract.LOAD_BALANCERS not in info.services:
        raise ValueError(f"load_balancer_classes is set but {contract.LOAD_BALANCERS} is not served")


def _limits(answer: pb.GetCapabilitiesResponse) -> None:
    size = answer.limits.max_message_bytes
    if size and not contract.LEAST_MAX_MESSAGE_BYTES <= size <= contract.MOST_MAX_MESSAGE_BYTES:
        raise ValueError(f"limits.max_message_bytes is {size}; it needs to be 4 MiB to 64 MiB, or 0 for 16 MiB")
    for name in _INTERVALS:
        value = getattr(answer.intervals, name).ToTimedelta()
        if answer.intervals.HasField(name) and value.total_seconds() <= 0:
            raise ValueError(f"intervals.{name} is {value}; it needs to be positive, or absent for the default")
