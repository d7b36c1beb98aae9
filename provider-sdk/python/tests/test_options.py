"""Flags, and the checks of a provider before it is served."""

import argparse
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cloud import Cloud
from google.protobuf.duration_pb2 import Duration

from cloudprovider_sdk import Endpoint, Provider, ServeOptions, add_flags, logs
from cloudprovider_sdk import proto as pb


def parsed(*flags: str) -> ServeOptions:
    return ServeOptions.from_flags(add_flags(argparse.ArgumentParser(exit_on_error=False)).parse_args(flags))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("unix:///run/a.sock", Endpoint(path=Path("/run/a.sock"))),
        ("unix:/run/a.sock", Endpoint(path=Path("/run/a.sock"))),
        ("/run/a.sock", Endpoint(path=Path("/run/a.sock"))),
        ("tcp://127.0.0.1:7443", Endpoint(host="127.0.0.1", port=7443)),
        ("https://[::1]:0/", Endpoint(host="::1", port=0)),
    ],
)
def test_an_endpoint_is_read_and_written(text: str, wanted: Endpoint) -> None:
    assert Endpoint.parse(text) == wanted
    assert Endpoint.parse(str(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("unix-abstract:x", "abstract"),
        ("@x", "abstract"),
        ("http://127.0.0.1:80", "plain TCP"),
        ("unix://relative.sock", "absolute path"),
        ("unix:///run/", "absolute path"),
        (f"/{'x' * 100}", "101 bytes"),
        ("tcp://localhost:1", "not address:port"),
        ("tcp://127.0.0.1:65536", "not address:port"),
        ("ftp://x", "is not an endpoint"),
    ],
)
def test_what_is_no_endpoint_is_told_with_the_remedy(text: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        Endpoint.parse(text)
    with pytest.raises(argparse.ArgumentError, match=remedy):
        parsed("--endpoint", text)


def test_flags_have_defaults_and_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOUDPROVIDER_ENDPOINT", raising=False)
    assert parsed() == ServeOptions(endpoint=Endpoint(path=Path("/run/cloudprovider/provider.sock")))
    monkeypatch.setenv("CLOUDPROVIDER_ENDPOINT", "unix:///x.sock")
    assert parsed().endpoint.path == Path("/x.sock")


@pytest.mark.parametrize(("text", "wanted"), [("0", ("127.0.0.1", 0)), (":9090", ("127.0.0.1", 9090)), ("[::1]:1", ("::1", 1))])
def test_a_port_alone_is_one_of_the_loopback(text: str, wanted: tuple[str, int]) -> None:
    assert parsed("--metrics-address", text).metrics_address == wanted


@pytest.mark.parametrize(("text", "wanted"), [("25", 25.0), ("1.5s", 1.5), ("0", 0.0)])
def test_a_grace_is_in_seconds(text: str, wanted: float) -> None:
    assert parsed("--shutdown-grace", text).shutdown_grace == wanted


@pytest.mark.parametrize("flags", [("--shutdown-grace", "-1"), ("--shutdown-grace", "nan"), ("--metrics-address", "x")])
def test_a_bad_value_is_refused(flags: tuple[str, str]) -> None:
    with pytest.raises(argparse.ArgumentError, match=r"use for example|write for example"):
        parsed(*flags)


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'loud' is not a log level"):
        logs.setup(level="loud")


def capabilities(*given: pb.Capability.ValueType, **fields: Any) -> pb.GetCapabilitiesResponse:
    return pb.GetCapabilitiesResponse(capabilities=given, **fields)


@pytest.mark.parametrize(
    ("name", "more", "remedy"),
    [
        ("Aws", {}, "not a DNS subdomain"),
        ("a" * 64, {}, "not a DNS subdomain"),
        ("a..b", {}, "not a DNS subdomain"),
        ("a", {"vendor_version": "x" * 65}, "vendor_version has 65 bytes"),
        ("a", {"process_epoch": ""}, "process_epoch has 0 bytes"),
        ("a", {"provider_id_prefixes": [""]}, "prefix is empty"),
        ("a", {"instances": Cloud()}, "without a provider-ID prefix"),
        ("a", {"capabilities": capabilities(pb.CAPABILITY_ADOPTION)}, "CAPABILITY_ADOPTION is advertised"),
        ("a", {"capabilities": capabilities(pb.CAPABILITY_INSTANCES_WATCH)}, "CAPABILITY_INSTANCES_WATCH is advertised"),
        ("a", {"capabilities": capabilities(pb.CAPABILITY_UNSPECIFIED)}, "number 0 is unknown"),
        ("a", {"capabilities": capabilities(load_balancer_classes=["x"])}, "load_balancer_classes is set"),
        ("a", {"capabilities": capabilities(limits=pb.Limits(max_message_bytes=1))}, "4 MiB to 64 MiB"),
        ("a", {"capabilities": capabilities(intervals=pb.Intervals(watch_max_age=Duration()))}, "needs to be positive"),
    ],
)
def test_what_is_inconsistent_is_refused_with_the_remedy(name: str, more: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        Provider(name, **more)


def test_what_the_team_advertises_is_kept_and_filled_in() -> None:
    second = Duration()
    second.FromTimedelta(timedelta(seconds=1))
    given = capabilities(
        pb.CAPABILITY_ADOPTION, limits=pb.Limits(max_batch_routes=7), intervals=pb.Intervals(bookmark_interval=second)
    )
    advertised = Cloud().provider(capabilities=given).advertised
    assert pb.CAPABILITY_ADOPTION in advertised.capabilities
    assert (advertised.max_batch_routes, advertised.max_batch_instances) == (7, 500)
    assert (advertised.bookmark_interval, advertised.watch_max_age) == (1.0, 1800.0)
    assert advertised.max_message_bytes == 16 << 20
    assert list(given.capabilities) == [pb.CAPABILITY_ADOPTION], "what was given is not changed"
