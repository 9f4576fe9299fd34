"""Addresses: which texts name one, for listening and for dialling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.transport.address import (
    AddressError,
    TCPAddress,
    UnixAddress,
    dial_address,
    listen_address,
    listen_tcp_address,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7780", TCPAddress("127.0.0.1", 7780)),
        ("localhost:1", TCPAddress("localhost", 1)),
        ("shard-0.shards.fleet.svc:65535", TCPAddress("shard-0.shards.fleet.svc", 65535)),
        ("host.example.:80", TCPAddress("host.example.", 80)),
        ("[::1]:7780", TCPAddress("::1", 7780)),
        ("unix:/run/bigfleet/shard.sock", UnixAddress("/run/bigfleet/shard.sock")),
        ("unix:shard.sock", UnixAddress("shard.sock")),
    ],
)
def test_an_address_reads_the_same_for_both_uses_and_is_written_back(
    text: str, address: TCPAddress | UnixAddress
) -> None:
    assert listen_address(text) == dial_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", [":7780", ":0", "[::]:0", "0.0.0.0:0"])
def test_every_interface_and_a_port_of_the_systems_choice_can_be_listened_on(text: str) -> None:
    assert str(listen_address(text)) == text


@pytest.mark.parametrize("text", [":7780", "127.0.0.1:0"])
def test_no_host_and_port_0_cannot_be_dialled(text: str) -> None:
    with pytest.raises(AddressError, match=r"cannot be connected to|names no host"):
        dial_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":",
        "7780",
        "host:port",
        "host:-1",
        "host:+1",
        "host: 1",
        "host:1 ",
        "host:65536",
        "host:99999",
        "host:000080",
        "host:\u0661",
        "ho st:1",
        "host/path:1",
        "http://host:1",
        "user@host:1",
        ".host:1",
        "a..b:1",
        "-host:1",
        f"{'a.' * 130}a:1",
        "::1:7780",
        "[::1]",
        "[::1]7780",
        "[host]:1",
        "[]:1",
        "[::1:1",
        "unix:",
        "unix:a\0b",
        f"unix:/{'x' * 107}",
    ],
)
def test_anything_else_is_an_error_that_quotes_it(text: str) -> None:
    for parse in (listen_address, dial_address):
        with pytest.raises(AddressError) as refused:
            parse(text)
        assert repr(text) in str(refused.value)
        assert "\n" not in str(refused.value)


def test_http_is_not_served_on_a_unix_socket() -> None:
    with pytest.raises(AddressError, match="needs HOST:PORT"):
        listen_tcp_address("unix:/run/x.sock")


@given(st.text(max_size=60))
def test_no_text_crashes_the_parser_and_what_parses_is_written_back_to_itself(text: str) -> None:
    try:
        address = listen_address(text)
    except AddressError:
        return
    assert listen_address(str(address)) == address
