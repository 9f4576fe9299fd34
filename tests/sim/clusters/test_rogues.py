"""Operators that break the rules, on real sessions with a stand-in for the shard."""

from typing import TYPE_CHECKING

import pytest

from bigfleet.shard.sessions import outputs as says
from bigfleet.shard.sessions.outputs import Thing
from bigfleet.sim.clusters import rogues
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.events import EventKind
from bigfleet.sim.clusters.operator import SimOperator
from bigfleet.sim.clusters.world import World
from tests.sim.clusters.stand_in import StandIn, operator, ready_machines, running, serving

if TYPE_CHECKING:
    pass
from tests.sim.clusters.frames import workload


class TestRogues:
    async def test_one_that_does_not_read_still_speaks_and_hears_it_all_later(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, rogues.HalfOpen)
            other = SimOperator(Cluster("other", World()), address)
            assert isinstance(one, rogues.HalfOpen)
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
                one.hears.clear()
                shard.own("c", "a", "b")
                for frame in shard.states:
                    shard.tell("c", frame)
                one.cluster.world.deploy(workload(), 1)
                await shard.until(lambda: len(shard.seen(says.RolledUp)) == 2)
                async with running(other):
                    await other.until(lambda: other.cluster.acknowledged >= 0)
                # One read was under way.
                assert len(one.cluster.machines) <= 1
                one.hears.set()
                await one.until(lambda: len(one.cluster.machines) == 2)

    async def test_one_that_does_not_write_still_hears(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, rogues.HalfOpen)
            assert isinstance(one, rogues.HalfOpen)
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
                one.speaks.clear()
                shard.own("c", "m")
                shard.tell("c", shard.states[0])
                await one.until(lambda: one.cluster.log.counts[EventKind.NODE_READY] == 1)
                assert not shard.seen(says.NodeReady)
                one.speaks.set()
                await shard.until(lambda: ready_machines(shard) == ["m"])

    async def test_of_rollups_that_wait_only_the_newest_is_sent(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, rogues.HalfOpen)
            assert isinstance(one, rogues.HalfOpen)
            world, counts = one.cluster.world, one.cluster.log.counts
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
                one.speaks.clear()
                for replicas in range(1, 6):
                    world.deploy(workload(), replicas)
                    await one.until(lambda: counts[EventKind.ROLLED_UP] == 1 + replicas)  # noqa: B023 - awaited here
                one.speaks.set()
                await one.until(lambda: one.cluster.acknowledged == world.version)
        # The first, the one in hand when it fell silent, and the last.
        assert len(shard.seen(says.RolledUp)) == 3

    async def test_what_an_earlier_session_did_not_get_to_say_does_not_come_before_the_hello_of_the_next(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, rogues.HalfOpen)
            assert isinstance(one, rogues.HalfOpen)
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
                one.speaks.clear()
                shard.own("c", "a", "b")
                for frame in shard.states:
                    shard.tell("c", frame)
                await one.until(lambda: one.cluster.log.counts[EventKind.NODE_READY] == 2)
                one.cut()
                await one.until(lambda: bool(one.endings))
                one.speaks.set()
                await shard.until(lambda: len(shard.seen(says.RolledUp)) == 2)
        assert [ending.code for ending in one.endings] == ["CANCELLED"]

    async def test_one_that_says_everything_twice_is_borne(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, rogues.Doubling)
            shard.own("c", "m")
            async with running(one):
                await shard.until(lambda: ready_machines(shard) == ["m", "m"])
                await one.until(lambda: one.cluster.log.counts[EventKind.STRAY] == 1)
        stamps = [each.rollup.timestamp_unix_nanos for each in shard.seen(says.RolledUp)]
        assert stamps == [stamps[0]] * 2
        assert one.endings == one.endings.__class__()

    async def test_one_that_sends_the_newer_rollup_first(self) -> None:
        shard = StandIn()
        async with serving(shard) as address, running(operator(address, rogues.Reordering, rollup_seconds=0.01)):
            await shard.until(lambda: len(shard.seen(says.RolledUp)) >= 4)
        stamps = [each.rollup.timestamp_unix_nanos for each in shard.seen(says.RolledUp)][:4]
        assert stamps[1] < stamps[0] < stamps[3] < stamps[2]

    @pytest.mark.parametrize(
        ("frames", "code"),
        [
            ([rogues.GARBAGE], "INVALID_ARGUMENT"),
            ([rogues.hello("d"), rogues.GARBAGE], "INVALID_ARGUMENT"),
            ([rogues.rollup("d")], "INVALID_ARGUMENT"),
            ([rogues.hello("d"), rogues.hello("d")], "INVALID_ARGUMENT"),
            ([rogues.hello("d"), rogues.huge_rollup("d")], "RESOURCE_EXHAUSTED"),
        ],
        ids=["garbage", "garbage-after-hello", "no-hello", "two-hellos", "huge"],
    )
    async def test_what_no_operator_sends_ends_the_stream_and_no_other(self, frames: list[bytes], code: str) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            honest = operator(address)
            async with running(honest):
                await honest.until(lambda: honest.cluster.acknowledged >= 0)
                assert (await rogues.intrude(address, frames)).code == code
                honest.cluster.world.deploy(workload(), 1)
                await honest.until(lambda: honest.cluster.acknowledged == honest.cluster.world.version)
            assert {str(ending) for ending in honest.endings} <= {"CANCELLED: stopped"}
        assert not [each for each in shard.seen(says.RolledUp) if each.cluster == "d"]

    async def test_what_is_another_clusters_ends_the_stream(self) -> None:
        shard = StandIn()
        things = {Thing.REQUEST: "r", Thing.INSTRUCTION: "i", Thing.MACHINE: "m", Thing.NODE: "n"}
        shard.belongs = dict.fromkeys(things.items(), "c")
        frames = rogues.claims("c", request="r", instruction="i", machine="m", node="n")
        async with serving(shard) as address:
            endings = {
                kind: await rogues.intrude(address, [rogues.hello("d"), frame]) for kind, frame in frames.items()
            }
        assert {kind: ending.code for kind, ending in endings.items()} == dict.fromkeys(frames, "PERMISSION_DENIED")
