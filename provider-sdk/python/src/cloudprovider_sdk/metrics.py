"""Metrics of every RPC, under the same names as the host's."""

from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram

from cloudprovider_sdk.method import Method

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0)
"""From a call answered from memory to the contract's longest deadline."""
_ITEMS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)
_ROLE: Final = "provider"


class Metrics:
    """The metrics of this package; a provider may register its own on the same registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._durations = Histogram(
            "cloudprovider_rpc_duration_seconds",
            "Time from the arrival of an RPC to the head of its answer, by outcome",
            ("role", "service", "method", "code", "reason"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "cloudprovider_rpcs_in_flight",
            "RPCs that are not answered yet",
            ("role", "service", "method"),
            registry=registry,
        )
        self._batches = Histogram(
            "cloudprovider_rpc_batch_size",
            "Items of a batch as it arrived",
            ("role", "service", "method"),
            buckets=_ITEMS,
            registry=registry,
        )

    def started(self, method: Method) -> None:
        """Record that an RPC has arrived."""
        self._in_flight.labels(_ROLE, method.service, method.name).inc()

    def batch(self, method: Method, items: int) -> None:
        """Record the number of items in a batch."""
        self._batches.labels(_ROLE, method.service, method.name).observe(items)

    def ended(self, method: Method, code: str, reason: str, seconds: float) -> None:
        """Record that an RPC has ended."""
        self._in_flight.labels(_ROLE, method.service, method.name).dec()
        self._durations.labels(_ROLE, method.service, method.name, code, reason).observe(seconds)
