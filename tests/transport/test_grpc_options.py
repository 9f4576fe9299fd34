"""gRPC options by what they do: what is carried, what is refused by its size, and that the two sides agree."""

from typing import TYPE_CHECKING

import grpc
import pytest

from bigfleet.transport.grpc_options import (
    CHANNEL_OPTIONS,
    MAX_MESSAGE_BYTES,
    MAX_PROVIDER_MESSAGE_BYTES,
    PROVIDER_CHANNEL_OPTIONS,
    SERVER_OPTIONS,
    Options,
)

if TYPE_CHECKING:
    from tests.shared.mirror import Ask, Serve


async def answered(ask: "Ask", port: int, options: Options, request: bytes) -> int | grpc.StatusCode:
    """The length of the answer to a request for so many bytes, or the code it failed with."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        try:
            return len(await ask(channel, "Size", request))
        except grpc.aio.AioRpcError as error:
            return error.code()


async def test_a_roll_up_as_large_as_any_cluster_has_is_taken_and_one_byte_more_is_refused(
    serve: "Serve", ask: "Ask"
) -> None:
    async with serve(None) as port:
        assert await answered(ask, port, CHANNEL_OPTIONS, b"1" + b"." * (MAX_MESSAGE_BYTES - 1)) == 1
        refused = await answered(ask, port, CHANNEL_OPTIONS, b"1" + b"." * MAX_MESSAGE_BYTES)
    assert refused is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_only_a_provider_may_answer_with_more_than_that(serve: "Serve", ask: "Ask") -> None:
    size = MAX_MESSAGE_BYTES + 1
    async with serve(None) as port:
        assert await answered(ask, port, PROVIDER_CHANNEL_OPTIONS, str(size).encode()) == size
        refused = await answered(ask, port, CHANNEL_OPTIONS, str(size).encode())
    assert refused is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_list_of_500_000_machines_of_2_000_bytes_fits_a_providers_answer() -> None:
    assert 500_000 * 2_000 <= MAX_PROVIDER_MESSAGE_BYTES < 1 << 31


def test_a_roll_up_of_100_mb_is_past_the_limit() -> None:
    assert MAX_MESSAGE_BYTES < 100_000_000


def test_a_server_tolerates_the_pings_of_our_clients() -> None:
    server = dict(SERVER_OPTIONS)
    for options in (CHANNEL_OPTIONS, PROVIDER_CHANNEL_OPTIONS):
        assert server["grpc.http2.min_recv_ping_interval_without_data_ms"] < dict(options)["grpc.keepalive_time_ms"]


@pytest.mark.parametrize("options", [SERVER_OPTIONS, CHANNEL_OPTIONS, PROVIDER_CHANNEL_OPTIONS])
def test_no_option_is_set_twice(options: Options) -> None:
    assert len(dict(options)) == len(options)


def test_calls_to_providers_are_never_repeated_below_us() -> None:
    assert dict(PROVIDER_CHANNEL_OPTIONS)["grpc.enable_retries"] == 0
