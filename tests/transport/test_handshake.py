"""What the TLS of our servers and channels refuses, tried with real handshakes."""

import asyncio
import socket
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

if TYPE_CHECKING:
    from tests.shared.certificates import PKI
    from tests.shared.mirror import Ask, Serve

SHARD = "bigfleet://shard/s1"
CLUSTER = "bigfleet://cluster/c1"
OLD = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1]
NEW = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def limited_to(version: ssl.TLSVersion, context: ssl.SSLContext) -> ssl.SSLContext:
    """The context speaking this version only, at the security level that still knows the old ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = version
        context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def handshake(port: int, context: ssl.SSLContext) -> str | None:
    """The version agreed on, once the server has accepted the client too: only then does it send anything."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw, context.wrap_socket(raw) as connection:
        if not connection.recv(1):
            raise ConnectionAbortedError("the server hung up")
        return connection.version()


@asynccontextmanager
async def foreign_server(pki: "PKI", version: ssl.TLSVersion) -> AsyncIterator[tuple[int, list[str]]]:
    """A server of Python's own TLS, with the list of versions that clients have completed a handshake in."""
    files = pki.write(pki.issue(SHARD), "foreign")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    context.set_alpn_protocols(["h2"])
    agreed: list[str] = []

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        agreed.append(writer.get_extra_info("ssl_object").version())
        writer.write(b"x")
        await writer.drain()
        writer.transport.abort()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=limited_to(version, context))
    async with server:
        yield server.sockets[0].getsockname()[1], agreed


@pytest.mark.parametrize("version", NEW)
async def test_a_server_speaks_tls_1_2_and_newer(pki: "PKI", serve: "Serve", version: ssl.TLSVersion) -> None:
    async with serve(pki.live(SHARD)) as port:
        context = limited_to(version, pki.client_context(pki.issue(CLUSTER)))
        assert handshake(port, context) == version.name.replace("_", ".")


@pytest.mark.parametrize("version", OLD)
async def test_a_server_refuses_tls_1_1_and_older(pki: "PKI", serve: "Serve", version: ssl.TLSVersion) -> None:
    context = limited_to(version, pki.client_context(pki.issue(CLUSTER)))
    async with foreign_server(pki, version) as (port, _):
        try:
            await asyncio.to_thread(handshake, port, context)
        except ssl.SSLError as error:
            pytest.skip(f"this Python cannot speak {version.name} at all: {error}")
    async with serve(pki.live(SHARD)) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(port, context)


@pytest.mark.parametrize("version", [*OLD, *NEW])
async def test_a_channel_speaks_tls_1_2_and_newer_only(pki: "PKI", ask: "Ask", version: ssl.TLSVersion) -> None:
    leaf = pki.issue(CLUSTER)
    credentials = grpc.ssl_channel_credentials(pki.ca.chain, leaf.key, leaf.chain)
    options = (("grpc.ssl_target_name_override", "some program"),)
    async with (
        foreign_server(pki, version) as (port, agreed),
        grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await ask(channel, "WhoAmI", b"")
    assert set(agreed) == ({version.name.replace("_", ".")} if version in NEW else set())


async def test_a_client_without_a_certificate_is_refused(pki: "PKI", serve: "Serve") -> None:
    async with serve(pki.live(SHARD)) as port:
        with pytest.raises(ConnectionError):
            handshake(port, pki.client_context())


async def test_a_client_of_another_authority_is_refused(pki: "PKI", serve: "Serve", tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    stranger = type(pki)(tmp_path / "stranger").issue(CLUSTER)
    async with serve(pki.live(SHARD)) as port:
        with pytest.raises(ConnectionError):
            handshake(port, pki.client_context(stranger))


async def test_a_client_whose_certificate_has_expired_is_refused(pki: "PKI", serve: "Serve") -> None:
    expired = pki.issue(CLUSTER, ends=-timedelta(hours=1))
    async with serve(pki.live(SHARD)) as port:
        with pytest.raises(ConnectionError):
            handshake(port, pki.client_context(expired))


async def test_a_client_that_speaks_plaintext_is_refused(pki: "PKI", serve: "Serve", ask: "Ask") -> None:
    async with serve(pki.live(SHARD)) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(channel, "WhoAmI", b"")
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
