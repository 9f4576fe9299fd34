"""The one cause for which a need waits, as a whole shard on virtual time tells it. One test a cause, in their order."""

import asyncio

import grpc
import pytest
from structlog.testing import capture_logs

from bigfleet.model.demand.profile import Operator, Requirement, Spread, WhenUnsatisfiable
from bigfleet.shard.api.inspection import ToldCause
from bigfleet.shard.decision.causes import CauseKind
from bigfleet.sim.clusters.habits import BlobAnswers
from bigfleet.sim.direct import NONE, Trouble
from bigfleet.wire.v1alpha1 import shardread_pb2 as pb
from tests.shard.rig.virtual import WALL, Rig
from tests.shard.rules.fleet import S, cloud, entries, fleet, join, now, pool, serving, virtually, workload

ZONE = "topology.kubernetes.io/zone"
RACK = "example.com/rack"
NOT_REACHED = Trouble(refused=grpc.StatusCode.UNAVAILABLE)


async def causes(rig: Rig, cluster: str = "") -> list[ToldCause]:
    """The causes of a cluster's needs, first served first, as of the last decision."""
    async with rig.life.answers.reading():
        return [cause for _, _, cause in rig.life.answers.verdict_rows(cluster)[1]]


async def cause(rig: Rig, cluster: str = "prod") -> ToldCause:
    (only,) = await causes(rig, cluster)
    return only


def since(told: ToldCause) -> float:
    """Since when a cause has held, on the clock of the test."""
    return told.since_unix_nanos / 1e9 - WALL


async def decided(rig: Rig, times: int = 2) -> None:
    for _ in range(times):
        rig.shard.decided.clear()
        await rig.shard.decided.wait()


def test_the_numbers_of_causes_are_those_of_the_wire() -> None:
    named = {f"NEED_CAUSE_{kind.name}": int(kind) for kind in CauseKind if kind}
    assert named | {"NEED_CAUSE_UNSPECIFIED": 0} == dict(pb.NeedCause.items())


@virtually
async def test_a_cluster_whose_operator_is_away_is_told_since_when() -> None:
    async with fleet(machines=1) as rig:
        prod = join(rig, "prod", 3)
        await serving(rig, "prod", 1)
        left = now()
        prod.leave()
        await asyncio.sleep(200)
        told = await cause(rig)
        assert told.kind is CauseKind.OPERATOR_AWAY
        assert since(told) == pytest.approx(left, abs=2)
        assert told.text.startswith("The operator of cluster prod has no session, ")


@virtually
async def test_a_fall_that_is_doubted_comes_before_what_keeps_the_old_rows_short() -> None:
    async with fleet(machines=1) as rig:
        prod = join(rig, "prod", 30)
        await serving(rig, "prod", 1)
        prod.cluster.world.scale("web", 2)
        await asyncio.sleep(25)
        told = await cause(rig)
        assert told.kind is CauseKind.FALL_DOUBTED
        assert "(cpu from 240 to 16" in told.text
        await asyncio.sleep(90)
        assert (await cause(rig)).kind is CauseKind.TOO_FEW


@virtually
async def test_a_need_that_no_user_data_came_for_is_held_out_in_the_operator_s_words() -> None:
    async with fleet() as rig:
        join(rig, "prod", 1, blob=BlobAnswers(error="no template for gpu nodes"))
        await rig.until(lambda: rig.core.parts.holdouts.held_out("prod", rig.core.clocks.now()), 120)
        await decided(rig)
        told = await cause(rig)
        assert told.kind is CauseKind.BOOTSTRAP_FAILED
        said = "No machine could be configured for this profile: no template for gpu nodes. The shard tries again in "
        assert told.text.startswith(said)


@virtually
async def test_labels_that_no_machine_has_are_named() -> None:
    async with fleet() as rig:
        gpu = Requirement("example.com/gpu", Operator.EXISTS)
        there = Requirement(ZONE, Operator.IN, ("b", "c"))
        join(rig, "prod", 1, of=workload(requirements=(gpu, there)))
        await decided(rig, 4)
        assert await cause(rig) == ToldCause(
            CauseKind.NO_MATCH, f"This shard knows no machine with any example.com/gpu and {ZONE} b or c."
        )


@virtually
async def test_a_unit_that_is_too_large_is_told_with_the_largest_machine_that_matches() -> None:
    large = pool("large", 1, instance_type="c.32", resources={"cpu": 32, "memory": "128Gi"}, zone="b")
    async with fleet(cloud(pool("od", 3), large)) as rig:
        join(rig, "prod", 1, of=workload(cores=16, requirements=(Requirement(ZONE, Operator.IN, ("a",)),)))
        await decided(rig, 4)
        assert await cause(rig) == ToldCause(
            CauseKind.TOO_LARGE,
            "One unit asks for cpu 16, memory 4Gi, and no machine that matches is large enough. "
            "The largest machine that matches is c.8, which leaves cpu 8, memory 32Gi to pods.",
        )


@virtually
async def test_a_fleet_that_is_too_small_is_told_in_units() -> None:
    async with fleet(machines=3) as rig:
        join(rig, "prod", 5)
        await decided(rig, 4)
        said = "All 3 machines that match would hold 3 of its 5 units, even if they were empty."
        assert await cause(rig) == ToldCause(CauseKind.TOO_FEW, said)


@virtually
async def test_a_gang_that_no_domain_holds_and_a_skew_that_forbids_are_told_apart() -> None:
    racks = [pool(f"r{i}", 2, labels={RACK: f"r{i}"}, zone=zone) for i, zone in enumerate("aaab")]
    evenly = (Spread(ZONE, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE),)
    async with fleet(cloud(*racks)) as rig:
        join(rig, "gang", 3, of=workload(requirements=(Requirement(RACK, Operator.SAME),)))
        join(rig, "even", 7, of=workload(spread=evenly, priority=99))
        await decided(rig, 4)
        gang, even = await cause(rig, "gang"), await cause(rig, "even")
        assert gang.kind is CauseKind.DOMAIN_TOO_SMALL
        assert f"no one {RACK} holds all 3 units" in gang.text
        assert even.kind is CauseKind.SKEW
        assert f"too unevenly for a skew of 1 over {ZONE}" in even.text


@virtually
async def test_free_machines_that_the_skew_forbids_are_a_matter_of_skew() -> None:
    evenly = (Spread(ZONE, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE),)
    async with fleet(cloud(pool("a", 4), pool("b", 2, zone="b"))) as rig:
        join(rig, "high", 2, of=workload(priority=900, requirements=(Requirement(ZONE, Operator.IN, ("b",)),)))
        await serving(rig, "high", 2)
        join(rig, "prod", 4, of=workload(spread=evenly))
        await decided(rig, 4)
        told = await cause(rig)
        assert told.kind is CauseKind.SKEW
        assert told.text.startswith("3 free machines match, but a skew of 1 over ")


@virtually
async def test_a_pause_is_the_cause_while_it_lasts_for_short_and_for_covered_needs() -> None:
    async with fleet(machines=2) as rig:
        join(rig, "high", 1, of=workload(priority=900))
        await serving(rig, "high", 1)
        began = now()
        await rig.life.answers.pause("a drill")
        join(rig, "low", 1)
        join(rig, "prod", 2, of=workload(priority=50))
        await decided(rig, 3)
        said = "The shard is paused (a drill), so nothing that it decides is carried out."
        low, prod = await cause(rig, "low"), await cause(rig, "prod")
        assert (low.kind, low.text) == (CauseKind.PAUSED, said)
        assert since(low) == pytest.approx(began)
        assert (prod.kind, prod.text) == (CauseKind.PAUSED, said)
        await rig.life.answers.resume()
        await decided(rig, 3)
        assert (await cause(rig, "prod")).kind is CauseKind.OUTRANKED


@virtually
async def test_a_full_disk_is_the_cause_and_is_in_the_status() -> None:
    async with fleet() as rig:
        await asyncio.sleep(15)
        rig.disk.broken = True
        began = now()
        join(rig, "prod", 1)
        await decided(rig, 3)
        told, status = await cause(rig), rig.life.answers.status()
        assert told.kind is CauseKind.FILE_UNWRITABLE
        assert "the disk is full" in told.text
        assert "the disk is full" in status.file_problem
        assert status.file_lost_unix_nanos / 1e9 - WALL == pytest.approx(began, abs=15)
        assert rig.core.metrics.local_file_writable._value.get() == 0
        rig.disk.broken = False
        await serving(rig, "prod", 1)
        assert (rig.life.answers.status().file_problem, await cause(rig)) == ("", ToldCause())
        assert rig.core.metrics.local_file_writable._value.get() == 1


@virtually
async def test_a_provider_that_does_not_answer_is_named_with_its_error() -> None:
    async with fleet() as rig:
        await asyncio.sleep(15)
        rig.fate = lambda _provider, method, _machine: NOT_REACHED if method == "List" else NONE
        await asyncio.sleep(30)
        join(rig, "prod", 2)
        await decided(rig, 3)
        told = await cause(rig)
        assert told.kind is CauseKind.PROVIDER_UNREACHABLE
        assert told.text.startswith("Provider sim, which has 10 free machines that match, does not answer: ")
        assert since(told) < now() - 30
        assert rig.core.metrics.provider_reachable.of("sim")._value.get() == 0
        rig.fate = lambda _provider, _method, _machine: NONE
        await serving(rig, "prod", 2)
        assert rig.core.metrics.provider_reachable.of("sim")._value.get() == 1


@virtually
async def test_before_the_first_list_nobody_says_that_nothing_matches() -> None:
    async with fleet() as rig:
        await rig.crash()
        rig.fate = lambda _provider, method, _machine: NOT_REACHED if method == "List" else NONE
        rig.start()
        join(rig, "prod", 2)
        await decided(rig, 3)
        told = await cause(rig)
        assert (told.kind, told.since_unix_nanos) == (CauseKind.PROVIDER_UNREACHABLE, 0)
        assert told.text.startswith("Provider sim does not answer: ")


@virtually
async def test_a_stock_out_is_told_in_the_provider_s_words_since_it_began() -> None:
    dry = pool("od", 10, stock_outs=[{"from": "0s", "to": "1h", "capacity": 1}])
    async with fleet(cloud(dry)) as rig:
        join(rig, "prod", 4)
        await serving(rig, "prod", 1)
        await rig.until(lambda: rig.core.parts.holdouts.held_out_shapes(rig.core.clocks.now()), 120)
        began = now()
        await decided(rig, 2)
        told = await cause(rig)
        assert told.kind is CauseKind.OUT_OF_STOCK
        assert told.text.startswith("The provider is out of stock of OnDemand c.8 in zone a: ")
        assert "the 1 there are now are all taken" in told.text
        assert "The shard tries again in " in told.text
        await asyncio.sleep(400)
        await rig.until(lambda: rig.core.parts.holdouts.held_out_shapes(rig.core.clocks.now()), 120)
        await decided(rig, 2)
        assert since(await cause(rig)) == pytest.approx(began, abs=30)


@virtually
async def test_machines_that_failed_are_told_with_the_error_of_one() -> None:
    failing = cloud(pool("od", 2), failures={"configure": {"error": 1.0}})
    async with fleet(failing) as rig:
        join(rig, "prod", 2)
        await rig.until(lambda: any(entry.last_error for entry in entries(rig)), 300)
        await decided(rig, 4)
        told = await cause(rig)
        assert told.kind is CauseKind.MACHINES_FAILED
        assert "failed lately, " in told.text


@virtually
async def test_a_covered_need_waits_for_its_machines_and_then_for_nothing() -> None:
    async with fleet() as rig:
        await asyncio.sleep(15)
        join(rig, "prod", 3)
        await rig.until(lambda: entries(rig, S.CREATING), 30)
        await decided(rig)
        said = "It waits for 3 machines on the way: 3 being created."
        assert await cause(rig) == ToldCause(CauseKind.MACHINES_ON_THEIR_WAY, said)
        await serving(rig, "prod", 3)
        await decided(rig)
        assert await cause(rig) == ToldCause()


@virtually
async def test_needs_of_higher_rank_are_the_cause_where_nothing_else_is() -> None:
    async with fleet(machines=3) as rig:
        join(rig, "high", 2, of=workload(priority=900))
        await serving(rig, "high", 2)
        join(rig, "prod", 2)
        await serving(rig, "prod", 1)
        await decided(rig)
        told = await cause(rig)
        assert told.kind is CauseKind.OUTRANKED
        assert told.text.startswith("3 machines match, which would be enough, but needs of higher or equal rank have ")
        series = rig.core.metrics.shortfalls_by_cluster
        assert series.of("prod", "outranked")._value.get() == 1
        rig.operators["high"].cluster.world.scale("web", 0)
        await serving(rig, "prod", 2, 900)
        await decided(rig)
        assert await cause(rig) == ToldCause()
        assert not series._series


@virtually
async def test_a_fleet_that_vanishes_is_one_loud_line_and_is_counted() -> None:
    async with fleet(machines=12) as rig:
        join(rig, "prod", 5)
        await serving(rig, "prod", 5)
        gone = [entry.id for entry in entries(rig, S.CONFIGURED)]
        with capture_logs() as lines:
            ledger = rig.providers["sim"].ledger
            for machine_id in gone:
                ledger._entries.pop(machine_id)
                ledger._revisions.forget(machine_id)
            await asyncio.sleep(1800)
        loud = [line for line in lines if line["event"] == "machines_vanished"]
        assert [(line["log_level"], line["machines"], line["by_cluster"]) for line in loud] == [
            ("error", 5, {"prod": 5})
        ]
        assert rig.core.metrics.machines_vanished.of("sim")._value.get() == 5
