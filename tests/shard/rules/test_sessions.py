"""Rules 20 and 21 at the level of the whole shard: acknowledgements, and who holds a cluster's session."""

import asyncio

from bigfleet.wire.v1alpha1 import capacity_pb2 as pb_needs
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.shard.rig.virtual import REPLACED
from tests.shard.rules.fleet import bound, fleet, hello, join, now, serving, virtually


@virtually
async def test_rule_20_an_acknowledgement_echoes_what_became_the_demand_and_names_what_is_short() -> None:
    async with fleet(machines=1) as rig:
        prod = join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        world = prod.cluster.world
        await rig.until(lambda: prod.cluster.acknowledged == world.version, 30)
        world.scale("web", 2)
        await rig.until(lambda: prod.cluster.short == 1, 60)
        assert prod.cluster.acknowledged == world.version
        world.scale("web", 0)
        await rig.until(lambda: prod.cluster.refusal, 10)
        assert prod.cluster.acknowledged == world.version - 1


@virtually
async def test_rule_20_a_malformed_roll_up_is_answered_with_its_reason_and_the_last_good_demand_stands() -> None:
    async with fleet(machines=2) as rig:
        prod = join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        prod.leave()
        await asyncio.sleep(5)
        line = rig.life.dial()
        line.say(hello("prod"))
        need = pb_needs.CapacityNeed(aggregate_resources={"cpu": "-1"}, min_unit={"cpu": "1"})
        bad = pb_needs.ClusterCapacityNeeds(cluster_id="prod", timestamp_unix_nanos=7, needs=[need])
        line.say(pb.OperatorMessage(rollup=bad))
        await asyncio.sleep(120)
        (ack,) = [frame.ack for frame in line.heard() if frame.HasField("ack")]
        assert ack.echo == ""
        assert "negative" in ack.rejection_reason
        assert len(bound(rig, "prod")) == 1


@virtually
async def test_rule_21_a_newer_session_replaces_the_older_whose_frames_are_dropped() -> None:
    async with fleet(machines=4) as rig:
        prod = join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        older = prod.line
        assert older is not None
        prod.online = False
        twin = join(rig, "prod", 2)
        await rig.until(lambda: older.ending, 10)
        assert older.ending == REPLACED
        older.say(
            pb.OperatorMessage(rollup=pb_needs.ClusterCapacityNeeds(cluster_id="prod", timestamp_unix_nanos=2**62))
        )
        await serving(rig, "prod", 2)
        await asyncio.sleep(120)
        assert twin.line is not None
        assert len(bound(rig, "prod")) == 2


@virtually
async def test_rule_21_a_peer_that_takes_no_frame_for_thirty_seconds_is_cut() -> None:
    async with fleet(machines=4) as rig:
        prod = join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        line = prod.line
        assert line is not None
        line.takes.clear()
        began = now()
        prod.cluster.world.scale("web", 2)
        await rig.until(lambda: line.ending, 120)
        assert line.ending.startswith("UNAVAILABLE: no frame taken for 30 s")
        assert 30 <= now() - began <= 50
        line.takes.set()
        await serving(rig, "prod", 2)
