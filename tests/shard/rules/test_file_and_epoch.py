"""Rules 9 and 10 at the level of the whole shard: what its file promises, and lives that overlap."""

import asyncio

import grpc
import msgspec
import pytest

from bigfleet.model.demand.profile import Operator as Is
from bigfleet.model.demand.profile import Requirement
from bigfleet.model.labels import ZONE
from bigfleet.model.machine import Call
from bigfleet.providerkit.ledger.fence import Mark, Token
from bigfleet.providerkit.ledger.ledger import Request
from bigfleet.shard.supply.stamps import Binding, from_metadata, to_metadata
from bigfleet.sim.direct import NONE, Trouble
from tests.shard.rig.virtual import SHARD
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
async def test_rule_9_where_the_file_cannot_be_written_no_action_starts_and_none_is_lost() -> None:
    async with fleet(machines=4) as rig:
        prod = join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        rig.disk.broken = True
        made = len(rig.made)
        prod.cluster.world.scale("web", 3)
        await asyncio.sleep(300)
        assert rig.made[made:] == []
        assert len(rig.core.parts.commitments) == 0
        rig.disk.broken = False
        await serving(rig, "prod", 3)


@virtually
@pytest.mark.parametrize("lost", ["call", "answer"])
async def test_rule_9_what_was_asked_before_a_crash_is_settled_by_get_and_not_bought_again(lost: str) -> None:
    async with fleet(machines=4) as rig:
        trouble = Trouble(lost=True) if lost == "call" else Trouble(answer_lost=True)
        rig.fate = lambda _provider, method, _machine: trouble if method == "Create" else NONE
        join(rig, "prod", 1)
        await rig.until(lambda: rig.made, 30)
        await asyncio.sleep(2)
        await rig.crash()
        rig.fate = lambda *_: NONE
        rig.start()
        await serving(rig, "prod", 1)
        await asyncio.sleep(600)
        assert len({made.machine for made in calls(rig, "Create")}) == 1
        assert len(calls(rig, "Create")) == (2 if lost == "call" else 1)
        assert len(entries(rig, S.SPECULATIVE)) == 3


@virtually
async def test_rule_9_a_decision_that_became_durable_is_carried_out_by_the_next_life() -> None:
    async with fleet(machines=4) as rig:
        await asyncio.sleep(25)
        rig.work_seconds = lambda: 3.0
        join(rig, "prod", 1)
        # Written down, and not begun yet.
        await rig.until(lambda: len(rig.core.parts.commitments), 20, every=0.5)
        assert not rig.made
        await rig.crash()
        rig.work_seconds = lambda: 0.0
        rig.start()
        await serving(rig, "prod", 1)
        assert len(calls(rig, "Create")) == 1


@virtually
async def test_rule_9_machines_of_a_provider_that_has_not_listed_yet_count_as_the_file_last_knew_them() -> None:
    near = cloud(pool("near", 4, price_per_hour=0.1), scheme="near")
    far = cloud(pool("far", 4), scheme="far")
    down = grpc.StatusCode.UNAVAILABLE
    async with fleet(near, far) as rig:
        # One machine is bound, one is being created.
        prod = join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        prod.cluster.world.scale("web", 2)
        await rig.until(lambda: entries(rig, S.CREATING), 30)
        await asyncio.sleep(12)
        # However often the shard comes back without having seen its provider.
        rig.fate = lambda provider, _method, _machine: Trouble(refused=down) if provider == "near" else NONE
        for _ in range(3):
            await rig.crash()
            rig.start()
            await asyncio.sleep(120)
        assert not [made for made in rig.made if made.machine.startswith("far")]
        rig.fate = lambda *_: NONE
        await serving(rig, "prod", 2)
        assert len(calls(rig, "Create")) == 2


@virtually
async def test_rule_9_without_the_file_nothing_is_acquired_until_every_provider_has_listed() -> None:
    near, far = cloud(pool("near", 4), scheme="near"), cloud(pool("far", 4), scheme="far")
    async with fleet(near, far) as rig:
        prod = join(rig, "prod", 2)
        await serving(rig, "prod", 2)
        await rig.crash()
        rig.disk.lose()
        made = len(rig.made)
        silent = Trouble(refused=grpc.StatusCode.UNAVAILABLE)
        rig.fate = lambda provider, _method, _machine: silent if provider == "far" else NONE
        rig.start()
        prod.cluster.world.scale("web", 4)
        await asyncio.sleep(600)
        assert rig.made[made:] == []
        # A file that was begun meanwhile is no better than none.
        await rig.stop()
        rig.start()
        await asyncio.sleep(600)
        assert rig.made[made:] == []
        rig.fate = lambda *_: NONE
        await serving(rig, "prod", 4)
        assert len(calls(rig, "Create")) == 4


@virtually
async def test_rule_9_without_the_file_nothing_is_preempted_while_what_drained_at_the_start_still_does() -> None:
    here, there = (Requirement(ZONE, Is.IN, (zone,)) for zone in "ab")
    async with fleet(cloud(pool("here", 1, latency={"wipe": "8m"}), pool("there", 1, zone="b"))) as rig:
        join(rig, "low", 2)
        await serving(rig, "low", 2)
        join(rig, "mid", 1, of=workload(priority=200_000, requirements=(here,)))
        await rig.until(lambda: entries(rig, S.DRAINING), 60)
        await rig.crash()
        rig.disk.lose()
        rig.start()
        began = now()
        join(rig, "high", 1, of=workload(priority=2_000_000, requirements=(there,)))
        await rig.until(lambda: len(calls(rig, "Drain")) == 2, 900)
        # For whom the first one drains, the new life does not know; it waits for the end of that.
        assert now() - began >= 400
        await serving(rig, "high", 1)
        await serving(rig, "mid", 1)


@virtually
async def test_rule_10_a_later_life_seen_on_any_machine_stops_this_one_for_good() -> None:
    async with fleet(machines=4) as rig:
        prod = join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        (machine,) = bound(rig, "prod")
        theirs = from_metadata(rig.providers["sim"].ledger.get(machine).metadata)
        assert isinstance(theirs, Binding)
        rival = msgspec.structs.replace(theirs, epoch=theirs.epoch + 5)
        metadata = to_metadata(rival)
        await rig.providers["sim"].apply(machine, lambda entry: msgspec.structs.replace(entry, metadata=metadata))
        await rig.until(lambda: rig.core.parts.actuation.stood_down, 60)
        await rig.until(lambda: prod.line is None, 10)
        made = len(rig.made)
        prod.cluster.world.scale("web", 4)
        await asyncio.sleep(1800)
        assert rig.made[made:] == []
        assert not prod.cluster.connected
        assert "stood down" in prod.endings[-1]
        # A person ends one of the two and restarts the other: it takes an epoch above all that it sees.
        await rig.crash()
        rig.start()
        await serving(rig, "prod", 4)
        assert rig.core.parts.actuation.epoch > rival.epoch


@virtually
async def test_rule_10_fenced_twice_on_one_machine_with_fresh_sequences_stops_the_shard() -> None:
    async with fleet(machines=1) as rig:
        provider = rig.providers["sim"]
        newer = Token(rig.epoch + 1, 1)
        await asyncio.sleep(5)
        # Somebody newer has asked for something that was refused: only the mark has moved.
        with pytest.raises(Exception, match="not legal"):
            await provider.ask(
                Request(call=Call.DRAIN, machine="od-000000", mark=Mark("od-000000", SHARD, newer), grace_seconds=0)
            )
        join(rig, "prod", 1)
        await rig.until(lambda: len(calls(rig, "Create")) == 1, 30)
        await asyncio.sleep(1)
        assert not rig.core.parts.actuation.stood_down
        await rig.until(lambda: rig.core.parts.actuation.stood_down, 300)
        assert len(calls(rig, "Create")) == 2
        await asyncio.sleep(600)
        assert len(calls(rig, "Create")) == 2


@virtually
async def test_rule_10_a_ghost_of_an_earlier_life_stops_once_it_sees_the_newer_one() -> None:
    async with fleet(machines=6) as rig:
        prod = join(rig, "prod", 1)
        await serving(rig, "prod", 1)
        prod.cluster.world.scale("web", 3)
        await rig.until(lambda: entries(rig, S.CREATING), 30)
        # It still believes in its sessions, and in what it was doing.
        ghost = rig.haunt()
        await serving(rig, "prod", 3)
        await rig.until(lambda: ghost.core.parts.actuation.stood_down, 60)
        assert not rig.core.parts.actuation.stood_down
        prod.cluster.world.scale("web", 2)
        await serving(rig, "prod", 2)
        await rig.until(lambda: len(entries(rig, S.SPECULATIVE)) == 4, 900)
        assert len(calls(rig, "Create")) == 3
        await ghost.end()
