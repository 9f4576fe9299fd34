"""Streams over real gRPC: however they end, both sides hear of it, and nobody else notices."""

import asyncio
import time
from collections.abc import AsyncIterator

import grpc
import pytest
from prometheus_client import CollectorRegistry

from bigfleet.shard.core.core import Core
from bigfleet.shard.core.parts import Clocks, Settings
from bigfleet.shard.orders import EndStream, WakeWriter
from bigfleet.shard.persistence.kept import Kept, Values
from bigfleet.shard.shell.session_streams import SessionStreams
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.wire.v1alpha1 import capacity_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

HELLO = pb.OperatorMessage(hello=pb.Hello(cluster_id="c", protocol_version="v1alpha1")).SerializeToString()
GARBAGE = b"\xff" * 100_000

Call = grpc.aio.StreamStreamCall[bytes, bytes]


class Served:
    """A core and its streams on a port, and a client's way to them."""

    def __init__(self) -> None:
        kept = Kept(
            found=False, written=0.0, wall=0.0, commitments={}, machines={}, idle={}, ready={}, clusters={},
            values=Values(),
        )  # fmt: skip
        clocks = Clocks(time.monotonic, time.time)
        self.core = Core(Settings("s", (), 30.0, 600.0, False), 1, kept, clocks, ShardMetrics(CollectorRegistry()))
        self.streams = SessionStreams(self.core, self.pump)
        self.server = grpc.aio.server()
        self.streams.add_to(self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def pump(self) -> None:
        orders = self.core.take_orders()
        for order in orders:
            if isinstance(order, EndStream):
                self.streams.end(order)
            elif isinstance(order, WakeWriter):
                self.streams.wake(order.cluster)

    async def opened(self, channel: grpc.aio.Channel) -> Call:
        call: Call = channel.stream_stream("/bigfleet.v1alpha1.Shard/Session")()
        await call.write(HELLO)
        while not self.core.parts.demand.has_session("c"):  # noqa: ASYNC110 - the other end of a socket is awaited
            await asyncio.sleep(0.01)
        return call


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    await served.server.start()
    yield served
    await served.server.stop(None)


@pytest.fixture
async def channel(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        yield channel


async def test_garbage_of_any_size_ends_its_stream_with_a_reason_and_its_session_too(
    served: Served, channel: grpc.aio.Channel
) -> None:
    for garbage in (GARBAGE[:1000], GARBAGE):
        call = await served.opened(channel)
        await call.write(garbage)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await call.details() == f"{len(garbage)} bytes are no OperatorMessage"
        assert not served.core.parts.demand.has_session("c")


async def test_a_fault_of_our_own_is_said_and_ends_only_its_stream(
    served: Served, channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = await served.opened(channel)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(served.core._reactions, "rolled_up", broken)
    await call.write(pb.OperatorMessage(rollup=capacity_pb2.ClusterCapacityNeeds(cluster_id="c")).SerializeToString())
    assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert await call.details() == "an internal error; it is in the shard's log"
    assert not served.core.parts.demand.has_session("c")


async def test_once_shut_streams_are_gone_and_none_is_taken(served: Served, channel: grpc.aio.Channel) -> None:
    call = await served.opened(channel)
    served.streams.shut("the shard is shutting down")
    await served.streams.gone()
    late: Call = channel.stream_stream("/bigfleet.v1alpha1.Shard/Session")()
    for each in (call, late):
        assert await each.code() is grpc.StatusCode.UNAVAILABLE
        assert await each.details() == "the shard is shutting down"
