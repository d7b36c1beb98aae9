"""Metrics and traces."""

import asyncio
import urllib.request
from pathlib import Path

import pytest
from cloud import Cloud
from fixture import batch, clients, refused, serving, until
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, Counter

INSTANCES = {"role": "provider", "service": "ccm.cloudprovider.v1alpha1.Instances", "method": "BatchGetInstances"}


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(tracers)
    return exporter


async def test_each_call_is_measured_by_its_outcome(tmp_path: Path) -> None:
    cloud, registry = Cloud(), CollectorRegistry()

    def count(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {**INSTANCES, **labels})

    async with serving(cloud.provider(registry=registry), tmp_path) as it, it.channel() as channel:
        instances = clients(channel).instances
        await instances.BatchGetInstances(batch("a", "b"))
        await refused(instances.BatchGetInstances(batch("throttled")))
        hanging = instances.BatchGetInstances(batch("hang"))
        await until(lambda: cloud.began == 1)
        assert count("cloudprovider_rpcs_in_flight") == 1
        hanging.cancel()
        await until(lambda: count("cloudprovider_rpcs_in_flight") == 0)
    for code, reason in (("OK", ""), ("RESOURCE_EXHAUSTED", "RATE_LIMITED"), ("CANCELLED", "")):
        assert count("cloudprovider_rpc_duration_seconds_count", code=code, reason=reason) == 1, code
    assert count("cloudprovider_rpc_batch_size_sum") == 4


async def test_metrics_are_served_with_the_teams_own(tmp_path: Path, unused_tcp_port: int) -> None:
    registry = CollectorRegistry()
    Counter("cloud_calls_total", "Calls of the cloud's API", registry=registry).inc(3)
    address = ("127.0.0.1", unused_tcp_port)
    async with serving(Cloud().provider(registry=registry), tmp_path, metrics_address=address) as it, it.channel() as channel:
        await clients(channel).instances.BatchGetInstances(batch("a"))

        def scrape() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{unused_tcp_port}/metrics") as answer:
                return str(answer.read().decode())

        text = await asyncio.to_thread(scrape)
    assert "cloud_calls_total 3.0" in text
    assert "cloudprovider_rpc_duration_seconds_bucket" in text


async def test_a_metrics_address_in_use_is_told(tmp_path: Path, unused_tcp_port: int) -> None:
    address = ("127.0.0.1", unused_tcp_port)
    async with serving(Cloud().provider(), tmp_path / "a", metrics_address=address) as it, it.channel() as channel:
        await clients(channel).instances.BatchGetInstances(batch("a"))
        with pytest.raises(OSError, match="choose another --metrics-address"):
            async with serving(Cloud().provider(), tmp_path / "b", metrics_address=address):
                pass


async def test_the_callers_trace_goes_on(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with serving(Cloud().provider(), tmp_path) as it, it.channel() as channel:
        await refused(clients(channel).instances.BatchGetInstances(batch("throttled"), metadata=(("traceparent", parent),)))
    (span,) = [span for span in spans.get_finished_spans() if span.context.trace_id == int(parent.split("-")[1], 16)]
    assert span.parent is not None
    assert f"{span.parent.span_id:x}" == "b7ad6b7169203331"
    attributes = dict(span.attributes or {})
    assert attributes["rpc.method"] == "BatchGetInstances"
    assert (attributes["code"], attributes["reason"]) == ("RESOURCE_EXHAUSTED", "RATE_LIMITED")
    assert not span.events, "an exception's text may hold anything"
