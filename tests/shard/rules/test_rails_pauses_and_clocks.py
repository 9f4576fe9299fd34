"""Rules 17 to 19 at the level of the whole shard: give-back in small steps, the pause, and time across a restart."""

import asyncio

import pytest
import structlog
from structlog.testing import capture_logs

from bigfleet.model.demand.profile import Operator as Is
from bigfleet.model.demand.profile import Requirement
from bigfleet.sim.direct import NONE, Trouble
from tests.shard.rig.virtual import Times, rigged
from tests.shard.rules.fleet import (
    S,
    bound,
    calls,
    cloud,
    entries,
    fleet,
    join,
    now,
    pool,
    serving,
    virtually,
    workload,
)


@virtually
async def test_rule_17_a_cluster_that_suddenly_wants_nothing_must_say_so_three_times_over_a_minute() -> None:
    async with fleet(machines=4) as rig:
        prod = join(rig, "prod", 3)
        await serving(rig, "prod", 3)
        prod.cluster.world.scale("web", 0)
        said = now()
        await rig.until(lambda: prod.cluster.refusal, 10)
        prod.cluster.world.scale("web", 3)
        await asyncio.sleep(300)
        assert not prod.of("reclaim_instruction")
        prod.cluster.world.scale("web", 0)
        said = now()
        await rig.until(lambda: prod.of("reclaim_instruction"), 180)
        assert now() - said >= 60


@virtually
async def test_rule_17_a_demand_that_is_doubted_is_logged_when_the_doubt_begins() -> None:
    structlog.reset_defaults()
    async with fleet(machines=4) as rig:
        prod = join(rig, "prod", 3)
        await serving(rig, "prod", 3)
        with capture_logs() as logs:
            for _ in range(2):
                prod.cluster.world.scale("web", 0)
                await asyncio.sleep(45)
                prod.cluster.world.scale("web", 3)
                await asyncio.sleep(45)
        assert [each["cluster"] for each in logs if each["event"] == "rollup_not_taken"] == ["prod", "prod"]


@virtually
async def test_rule_17_the_rail_is_per_ten_seconds_whatever_the_cycles() -> None:
    async with fleet(machines=44) as rig:
        prod = join(rig, "prod", 40)
        noisy = join(rig, "noisy", 1, of=workload("w", 1))
        await serving(rig, "prod", 40)
        prod.cluster.world.scale("web", 20)
        began = now()
        # Early cycles, several in each window.
        for n in range(60):
            noisy.cluster.world.scale("w", 1 + n % 2)
            await asyncio.sleep(2)
        decided = [each for each in rig.audit if each.event == "decided" and each.kind == "Reclaim"]
        times = sorted(float(each.id.partition("@")[2]) for each in decided if each.leaves == "prod")
        assert len(times) >= 8
        # 5 % of 40 are 2.
        assert all(later - earlier >= 9.5 for earlier, later in zip(times, times[2:], strict=False)), times
        await rig.until(lambda: len(bound(rig, "prod")) == 20, 1800)
        assert now() > began


@virtually
async def test_rule_17_at_most_a_quarter_of_a_cluster_drains_for_reclaim_at_once() -> None:
    async with fleet(cloud(pool("od", 20, latency={"wipe": "8m"}))) as rig:
        prod = join(rig, "prod", 20)
        await serving(rig, "prod", 20)
        prod.cluster.world.scale("web", 3)
        most = 0
        for _ in range(200):
            await asyncio.sleep(10)
            most = max(most, len(entries(rig, S.DRAINING)))
        assert most == 5
        await rig.until(lambda: len(bound(rig, "prod")) == 3, 7200)


@virtually
async def test_rule_17_after_a_restart_the_guard_measures_by_what_is_bound() -> None:
    async with fleet(machines=4) as rig:
        prod = join(rig, "prod", 3)
        await serving(rig, "prod", 3)
        await rig.crash()
        prod.cluster.world.scale("web", 0)
        rig.start()
        began = now()
        await rig.until(lambda: prod.of("reclaim_instruction"), 240)
        assert now() - began >= 90


@virtually
async def test_rule_18_a_pause_sends_nothing_calls_early_drains_off_and_survives_a_restart() -> None:
    async with fleet(machines=6) as rig:
        prod = join(rig, "prod", 3)
        world = prod.cluster.world
        await serving(rig, "prod", 3)
        prod.mutes = frozenset({"node_drained"})
        world.scale("web", 2)
        await rig.until(lambda: prod.of("reclaim_instruction"), 90)
        await rig.life.answers.pause("an incident")
        await rig.until(lambda: prod.of("reclaim_withdrawn"), 10)
        assert not any(node.cordon for node in world.nodes.values())
        prod.mutes = frozenset()
        made, heard = len(rig.made), len(prod.heard)
        world.scale("web", 5)
        await asyncio.sleep(300)
        await rig.crash()
        rig.start()
        await asyncio.sleep(300)
        assert rig.core.parts.actuation.paused
        assert rig.made[made:] == []
        assert len(prod.heard) == heard
        await rig.life.answers.resume()
        await serving(rig, "prod", 5)


@virtually
async def test_rule_18_a_pause_calls_off_drains_that_wait_for_their_turn_and_what_waits_goes_on_after_it() -> None:
    async with fleet(machines=8, times=Times(provider_concurrency=1)) as rig:
        prod = join(rig, "prod", 8)
        await serving(rig, "prod", 8)
        rig.fate = lambda _provider, method, _machine: Trouble(before=60.0) if method == "Drain" else NONE
        prod.cluster.world.scale("web", 1)
        await rig.until(lambda: rig.shard.calls["sim"].waiting, 1500)
        before = len(rig.core.parts.commitments)
        await rig.life.answers.pause("maintenance")
        # Not as long as the one takes that is on its way.
        await asyncio.sleep(20)
        assert before > 1
        assert len(rig.core.parts.commitments) <= 1
        assert sum(node.cordon is not None for node in prod.cluster.world.nodes.values()) <= 1
        rig.fate = lambda *_: NONE
        await rig.life.answers.resume()
        await serving(rig, "prod", 1)


@virtually
async def test_rule_18_calls_that_waited_go_on_after_a_pause_that_could_not_be_written() -> None:
    async with fleet(machines=4, times=Times(provider_concurrency=1)) as rig:
        join(rig, "prod", 2)
        rig.fate = lambda _provider, method, _machine: Trouble(before=3.0) if method == "Create" else NONE
        await rig.until(lambda: calls(rig, "Create"), 100, every=0.1)
        assert rig.shard.calls["sim"].waiting == 1
        rig.disk.broken = True
        with pytest.raises(OSError, match="disk"):
            await rig.life.answers.pause("maintenance")
        rig.disk.broken = False
        await serving(rig, "prod", 2)


@virtually
async def test_rule_18_actions_under_way_hold_their_step_with_time_outs_stopped() -> None:
    async with fleet(machines=2) as rig:
        join(rig, "prod", 1)
        await rig.until(lambda: entries(rig, S.CREATING), 30)
        await rig.life.answers.pause("an incident")
        # Longer than a Create may take, and another life's time as well.
        await asyncio.sleep(2000)
        await rig.crash()
        rig.start()
        await asyncio.sleep(2000)
        assert len(rig.made) == 1
        assert len(rig.core.parts.commitments) == 1
        rig.fate = lambda _provider, method, _machine: Trouble(before=15.0 if method == "Get" else 0.0)
        await rig.life.answers.resume()
        await serving(rig, "prod", 1)
        assert [made.call for made in rig.made] == ["Create", "Configure"]
        assert not any(each.outcome == "timeout" for each in rig.audit)


@virtually
async def test_rule_18_a_dry_run_says_what_it_would_do_once_and_does_nothing() -> None:
    async with rigged([cloud(pool("od", 4))]) as rig:
        rig.start(dry_run=True)
        prod = join(rig, "prod", 2)
        await asyncio.sleep(600)
        assert not rig.made
        assert not prod.heard
        assert [(each.event, each.kind) for each in rig.audit] == [("dryrun", "Provision")] * 2


@virtually
async def test_rule_19_after_a_restart_a_grace_counts_the_time_away_and_an_idle_hold_resumes() -> None:
    async with fleet(machines=2) as rig:
        low = join(rig, "low", 1, of=workload(leave_seconds=None))
        high = join(rig, "high", 1)
        await serving(rig, "low", 1)
        await serving(rig, "high", 1)
        await asyncio.sleep(30)
        high.cluster.world.scale("web", 0)
        await rig.until(lambda: entries(rig, S.IDLE), 300)
        idle = now()
        high.cluster.world.deploy(workload("top", priority=200_000, requirements=(_NOWHERE,)), 1)
        await asyncio.sleep(60)
        await rig.crash()
        await asyncio.sleep(50)
        rig.start()
        await rig.until(lambda: calls(rig, "Delete"), 600)
        # The shard was away for 50 s, and those do not count.
        assert 345 <= now() - idle <= 375
        assert low.cluster.world.pods().running == 1


_NOWHERE = Requirement("nowhere", Is.EXISTS)


@virtually
async def test_rule_19_a_restart_in_mid_grace_does_not_give_pods_more_or_less_than_they_had() -> None:
    async with fleet(machines=1) as rig:
        low = join(rig, "low", 1, of=workload(leave_seconds=None))
        await serving(rig, "low", 1)
        await asyncio.sleep(30)
        join(rig, "high", 1, of=workload(priority=200_000))
        await rig.until(lambda: low.of("reclaim_instruction"), 60)
        told = now()
        await asyncio.sleep(30)
        await rig.crash()
        await asyncio.sleep(40)
        rig.start()
        await rig.until(lambda: calls(rig, "Drain"), 300)
        assert 115 <= now() - told <= 140
        assert low.of("reclaim_instruction")[-1].instruction_id == low.of("reclaim_instruction")[0].instruction_id
