"""`grpc.health.v1.Health`: SERVING means that the provider accepts work, and nothing more.

When the provider stops, streams report it and end; a graceful stop would otherwise wait for them.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from cloudprovider_sdk import contract
from cloudprovider_sdk.lifecycle import Lifecycle

_SERVING = {
    True: HealthCheckResponse.SERVING,
    False: HealthCheckResponse.NOT_SERVING,
    None: HealthCheckResponse.SERVICE_UNKNOWN,
}


class Health:
    """Serves health from the provider's lifecycle."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the gRPC handler of the service."""
        codec = (HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString)
        return grpc.method_handlers_generic_handler(
            contract.HEALTH,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self.check, *codec),
                "Watch": grpc.unary_stream_rpc_method_handler(self.watch, *codec),
            },
        )

    async def check(self, request: HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]) -> HealthCheckResponse:
        """Return a service's current health."""
        health = self._lifecycle.health(request.service)
        if health is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "the service is not served")
        return HealthCheckResponse(status=_SERVING[health])

    async def watch(
        self, request: HealthCheckRequest, _: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[HealthCheckResponse]:
        """Send a service's health whenever it changes. The protocol keeps the stream of an unknown service open."""
        told: int | None = None
        while True:
            last, changed = self._lifecycle.stop.is_set(), self._lifecycle.changed
            now = _SERVING[self._lifecycle.health(request.service)]
            if now != told:
                told = now
                yield HealthCheckResponse(status=now)
            if last:
                return
            await changed.wait()
