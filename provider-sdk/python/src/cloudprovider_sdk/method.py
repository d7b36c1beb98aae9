"""The contract's RPCs, read from its descriptors: a bounded list for handlers, spans and metrics."""

import re
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor

from cloudprovider_sdk.gen.ccm.cloudprovider.v1alpha1 import (
    cloud_provider_pb2,
    clusters_pb2,
    instances_pb2,
    load_balancers_pb2,
    routes_pb2,
    volumes_pb2,
)
from cloudprovider_sdk.gen.ccm.discovery.v1 import discovery_pb2

_FILES: Final = (
    discovery_pb2,
    cloud_provider_pb2,
    instances_pb2,
    load_balancers_pb2,
    routes_pb2,
    volumes_pb2,
    clusters_pb2,
)


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC."""

    service: str
    name: str
    request: Any
    response: Any
    mutates: bool
    streams: bool

    @property
    def attribute(self) -> str:
        """The name of the method that implements it."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    @property
    def path(self) -> str:
        """The path in the call's headers."""
        return f"/{self.service}/{self.name}"


def _of(method: MethodDescriptor) -> Method:
    # The contract sets the level on every RPC; buf guards it.
    level = method.GetOptions().idempotency_level
    return Method(
        service=method.containing_service.full_name,
        name=method.name,
        request=message_factory.GetMessageClass(method.input_type),
        response=message_factory.GetMessageClass(method.output_type),
        # Lead is idempotent, but changes nothing in the cloud.
        mutates=level == descriptor_pb2.MethodOptions.IDEMPOTENT and method.name != "Lead",
        streams=method.server_streaming,
    )


def _all(file: FileDescriptor) -> list[Method]:
    return [_of(method) for service in file.services_by_name.values() for method in service.methods]


METHODS: Final = tuple(method for module in _FILES for method in _all(module.DESCRIPTOR))
"""Every RPC of the contract."""


def of_service(service: str) -> list[Method]:
    """Return the RPCs of a service, by its fully qualified name."""
    return [method for method in METHODS if method.service == service]


def named(name: str) -> Method:
    """Return an RPC by its name, which is unique in the contract."""
    return next(method for method in METHODS if method.name == name)
