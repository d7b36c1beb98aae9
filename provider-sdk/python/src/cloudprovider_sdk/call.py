"""What a method knows about the call that it serves, apart from the request."""

import asyncio
import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field

from cloudprovider_sdk import proto as pb


@dataclass(frozen=True, slots=True)
class Peer:
    """The caller.

    Over a Unix socket gRPC for Python cannot identify it: whoever can enter the socket's directory may call. Over TCP it is a
    client with a certificate that a trusted authority signed.
    """

    address: str
    """As gRPC names it, for example `unix:` or `ipv4:127.0.0.1:50000`."""
    certificate: bytes | None = None
    """The end-entity certificate of a TLS client, as PEM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a method knows about the call that it serves. A provider's tests create one: `Call(cluster=...)`."""

    service: str = ""
    """Fully qualified, for example `ccm.cloudprovider.v1alpha1.Instances`."""
    method: str = ""
    """Name of the RPC, for example `BatchGetInstances`."""
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """The caller's `x-request-id`, or a random one; this call's log lines carry it too."""
    cluster: pb.ClusterRef = field(default_factory=pb.ClusterRef)
    """The cluster on whose behalf the host calls. Resources are tagged with its uid and found by it."""
    deadline: float | None = None
    """When the caller stops waiting, by `time.monotonic()`. None for streams, and for a caller that set no deadline."""
    peer: Peer = Peer("")
    traceparent: str | None = None
    """The caller's W3C `traceparent`, to pass on to a cloud that accepts it."""
    caller_gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nobody waits for the response any more. For information only: a mutation continues."""
    give_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a mutation must not start another call to the cloud: its term is over and its task is cancelled, which a thread
    of its own learns only here; or the grace period of a stop is over, and its task is cancelled a second later. Work that
    goes on after an answer with `in_progress` learns it here, too."""

    def remaining(self) -> float | None:
        """Return the seconds left until the caller's deadline, zero after it: the limit for the cloud calls of a read.

        A mutation goes on when its caller has gone: give its cloud calls limits of their own.
        """
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


current: ContextVar[Call | None] = ContextVar("cloudprovider_sdk_call", default=None)
"""The call that the running task serves; log lines carry it."""
