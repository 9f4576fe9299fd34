"""The core with all its parts: what only shows where several of them meet."""

import pytest
from prometheus_client import CollectorRegistry

from bigfleet.engine.records import Action, Kind, Policy, Stamp
from bigfleet.model.demand.need import NeedKey, Rollup
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType as Type
from bigfleet.model.machine import Host, Machine, MachineState
from bigfleet.provider.records import Listing
from bigfleet.shard.core.core import Core
from bigfleet.shard.core.decisions import Decisions
from bigfleet.shard.core.parts import Clocks, Settings
from bigfleet.shard.demand.rollup_reader import MAX_NAMES, RollupReader
from bigfleet.shard.demand.table import SILENT_SECONDS, KeptCluster
from bigfleet.shard.execution.commitment import Commitment
from bigfleet.shard.execution.steps import Step
from bigfleet.shard.orders import MakeCall
from bigfleet.shard.persistence.kept import Batch, Kept, Values
from bigfleet.shard.sessions.outputs import Opened, RolledUp, SessionEnded
from bigfleet.shard.supply.stamps import MAX_BYTES, Binding, to_metadata
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.wire.errors import WireError
from bigfleet.wire.v1alpha1 import capacity_pb2

S = MachineState
NOTHING = Kept(
    found=False, written=0.0, wall=0.0, commitments={}, machines={}, idle={}, ready={}, clusters={}, values=Values()
)


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def core(time: Time, kept: Kept = NOTHING, *, dry_run: bool = False) -> Core:
    settings = Settings("eu-1", ("p",), 30.0, 600.0, False, dry_run)
    return Core(settings, 5, kept, Clocks(time, time), ShardMetrics(CollectorRegistry()))


def machine(state: MachineState, cluster: str = "") -> Machine:
    error = "boom" if state is S.FAILED else ""
    host = Host("x", "h") if state is not S.SPECULATIVE else None
    return Machine(
        id="m", state=state, instance_type="c8", capacity_type=Type.ON_DEMAND, host=host, cluster=cluster,
        resources=(("cpu", 8000),), last_error=error,
    )  # fmt: skip


def listed(shard: Core, *machines: Machine) -> None:
    rows = {each.id: each for each in machines}
    shard.listed("p", Listing(rows, (), b"", full=True, began=shard.clocks.now()))


def after(time: Time, batch: Batch) -> Kept:
    """What the next life finds of one write."""
    assert batch.values is not None
    clusters = {name: kept for name, kept in batch.clusters.items() if kept is not None}
    return Kept(
        found=True, written=time.now, wall=time.now, commitments={}, machines={}, idle={}, ready={},
        clusters=clusters, values=batch.values,
    )  # fmt: skip


def test_rule_18_a_dry_run_does_nothing_even_to_a_failed_machine() -> None:
    calls = []
    for dry_run in (False, True):
        time = Time()
        shard = core(time, dry_run=dry_run)
        listed(shard, machine(S.FAILED))
        for _ in range(200):
            time.now += 10
            shard.tick()
        calls.append(any(isinstance(order, MakeCall) for order in shard.parts.orders))
    assert calls == [True, False]


def test_rule_18_a_pause_by_an_admin_keeps_its_reason_for_the_next_life() -> None:
    time = Time()
    shard = core(time)
    shard.pause("maintenance, ask dana")
    again = core(time, after(time, shard.take_batch()))
    assert (again.parts.actuation.paused, again.parts.actuation.pause_reason) == (True, "maintenance, ask dana")


def test_rule_11_silence_counts_across_restarts() -> None:
    time, kept = Time(), NOTHING
    for _ in range(5):
        shard = core(time, kept)
        if kept is NOTHING:
            shard.said([Opened("c", frozenset(), replaced=False), SessionEnded("c")])
        for _ in range(20):
            time.now += SILENT_SECONDS / 40
            shard.tick()
        kept = after(time, shard.take_batch())
    assert shard.parts.demand.silent(time.now) == ["c"]


def test_rule_11_a_cluster_without_machines_is_forgotten_at_once() -> None:
    time = Time()
    shard = core(time)
    shard.said([Opened("c", frozenset(), replaced=False), SessionEnded("c")])
    assert shard.forget("c") == 0
    assert list(shard.parts.demand) == []
    assert shard.take_batch().clusters == {"c": None}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (machine(S.IDLE), S.IDLE),
        (machine(S.CONFIGURING, "other"), S.IDLE),
        (machine(S.CONFIGURED, "other"), S.IDLE),
        (machine(S.DRAINING, "other"), S.IDLE),
        (machine(S.FAILED), S.IDLE),
        (machine(S.SPECULATIVE), S.SPECULATIVE),
    ],
)
def test_a_cluster_hears_that_a_machine_has_left_it_and_not_what_it_is_to_another(
    found: Machine, told: MachineState
) -> None:
    shard = core(Time())
    listed(shard, machine(S.DRAINING, "c"))
    shard.said([Opened("c", frozenset(), replaced=False)])
    listed(shard, found)
    frame = shard.parts.sender.outboxes["c"].take()
    assert frame is not None
    assert frame.node_state_update.state == told.value


@pytest.mark.parametrize("length", range(MAX_BYTES - 250, MAX_BYTES))
def test_a_stamp_that_passes_the_gate_can_be_written_whenever_that_is(length: int) -> None:
    time = Time()
    time.now = 2.0e9
    shard = core(time)
    listed(shard, machine(S.IDLE))
    key = NeedKey("f" * 32, "g" * length, (("cpu", 1000),))
    stamp = Stamp(key, 100, PenaltyBucket.ZERO, PenaltyBucket.ZERO, 7)
    action = Action(Kind.BOOTSTRAP, "m", "c", "because", 0, stamp)
    deciding = Decisions(shard, Policy())
    if deciding._fate(action) == "decided":
        to_metadata(Binding(stamp, "eu-1", 2**62, int(time.now)))


def test_a_roll_up_that_names_too_many_kinds_of_resources_is_refused_whole() -> None:
    rows = [
        capacity_pb2.CapacityNeed(aggregate_resources={f"x/{n}": "1"}, min_unit={f"x/{n}": "1"}, priority=1)
        for n in range(MAX_NAMES + 1)
    ]
    assert (
        len(RollupReader().read(capacity_pb2.ClusterCapacityNeeds(cluster_id="c", needs=rows[:-1])).needs) == MAX_NAMES
    )
    with pytest.raises(WireError, match=f"over {MAX_NAMES} kinds of resources"):
        RollupReader().read(capacity_pb2.ClusterCapacityNeeds(cluster_id="c", needs=rows))


def test_law_7_excess_outlives_a_restart_though_its_cluster_reports_while_a_decision_is_made() -> None:
    time = Time()
    values = Values(excess_since={"prod": 900.0})
    kept = Kept(
        found=True, written=1000.0, wall=1000.0, commitments={}, machines={}, idle={}, ready={},
        clusters={"prod": KeptCluster("prod", 0.0, False, False, ())}, values=values,
    )  # fmt: skip
    shard = core(time, kept)
    shard.said([Opened("prod", frozenset(), False)])
    shard.begin_update(time.now)
    # The roll-up comes while the engine decides about a cluster that had not reported.
    shard.said([RolledUp("prod", Rollup(cluster_id="prod", timestamp_unix_nanos=1, needs=()))])
    shard.decided((), ())
    assert shard.parts.rails.excess_since("prod") == 900
    shard.begin_update(time.now)
    shard.decided((), ())
    assert shard.parts.rails.excess_since("prod") is None


def test_law_7_a_commitment_waits_for_the_roll_up_of_its_cluster_after_a_restart() -> None:
    time = Time()
    stamp = Stamp(NeedKey("f", "", ()), 1, PenaltyBucket.ZERO, PenaltyBucket.ZERO, 1)
    waiting = Commitment(
        machine="m", provider="p", kind=Kind.PROVISION, step=Step.WAITING, began=999.0, cluster="prod", stamp=stamp
    )
    kept = Kept(
        found=True, written=1000.0, wall=1000.0, commitments={"m": waiting}, machines={"m": ("p", machine(S.IDLE))},
        idle={}, ready={}, clusters={"prod": KeptCluster("prod", 0.0, False, False, ())}, values=Values(),
    )  # fmt: skip
    shard = core(time, kept)
    shard.begin_update(time.now)
    shard.decided((), ["m"])
    assert [each.machine for each in shard.parts.commitments] == ["m"]
