"""The span, the metrics and the log line of every RPC."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cloudprovider_sdk.call import Call, current
from cloudprovider_sdk.errors import ProviderError, code_of
from cloudprovider_sdk.method import Method
from cloudprovider_sdk.metrics import Metrics

_log = logging.getLogger("cloudprovider_sdk")
_DEFECTS = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})


@dataclass(slots=True)
class Outcome:
    """How a call ended. Until it is set, the caller disconnected."""

    code: grpc.StatusCode = grpc.StatusCode.CANCELLED
    reason: str = ""

    def ok(self) -> None:
        """Record success."""
        self.code = grpc.StatusCode.OK

    def failed(self, error: ProviderError) -> None:
        """Record an error."""
        self.code, self.reason = code_of(error.reason), error.reason_name


class Observer:
    """Observes calls."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._tracer = trace.get_tracer("cloudprovider_sdk")
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def watch(self, method: Method, call: Call, headers: Mapping[str, str], items: int | None) -> Iterator[Outcome]:
        """Observe the call that runs within the block; the caller's span is its parent."""
        outcome, began = Outcome(), time.monotonic()
        self._metrics.started(method)
        if items is not None:
            self._metrics.batch(method, items)
        token = current.set(call)
        attributes: dict[str, str | int] = {
            "rpc.service": method.service,
            "rpc.method": method.name,
            "request_id": call.request_id,
            "cluster_uid": call.cluster.uid,
            "items": items or 0,
        }
        with self._tracer.start_as_current_span(
            method.path,
            context=self._propagator.extract(headers),
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield outcome
            finally:
                self._ended(method, outcome, time.monotonic() - began)
                span.set_attributes({"code": outcome.code.name, "reason": outcome.reason})
                current.reset(token)

    def _ended(self, method: Method, outcome: Outcome, took: float) -> None:
        self._metrics.ended(method, outcome.code.name, outcome.reason, took)
        extra = {"code": outcome.code.name, "reason": outcome.reason, "took": round(took, 6)}
        if outcome.code is grpc.StatusCode.OK:
            _log.debug("answered", extra=extra)
        elif outcome.code in _DEFECTS:
            _log.warning("failed", extra=extra)
        else:
            _log.info("refused", extra=extra)
