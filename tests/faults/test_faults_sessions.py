"""Streams that are cut, doubled, reordered, half open or full of garbage: each cluster gets what it asks for, once."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from bigfleet.sim.clusters import rogues
from bigfleet.sim.clusters.events import EventKind
from bigfleet.sim.clusters.operator import SimOperator
from bigfleet.sim.clusters.rogues import GARBAGE, Doubling, HalfOpen, Reordering, intrude
from bigfleet.transport.address import UnixAddress
from bigfleet.wire.v1alpha1 import capacity_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.faults.stage import AT_ONCE, Cloud, pool, staged, states, until, workload
from tests.shared.program import DEADLINE

CUTS = 5
SLOW = {step: {"min": 0.05, "max": 0.5} for step in ("create", "configure", "join", "drain", "wipe", "delete")}


async def cut_often(operator: SimOperator, what: EventKind) -> None:
    """Cut its stream some times in a row, as soon as it has heard something that wants an answer."""
    counts = operator.cluster.log.counts
    for _ in range(CUTS):
        heard = counts[what]
        await operator.until(lambda: counts[what] > heard)  # noqa: B023
        operator.cut()


class Hole:
    """Between an operator and a shard: it passes everything on, and then nothing, without a word to either."""

    def __init__(self, shard: UnixAddress) -> None:
        self._shard = shard
        self._passing = asyncio.Event()
        self._passing.set()

    async def serve(self, path: str) -> None:
        """Be there until cancelled."""
        async with await asyncio.start_unix_server(self._connected, path) as server:
            await server.serve_forever()

    def swallow(self) -> None:
        """Pass nothing on from now on."""
        self._passing.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._shard.path)
        try:
            await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))
        except asyncio.CancelledError:
            # The server's callback takes a task that was cancelled for an error.
            pass
        finally:
            for each in (writer, far_writer):
                each.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._passing.wait()
                writer.write(data)


async def all_have(cloud: Cloud, operators: Iterable[SimOperator], pods: int) -> bool:
    """Whether each has just so many machines, and no other machine is paid for."""
    machines = await cloud.machines()
    theirs = {operator.cluster.id: operator.cluster.world for operator in operators}
    bound = {name: {each.id for each in machines.values() if each.cluster == name} for name in theirs}
    served = all(len(bound[name]) == pods == world.pods().running for name, world in theirs.items())
    counts = states(machines)
    return served and counts == {"Configured": pods * len(theirs), "Speculative": len(machines) - pods * len(theirs)}


async def test_streams_cut_doubled_reordered_and_half_open_come_to_the_same_end(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=[pool("bought", "OnDemand", 40)], latency=SLOW)
        shard = await stage.shard(cloud)
        silent = stage.operator("half-open", kind=HalfOpen)
        assert isinstance(silent, HalfOpen)
        silent.hears.clear()
        kinds = {"plain": SimOperator, "cut": SimOperator, "doubled": Doubling, "reordered": Reordering}
        operators = {name: stage.operator(name, kind=kind) for name, kind in kinds.items()}
        for operator in (silent, *operators.values()):
            operator.cluster.world.deploy(workload(), 3)
        stage.go_on(cut_often(operators["cut"], EventKind.BLOB_ASKED))

        async def is_asked_for_blobs() -> bool:
            return states(await cloud.machines())["Idle"] == 3

        # All have their machines but the one that hears nothing: those are made and wait for user data.
        await until(is_asked_for_blobs, "three machines that wait")
        operators["half-open"] = stage.operator("half-open", world=silent.cluster.world)
        await until(lambda: all_have(cloud, operators.values(), 3), "three machines each")
        await shard.program.said("session_opened", cluster="half-open", replaced=True)
        silent.hears.set()
        await silent.until(lambda: bool(silent.endings))
        await stage.hang_up(silent)

        stage.go_on(cut_often(operators["cut"], EventKind.RECLAIM_HEARD))
        for operator in operators.values():
            operator.cluster.world.scale("web", 1)
        await until(lambda: all_have(cloud, operators.values(), 1), "one machine each")
        assert operators["cut"].cluster.log.counts[EventKind.CONNECTED] > CUTS
        assert not operators["doubled"].endings
        await shard.program.said("rollup_not_taken", cluster="reordered")


@pytest.mark.skipif(
    "BIGFLEET_FAULT_KILLS" not in os.environ, reason="waits for keepalive; BIGFLEET_FAULT_KILLS sets it"
)
async def test_a_peer_that_goes_without_a_word_is_found_out(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=[pool("bought", "OnDemand", 2)], latency=AT_ONCE)
        shard = await stage.shard(cloud)
        hole = Hole(shard.address)
        stage.go_on(hole.serve(stage.address("hole").path))
        lost = stage.operator("lost", shard="hole")
        await lost.until(lambda: lost.cluster.acknowledged == lost.cluster.world.version)
        hole.swallow()
        await shard.program.said("session_closed", cluster="lost", seconds=110)


def frames_of_a_stranger(machine: str) -> dict[str, tuple[str, list[bytes]]]:
    """What somebody may send, by name, and the code that it ends with."""
    hello, rollup = rogues.hello("stranger"), rogues.rollup("stranger")
    claims = rogues.claims("calm", request="r", instruction="i", machine=machine, node=machine)
    future = pb.Hello(cluster_id="stranger", protocol_version="v9")
    nobody, nul = rogues.hello(""), rogues.hello("a\0b")
    return {
        "garbage": ("INVALID_ARGUMENT", [GARBAGE]),
        "garbage later": ("INVALID_ARGUMENT", [hello, rollup, GARBAGE]),
        "no hello": ("INVALID_ARGUMENT", [rollup]),
        "an empty frame": ("INVALID_ARGUMENT", [b""]),
        "two hellos": ("INVALID_ARGUMENT", [hello, hello]),
        "another protocol": ("INVALID_ARGUMENT", [pb.OperatorMessage(hello=future).SerializeToString()]),
        "no name": ("INVALID_ARGUMENT", [nobody]),
        "a bad name": ("INVALID_ARGUMENT", [nul]),
        "a long name": ("INVALID_ARGUMENT", [rogues.hello("x" * 1000)]),
        "another's demand": ("PERMISSION_DENIED", [hello, claims["rollup"]]),
        "another's machine": ("PERMISSION_DENIED", [hello, claims["ready"]]),
        "100 MiB": ("RESOURCE_EXHAUSTED", [hello, rogues.huge_rollup("stranger")]),
    }


async def shout(address: UnixAddress, data: bytes) -> None:
    """Say something that is no gRPC at all, and wait to be hung up on."""
    reader, writer = await asyncio.open_unix_connection(address.path)
    with suppress(ConnectionError):
        writer.write(data)
        await writer.drain()
        writer.write_eof()
        while await reader.read(65536):
            pass
    writer.close()


async def test_garbage_ends_its_own_stream_with_a_reason_and_nobody_else_notices(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        cloud = await stage.cloud(pools=[pool("bought", "OnDemand", 8)], latency=AT_ONCE)
        shard = await stage.shard(cloud)
        calm = stage.operator("calm")
        calm.cluster.world.deploy(workload(), 2)
        await calm.until(lambda: calm.cluster.world.pods().running == 2)
        held = shard.program.memory_mib()
        strangers = frames_of_a_stranger(next(iter(calm.cluster.machines)))
        for name, (code, frames) in strangers.items():
            ending = await intrude(shard.address, frames)
            assert (name, ending.code) == (name, code)
            assert ending.details, name
        # What a stranger sends is not kept, however large it says that it is.
        assert shard.program.memory_mib("VmHWM") - held < 64

        many = [frames for code, frames in strangers.values() if code != "RESOURCE_EXHAUSTED"] * 5
        nonsense = (b"GET / HTTP/1.1\r\n\r\n", bytes(100_000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000)
        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as intruders:
            for frames in many:
                intruders.create_task(intrude(shard.address, frames))
            for data in nonsense:
                intruders.create_task(shout(shard.address, data))
        stranger = await stage.puppet("odd")
        need = capacity_pb2.CapacityNeed(aggregate_resources={"cpu": "-1"}, min_unit={"cpu": "1"})
        odd = capacity_pb2.ClusterCapacityNeeds(cluster_id="odd", timestamp_unix_nanos=1, needs=[need])
        await stranger.say(rollup=odd)
        refused = await stranger.hears("ack")
        assert not refused.echo
        assert refused.rejection_reason

        calm.cluster.world.scale("web", 3)
        await calm.until(lambda: calm.cluster.world.pods().running == 3)
        assert calm.cluster.log.counts[EventKind.CONNECTED] == 1
        assert not calm.endings
        assert not shard.program.texts
