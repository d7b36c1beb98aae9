"""TCP: only with certificates on both sides, which may change while it serves."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cloud import Cloud
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fixture import PATIENCE, batch, clients, refused, serving
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from cloudprovider_sdk import Endpoint, ServeOptions, Server
from cloudprovider_sdk import proto as pb

LOOPBACK = Endpoint(host="127.0.0.1", port=0)
NOW = datetime.now(UTC)


@dataclass
class Pair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def named(name: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(name) if "://" in name else x509.DNSName(name)


def issue(name: str, by: Pair | None = None) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(hours=1))
        .not_valid_after(NOW + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([named(name)]), critical=False)
    )
    return Pair(builder.sign(by.key if by else key, hashes.SHA256()), key)


@dataclass
class Files:
    directory: Path

    def put(self, name: str, text: bytes) -> Path:
        """Replaces files by renaming, as a rotation does."""
        path = self.directory / name
        (self.directory / "new").write_bytes(text)
        (self.directory / "new").replace(path)
        return path

    def options(self, server: Pair, authority: Pair) -> dict[str, Any]:
        return {
            "tls_cert_file": self.put("tls.crt", server.pem()),
            "tls_key_file": self.put("tls.key", server.key_pem()),
            "tls_client_ca_file": self.put("ca.crt", authority.pem()),
        }


def channel(endpoint: Endpoint, authority: Pair, client: Pair | None, name: str = "provider") -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(
        authority.pem(), client.key_pem() if client else None, client.pem() if client else None
    )
    options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(f"{endpoint.host}:{endpoint.port}", credentials, options)


async def call(endpoint: Endpoint, authority: Pair, client: Pair | None, name: str = "provider") -> None:
    async with channel(endpoint, authority, client, name) as there:
        await clients(there).instances.BatchGetInstances(batch("fine"), timeout=PATIENCE)


@pytest.fixture
def authority() -> Pair:
    return issue("authority")


async def test_a_client_of_the_authority_is_served_and_named(tmp_path: Path, authority: Pair) -> None:
    cloud, client = Cloud(), issue("host", authority)
    options = Files(tmp_path).options(issue("provider", authority), authority)
    async with serving(cloud.provider(), tmp_path, endpoint=LOOPBACK, **options) as it:
        assert it.server.endpoint.port
        await call(it.server.endpoint, authority, client)
    (seen,) = cloud.calls
    assert seen.peer.address.startswith("ipv4:127.0.0.1:")
    assert seen.peer.certificate is not None
    assert seen.peer.certificate.strip() == client.pem().strip()


async def test_others_are_not_served(tmp_path: Path, authority: Pair) -> None:
    cloud, stranger = Cloud(), issue("stranger")
    options = Files(tmp_path).options(issue("provider", authority), authority)
    async with serving(cloud.provider(), tmp_path, endpoint=LOOPBACK, **options) as it:
        for client in (None, issue("host", stranger)):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(it.server.endpoint, authority, client)
            assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
        plain = f"{it.server.endpoint.host}:{it.server.endpoint.port}"
        async with grpc.aio.insecure_channel(plain) as there:
            with pytest.raises(grpc.aio.AioRpcError):
                await clients(there).instances.BatchGetInstances(batch("fine"), timeout=20)
    assert not cloud.calls


async def test_a_client_must_carry_a_name_that_is_asked_for(tmp_path: Path, authority: Pair) -> None:
    cloud = Cloud()
    options = Files(tmp_path).options(issue("provider", authority), authority)
    options["tls_client_names"] = ("other", "host", "host.example", "spiffe://cluster.local/ccm")
    async with serving(cloud.provider(), tmp_path, endpoint=LOOPBACK, **options) as it:
        await call(it.server.endpoint, authority, issue("host", authority))
        await call(it.server.endpoint, authority, issue("*.example", authority))
        await call(it.server.endpoint, authority, issue("spiffe://cluster.local/ccm", authority))
        for other in ("stranger", "spiffe://cluster.local/ccm/other"):
            error = await refused(call(it.server.endpoint, authority, issue(other, authority)))
            assert error.reason == pb.ERROR_REASON_PEER_NOT_TRUSTED
    assert len(cloud.calls) == 3


@pytest.mark.parametrize(("name", "served"), [("host", True), ("stranger", False)])
async def test_every_service_asks_for_the_name(tmp_path: Path, authority: Pair, name: str, served: bool) -> None:
    options = Files(tmp_path).options(issue("provider", authority), authority)
    options |= {"tls_client_names": ("host",), "reflection": True}
    client = issue(name, authority)
    async with (
        serving(Cloud().provider(), tmp_path, endpoint=LOOPBACK, **options) as it,
        channel(it.server.endpoint, authority, client) as there,
    ):
        health, reflection = HealthStub(there), ServerReflectionStub(there)
        watch = clients(there).instances.WatchInstances(pb.WatchInstancesRequest(cluster=batch().cluster))
        asked = reflection.ServerReflectionInfo(iter([ServerReflectionRequest(list_services="")]))
        for answer in (
            health.Check(HealthCheckRequest()),
            health.Watch(HealthCheckRequest()).read(),
            asked.read(),
            watch.read(),
        ):
            if served:
                await answer
            else:
                assert (await refused(answer)).reason == pb.ERROR_REASON_PEER_NOT_TRUSTED


async def test_certificates_are_read_again_when_they_change(
    tmp_path: Path, authority: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    files, next_authority = Files(tmp_path), issue("authority of tomorrow")
    options = files.options(issue("provider", authority), authority)
    async with serving(Cloud().provider(), tmp_path, endpoint=LOOPBACK, **options) as it:
        client = issue("host", authority)
        await call(it.server.endpoint, authority, client)
        # Half of a rotation: the key does not match yet.
        renewed = issue("renewed", next_authority)
        files.put("tls.crt", renewed.pem())
        await call(it.server.endpoint, authority, client)
        assert "last good certificates" in caplog.text
        files.put("tls.key", renewed.key_pem())
        files.put("ca.crt", next_authority.pem())
        await call(it.server.endpoint, next_authority, issue("host", next_authority), "renewed")
        with pytest.raises(grpc.aio.AioRpcError):
            await call(it.server.endpoint, next_authority, client, "renewed")


async def test_what_is_missing_or_bad_is_told_with_the_remedy(tmp_path: Path, authority: Pair) -> None:
    files = Files(tmp_path)
    options = files.options(issue("provider", authority), authority)
    provider = Cloud().provider()
    with pytest.raises(ValueError, match="TCP needs mutual TLS"):
        Server(provider, ServeOptions(endpoint=LOOPBACK, tls_cert_file=options["tls_cert_file"]))
    with pytest.raises(ValueError, match="which has no TLS"):
        Server(Cloud().provider(), ServeOptions(endpoint=Endpoint(path=tmp_path / "a.sock"), **options))
    files.put("tls.key", b"nothing")
    with pytest.raises(ValueError, match=r"tls\.crt with the private key in .*tls\.key cannot be used"):
        Server(Cloud().provider(), ServeOptions(endpoint=LOOPBACK, **options))
