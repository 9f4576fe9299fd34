"""Dialling: only the expected server is connected to, and a renewal on either side is picked up."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from bigfleet.transport.address import TCPAddress, UnixAddress
from bigfleet.transport.dial import Dialer
from bigfleet.transport.grpc_options import CHANNEL_OPTIONS, SERVER_OPTIONS
from bigfleet.transport.identity import Identity, Role
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.server_check import DialError, Expected, check_server

if TYPE_CHECKING:
    from tests.shared.certificates import PKI
    from tests.shared.mirror import Ask, Serve

S1 = "bigfleet://shard/s1"
C1 = "bigfleet://cluster/c1"


def dialer(port: int, tls: LiveTLS | None, expected: Expected = Role.SHARD, host: str = "127.0.0.1") -> Dialer:
    return Dialer(TCPAddress(host, port), expected, tls, CHANNEL_OPTIONS)


async def who_am_i(ask: "Ask", dialled: Dialer) -> str:
    return (await ask(await dialled.channel(), "WhoAmI", b"")).decode()


async def refusal(dialled: Dialer) -> str:
    with pytest.raises(DialError) as refused:
        await dialled.channel()
    await dialled.hang_up()
    text = str(refused.value)
    assert text.startswith(f"cannot use the server at {dialled.address}: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("expected", [Role.SHARD, Identity(Role.SHARD, "s1")], ids=str)
async def test_the_expected_server_is_connected_to(pki: "PKI", serve: "Serve", ask: "Ask", expected: Expected) -> None:
    client = pki.live(C1, "client")
    async with serve(pki.live(S1)) as port:
        dialled = dialer(port, client, expected)
        assert await who_am_i(ask, dialled) == f"{C1} {client.leaf().serial}"
        await dialled.hang_up()


@pytest.mark.parametrize(
    ("uri", "expected", "found"),
    [
        ("bigfleet://cluster/c2", Role.SHARD, "expected a shard, its certificate says bigfleet://cluster/c2"),
        ("bigfleet://admin", Role.COORDINATOR, "expected a coordinator, its certificate says bigfleet://admin"),
        (S1, Identity(Role.SHARD, "s2"), "expected bigfleet://shard/s2, its certificate says bigfleet://shard/s1"),
        (S1, Identity(Role.PROVIDER, "s1"), "expected bigfleet://provider/s1, its certificate says"),
        ("bigfleet://provider/AWS", Identity(Role.PROVIDER, "aws"), "its certificate says bigfleet://provider/AWS"),
    ],
)
async def test_a_server_of_another_kind_or_id_is_refused(
    pki: "PKI", serve: "Serve", uri: str, expected: Expected, found: str
) -> None:
    async with serve(pki.live(uri)) as port:
        assert found in await refusal(dialer(port, pki.live(C1, "client"), expected))


async def test_a_server_of_another_authority_is_refused(pki: "PKI", serve: "Serve", tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    stranger = type(pki)(tmp_path / "stranger").live(S1)
    async with serve(stranger) as port:
        assert "its certificate is not trusted: " in await refusal(dialer(port, pki.live(C1, "client")))


async def test_a_server_that_does_not_trust_us_is_told_of(pki: "PKI", serve: "Serve", tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    files = type(pki)(tmp_path / "stranger").live(C1).files
    files.ca.write_bytes(pki.ca.chain)
    async with serve(pki.live(S1)) as port:
        assert f"it may not accept the certificate of {C1}" in await refusal(dialer(port, LiveTLS.start(files)))


async def test_a_plaintext_server_is_refused(pki: "PKI", serve: "Serve") -> None:
    async with serve(None) as port:
        said = await refusal(dialer(port, pki.live(C1, "client")))
        assert "it does not speak TLS, and this end does; give both ends --tls-cert, --tls-key and --tls-ca" in said


async def test_a_server_with_tls_is_refused_by_a_client_without(pki: "PKI", serve: "Serve", tmp_path: Path) -> None:
    live = pki.live(S1)
    async with serve(live) as port:
        said = await refusal(dialer(port, None))
    assert "it speaks TLS, and this end does not; give both ends --tls-cert, --tls-key and --tls-ca, or neither" in said
    server, address = grpc.aio.server(options=SERVER_OPTIONS), UnixAddress(str(tmp_path / "s.sock"))
    bind(server, address, live.server_credentials())
    await server.start()
    assert "it speaks TLS, and this end does not" in await refusal(Dialer(address, Role.SHARD, None, CHANNEL_OPTIONS))
    await server.stop(None)


async def test_a_server_that_speaks_neither_is_not_said_to_speak_tls() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"SSH-2.0-other\r\n")
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert "it answers, but gRPC could not connect to it" in await refusal(dialer(port, None))


async def test_an_address_where_nobody_listens_is_refused_at_once(pki: "PKI", serve: "Serve") -> None:
    async with serve(None) as port:
        pass
    for tls in (None, pki.live(C1)):
        assert "onnect" in await refusal(dialer(port, tls))


async def test_a_host_that_does_not_resolve_is_refused(pki: "PKI") -> None:
    assert "nowhere.invalid:7780" in await refusal(dialer(7780, None, host="nowhere.invalid"))


@pytest.mark.parametrize(
    "names",
    [
        {"dns": ("localhost",)},
        {"dns": ("*.fleet.example",)},
        {"dns": ("a.fleet.example", "b.fleet.example"), "common_name": ""},
        {"ips": ("127.0.0.1",)},
        {"ips": ("192.0.2.7",), "common_name": ""},
        {"common_name": "Shard One"},
    ],
    ids=str,
)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_is_known_by_its_identity_whatever_names_its_certificate_has(
    pki: "PKI", serve: "Serve", ask: "Ask", names: dict[str, object], host: str
) -> None:
    server = LiveTLS.start(pki.write(pki.issue(S1, **names)))  # type: ignore[arg-type]  # one table for all arguments
    async with serve(server) as port:
        dialled = dialer(port, pki.live(C1, "client"), host=host)
        assert (await who_am_i(ask, dialled)).startswith(C1)
        await dialled.hang_up()


@pytest.mark.parametrize(
    ("names", "asked_for"),
    [
        (("a.example", "LOCALHOST"), "localhost"),
        (("a.example", "b.example"), "a.example"),
        (("*.fleet.example",), "any.fleet.example"),
    ],
)
async def test_the_dialled_host_is_asked_for_if_the_certificate_has_it_else_a_name_that_it_has(
    pki: "PKI", serve: "Serve", ask: "Ask", names: tuple[str, ...], asked_for: str
) -> None:
    """Proxies route by this name, and strict servers refuse one that no host can have."""
    async with serve(LiveTLS.start(pki.write(pki.issue(S1, dns=names)))) as port:
        dialled = dialer(port, pki.live(C1, "client"), host="localhost")
        assert await ask(await dialled.channel(), "ServerName", b"") == asked_for.encode()
        await dialled.hang_up()


async def test_a_certificate_with_no_name_that_grpc_could_check_is_refused_with_that_reason(
    pki: "PKI", serve: "Serve"
) -> None:
    server = LiveTLS.start(pki.write(pki.issue(S1, common_name="")))
    async with serve(server) as port:
        assert "needs a DNS name, IP address or common name" in await refusal(dialer(port, pki.live(C1, "client")))


async def test_grpc_trusts_the_certificate_that_was_checked_and_no_other_of_the_same_name(
    pki: "PKI", serve: "Serve", monkeypatch: pytest.MonkeyPatch
) -> None:
    """An impostor with a certificate of the same authority and names steps in between the check and gRPC."""
    async with serve(pki.live(S1)) as port, serve(pki.live(C1, "impostor")) as impostor:

        async def diverted(*args: object) -> object:
            server = await check_server(*args)  # type: ignore[arg-type]  # passed through as they came
            return type(server)(f"ipv4:127.0.0.1:{impostor}", server.certificate, server.name)

        monkeypatch.setattr("bigfleet.transport.dial.check_server", diverted)
        assert "gRPC could not connect to it" in await refusal(dialer(port, pki.live(C1, "client")))


async def test_plaintext_connects_without_a_check(serve: "Serve", ask: "Ask") -> None:
    async with serve(None) as port:
        dialled = dialer(port, None)
        assert await who_am_i(ask, dialled) == "None None"
        await dialled.hang_up()


@pytest.mark.parametrize("secure", [False, True])
async def test_a_unix_socket_is_dialled(pki: "PKI", tmp_path: Path, secure: bool) -> None:
    address = UnixAddress(str(tmp_path / "s.sock"))
    server = grpc.aio.server(options=SERVER_OPTIONS)
    bind(server, address, pki.live(S1).server_credentials() if secure else None)
    await server.start()
    dialled = Dialer(address, Role.SHARD, pki.live(C1, "client") if secure else None, CHANNEL_OPTIONS)
    await dialled.channel()
    await dialled.hang_up()
    await server.stop(None)


async def test_a_channel_that_holds_is_given_out_again(pki: "PKI", serve: "Serve") -> None:
    async with serve(pki.live(S1)) as port:
        dialled = dialer(port, pki.live(C1, "client"))
        first = await dialled.channel()
        assert await dialled.channel() is first
        await dialled.hang_up()


async def test_callers_at_the_same_time_share_one_channel(pki: "PKI", serve: "Serve") -> None:
    async with serve(pki.live(S1)) as port:
        dialled = dialer(port, pki.live(C1, "client"))
        channels = await asyncio.gather(*(dialled.channel() for _ in range(5)))
        assert len({id(channel) for channel in channels}) == 1
        await dialled.hang_up()


async def test_a_client_shows_its_renewed_leaf_on_the_next_channel(pki: "PKI", serve: "Serve", ask: "Ask") -> None:
    renewed = pki.issue(C1)
    client = pki.live(C1, "client")
    async with serve(pki.live(S1)) as port:
        dialled = dialer(port, client)
        assert await who_am_i(ask, dialled) == f"{C1} {client.leaf().serial}"
        pki.write(renewed, "client")
        assert await who_am_i(ask, dialled) == f"{C1} {renewed.certificate.serial_number}"
        await dialled.hang_up()


async def test_a_call_under_way_when_the_leaf_is_renewed_ends_in_peace(pki: "PKI", serve: "Serve", ask: "Ask") -> None:
    async with serve(pki.live(S1)) as port:
        dialled = dialer(port, pki.live(C1, "client"))
        under_way = asyncio.ensure_future(ask(await dialled.channel(), "Size", b"30000000"))
        pki.write(pki.issue(C1), "client")
        await dialled.channel()
        assert len(await under_way) == 30_000_000
        await dialled.hang_up()


async def test_a_server_that_restarts_with_a_renewed_leaf_is_found_again(pki: "PKI", serve: "Serve") -> None:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    port = bind(server, TCPAddress("127.0.0.1", 0), pki.live(S1).server_credentials())
    await server.start()
    dialled = dialer(port, pki.live(C1, "client"))
    first = await dialled.channel()
    await server.stop(None)
    while first.get_state() is grpc.ChannelConnectivity.READY:
        await first.wait_for_state_change(grpc.ChannelConnectivity.READY)
    server = grpc.aio.server(options=SERVER_OPTIONS)
    bind(server, TCPAddress("127.0.0.1", port), pki.live(S1).server_credentials())
    await server.start()
    assert await dialled.channel() is not first
    await dialled.hang_up()
    await server.stop(None)


async def test_after_hanging_up_the_next_channel_is_a_new_one(pki: "PKI", serve: "Serve") -> None:
    async with serve(pki.live(S1)) as port:
        dialled = dialer(port, pki.live(C1, "client"))
        first = await dialled.channel()
        await dialled.hang_up()
        assert await dialled.channel() is not first
        await dialled.hang_up()


async def test_hanging_up_ends_a_dial_under_way(pki: "PKI") -> None:
    """The peer accepts and then says nothing."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    async with await asyncio.start_server(lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0) as silent:
        dialled = dialer(silent.sockets[0].getsockname()[1], pki.live(C1))
        waiting = asyncio.create_task(dialled.channel())
        peer = await accepted.get()
        await dialled.hang_up()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        peer.transport.abort()


async def test_a_server_that_never_answers_is_given_up(pki: "PKI", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigfleet.transport.dial._CONNECT_SECONDS", 0.05)
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    async with await asyncio.start_server(lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0) as silent:
        assert "no answer within" in await refusal(dialer(silent.sockets[0].getsockname()[1], pki.live(C1)))
        writer = await accepted.get()
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()
