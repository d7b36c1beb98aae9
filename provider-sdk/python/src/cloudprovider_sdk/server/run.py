"""Runs a server, from the first connection to the last mutation."""

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import start_http_server

from cloudprovider_sdk.options import Endpoint, ServeOptions
from cloudprovider_sdk.provider import Provider
from cloudprovider_sdk.server.handlers import handlers
from cloudprovider_sdk.server.socket import SocketFile, listen
from cloudprovider_sdk.server.threads import Threads
from cloudprovider_sdk.server.tls import Certificates, ClientNames

_log = logging.getLogger("cloudprovider_sdk")

_HANDSHAKE_WITHIN_MS: Final = 10_000
"""How long a silent client may hold a connection."""
_LAST_WORDS: Final = 1.0
"""How long, in seconds, a mutation that was told to give up may still run."""
_SPARE_THREADS: Final = 32
_STEP_DOWN: Final = 2.0
"""How long, in seconds, an idle provider stays for a leader: its host often stops at the same moment, and hands over once the
provider has heard that it steps down."""


async def serve(provider: Provider, options: ServeOptions, *, signals: bool = True) -> None:
    """Serve a provider until SIGTERM, SIGINT or `Provider.stop`; then stop gracefully.

    Raises `OSError`, `RuntimeError` or `ValueError` if it cannot listen; each names the value and the remedy.
    """
    await Server(provider, options).run(signals=signals)


class Server:
    """A provider with an open endpoint. Create it in a running event loop."""

    def __init__(self, provider: Provider, options: ServeOptions) -> None:
        self._provider = provider
        self._options = options
        loop = provider.lifecycle.loop = asyncio.get_running_loop()
        size = provider.advertised.max_message_bytes
        self._server = grpc.aio.server(
            handlers=handlers(provider, reflection=options.reflection),
            interceptors=[ClientNames(options.tls_client_names)] if options.tls_client_names else [],
            options=[
                ("grpc.max_receive_message_length", size),
                ("grpc.max_send_message_length", size),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_WITHIN_MS),
                # Two processes on one port would look like a single one that keeps restarting.
                ("grpc.so_reuseport", 0),
                # A host pings over TCP also while nothing happens: by default that is an attack, and ends the connection.
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.max_ping_strikes", 0),
            ],
        )
        if options.reflection:
            names = [*provider.service_names, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(names, self._server)  # type: ignore[no-untyped-call]
        # As many threads as calls may run at once, and some for those that were given up and still hang: asyncio's own pool has
        # a few, in which a read would wait for eight mutations.
        advertised = provider.advertised
        threads = advertised.max_concurrent_reads + advertised.max_concurrent_mutations + _SPARE_THREADS
        loop.set_default_executor(Threads(threads))
        self._file: SocketFile | None = None
        self.endpoint = self._open()
        """The address it listens on, with the real port if port 0 was requested."""

    def _open(self) -> Endpoint:
        endpoint, options = self._options.endpoint, self._options
        if endpoint.path is not None:
            if options.tls_cert_file or options.tls_key_file or options.tls_client_ca_file or options.tls_client_names:
                raise ValueError(
                    f"{endpoint.path} is a Unix socket, which has no TLS; drop the --tls flags or listen on tcp://address:port"
                )
            self._file = listen(self._server, endpoint.path)
            return endpoint
        credentials = Certificates(options).credentials()
        port = self._server.add_secure_port(str(endpoint).removeprefix("tcp://"), credentials)
        return Endpoint(host=endpoint.host, port=port)

    async def run(self, *, signals: bool = True) -> None:
        """Serve until the provider is stopped.

        Then health turns to NOT_SERVING, streams end, running mutations get `shutdown_grace` to finish, leaders are heard to
        the end, and the socket file is removed.
        """
        provider, life = self._provider, self._provider.lifecycle
        try:
            with self._metrics(), _stopping_at_signals(provider, wanted=signals):
                await self._server.start()
                extra = {"provider": provider.info.name, "endpoint": str(self.endpoint), "epoch": provider.info.process_epoch}
                _log.info("serving", extra=extra)
                await life.stop.wait()
                await self._drain()
        finally:
            if self._file is not None:
                self._file.remove()
        _log.info("stopped", extra={"provider": provider.info.name})

    async def _drain(self) -> None:
        """Wait for running mutations, their leader's last word, and other calls, for a limited time."""
        life, clock = self._provider.lifecycle, asyncio.get_running_loop().time
        grace = self._options.shutdown_grace
        end = clock() + grace
        idle = await life.mutations_end(grace)
        if idle:
            await life.terms_end(min(_STEP_DOWN, end - clock()))
        answered = asyncio.create_task(self._server.stop(max(0.0, end - clock()) + _LAST_WORDS))
        if not idle:
            extra = {"mutations": len(life.mutations)}
            _log.warning("the grace period is over; running mutations are abandoned", extra=extra)
            life.give_up()
            await life.mutations_end(_LAST_WORDS)
            for mutation in list(life.mutations):
                mutation.cancel()
        await answered

    @contextmanager
    def _metrics(self) -> Iterator[None]:
        """Serve metrics over HTTP from a thread, if there is an address for them."""
        if self._options.metrics_address is None:
            yield
            return
        host, port = self._options.metrics_address
        try:
            server, thread = start_http_server(port, host, self._provider.registry)
        except OSError as error:
            raise OSError(f"cannot serve metrics on {host}:{port}; choose another --metrics-address: {error}") from error
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@contextmanager
def _stopping_at_signals(provider: Provider, *, wanted: bool) -> Iterator[None]:
    """Stop gracefully on the first SIGTERM or SIGINT; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT) if wanted else ()

    def release() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    def stop() -> None:
        release()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Not a KeyboardInterrupt, which would wait for what runs.
        provider.stop()

    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        release()
        if numbers:
            signal.signal(signal.SIGINT, signal.default_int_handler)
