"""The path of every call: admitted or refused, run with its context, ended in time, its errors those of the contract."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, Never, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration

from cloudprovider_sdk import checks, contract, errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.call import Call, Peer
from cloudprovider_sdk.errors import ProviderError
from cloudprovider_sdk.errors.wire import to_status
from cloudprovider_sdk.method import Method
from cloudprovider_sdk.metrics import Metrics
from cloudprovider_sdk.provider import Provider
from cloudprovider_sdk.server import answers
from cloudprovider_sdk.server.background import Background
from cloudprovider_sdk.server.frames import close, frames
from cloudprovider_sdk.server.guard import guarded
from cloudprovider_sdk.server.mutations import Mutations
from cloudprovider_sdk.server.observe import Observer
from cloudprovider_sdk.watch import InstanceWatch

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")
Implementation = Callable[[Call, Any], Awaitable[Any]]

_HEADSTART: Final = 0.005
"""How much earlier "deadline exceeded" is sent, so that it still reaches the caller."""
_LONGEST_REQUEST_ID: Final = 64
_STARTED: Final = time.monotonic()
"""The zero of the clock that leaders are told of."""


class Core:
    """The state that all calls of one provider share."""

    def __init__(self, provider: Provider) -> None:
        self._advertised = provider.advertised
        self._lifecycle = provider.lifecycle
        self._leadership = checks.Leadership()
        self._sets = checks.BackendSets(provider.advertised.max_message_bytes)
        self._background = Background(provider.while_leading, provider.lifecycle)
        self._mutations = Mutations(provider.lifecycle)
        # As many calls as advertised run at once: others wait, and the cloud's limits hold whoever calls.
        self._reading = asyncio.Semaphore(provider.advertised.max_concurrent_reads)
        self._mutating = asyncio.Semaphore(provider.advertised.max_concurrent_mutations)
        self._observer = Observer(Metrics(provider.registry))

    async def unary(self, method: Method, run: Implementation, request: Any, context: Context) -> Any:
        """Serve a call with one response. A read ends with its caller; a mutation runs until it is done or its term ends."""
        headers = _headers(context)
        call = self._call(method, request, context, headers)
        with self._observer.watch(method, call, headers, checks.items(request)) as outcome:
            try:
                term = self._admit(method, request)
                async with asyncio.timeout(_patience(call)):
                    answer = await self._run(method, run, call, term, request)
            except ProviderError as error:
                outcome.failed(error)
                await abort(context, error)
            except TimeoutError:
                outcome.code = grpc.StatusCode.DEADLINE_EXCEEDED
                await context.abort(outcome.code, "the deadline has passed; the outcome is unknown")
            finally:
                call.caller_gone.set()
            outcome.ok()
            return answer

    async def stream(
        self,
        method: Method,
        run: Implementation,
        request: Any,
        context: Context,
    ) -> AsyncIterator[pb.WatchInstancesResponse]:
        """Serve a watch. Metrics and span cover only its opening."""
        headers = _headers(context)
        call = self._call(method, request, context, headers)
        try:
            with self._observer.watch(method, call, headers, None) as outcome:
                try:
                    self._admit(method, request)
                    watch = await self._open(run, call, request)
                except ProviderError as error:
                    outcome.failed(error)
                    await abort(context, error)
                outcome.ok()
            out = frames(watch, self._advertised, self._lifecycle.stop)
            try:
                while (frame := await guarded(call, anext(out, None))) is not None:
                    yield frame
            except ProviderError as error:
                await abort(context, error)
            finally:
                await out.aclose()
        finally:
            call.caller_gone.set()

    async def _open(self, run: Implementation, call: Call, request: pb.WatchInstancesRequest) -> InstanceWatch:
        watch = await guarded(call, _returned(InstanceWatch, run, call, request))
        if request.resume_token and not watch.resumed:
            # The provider issues no tokens, or ignored this one: the caller must not believe that it has missed nothing.
            await close(watch)
            raise errors.invalid_token()
        return watch

    def _call(self, method: Method, request: Any, context: Context, headers: dict[str, str]) -> Call:
        given = headers.get("x-request-id", "")
        request_id = given if 1 <= len(given) <= _LONGEST_REQUEST_ID else str(uuid.uuid4())
        remaining = context.time_remaining()
        certificate = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
        return Call(
            service=method.service,
            method=method.name,
            request_id=request_id,
            cluster=request.cluster if "cluster" in request.DESCRIPTOR.fields_by_name else pb.ClusterRef(),
            deadline=None if remaining is None else time.monotonic() + remaining,
            peer=Peer(context.peer(), certificate),
            traceparent=headers.get("traceparent"),
        )

    def lead(self, request: pb.LeadRequest) -> pb.LeadResponse:
        """Handle Lead. The provider's background work starts and ends with the term."""
        heard_at = time.monotonic() - _STARTED
        valid_for = _seconds(request.valid_for) if request.HasField("valid_for") else None
        if valid_for is not None and valid_for > 0 and request.HasField("valid_until"):
            valid_for = _seconds(request.valid_until) - heard_at
        begun = self._leadership.hear(request.cluster.uid, request.fencing, valid_for)
        if begun is not None:
            self._lifecycle.begin_term(begun.ended)
            self._background.begin(begun, request.cluster)
        return pb.LeadResponse(heard_at=Duration(seconds=int(heard_at), nanos=int(heard_at % 1 * 1e9)))

    def _term(self, method: Method, request: Any) -> checks.Term | None:
        """Return a mutation's term, if the provider uses terms at all; raise if the caller is not the current leader."""
        told = pb.CAPABILITY_LEADERSHIP in self._advertised.capabilities
        # The shape check refuses missing fields, without which nobody can say who leads.
        if not (method.mutates and told and request.cluster.uid and request.HasField("fencing")):
            return None
        return self._leadership.term(request.cluster.uid, request.fencing)

    def _admit(self, method: Method, request: Any) -> checks.Term | None:
        """Refuse calls that must not reach a method, in the contract's order; return the term under which a mutation runs."""
        # Identity and capabilities are answered until the end; a leader renews the term of its last mutations, and steps down.
        served = method.name == "Lead" or "cluster" not in request.DESCRIPTOR.fields_by_name
        if self._lifecycle.stop.is_set() and not served:
            raise errors.shutting_down()
        term = self._term(method, request)
        checks.check(request, self._advertised)
        checks.fit(request, self._advertised)
        self._sets.complete(request)
        return term

    def _places(self, method: Method) -> AbstractAsyncContextManager[None]:
        if method.service in (contract.CLOUD_PROVIDER, contract.DISCOVERY):
            return nullcontext()  # Answered from memory.
        return self._mutating if method.mutates else self._reading

    async def _run(self, method: Method, run: Implementation, call: Call, term: checks.Term | None, request: Any) -> Any:
        async def work() -> Any:
            of_one = method.mutates and (not hasattr(request, "items") or len(request.items) == 1)
            async with self._places(method):
                answer = await guarded(call, _returned(method.response, run, call, request), of_one=of_one)
            answers.settle(request, answer)
            return answer

        if method.mutates:
            return await self._mutations.run(call, term, request, method.response(), work)
        return await work()


async def _returned(wanted: type[T], run: Implementation, call: Call, request: Any) -> T:
    """Return what a method returns. A forgotten `return` would otherwise fail in gRPC's serializer, without a reason."""
    answer = await run(call, request)
    if not isinstance(answer, wanted):
        raise TypeError(f"the method returned {type(answer).__name__}, not {wanted.__name__}")
    return answer


async def abort(context: Context, error: ProviderError) -> Never:
    """End a call with an error of the contract."""
    status = to_status(error)
    await context.abort(status.code, status.message, status.trailers)


def _patience(call: Call) -> float | None:
    """Return how long the provider works on the call: a little less than the caller waits."""
    left = call.remaining()
    return None if left is None else left - min(_HEADSTART, left / 10)


def _headers(context: Context) -> dict[str, str]:
    """Return the text headers of a call; of a duplicate one, the last."""
    metadata = context.invocation_metadata() or ()
    return {key: value for key, value in metadata if isinstance(value, str)}


def _seconds(given: Duration) -> float:
    return given.seconds + given.nanos / 1e9
