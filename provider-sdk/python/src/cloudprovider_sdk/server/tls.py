"""Mutual TLS: every client presents a certificate that a trusted authority signed. Other TCP is not supported.

Changed files are reloaded, so that rotation needs no restart.
"""

import logging
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import grpc

from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.errors import ProviderError
from cloudprovider_sdk.options import ServeOptions
from cloudprovider_sdk.server.core import Context, abort

_log = logging.getLogger("cloudprovider_sdk")

Stamp = tuple[tuple[int, ...], ...]
"""Shows that a file has been changed or replaced."""


class Certificates:
    """The certificates in use. gRPC asks for them on every handshake, on its own thread."""

    def __init__(self, options: ServeOptions) -> None:
        named = (options.tls_cert_file, options.tls_key_file, options.tls_client_ca_file)
        files = tuple(file for file in named if file is not None)
        if len(files) < len(named):
            raise ValueError(
                "TCP needs mutual TLS: give --tls-cert-file, --tls-key-file and --tls-client-ca-file, or listen on unix:///path"
            )
        self._certificate, self._key, self._authorities = self._files = files
        self._lock = threading.Lock()
        # The stamp is taken first: a change while loading is then noticed the next time.
        self._stamp = self._stamp_now()
        self._initial = self._load()

    def credentials(self) -> grpc.ServerCredentials:
        """Return the server's credentials."""
        # gRPC accepts None for "no change", but its stubs do not allow it.
        changed = cast("Callable[[], grpc.ServerCertificateConfiguration]", self._changed)
        return grpc.dynamic_ssl_server_credentials(self._initial, changed, require_client_authentication=True)

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the contents of changed files, or None if nothing has changed.

        While they are unusable (half written, or a key that does not match yet), the last good ones stay in use, and the files
        are tried again on the next handshake.
        """
        with self._lock:
            try:
                stamp = self._stamp_now()
                if stamp == self._stamp:
                    return None
                loaded = self._load()
            except (OSError, ValueError) as error:
                _log.warning("the last good certificates stay in use: %s", error)
                return None
            self._stamp = stamp
            _log.info("certificates were reloaded", extra={"file": str(self._certificate)})
            return loaded

    def _stamp_now(self) -> Stamp:
        return tuple(
            (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            for found in (file.stat() for file in self._files)
        )

    def _load(self) -> grpc.ServerCertificateConfiguration:
        # OpenSSL checks them first: gRPC would report a bad file only on a handshake, and not which one.
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            trial.load_cert_chain(self._certificate, self._key)
        except ssl.SSLError as error:
            raise _bad(f"certificate in {self._certificate} with the private key", self._key, error) from error
        try:
            trial.load_verify_locations(self._authorities)
        except ssl.SSLError as error:
            raise _bad("client authorities", self._authorities, error) from error
        pair = (self._key.read_bytes(), self._certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], self._authorities.read_bytes())


def _bad(what: str, file: Path, why: ssl.SSLError) -> ValueError:
    return ValueError(f"the {what} in {file} cannot be used: {why.reason or why}")


class ClientNames(grpc.aio.ServerInterceptor):
    """Refuses every call of a client whose certificate has none of the required names. gRPC cannot refuse its handshake."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._forms = {form for name in names for form in (name, "*." + name.partition(".")[2])}

    async def intercept_service(self, continuation: Callable[[Any], Any], details: grpc.HandlerCallDetails) -> Any:
        """Put the check before the method, since only a method's context shows the certificate."""
        handler = await continuation(details)
        if handler is None:
            return None
        kind = "_".join("stream" if streams else "unary" for streams in (handler.request_streaming, handler.response_streaming))
        serve = getattr(handler, kind)

        async def answer(request: Any, context: Context) -> Any:
            await self._trust(context)
            return await serve(request, context)

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            await self._trust(context)
            async for frame in serve(request, context):
                yield frame

        return handler._replace(**{kind: stream if handler.response_streaming else answer})

    async def _trust(self, context: Context) -> None:
        carried = {name.decode() for name in context.auth_context().get("x509_subject_alternative_name", ())}
        if not carried & self._forms:
            error = ProviderError(
                pb.ERROR_REASON_PEER_NOT_TRUSTED, "the client's certificate carries no name of --tls-client-names"
            )
            _log.info("refused: %s", error.message, extra={"peer": context.peer()})
            await abort(context, error)
