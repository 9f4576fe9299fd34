"""The stream to the shard on real gRPC servers: dialled again, pointed elsewhere, replaced, silent, full of rot."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from bigfleet.operator.link import Link, SessionWaits
from bigfleet.operator.outbox import LIMIT, Outbox, OutboxFullError
from bigfleet.telemetry.metrics import OperatorMetrics
from bigfleet.transport.address import UnixAddress
from bigfleet.transport.session_stream import SESSION
from bigfleet.wire.v1alpha1 import capacity_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.shared.program import DEADLINE

SOON = SessionWaits(first=0.01, most=0.02, replaced=0.03, stalled=5.0, silent=0.2, lasting=0.0)
Context = Any
# Each script reads Hello first: gRPC loses the status of a call that ends while the client writes.
Script = Callable[[AsyncIterator[bytes], Context], AsyncIterator[bytes]]


def ack(echo: str) -> bytes:
    return pb.ShardMessage(ack=pb.Acknowledgement(echo=echo)).SerializeToString()


class Talk:
    """Says Hello, keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.ends: list[str] = []
        self.more = asyncio.Event()

    def opened(self, say: Callable[[pb.OperatorMessage], None]) -> None:
        say(pb.OperatorMessage(hello=pb.Hello(cluster_id="c")))

    def received(self, frame: pb.ShardMessage) -> None:
        self.heard.append(frame.ack.echo)
        self.more.set()

    def closed(self, why: str) -> None:
        self.ends.append(why)
        self.more.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not is_so():
                self.more.clear()
                await self.more.wait()


@asynccontextmanager
async def shard(address: UnixAddress, script: Script) -> AsyncIterator[None]:
    handler: Any = grpc.stream_stream_rpc_method_handler(script)
    service, method = SESSION.removeprefix("/").split("/")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(str(address))
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


@asynccontextmanager
async def linked(address: UnixAddress, waits: SessionWaits = SOON) -> AsyncIterator[tuple[Link, Talk]]:
    talk = Talk()
    link = Link(address, None, talk, OperatorMetrics(CollectorRegistry()), waits, random.Random(1))
    running = asyncio.create_task(link.run())
    try:
        yield link, talk
    finally:
        running.cancel()
        await asyncio.wait([running])


@pytest.fixture
def home(tmp_path: Path) -> UnixAddress:
    return UnixAddress(str(tmp_path / "home"))


async def test_it_dials_until_somebody_is_there_and_again_when_the_stream_ends(home: UnixAddress) -> None:
    lives = 0

    async def once(frames: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        nonlocal lives
        lives += 1
        await anext(aiter(frames))
        yield ack(f"life {lives}")
        if lives < 3:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        await asyncio.Event().wait()

    async with linked(home) as (link, talk):
        async with shard(home, once):
            await talk.until(lambda: "life 3" in talk.heard)
            assert link.connected
        await talk.until(lambda: len(talk.ends) == 3)
        assert talk.ends[:2] == ["UNAVAILABLE: restarting"] * 2
        assert not link.connected


async def test_rule_24_where_it_is_pointed_it_goes_and_comes_home_when_refused_there(
    home: UnixAddress, tmp_path: Path
) -> None:
    away = UnixAddress(str(tmp_path / "away"))
    calls: list[str] = []

    async def points(frames: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        calls.append("home")
        await anext(aiter(frames))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"cluster c is bound to shard-7 at {away}")
        yield b""

    async def refuses(frames: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        calls.append("away")
        await anext(aiter(frames))
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")
        yield b""

    async with shard(home, points), shard(away, refuses), linked(home) as (_, talk):
        await talk.until(lambda: len(calls) >= 4)
        assert calls[:4] == ["home", "away", "home", "away"]


async def test_rule_24_one_that_never_answers_is_left_for_home(home: UnixAddress, tmp_path: Path) -> None:
    away = UnixAddress(str(tmp_path / "away"))
    calls: list[str] = []

    async def points(frames: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        calls.append("home")
        await anext(aiter(frames))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"elsewhere: {away}.")
        yield b""

    async def is_silent(frames: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        calls.append("away")
        await asyncio.Event().wait()
        yield b""

    async with shard(home, points), shard(away, is_silent), linked(home) as (_, talk):
        await talk.until(lambda: calls.count("home") >= 2)
        assert "CANCELLED: the shard sent nothing for 0.2 s" in talk.ends


async def test_what_is_no_frame_ends_the_session(home: UnixAddress) -> None:
    async def rots(frames: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        yield b"\xff\xff\xff"
        await asyncio.Event().wait()

    async with shard(home, rots), linked(home) as (_, talk):
        await talk.until(lambda: bool(talk.ends))
        assert talk.ends[0] == "CANCELLED: the shard sent bytes that are no frame"


async def test_rule_21_a_replaced_session_waits_longer(home: UnixAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    async def replaces(frames: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        nonlocal calls
        calls += 1
        await anext(aiter(frames))
        await context.abort(grpc.StatusCode.ABORTED, "replaced")
        yield b""

    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr("bigfleet.operator.link.asyncio.sleep", note)
    async with shard(home, replaces), linked(home) as (_, talk):
        await talk.until(lambda: calls >= 2)
        assert SOON.replaced in pauses


class TestOutbox:
    def rollup(self, stamp: int) -> pb.OperatorMessage:
        return pb.OperatorMessage(rollup=capacity_pb2.ClusterCapacityNeeds(timestamp_unix_nanos=stamp))

    async def test_a_newer_roll_up_takes_the_place_of_one_that_waits_and_others_go_first(self) -> None:
        outbox = Outbox()
        outbox.put(self.rollup(1))
        outbox.put(pb.OperatorMessage(reclaim_ack=pb.ReclaimAck(instruction_id="i")))
        outbox.put(self.rollup(2))
        assert (await outbox.take()).reclaim_ack.instruction_id == "i"
        assert (await outbox.take()).rollup.timestamp_unix_nanos == 2
        assert outbox.dropped == 1

    async def test_one_that_is_full_ends_its_session_instead_of_losing_frames(self) -> None:
        outbox = Outbox()
        frame = pb.OperatorMessage(reclaim_ack=pb.ReclaimAck(instruction_id="i"))
        for _ in range(LIMIT + 1):
            outbox.put(frame)
        with pytest.raises(OutboxFullError):
            await outbox.take()
