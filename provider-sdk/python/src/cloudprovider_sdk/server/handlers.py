"""Maps RPCs to the methods that implement them. `core` decides what happens around each method."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from cloudprovider_sdk import contract
from cloudprovider_sdk.method import Method, of_service
from cloudprovider_sdk.provider import Provider
from cloudprovider_sdk.server.base import Base, Discovery
from cloudprovider_sdk.server.core import Core
from cloudprovider_sdk.server.health import Health


def handlers(provider: Provider, *, reflection: bool) -> list[grpc.GenericRpcHandler]:
    """Return the handlers of the services that a provider serves, and of no others."""
    core = Core(provider)
    served = {
        contract.DISCOVERY: Discovery(provider, [contract.HEALTH, *([contract.REFLECTION] if reflection else [])]),
        contract.CLOUD_PROVIDER: Base(provider, core.lead),
        **provider.services,
    }
    contracted = [_service(core, name, implementation) for name, implementation in served.items()]
    return [*contracted, Health(provider.lifecycle).handler()]


def _service(core: Core, service: str, implementation: object) -> grpc.GenericRpcHandler:
    methods = {method.name: _method(core, method, implementation) for method in of_service(service)}
    return grpc.method_handlers_generic_handler(service, methods)


def _method(core: Core, method: Method, implementation: object) -> "grpc.RpcMethodHandler[Any, Any]":
    run = getattr(implementation, method.attribute)
    codec = (method.request.FromString, method.response.SerializeToString)
    if method.streams:
        # gRPC checks for a generator function, and a partial of one does not count.
        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            async for frame in core.stream(method, run, request, context):
                yield frame

        return grpc.unary_stream_rpc_method_handler(stream, *codec)
    return grpc.unary_unary_rpc_method_handler(partial(core.unary, method, run), *codec)
