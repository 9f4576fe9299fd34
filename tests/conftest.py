"""Fixtures that several rooms share: certificates made on the spot, and a gRPC server that tells what it sees."""

import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, settings

from bigfleet.transport.address import TCPAddress
from bigfleet.transport.grpc_options import SERVER_OPTIONS
from bigfleet.transport.identity import Role, peer_identity, refusals_abort, require
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSFiles
from tests.shared.program import heed_signals_in_children

# How long an example takes says how busy the machine is.
settings.register_profile("bigfleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bigfleet")

heed_signals_in_children()

LONGEST = (
    *("tests/examples", "tests/conformance/test_conformance_self.py", "tests/conformance", "tests/providerkit"),
    *("tests/faults", "tests/shard/test_day.py", "tests/cli", "tests/engine", "tests/shard/rules", "tests/sim"),
)
"""What takes longest, in the order of the run: no worker shall be left alone with it at the end.

What needs the compiled engine comes after what does without, so that from a cold cache it is compiled meanwhile.
"""

DAY = timedelta(days=1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((at for at, room in enumerate(LONGEST) if item.nodeid.startswith(room)), len(LONGEST))

    items.sort(key=place)


@pytest.fixture(scope="session")
def compiled_engine() -> None:
    """The engine is in the cache: a test that starts a shard does not wait for minutes until it decides."""
    # The compiler takes longer to import than most tests run.
    from tests.shared.engine import compile_once

    compile_once()


@dataclass(frozen=True)
class Issued:
    """A certificate, its chain and its key, as PEM."""

    certificate: x509.Certificate
    chain: bytes
    key: bytes


class PKI:
    """A certificate authority and a directory to put files in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ca_key = ec.generate_private_key(ec.SECP256R1())
        self.ca = self.issue(common_name="test authority", is_ca=True, key=self._ca_key)

    def issue(
        self,
        *uris: str,
        dns: tuple[str, ...] = (),
        ips: tuple[str, ...] = (),
        common_name: str = "some program",
        begins: timedelta = -DAY,
        ends: timedelta = DAY,
        is_ca: bool = False,
        key: CertificateIssuerPrivateKeyTypes | None = None,
    ) -> Issued:
        """A certificate with these alternative names, valid from and until so long from now."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else [])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        names: list[x509.GeneralName] = [
            *(x509.UniformResourceIdentifier(uri) for uri in uris),
            *(x509.DNSName(name) for name in dns),
            *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips),
        ]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._ca_key, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Issued(certificate, certificate.public_bytes(Encoding.PEM), private)

    def write(self, issued: Issued, name: str = "leaf") -> TLSFiles:
        """Put the pair and the CA into files of their own, or over those of the same name."""
        folder = self.directory / name
        folder.mkdir(exist_ok=True)
        files = TLSFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
        files.cert.write_bytes(issued.chain)
        files.key.write_bytes(issued.key)
        files.ca.write_bytes(self.ca.chain)
        return files

    def live(self, uri: str, name: str = "leaf") -> LiveTLS:
        """The material of a program of this identity."""
        return LiveTLS.start(self.write(self.issue(uri), name))

    def client_context(self, issued: Issued | None = None) -> ssl.SSLContext:
        """A context of Python's own TLS that trusts this authority and any host name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=self.ca.chain.decode())
        context.set_alpn_protocols(["h2"])
        if issued is not None:
            files = self.write(issued, "context")
            context.load_cert_chain(files.cert, files.key)
        return context

    def served_serial(self, port: int) -> int:
        """The serial number of the leaf that the server on this port shows now."""
        context = self.client_context(self.issue("bigfleet://readonly"))
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as raw,
            context.wrap_socket(raw) as connection,
        ):
            der = connection.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


@pytest.fixture
def pki(tmp_path: Path) -> PKI:
    return PKI(tmp_path)


class _Mirror(grpc.GenericRpcHandler):
    """Answers `WhoAmI` with the caller's identity and serial, `ServerName` with the host name it asked TLS for,
    `Size` with as many bytes as asked, and `AdminOnly` to admins."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        method = handler_call_details.method.rpartition("/")[2]
        answer = {
            "WhoAmI": self._who_am_i,
            "ServerName": self._server_name,
            "Size": self._size,
            "AdminOnly": self._admin_only,
        }[method]
        return grpc.unary_unary_rpc_method_handler(answer)

    async def _who_am_i(self, _request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        async with refusals_abort(context):
            identity = peer_identity(context)
        certificates = [x509.load_pem_x509_certificate(pem) for pem in context.auth_context().get("x509_pem_cert", ())]
        return f"{identity} {certificates[0].serial_number if certificates else None}".encode()

    async def _server_name(self, _request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        return b"".join(context.auth_context().get("ssl_requested_server_name", ()))

    async def _size(self, request: bytes, _context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        return b"\0" * int(request[:16].strip(b"."))

    async def _admin_only(self, _request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        async with refusals_abort(context):
            require(peer_identity(context), Role.ADMIN)
        return b"done"


Ask = Callable[[grpc.aio.Channel, str, bytes], Awaitable[bytes]]


@pytest.fixture
def ask() -> Ask:
    """`await ask(channel, method, request)`: one call to the mirror."""

    async def asking(channel: grpc.aio.Channel, method: str, request: bytes) -> bytes:
        call = channel.unary_unary(f"/mirror/{method}", request_serializer=bytes, response_deserializer=bytes)
        return await call(request, timeout=30)

    return asking


Serve = Callable[[LiveTLS | None], AbstractAsyncContextManager[int]]


@pytest.fixture
def serve() -> Serve:
    """`async with serve(tls) as port`: a mirror on a free loopback port with the options of every server of ours."""

    @asynccontextmanager
    async def serving(tls: LiveTLS | None) -> AsyncIterator[int]:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        server.add_generic_rpc_handlers((_Mirror(),))
        port = bind(server, TCPAddress("127.0.0.1", 0), None if tls is None else tls.server_credentials())
        await server.start()
        try:
            yield port
        finally:
            await server.stop(None)

    return serving
