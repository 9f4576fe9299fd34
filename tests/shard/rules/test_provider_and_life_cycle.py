"""Rules 1 to 8 at the level of the whole shard: machines, lists, lost answers and stock-outs."""

import asyncio
from collections.abc import Callable

import grpc

from bigfleet.model.machine import Call
from bigfleet.providerkit.backend import Change
from bigfleet.providerkit.ledger.entry import Entry
from bigfleet.providerkit.ledger.ledger import Request
from bigfleet.sim.clusters.habits import BlobAnswers, Habits
from bigfleet.sim.direct import NONE, Trouble
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.shard.rig.virtual import Times
from tests.shard.rules.fleet import S, bound, calls, cloud, entries, fleet, join, now, pool, serving, settled, virtually


@virtually
async def test_rule_1_a_machine_that_broke_is_emptied_by_its_operator_then_drained_and_given_back() -> None:
    async with fleet(machines=2) as rig:
        prod = join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        await asyncio.sleep(30)
        (broken,) = bound(rig, "prod")
        await rig.strike(broken, Change.BROKEN)
        began = now()
        await rig.until(lambda: prod.of("reclaim_instruction"), 180)
        assert now() - began >= 55
        assert not calls(rig, "Drain")
        await rig.until(lambda: rig.providers["sim"].ledger.get(broken).state is S.IDLE, 200)
        (drain,) = calls(rig, "Drain")
        assert drain.machine == broken
        assert bound(rig, "prod") not in ([], [broken])
        await rig.until(lambda: rig.providers["sim"].ledger.get(broken).state is S.SPECULATIVE, 600)


@virtually
async def test_rule_1_hardware_that_cannot_be_given_back_leaves_failed_by_a_drain() -> None:
    metal = cloud(pool("rack", 1, capacity_type="BareMetal", price_per_hour=0.0), scheme="metal")
    async with fleet(metal) as rig:
        join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        await rig.strike("rack-000000", Change.BROKEN)
        await rig.until(lambda: bound(rig, "prod") == [], 60)
        await serving(rig, "prod", 1, 900)
        assert [made.call for made in rig.made] == ["Configure", "Drain", "Configure"]


@virtually
async def test_rule_2_what_the_provider_takes_back_is_replaced_at_once_and_not_by_itself() -> None:
    async with fleet(cloud(pool("spot", 4, capacity_type="Spot", interruption_probability=0.0001))) as rig:
        prod = join(rig, "prod", 2)
        await serving(rig, "prod", 2)
        taken = bound(rig, "prod")[0]
        began = now()
        await rig.strike(taken, Change.TAKEN_BACK)
        await rig.until(lambda: prod.of("reclaim_instruction"), 15)
        (told,) = prod.of("reclaim_instruction")
        assert told.nodes == [taken]
        assert told.grace_period_seconds == 120
        assert told.kind == pb.ReclaimInstruction.KIND_PROVIDER_TAKES_BACK
        await rig.until(lambda: len(bound(rig, "prod")) == 2, 90)
        assert taken not in bound(rig, "prod")
        assert calls(rig, "Configure", began)[0].machine != taken
        assert not calls(rig, "Drain")


@virtually
async def test_rule_2_nor_after_a_restart_while_it_still_drains() -> None:
    async with fleet(cloud(pool("spot", 4, capacity_type="Spot", interruption_probability=0.0001))) as rig:
        join(rig, "prod", 2)
        await serving(rig, "prod", 2)
        taken = bound(rig, "prod")[0]
        await rig.strike(taken, Change.TAKEN_BACK)
        await rig.until(lambda: len(rig.core.parts.commitments) > 0, 15)
        await asyncio.sleep(11)
        began = now()
        await rig.crash()
        rig.start()
        await rig.until(lambda: len(bound(rig, "prod")) == 2, 90)
        assert taken not in [made.machine for made in calls(rig, "Configure", began)]


@virtually
async def test_rule_3_a_machine_that_another_has_configured_meanwhile_is_not_taken_for_ours() -> None:
    async with fleet(machines=2) as rig:
        prod = join(rig, "prod", 1, blob=BlobAnswers(delay_seconds=20))
        await rig.until(lambda: prod.of("bootstrap_request"), 60)
        theirs = prod.of("bootstrap_request")[0].machine_id
        rig.fate = lambda _provider, method, _machine: Trouble(before=60.0 if method == "List" else 0.0)
        # Same cluster, so it is a repeat to the provider: the ack shows somebody else's stamp.
        await rig.providers["sim"].ask(Request(call=Call.CONFIGURE, machine=theirs, cluster="prod"))
        await rig.until(lambda: any(each.outcome == "mismatch" for each in rig.audit), 60)
        await settled(rig)
        known = rig.core.parts.supply.find(theirs)
        assert known is not None
        assert known.shard_metadata == {}
        # It serves the cluster all the same, so nothing else was bought.
        assert len(calls(rig, "Create")) == 1


@virtually
async def test_rule_5_a_second_provider_with_the_same_ids_is_never_called() -> None:
    twins = [cloud(pool("od", 2)), cloud(pool("od", 2), scheme="twin")]
    async with fleet(*twins) as rig:
        join(rig, "prod", 4)
        await serving(rig, "prod", 2)
        await asyncio.sleep(120)
        assert {entry.state for entry in rig.providers["twin"].ledger} == {S.SPECULATIVE}
        assert len(rig.core.parts.supply) == 2


@virtually
async def test_rule_6_lists_that_are_old_when_they_arrive_and_answers_that_are_lost_buy_nothing_twice() -> None:
    lost: set[str] = set()

    def fate(_provider: str, method: str, machine: str) -> Trouble:
        if method == "List":
            return Trouble(after=7.0)
        if method in ("Create", "Configure") and (method + machine) not in lost:
            lost.add(method + machine)
            return Trouble(answer_lost=True)
        return NONE

    async with fleet(machines=6) as rig:
        rig.fate = fate
        join(rig, "prod", 3)
        await serving(rig, "prod", 3, 900)
        await asyncio.sleep(600)
        assert len(bound(rig, "prod")) == 3
        assert len({made.machine for made in calls(rig, "Create")}) == 3
        assert {entry.state for entry in entries(rig)} == {S.CONFIGURED, S.SPECULATIVE}


@virtually
async def test_rule_6_a_create_that_takes_too_long_is_given_up_and_its_host_goes_back_when_it_comes() -> None:
    slow = cloud(
        pool("slow", 1, latency={"create": "50m"}), pool("od", 1, price_per_hour=9.0), timeouts={"create": "2h"}
    )
    async with fleet(slow) as rig:
        join(rig, "prod", 1)
        await rig.until(lambda: entries(rig, S.CREATING), 30)
        await asyncio.sleep(29 * 60)
        assert len(calls(rig, "Create")) == 1
        await serving(rig, "prod", 1, 180)
        known = rig.core.parts.supply.find("slow-000000")
        assert known is not None
        assert known.state is S.CREATING
        await rig.until(lambda: rig.providers["sim"].ledger.get("slow-000000").state is S.IDLE, 1800)
        await rig.until(lambda: rig.providers["sim"].ledger.get("slow-000000").state is S.SPECULATIVE, 600)


@virtually
async def test_rule_7_a_list_that_lacks_half_a_fleet_is_believed_the_third_time() -> None:
    async with fleet(machines=20, times=Times(full_list_interval=60.0)) as rig:
        await rig.until(lambda: len(rig.core.parts.supply) == 20, 30)
        ledger = rig.providers["sim"].ledger
        offers = list(await rig.skies["sim"].offers())
        ledger.offer(offers[:10])
        await asyncio.sleep(130)
        assert len(rig.core.parts.supply) == 20
        await rig.until(lambda: len(rig.core.parts.supply) == 10, 120)


@virtually
async def test_rule_7_machines_of_a_provider_that_is_down_count_as_last_known_and_are_left_alone() -> None:
    async with fleet(machines=4) as rig:
        prod = join(rig, "prod", 2)
        await serving(rig, "prod", 2)
        rig.fate = lambda *_: Trouble(refused=grpc.StatusCode.UNAVAILABLE)
        await asyncio.sleep(60)
        made = len(rig.made)
        prod.cluster.world.scale("web", 1)
        await asyncio.sleep(1200)
        assert rig.made[made:] == []
        assert not prod.of("reclaim_instruction")
        rig.fate = lambda *_: NONE
        await serving(rig, "prod", 1, 900)


@virtually
async def test_rule_7_a_bound_machine_goes_only_when_get_does_not_know_it_either() -> None:
    async with fleet(machines=4, times=Times(full_list_interval=60.0)) as rig:
        join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        (machine,) = bound(rig, "prod")
        ledger = rig.providers["sim"].ledger
        whole = ledger.changed

        def lacking(cursor: bytes, most: int, wanted: Callable[[Entry], bool]) -> tuple[list[Entry], bytes]:
            return whole(cursor, most, lambda entry: wanted(entry) and entry.id != machine)

        ledger.changed = lacking  # type: ignore[method-assign]
        await asyncio.sleep(300)
        assert rig.core.parts.supply.find(machine) is not None
        assert len(calls(rig, "Create")) == 1
        ledger._entries.pop(machine)
        ledger._revisions.forget(machine)
        await rig.until(lambda: rig.core.parts.supply.find(machine) is None, 120)
        await serving(rig, "prod", 1)


@virtually
async def test_rule_8_a_stock_out_holds_its_shape_for_three_minutes_and_others_serve() -> None:
    here, there = pool("here", 5), pool("there", 5, zone="b", price_per_hour=0.9)

    def fate(_provider: str, method: str, machine: str) -> Trouble:
        empty = method == "Create" and machine.startswith("here") and now() < 400
        return Trouble(refused=grpc.StatusCode.RESOURCE_EXHAUSTED) if empty else NONE

    async with fleet(cloud(here, there)) as rig:
        rig.fate = fate
        prod = join(rig, "prod", 2)
        await serving(rig, "prod", 2)
        assert all(machine.startswith("there") for machine in bound(rig, "prod"))
        tried = calls(rig, "Create")
        assert sum(made.machine.startswith("here") for made in tried) <= 2
        await asyncio.sleep(max(0.0, 400 - now()))
        prod.cluster.world.scale("web", 3)
        await serving(rig, "prod", 3)
        assert any(machine.startswith("here") for machine in bound(rig, "prod"))


@virtually
async def test_rule_8_an_operators_error_holds_its_need_through_a_restart_and_nobody_elses() -> None:
    async with fleet(machines=4) as rig:
        prod = join(rig, "prod", 1, blob=BlobAnswers(error="no token"))
        await rig.until(lambda: len(prod.of("bootstrap_request")) == 1, 60)
        first = now()
        await asyncio.sleep(12)
        other = join(rig, "other", 1)
        await rig.crash()
        rig.start()
        await serving(rig, "other", 1)
        assert now() < first + 60
        assert len(prod.of("bootstrap_request")) == 1
        prod.cluster.habits = Habits()
        await rig.until(lambda: len(prod.of("bootstrap_request")) == 2, 120)
        assert now() - first >= 60
        await serving(rig, "prod", 1)
        assert len(other.of("bootstrap_request")) == 1
