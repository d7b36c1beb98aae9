"""What a method learns about the call that it serves, apart from the request."""

import asyncio
import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field

from cloudprovider_sdk import proto as pb


@dataclass(frozen=True, slots=True)
class Peer:
    """Who calls.

    Over a Unix socket gRPC for Python does not tell: the directory of the socket decides who may. Over TCP it is a client
    with a certificate that a trusted authority signed.
    """

    address: str
    """As gRPC names it, for example `unix:` or `ipv4:127.0.0.1:50000`."""
    certificate: bytes | None = None
    """The end-entity certificate of a TLS client, as PEM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a method learns about the call that it serves. Tests of a provider make one: `Call(cluster=...)`."""

    service: str = ""
    """Fully qualified, for example `ccm.cloudprovider.v1alpha1.Instances`."""
    method: str = ""
    """Name of the RPC, for example `BatchGetInstances`."""
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """The caller's `x-request-id`, or a random one: the same as in this call's log lines."""
    cluster: pb.ClusterRef = field(default_factory=pb.ClusterRef)
    """On whose behalf the call is made. Its uid is what resources are tagged with and found by."""
    deadline: float | None = None
    """When the caller stops waiting, by `time.monotonic()`. None for streams, and for a caller that set no deadline."""
    peer: Peer = Peer("")
    traceparent: str | None = None
    """The caller's W3C `traceparent`, to be handed on to a cloud that takes it."""
    caller_gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nobody waits for the answer any more. For information: a mutation goes on."""
    give_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a mutation shall begin no further call of the cloud: leadership ended, and its task is cancelled, which a thread
    of its own hears only here; or the time for a graceful stop is over, and its task is cancelled a second later."""

    def remaining(self) -> float | None:
        """Answer the seconds left until the deadline, zero once it passed: the bound for calls of the cloud."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


current: ContextVar[Call | None] = ContextVar("cloudprovider_sdk_call", default=None)
"""The call that the running task serves: what log lines name."""
