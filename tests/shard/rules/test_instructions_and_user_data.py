"""Rules 14 to 16 at the level of the whole shard: what operators are told and asked for, and nodes that never come."""

import asyncio

import grpc
import msgspec

from bigfleet.providerkit.backend import Change
from bigfleet.sim.clusters.habits import BlobAnswers, Habits
from bigfleet.sim.direct import NONE, Trouble
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.shard.rules.fleet import S, bound, calls, fleet, join, now, serving, virtually, workload


@virtually
async def test_rule_14_grace_over_and_pods_left_a_preemption_goes_on_with_no_grace() -> None:
    async with fleet(machines=1) as rig:
        low = join(rig, "low", 1, of=workload(leave_seconds=None))
        await serving(rig, "low", 1)
        await asyncio.sleep(30)
        join(rig, "high", 1, of=workload(priority=200_000))
        await serving(rig, "high", 1, 400)
        (drain,) = calls(rig, "Drain")
        assert drain.grace_seconds == 0
        assert low.of("reclaim_instruction")[0].kind == pb.ReclaimInstruction.KIND_PREEMPT


@virtually
async def test_rule_14_grace_over_and_pods_left_a_reclaim_is_given_up_for_half_an_hour() -> None:
    async with fleet(machines=3) as rig:
        stuck = workload("stuck", leave_seconds=None)
        prod = join(rig, "prod", 2, of=stuck)
        world = prod.cluster.world
        await serving(rig, "prod", 2)
        await asyncio.sleep(30)
        # A pod that stays without a request, and is not named: the operator cannot evict it either.
        quiet = msgspec.structs.replace(workload("quiet", leave_seconds=None), requested=False)
        world.unrequested_nodes = tuple  # type: ignore[method-assign]
        world.scale("stuck", 1)
        world.deploy(quiet, 1)
        await rig.until(lambda: prod.of("reclaim_instruction"), 120)
        told = now()
        (node,) = prod.of("reclaim_instruction")[0].nodes
        await rig.until(lambda: prod.of("reclaim_withdrawn"), 700)
        assert now() - told >= 590
        given_up = now()
        assert world.nodes[node].cordon is None
        await rig.until(lambda: len(prod.of("reclaim_instruction")) == 2, 2400)
        assert now() - given_up >= 1790
        assert not calls(rig, "Drain")
        assert len(bound(rig, "prod")) == 2


@virtually
async def test_rule_14_a_strangers_operator_is_not_waited_for_and_its_pods_get_the_whole_grace() -> None:
    async with fleet(machines=3) as rig:
        prod = join(rig, "prod", 2, features=())
        await serving(rig, "prod", 2)
        prod.cluster.world.scale("web", 1)
        await rig.until(lambda: calls(rig, "Drain"), 90)
        (told,) = prod.of("reclaim_instruction")
        (drain,) = calls(rig, "Drain")
        assert told.grace_period_seconds == 600
        assert drain.grace_seconds == 600
        await serving(rig, "prod", 1)


@virtually
async def test_rule_14_an_instruction_is_replayed_on_every_connect_with_the_grace_that_remains() -> None:
    async with fleet(machines=1) as rig:
        low = join(rig, "low", 1, of=workload(leave_seconds=None))
        await serving(rig, "low", 1)
        await asyncio.sleep(30)
        join(rig, "high", 1, of=workload(priority=200_000))
        await rig.until(lambda: low.of("reclaim_instruction"), 60)
        await asyncio.sleep(40)
        low.cut()
        await rig.until(lambda: len(low.of("reclaim_instruction")) == 2, 30)
        first, second = low.of("reclaim_instruction")
        assert first.instruction_id == second.instruction_id
        assert 70 <= second.grace_period_seconds <= 80


@virtually
async def test_rule_14_an_instruction_stands_through_a_restart_though_its_provider_is_out_of_reach() -> None:
    async with fleet(machines=1) as rig:
        low = join(rig, "low", 1, of=workload(leave_seconds=80.0))
        await serving(rig, "low", 1)
        await asyncio.sleep(30)
        join(rig, "high", 1, of=workload(priority=200_000))
        await rig.until(lambda: low.of("reclaim_instruction"), 60)
        (node,) = low.of("reclaim_instruction")[0].nodes
        await asyncio.sleep(20)
        rig.fate = lambda *_: Trouble(refused=grpc.StatusCode.UNAVAILABLE)
        await rig.crash()
        rig.start()
        # On connect the operator names what it holds cordoned; nobody may tell it to uncordon.
        await rig.until(lambda: len(low.of("reclaim_instruction")) == 2, 30)
        await asyncio.sleep(20)
        cordon = low.cluster.world.nodes[node].cordon
        assert cordon is not None
        assert cordon.instruction == low.of("reclaim_instruction")[0].instruction_id
        assert not low.of("reclaim_withdrawn")
        rig.fate = lambda *_: NONE
        await serving(rig, "high", 1)


@virtually
async def test_rule_14_an_instruction_is_withdrawn_when_its_machine_leaves_that_binding() -> None:
    async with fleet(machines=2) as rig:
        low = join(rig, "low", 1, of=workload(leave_seconds=None))
        await serving(rig, "low", 1)
        (machine,) = bound(rig, "low")
        await asyncio.sleep(30)
        join(rig, "high", 2, of=workload(priority=200_000))
        await rig.until(lambda: low.of("reclaim_instruction"), 60)
        await rig.strike(machine, Change.GONE)
        await rig.until(lambda: low.of("reclaim_withdrawn"), 30)
        assert low.of("reclaim_withdrawn")[0].instruction_id == low.of("reclaim_instruction")[0].instruction_id
        await serving(rig, "high", 2)


@virtually
async def test_rule_15_user_data_that_would_expire_is_asked_for_anew_and_the_first_answer_counts() -> None:
    async with fleet(machines=2) as rig:
        prod = join(rig, "prod", 1, blob=BlobAnswers(ttl_seconds=60, delay_seconds=5.0))
        await rig.until(lambda: len(prod.of("bootstrap_request")) == 2, 60)
        prod.cluster.habits = Habits(blob=BlobAnswers(answers=2))
        await serving(rig, "prod", 1)
        assert len(prod.of("bootstrap_request")) == 2
        assert len(calls(rig, "Configure")) == 1


@virtually
async def test_rule_15_a_request_goes_with_its_action_and_is_not_made_without_a_session() -> None:
    async with fleet(machines=2) as rig:
        prod = join(rig, "prod", 1, blob=BlobAnswers(answers=0))
        await rig.until(lambda: prod.of("bootstrap_request"), 60)
        (asked,) = prod.of("bootstrap_request")
        prod.cluster.world.scale("web", 0)
        await rig.until(lambda: prod.of("bootstrap_withdrawn"), 90)
        assert prod.of("bootstrap_withdrawn")[0].request_id == asked.request_id
        assert not calls(rig, "Configure")


@virtually
async def test_rule_16_a_machine_whose_node_never_comes_stops_counting_and_is_drained_and_held_out() -> None:
    async with fleet(machines=2) as rig:
        prod = join(rig, "prod", 1, register_seconds=None)
        await serving(rig, "prod", 1)
        (phantom,) = bound(rig, "prod")
        began = now()
        prod.cluster.habits = Habits()
        await rig.until(lambda: prod.cluster.world.pods().running == 1, 900)
        assert now() - began >= 590
        assert bound(rig, "prod") != [phantom]
        await rig.until(lambda: rig.providers["sim"].ledger.get(phantom).state is S.SPECULATIVE, 900)


@virtually
async def test_rule_16_a_pause_does_not_keep_such_a_machine_for_ever() -> None:
    async with fleet(machines=2) as rig:
        prod = join(rig, "prod", 1, register_seconds=None)
        await serving(rig, "prod", 1)
        (phantom,) = bound(rig, "prod")
        # Drained on instruction, which a pause calls off: afterwards it must be thought of again.
        prod.mutes = frozenset({"node_drained"})
        await rig.until(lambda: prod.of("reclaim_instruction"), 900)
        await rig.life.answers.pause("an incident")
        await asyncio.sleep(60)
        prod.mutes, prod.cluster.habits = frozenset(), Habits()
        await rig.life.answers.resume()
        await rig.until(lambda: rig.providers["sim"].ledger.get(phantom).state is S.SPECULATIVE, 1800)
