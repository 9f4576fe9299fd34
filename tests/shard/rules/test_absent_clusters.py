"""Rules 11 to 13 at the level of the whole shard: clusters that are away, and what they do not speak for."""

import asyncio

import msgspec

from bigfleet.model.machine import Call
from bigfleet.providerkit.ledger.ledger import Request
from bigfleet.wire.v1alpha1 import capacity_pb2 as pb_needs
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.shard.rules.fleet import (
    CREATE,
    JOIN,
    S,
    bound,
    calls,
    entries,
    fleet,
    hello,
    join,
    now,
    serving,
    virtually,
    workload,
)


@virtually
async def test_rule_11_demand_that_is_not_live_keeps_what_it_has_and_asks_for_nothing() -> None:
    async with fleet(machines=6) as rig:
        prod = join(rig, "prod", 2)
        await serving(rig, "prod", 2)
        prod.cluster.world.scale("web", 1)
        await asyncio.sleep(5)
        prod.leave()
        await asyncio.sleep(1)
        began = now()
        # Its excess is due 30 s from now, while it is still live; a minute later it is not.
        await asyncio.sleep(3600)
        assert len(bound(rig, "prod")) == 2
        assert not calls(rig, "Drain", began)
        prod.online = True
        await serving(rig, "prod", 1, 900)


@virtually
async def test_rule_11_what_has_not_reached_a_provider_is_dropped_with_its_session() -> None:
    async with fleet(machines=6) as rig:
        await asyncio.sleep(15)
        prod = join(rig, "prod", 2)
        await rig.until(lambda: entries(rig, S.CREATING), 30)
        prod.leave()
        await rig.until(lambda: not len(rig.core.parts.commitments), 240)
        assert not calls(rig, "Configure")
        # The machines that were made meanwhile are nobody's, and go back.
        await rig.until(lambda: len(entries(rig, S.SPECULATIVE)) == 6, 900)
        prod.online = True
        await serving(rig, "prod", 2)


@virtually
async def test_rule_11_forgetting_a_cluster_gives_its_machines_back() -> None:
    async with fleet(machines=4) as rig:
        prod = join(rig, "prod", 3)
        await serving(rig, "prod", 3)
        prod.leave()
        await asyncio.sleep(30)
        assert await rig.life.answers.forget("prod") == 3
        await rig.until(lambda: len(entries(rig, S.SPECULATIVE)) == 4, 1800)
        assert list(rig.core.parts.demand) == []


@virtually
async def test_rule_12_a_cluster_without_a_session_is_no_victim_for_five_minutes() -> None:
    async with fleet(machines=2) as rig:
        low = join(rig, "low", 2)
        await serving(rig, "low", 2)
        low.leave()
        await asyncio.sleep(10)
        left = now()
        join(rig, "high", 1, of=workload(priority=2_000_000))
        await rig.until(lambda: calls(rig, "Drain"), 600)
        assert now() - left >= 280
        await serving(rig, "high", 1)


@virtually
async def test_rule_12_nor_after_a_restart_before_it_had_time_to_come_back() -> None:
    async with fleet(machines=2) as rig:
        low = join(rig, "low", 2)
        await serving(rig, "low", 2)
        low.leave()
        await rig.crash()
        rig.start()
        started = now()
        join(rig, "high", 1, of=workload(priority=2_000_000))
        await rig.until(lambda: calls(rig, "Drain"), 600)
        assert now() - started >= 300


@virtually
async def test_rule_12_an_instruction_sent_before_the_loss_runs_its_grace_out() -> None:
    async with fleet(machines=1) as rig:
        low = join(rig, "low", 1, of=workload(leave_seconds=None))
        await serving(rig, "low", 1)
        await asyncio.sleep(30)
        join(rig, "high", 1, of=workload(priority=200_000))
        await rig.until(lambda: low.of("reclaim_instruction"), 60)
        told = now()
        assert low.of("reclaim_instruction")[0].grace_period_seconds == 120
        low.leave()
        await rig.until(lambda: calls(rig, "Drain"), 300)
        assert 115 <= now() - told <= 140
        await serving(rig, "high", 1)


@virtually
async def test_rule_12_an_unstamped_machine_of_a_cluster_that_has_not_reported_counts_as_pinned() -> None:
    async with fleet(machines=1) as rig:
        sim = rig.providers["sim"]
        await sim.ask(Request(call=Call.CREATE, machine="od-000000"))
        await asyncio.sleep(CREATE + 1)
        await sim.ask(Request(call=Call.CONFIGURE, machine="od-000000", cluster="ghost"))
        await asyncio.sleep(JOIN + 15)
        join(rig, "high", 1, of=workload(priority=2_000_000))
        await asyncio.sleep(3600)
        assert not rig.made
        assert bound(rig, "ghost") == ["od-000000"]


@virtually
async def test_rule_13_a_machine_with_pods_that_no_request_speaks_for_is_not_given_back() -> None:
    async with fleet(machines=3) as rig:
        prod = join(rig, "prod", 2)
        world = prod.cluster.world
        await serving(rig, "prod", 2)
        await asyncio.sleep(30)
        # Nobody asks for a machine for it: it goes where there is room once the other pods are gone.
        bare = msgspec.structs.replace(workload("bare", priority=5000), requested=False)
        world.scale("web", 1)
        world.deploy(bare, 1)
        assert world.pods("bare").running == 1
        await asyncio.sleep(900)
        assert len(bound(rig, "prod")) == 2
        world.scale("bare", 0)
        await rig.until(lambda: len(bound(rig, "prod")) == 1, 300)


@virtually
async def test_rule_13_where_demand_is_partial_only_empty_machines_are_given_back() -> None:
    async with fleet(machines=3) as rig:
        prod = join(rig, "prod", 3)
        await serving(rig, "prod", 3)
        prod.leave()
        await asyncio.sleep(5)
        line, nodes = rig.life.dial(), bound(rig, "prod")
        line.say(hello("prod", "node_ready", "node_drained"))
        unit = {"cpu": "8", "memory": "4Gi"}
        need = pb_needs.CapacityNeed(aggregate_resources=unit, min_unit=unit, priority=100)
        said = pb_needs.ClusterCapacityNeeds(
            cluster_id="prod", timestamp_unix_nanos=1, needs=[need], partial_demand=True
        )
        line.say(pb.OperatorMessage(rollup=said))
        await asyncio.sleep(300)
        assert not [frame for frame in line.heard() if frame.HasField("reclaim_instruction")]
        said.timestamp_unix_nanos = 2
        said.empty_nodes.append(nodes[1])
        line.say(pb.OperatorMessage(rollup=said))
        await asyncio.sleep(60)
        told = [frame.reclaim_instruction for frame in line.heard() if frame.HasField("reclaim_instruction")]
        assert [list(each.nodes) for each in told] == [[nodes[1]]]
