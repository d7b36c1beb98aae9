"""The options that all sidecars share, and their flags."""

import argparse
import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, get_args

from cloudprovider_sdk.logs import LogFormat

_LONGEST_PATH: Final = 100
"""The longest socket path that every system supports."""
DEFAULT_ENDPOINT: Final = "unix:///run/cloudprovider/provider.sock"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider listens: a Unix socket by path, or TCP with mutual TLS by host and port (port 0: any free one)."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Parse `unix:///path/of/the/socket` or `tcp://address:port`. Raises `ValueError` with the value and the remedy."""
        if text.startswith(("unix-abstract:", "@", "unix:@")):
            raise ValueError("abstract sockets have no file permissions; write unix:///path/of/the/socket")
        if text.startswith("http://"):
            raise ValueError(
                f"plain TCP ({text!r}) is not supported; use unix:///path, or tcp://address:port with the --tls flags"
            )
        if text.startswith(("/", "unix:")):
            return cls(path=_socket_path(text.removeprefix("unix:").removeprefix("//")))
        if text.startswith(("tcp://", "https://")):
            host, port = host_and_port(text.partition("://")[2].rstrip("/"))
            return cls(host=host, port=port)
        raise ValueError(f"{text!r} is not an endpoint; use unix:///path/of/the/socket or tcp://address:port")

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix://{self.path}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


def _socket_path(text: str) -> Path:
    if not text.startswith("/") or text.endswith("/"):
        raise ValueError(f"{text!r} is not the absolute path of a socket; write unix:///path/of/the/socket")
    if (size := len(os.fsencode(text))) > _LONGEST_PATH:
        raise ValueError(
            f"the socket path {text!r} has {size} bytes, at most {_LONGEST_PATH} work everywhere; use a shorter one"
        )
    return Path(text)


def host_and_port(text: str) -> tuple[str, int]:
    """Parse `address:port` with an IP address. Raises `ValueError` with the value and the remedy."""
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 16:
        raise ValueError(f"{text!r} is not address:port; use for example 127.0.0.1:7443")
    return str(address), number


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How a provider is served. `from_flags` takes the options from the flags of `add_flags`."""

    endpoint: Endpoint
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None
    tls_client_names: tuple[str, ...] = ()
    """DNS names or URIs, one of which a client's certificate must carry; by default any certificate is accepted."""
    reflection: bool = False
    metrics_address: tuple[str, int] | None = None
    log_format: LogFormat = "text"
    log_level: str = "info"
    shutdown_grace: float = 25.0

    @classmethod
    def from_flags(cls, flags: argparse.Namespace) -> "ServeOptions":
        """Take the options from parsed flags, and ignore all others."""
        return cls(**{name: getattr(flags, name) for name in cls.__dataclass_fields__})


T = TypeVar("T")


def _checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """Make argparse print the problem and the remedy; it drops the text of a bare `ValueError`."""

    def checked(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def _metrics_address(text: str) -> tuple[str, int]:
    return host_and_port(f"127.0.0.1:{text.removeprefix(':')}" if text.removeprefix(":").isdigit() else text)


def _client_names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not all(names):
        raise ValueError(f"{text!r} contains an empty name; write for example ccm-host.kube-system")
    return names


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{text!r} is not a number of seconds; use for example 25 or 25s")
    return seconds


def add_flags(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the flags of `ServeOptions` to a parser, which may have others."""
    parser.add_argument(
        "--endpoint",
        type=_checked(Endpoint.parse),
        default=os.environ.get("CLOUDPROVIDER_ENDPOINT", DEFAULT_ENDPOINT),
        help="where to listen: unix:///path/of/the/socket, or tcp://address:port with the three --tls flags "
        "[env: CLOUDPROVIDER_ENDPOINT] [default: %(default)s]",
    )
    parser.add_argument(
        "--tls-cert-file", type=Path, metavar="FILE", help="certificate chain of the server (PEM); reloaded on change"
    )
    parser.add_argument("--tls-key-file", type=Path, metavar="FILE", help="private key of the server (PEM); reloaded on change")
    parser.add_argument(
        "--tls-client-ca-file",
        type=Path,
        metavar="FILE",
        help="certificates of the authorities that sign clients' certificates (PEM); reloaded on change",
    )
    parser.add_argument(
        "--tls-client-names",
        type=_checked(_client_names),
        default=(),
        metavar="NAME,...",
        help="DNS names or URIs (a SPIFFE ID), one of which a client's certificate must carry; by default any certificate "
        "of the authorities is accepted",
    )
    parser.add_argument("--reflection", action="store_true", help="serve gRPC reflection (v1alpha)")
    parser.add_argument(
        "--metrics-address",
        type=_checked(_metrics_address),
        metavar="[ADDRESS:]PORT",
        help="serve metrics over HTTP: a port (on the loopback address) or address:port; off by default",
    )
    parser.add_argument("--log-format", choices=get_args(LogFormat), default="text", help="format of log lines")
    parser.add_argument(
        "--log-level", default="info", help='a level, or directives such as "info,my_package=debug" [default: info]'
    )
    parser.add_argument(
        "--shutdown-grace",
        type=_checked(_seconds),
        default=25.0,
        metavar="SECONDS",
        help="how long a stop waits for running mutations [default: 25]",
    )
    return parser
