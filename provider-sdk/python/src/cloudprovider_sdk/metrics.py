"""Metrics of every RPC, under the same names as in the host."""

from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram

from cloudprovider_sdk.method import Method

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0)
"""From a call answered from memory to the longest deadline of the contract."""
_ITEMS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)
_ROLE: Final = "provider"


class Metrics:
    """The metrics of this package, beside those that a provider registers itself."""

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
        """An RPC arrived."""
        self._in_flight.labels(_ROLE, method.service, method.name).inc()

    def batch(self, method: Method, items: int) -> None:
        """It carries this many items."""
        self._batches.labels(_ROLE, method.service, method.name).observe(items)

    def ended(self, method: Method, code: str, reason: str, seconds: float) -> None:
        """It was answered."""
        self._in_flight.labels(_ROLE, method.service, method.name).dec()
        self._durations.labels(_ROLE, method.service, method.name, code, reason).observe(seconds)
