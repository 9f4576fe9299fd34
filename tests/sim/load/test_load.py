"""The load of a shard: its figures, and its streams to a stand-in for the shard."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bigfleet.shard.sessions import outputs as says
from bigfleet.shard.sessions.outputs import Thing
from bigfleet.sim.clusters import rogues
from bigfleet.sim.load.load import Load, Options
from bigfleet.sim.load.streams import Histogram, LoadedCluster, Rows, Tally, rollup_frame
from bigfleet.wire.needs import rollup_from_wire
from bigfleet.wire.v1alpha1 import capacity_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.sim.clusters.stand_in import StandIn, ready_machines, serving

if TYPE_CHECKING:
    pass
from tests.sim.clusters.frames import UNIT, reclaim


class TestLoad:
    def test_quantiles_are_within_three_percent(self) -> None:
        histogram = Histogram()
        for micros in range(1, 100_001):
            histogram.add(micros)
        for share in (0.01, 0.5, 0.99):
            assert share * 100_000 <= histogram.quantile(share) <= share * 100_000 * 1.04
        assert (histogram.max, histogram.count) == (100_000, 100_000)
        assert histogram.quantile(1.0) == 100_000
        assert Histogram().quantile(0.5) == 0

    def test_what_was_sent_before_the_count_began_is_not_in_it(self) -> None:
        tally = Tally()
        early = pb.Acknowledgement(echo=str(time.time_ns()))
        tally.restart()
        tally.acknowledged(early)
        tally.acknowledged(pb.Acknowledgement(echo=str(time.time_ns())))
        tally.acknowledged(pb.Acknowledgement(rejection_reason="no"))
        assert (tally.acked, tally.latency.count, tally.refused, tally.refusal) == (1, 1, 1, "no")

    @pytest.mark.parametrize("rows", [1, 500])
    def test_a_rollup_put_together_from_parts_is_read_whole(self, rows: int) -> None:
        made = Rows(rows=rows, pods=2 * rows + 1, pod=UNIT, burst=5)
        head = capacity_pb2.ClusterCapacityNeeds(cluster_id="c").SerializeToString()
        plain, more, burst = (
            rollup_from_wire(pb.OperatorMessage.FromString(rollup_frame(head, part)).rollup)
            for part in (made.plain, made.more, made.burst)
        )
        assert plain.cluster_id == "c"
        assert plain.timestamp_unix_nanos <= more.timestamp_unix_nanos
        assert [sum(need.units for need in each.needs) for each in (plain, more, burst)] == [
            2 * rows + 1,
            2 * rows + 2,
            2 * rows + 6,
        ]
        assert len({need.key for need in plain.needs}) == rows
        assert burst.needs[-1].profile.max_per_machine == 1

    async def test_it_opens_sends_answers_and_counts(self) -> None:
        shard = StandIn()
        seconds: list[dict[str, object]] = []
        shard.own("load-00000", "m")
        shard.belongs |= {(Thing.REQUEST, "r"): "load-00000", (Thing.INSTRUCTION, "i"): "load-00000"}
        shard.standing_orders["i"] = reclaim("i", "m").reclaim_instruction
        async with serving(shard) as address:
            options = Options(
                target=str(address), clusters=120, rate=400.0, seconds=0.5, changed=0.5, burst=2, burst_at=0.1
            )
            figures: Any = await Load(options, seconds.append).run()
        assert (figures["opened"]["streams"], figures["streams"], figures["configured"]) == (120, 120, 1)
        assert figures["sent"] == figures["acked"] > 120
        assert (figures["refused"], figures["unanswered"], figures["dropped"]) == (0, 0, {})
        assert figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"] <= figures["latency_ms"]["max"]
        assert figures["burst"] == {"pods": 2, "machines": 1, "seconds": {"half": 0.0, "nine_tenths": 0.0, "all": None}}
        assert ready_machines(shard) == ["m"]
        assert shard.seen(says.ReclaimAcked) == [says.ReclaimAcked("load-00000", "i")]
        assert [each.empty for each in shard.seen(says.NodeDrained)] == [True]
        told = [len(each.rollup.needs) for each in shard.seen(says.RolledUp) if each.cluster == "load-00000"]
        assert told[-1] == told[0] + 1

    async def test_a_stream_that_is_dropped_is_counted_and_comes_back(self) -> None:
        shard, tally = StandIn(), Tally()
        async with serving(shard) as address, grpc.aio.insecure_channel(str(address)) as channel:
            loading = asyncio.create_task(LoadedCluster("c", channel, tally, b"", reports=True).run(0.0))
            await shard.until(lambda: bool(shard.seen(says.RolledUp)))
            await rogues.intrude(address, [rogues.hello("c"), rogues.GARBAGE])
            await shard.until(lambda: len(shard.seen(says.RolledUp)) == 2)
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        assert tally.dropped == {"ABORTED": 1}
        assert tally.sent == 2
