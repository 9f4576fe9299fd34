"""Listening: a free address is taken, any other is one line saying which and why."""

import errno
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from bigfleet.transport.address import Address, TCPAddress, UnixAddress
from bigfleet.transport.grpc_options import SERVER_OPTIONS
from bigfleet.transport.listen import ListenError, bind, open_listener

if TYPE_CHECKING:
    from tests.shared.certificates import PKI

IN_USE = os.strerror(errno.EADDRINUSE)


@pytest.fixture
async def server() -> AsyncIterator[grpc.aio.Server]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    yield server
    await server.stop(None)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


def refusal(server: grpc.aio.Server, address: Address) -> str:
    with pytest.raises(ListenError) as refused:
        bind(server, address, None)
    text = str(refused.value)
    assert refused.value.address == address
    assert text.startswith(f"cannot listen on {address}: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
async def test_port_0_gives_a_port_that_can_be_connected_to(server: grpc.aio.Server, host: str) -> None:
    port = bind(server, TCPAddress(host, 0), None)
    await server.start()
    socket.create_connection((host or "127.0.0.1", port), timeout=10).close()


async def test_a_port_that_was_just_given_up_can_be_taken(server: grpc.aio.Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as former:
        port = former.getsockname()[1]
    assert bind(server, TCPAddress("127.0.0.1", port), None) == port


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", ""])
async def test_a_port_in_use_is_refused(server: grpc.aio.Server, taken: int, host: str) -> None:
    address = TCPAddress(host, taken)
    assert refusal(server, address) == (
        f"cannot listen on {address}: {IN_USE}; stop the program that has it or choose another"
    )


async def test_a_port_in_use_on_one_address_of_a_name_is_refused(server: grpc.aio.Server, taken: int) -> None:
    assert IN_USE in refusal(server, TCPAddress("localhost", taken))


async def test_a_second_server_does_not_share_the_port_of_the_first(server: grpc.aio.Server) -> None:
    port = bind(server, TCPAddress("127.0.0.1", 0), None)
    await server.start()
    second = grpc.aio.server(options=SERVER_OPTIONS)
    assert IN_USE in refusal(second, TCPAddress("127.0.0.1", port))


async def test_a_second_server_that_gets_past_the_check_does_not_share_the_port_either(
    server: grpc.aio.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = bind(server, TCPAddress("127.0.0.1", 0), None)
    await server.start()
    monkeypatch.setattr("bigfleet.transport.listen._resolved", lambda _: [])
    second = grpc.aio.server(options=SERVER_OPTIONS)
    assert "gRPC could not open it" in refusal(second, TCPAddress("127.0.0.1", port))


async def test_an_address_of_another_machine_is_refused(server: grpc.aio.Server) -> None:
    text = refusal(server, TCPAddress("192.0.2.1", 7780))
    assert os.strerror(errno.EADDRNOTAVAIL) in text
    assert "name an address that this machine has" in text


async def test_a_host_that_does_not_resolve_is_refused(server: grpc.aio.Server) -> None:
    assert "name a host that resolves here" in refusal(server, TCPAddress("nowhere.invalid", 7780))


async def test_a_server_serves_tls_when_given_credentials(server: grpc.aio.Server, pki: "PKI") -> None:
    tls = pki.live("bigfleet://shard/s1")
    port = bind(server, TCPAddress("127.0.0.1", 0), tls.server_credentials())
    await server.start()
    assert pki.served_serial(port) == tls.leaf().serial


class TestAUnixSocket:
    async def test_is_served_on(self, server: grpc.aio.Server, tmp_path: Path) -> None:
        path = tmp_path / "s.sock"
        bind(server, UnixAddress(str(path)), None)
        await server.start()
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))

    async def test_that_somebody_serves_is_refused(self, server: grpc.aio.Server, tmp_path: Path) -> None:
        path = tmp_path / "s.sock"
        with socket.socket(socket.AF_UNIX) as holder:
            holder.bind(str(path))
            holder.listen()
            assert IN_USE in refusal(server, UnixAddress(str(path)))

    async def test_left_by_a_program_that_is_gone_is_replaced(self, server: grpc.aio.Server, tmp_path: Path) -> None:
        path = tmp_path / "s.sock"
        with socket.socket(socket.AF_UNIX) as former:
            former.bind(str(path))
        bind(server, UnixAddress(str(path)), None)
        await server.start()
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))

    async def test_in_the_place_of_a_file_is_refused_and_the_file_stays(
        self, server: grpc.aio.Server, tmp_path: Path
    ) -> None:
        path = tmp_path / "notes"
        path.write_text("keep")
        assert "a file that is no socket is there" in refusal(server, UnixAddress(str(path)))
        assert path.read_text() == "keep"

    async def test_in_no_directory_is_refused(self, server: grpc.aio.Server, tmp_path: Path) -> None:
        assert "its directory does not exist" in refusal(server, UnixAddress(str(tmp_path / "no" / "s.sock")))


class TestAPlainListener:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
    def test_listens_on_a_port_of_the_systems_choice(self, host: str) -> None:
        with open_listener(TCPAddress(host, 0)) as listener:
            socket.create_connection((host or "127.0.0.1", listener.getsockname()[1]), timeout=10).close()

    def test_on_a_port_in_use_is_the_same_error(self, taken: int) -> None:
        with pytest.raises(ListenError, match=IN_USE):
            open_listener(TCPAddress("127.0.0.1", taken))
