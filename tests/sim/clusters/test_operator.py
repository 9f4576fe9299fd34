"""Whole simulated operators on real sessions with a stand-in for the shard."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from bigfleet.model.demand.profile import Operator, Requirement
from bigfleet.model.labels import RACK
from bigfleet.shard.sessions import outputs as says
from bigfleet.shard.sessions.outputs import Thing
from bigfleet.sim.clusters import rogues
from bigfleet.sim.clusters.events import EventKind
from bigfleet.sim.clusters.habits import BlobAnswers
from bigfleet.sim.clusters.operator import Waits
from bigfleet.sim.clusters.world import Pods
from bigfleet.transport.session_stream import Ending
from tests.sim.clusters.stand_in import StandIn, operator, ready_machines, running, serving

if TYPE_CHECKING:
    from tests.shared.certificates import PKI
from tests.sim.clusters.frames import S, reclaim, request, state, workload


class TestOperator:
    async def test_a_story_from_the_first_pod_to_the_last(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address)
            cluster, world = one.cluster, one.cluster.world
            world.deploy(workload(leave_seconds=0.01), 6)
            async with running(one):
                await one.until(lambda: cluster.acknowledged == world.version)
                assert shard.seen(says.RolledUp)[-1].rollup.needs == world.needs()

                shard.belongs[Thing.REQUEST, "r"] = "c"
                shard.tell("c", request("r", "a"))
                await shard.until(lambda: bool(shard.seen(says.BlobAnswered)))

                shard.own("c", "a", "b")
                for frame in shard.states:
                    shard.tell("c", frame)
                await shard.until(lambda: len(ready_machines(shard)) == 2)
                assert world.pods() == Pods(0, 6)

                world.scale("web", 4)
                await shard.until(lambda: shard.seen(says.RolledUp)[-1].rollup.needs == world.needs())
                shard.order("c", reclaim("i", "b"))
                await shard.until(lambda: bool(shard.seen(says.NodeDrained)))
                assert shard.seen(says.ReclaimAcked) == [says.ReclaimAcked("c", "i")]
                assert shard.seen(says.NodeDrained) == [says.NodeDrained("c", "i", empty=True, reason="")]
                assert world.pods() == Pods(0, 4)

                shard.tell("c", state("b", S.IDLE))
                await one.until(lambda: list(world.nodes) == ["a"])
            assert not cluster.connected
            assert cluster.log.counts[EventKind.STRAY] == 0
            assert not shard.seen(says.Strayed)

    async def test_it_is_known_by_its_certificate(self, pki: "PKI") -> None:
        shard = StandIn()
        async with serving(shard, pki.live("bigfleet://shard/s")) as address:
            ours = operator(address, tls=pki.live("bigfleet://cluster/c", "client"))
            theirs = operator(address, tls=pki.live("bigfleet://cluster/d", "other"))
            async with running(ours, theirs):
                await ours.until(lambda: ours.cluster.acknowledged >= 0)
                await theirs.until(lambda: bool(theirs.endings))
        assert theirs.endings[0].code == "PERMISSION_DENIED"
        assert theirs.cluster.acknowledged == -1

    async def test_a_cut_stream_is_dialled_again_and_nothing_is_lost(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address)
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
                shard.own("c", "m")
                for _ in range(3):
                    count = len(ready_machines(shard))
                    one.cut()
                    await shard.until(lambda: len(ready_machines(shard)) > count)  # noqa: B023 - awaited in the loop
        assert {str(ending) for ending in one.endings} == {"CANCELLED: cut on this side"}
        assert len(shard.seen(says.Opened)) == 4

    async def test_it_waits_for_a_shard_that_is_not_there_yet_or_any_more(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            pass
        one = operator(address)
        async with running(one):
            await one.until(lambda: len(one.endings) == 2)
            assert one.endings[0].code == "UNAVAILABLE"
            for _ in range(2):
                opened = len(shard.seen(says.Opened))
                async with serving(shard, port=address.port):
                    await shard.until(lambda: len(shard.seen(says.Opened)) > opened)  # noqa: B023 - as above
                await one.until(lambda: not one.cluster.connected)

    async def test_rule_21_a_replaced_operator_waits_as_long_as_it_is_told(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            older = operator(address, waits=Waits(first=0.01, replaced=3600.0))
            newer = operator(address, waits=Waits(first=0.01, replaced=0.01))
            async with running(older):
                await older.until(lambda: older.cluster.acknowledged >= 0)
                async with running(newer):
                    await older.until(lambda: bool(older.endings))
                    assert older.endings[0] == Ending("ABORTED", "replaced")
                    await newer.until(lambda: newer.cluster.acknowledged >= 0)
                    # Were it to dial as after any other end, it would be back long before this roll-up is answered.
                    for replicas in range(1, 20):
                        newer.cluster.world.deploy(workload(), replicas)
                        await newer.until(lambda: newer.cluster.acknowledged == newer.cluster.world.version)
        assert len(shard.seen(says.Opened)) == 2

    async def test_rule_21_a_shard_that_takes_no_frame_is_cut(self) -> None:
        shard = StandIn()
        shard.frames_to_read = 1
        async with serving(shard) as address:
            one = operator(address, waits=Waits(first=0.01, stalled=0.05))
            # More than either side keeps on its own: a gang by a name of 20 MB.
            one.cluster.world.deploy(workload("x" * 20_000_000, requirements=(Requirement(RACK, Operator.SAME),)), 1)
            async with running(one):
                await one.until(lambda: bool(one.endings))
        assert str(one.endings[0]) == "CANCELLED: no frame was taken for 0.05 s"

    async def test_how_a_stream_ended_is_known_whatever_was_being_written(self) -> None:
        """gRPC's own word would be INTERNAL in most of these."""
        shard = StandIn()
        async with serving(shard) as address:
            codes = {(await rogues.intrude(address, [rogues.GARBAGE] * 1000)).code for _ in range(20)}
        assert codes == {"INVALID_ARGUMENT"}

    async def test_a_stopped_operator_leaves_nothing_behind(self) -> None:
        shard = StandIn()
        async with serving(shard) as address:
            one = operator(address, blob=BlobAnswers(delay_seconds=3600.0))
            async with running(one):
                await one.until(lambda: one.cluster.acknowledged >= 0)
            codes = [getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()]
            assert not [code for code in codes if code is not None and "bigfleet/sim/clusters" in code.co_filename]
            await shard.until(lambda: bool(shard.seen(says.SessionEnded)))
        assert one._dialer._channel is None

    async def test_a_mistake_in_its_mind_ends_it_loudly(self) -> None:
        async with serving(StandIn()) as address:
            one = operator(address)
            one.cluster.received = lambda frame, now: 1 // 0  # type: ignore[assignment, method-assign, return-value]
            with pytest.raises(ExceptionGroup) as caught:
                await one.run()
        assert caught.group_contains(ZeroDivisionError)
