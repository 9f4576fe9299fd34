"""The rules of protocol.md at the level of the whole shard: each test replays the steps that its rule is there against.

What the parts show by themselves stands beside them. Here the real shard runs on virtual time, with providers of the
kit and simulated clusters around it.
"""

import asyncio
import functools
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import msgspec
import pytest
import structlog

from bigfleet.model.demand.profile import Operator as Is
from bigfleet.model.demand.profile import Profile, Requirement
from bigfleet.model.labels import ZONE
from bigfleet.model.machine import Call, MachineState
from bigfleet.model.resources import demand
from bigfleet.providerkit.backend import Change
from bigfleet.providerkit.ledger.entry import Entry
from bigfleet.providerkit.ledger.fence import Mark, Token
from bigfleet.providerkit.ledger.ledger import Request
from bigfleet.shard.supply.stamps import Binding, from_metadata, to_metadata
from bigfleet.sim import clock
from bigfleet.sim.cloud.config import CloudConfig
from bigfleet.sim.cloud.reading import read
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.habits import Blob, Habits
from bigfleet.sim.clusters.world import Workload, World
from bigfleet.sim.direct import NONE, Trouble
from bigfleet.wire.v1alpha1 import capacity_pb2 as pb_needs
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.shard.rig.virtual import REPLACED, SHARD, Made, Operator, Rig, Times, rigged

S = MachineState
CREATE, JOIN, DRAIN, DELETE = 20.0, 10.0, 5.0, 5.0
"""What the cloud here takes, to the second."""

_LATENCY = {"create": CREATE, "configure": 0, "join": JOIN, "drain": DRAIN, "wipe": 0, "delete": DELETE}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on virtual time."""

    @functools.wraps(test)
    def run(*args: Any, **fields: Any) -> None:
        clock.run(test(*args, **fields))

    return run


def pool(name: str, count: int, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "instance_type": "c.8",
        "zone": "a",
        "capacity_type": "OnDemand",
        "price_per_hour": 0.4,
        "count": count,
        "resources": {"cpu": 8, "memory": "32Gi", "pods": 110},
        **fields,
    }


def cloud(*pools: dict[str, Any], scheme: str = "sim", **fields: Any) -> CloudConfig:
    return read(json.dumps({"scheme": scheme, "latency": _LATENCY, "pools": pools, **fields}), scheme)


def workload(name: str = "web", cores: int = 8, leave_seconds: float | None = 5.0, **profile: Any) -> Workload:
    """By default one pod fills a machine."""
    unit = demand({"cpu": cores, "memory": "4Gi"})
    return Workload(name=name, unit=unit, profile=Profile(**{"priority": 100, **profile}), leave_seconds=leave_seconds)


def join(rig: Rig, name: str, pods: int = 0, *, of: Workload | None = None, **habits: Any) -> Operator:
    """A cluster that wants so many pods."""
    cluster = Cluster(name, World(), Habits(**habits), stamp=lambda: int(now() * 1e9))
    cluster.world.deploy(of or workload(), pods)
    return rig.join(cluster)


@asynccontextmanager
async def fleet(*clouds: CloudConfig, machines: int = 10, times: Times | None = None) -> AsyncIterator[Rig]:
    """A rig whose shard runs, by default with so many on-demand machines."""
    async with rigged(clouds or [cloud(pool("od", machines))], times=times) as rig:
        rig.start()
        yield rig


def hello(cluster: str, *features: str) -> pb.OperatorMessage:
    """For sessions that are led by hand."""
    return pb.OperatorMessage(hello=pb.Hello(cluster_id=cluster, protocol_version="v1alpha1", features=features))


def now() -> float:
    return asyncio.get_running_loop().time()


def entries(rig: Rig, *states: MachineState) -> list[Entry]:
    """Machines as their providers have them."""
    every = (entry for provider in rig.providers.values() for entry in provider.ledger)
    return [entry for entry in every if not states or entry.state in states]


def bound(rig: Rig, cluster: str) -> list[str]:
    """The machines that serve a cluster."""
    return [entry.id for entry in entries(rig, S.CONFIGURED) if entry.cluster == cluster]


def calls(rig: Rig, call: str, since: float = 0.0) -> list[Made]:
    return [made for made in rig.made if made.call == call and made.at >= since]


async def settled(rig: Rig, within: float = 600.0) -> None:
    """Wait until nothing is under way."""
    await rig.until(lambda: not len(rig.core.execute), within)


async def serving(rig: Rig, cluster: str, machines: int, within: float = 300.0) -> None:
    await rig.until(lambda: len(bound(rig, cluster)) == machines, within)
    await settled(rig)


# Provider and life cycle.


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
        await rig.until(lambda: len(rig.core.execute) > 0, 15)
        await asyncio.sleep(11)
        began = now()
        await rig.crash()
        rig.start()
        await rig.until(lambda: len(bound(rig, "prod")) == 2, 90)
        assert taken not in [made.machine for made in calls(rig, "Configure", began)]


@virtually
async def test_rule_3_a_machine_that_another_has_configured_meanwhile_is_not_taken_for_ours() -> None:
    async with fleet(machines=2) as rig:
        prod = join(rig, "prod", 1, blob=Blob(delay_seconds=20))
        await rig.until(lambda: prod.of("bootstrap_request"), 60)
        theirs = prod.of("bootstrap_request")[0].machine_id
        rig.fate = lambda _provider, method, _machine: Trouble(before=60.0 if method == "List" else 0.0)
        # Same cluster, so it is a repeat to the provider: the ack shows somebody else's stamp.
        await rig.providers["sim"].ask(Request(call=Call.CONFIGURE, machine=theirs, cluster="prod"))
        await rig.until(lambda: any(each.outcome == "mismatch" for each in rig.audit), 60)
        await settled(rig)
        known = rig.core.supply.find(theirs)
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
        assert len(rig.core.supply) == 2


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
        known = rig.core.supply.find("slow-000000")
        assert known is not None
        assert known.state is S.CREATING
        await rig.until(lambda: rig.providers["sim"].ledger.get("slow-000000").state is S.IDLE, 1800)
        await rig.until(lambda: rig.providers["sim"].ledger.get("slow-000000").state is S.SPECULATIVE, 600)


@virtually
async def test_rule_7_a_list_that_lacks_half_a_fleet_is_believed_the_third_time() -> None:
    async with fleet(machines=20, times=Times(full_list_interval=60.0)) as rig:
        await rig.until(lambda: len(rig.core.supply) == 20, 30)
        ledger = rig.providers["sim"].ledger
        offers = list(await rig.skies["sim"].offers())
        ledger.offer(offers[:10])
        await asyncio.sleep(130)
        assert len(rig.core.supply) == 20
        await rig.until(lambda: len(rig.core.supply) == 10, 120)


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
        assert rig.core.supply.find(machine) is not None
        assert len(calls(rig, "Create")) == 1
        ledger._entries.pop(machine)
        ledger._revisions.forget(machine)
        await rig.until(lambda: rig.core.supply.find(machine) is None, 120)
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
        prod = join(rig, "prod", 1, blob=Blob(error="no token"))
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


# Shard.


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
        assert len(rig.core.execute) == 0
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
        await rig.until(lambda: len(rig.core.execute), 20, every=0.5)
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
        await rig.until(lambda: rig.core.stood_down, 60)
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
        assert rig.core.epoch > rival.epoch


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
        assert not rig.core.stood_down
        await rig.until(lambda: rig.core.stood_down, 300)
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
        await rig.until(lambda: ghost.core.stood_down, 60)
        assert not rig.core.stood_down
        prod.cluster.world.scale("web", 2)
        await serving(rig, "prod", 2)
        await rig.until(lambda: len(entries(rig, S.SPECULATIVE)) == 4, 900)
        assert len(calls(rig, "Create")) == 3
        await ghost.end()


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
        await rig.until(lambda: not len(rig.core.execute), 240)
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
        assert await rig.life.desk.forget("prod") == 3
        await rig.until(lambda: len(entries(rig, S.SPECULATIVE)) == 4, 1800)
        assert list(rig.core.demand) == []


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
        prod = join(rig, "prod", 1, blob=Blob(ttl_seconds=60, delay_seconds=5.0))
        await rig.until(lambda: len(prod.of("bootstrap_request")) == 2, 60)
        prod.cluster.habits = Habits(blob=Blob(answers=2))
        await serving(rig, "prod", 1)
        assert len(prod.of("bootstrap_request")) == 2
        assert len(calls(rig, "Configure")) == 1


@virtually
async def test_rule_15_a_request_goes_with_its_action_and_is_not_made_without_a_session() -> None:
    async with fleet(machines=2) as rig:
        prod = join(rig, "prod", 1, blob=Blob(answers=0))
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
        await rig.life.desk.pause("an incident")
        await asyncio.sleep(60)
        prod.mutes, prod.cluster.habits = frozenset(), Habits()
        await rig.life.desk.resume()
        await rig.until(lambda: rig.providers["sim"].ledger.get(phantom).state is S.SPECULATIVE, 1800)


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
        await rig.life.desk.pause("an incident")
        await rig.until(lambda: prod.of("reclaim_withdrawn"), 10)
        assert not any(node.cordon for node in world.nodes.values())
        prod.mutes = frozenset()
        made, heard = len(rig.made), len(prod.heard)
        world.scale("web", 5)
        await asyncio.sleep(300)
        await rig.crash()
        rig.start()
        await asyncio.sleep(300)
        assert rig.core.paused
        assert rig.made[made:] == []
        assert len(prod.heard) == heard
        await rig.life.desk.resume()
        await serving(rig, "prod", 5)


@virtually
async def test_rule_18_a_pause_calls_off_drains_that_wait_for_their_turn_and_what_waits_goes_on_after_it() -> None:
    async with fleet(machines=8, times=Times(provider_concurrency=1)) as rig:
        prod = join(rig, "prod", 8)
        await serving(rig, "prod", 8)
        rig.fate = lambda _provider, method, _machine: Trouble(before=60.0) if method == "Drain" else NONE
        prod.cluster.world.scale("web", 1)
        await rig.until(lambda: rig.shard.calls["sim"].waiting, 1500)
        before = len(rig.core.execute)
        await rig.life.desk.pause("maintenance")
        # Not as long as the one takes that is on its way.
        await asyncio.sleep(20)
        assert before > 1
        assert len(rig.core.execute) <= 1
        assert sum(node.cordon is not None for node in prod.cluster.world.nodes.values()) <= 1
        rig.fate = lambda *_: NONE
        await rig.life.desk.resume()
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
            await rig.life.desk.pause("maintenance")
        rig.disk.broken = False
        await serving(rig, "prod", 2)


@virtually
async def test_rule_18_actions_under_way_hold_their_step_with_time_outs_stopped() -> None:
    async with fleet(machines=2) as rig:
        join(rig, "prod", 1)
        await rig.until(lambda: entries(rig, S.CREATING), 30)
        await rig.life.desk.pause("an incident")
        # Longer than a Create may take, and another life's time as well.
        await asyncio.sleep(2000)
        await rig.crash()
        rig.start()
        await asyncio.sleep(2000)
        assert len(rig.made) == 1
        assert len(rig.core.execute) == 1
        rig.fate = lambda _provider, method, _machine: Trouble(before=15.0 if method == "Get" else 0.0)
        await rig.life.desk.resume()
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


# Session.


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
