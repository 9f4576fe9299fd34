"""The engine's edge: settings and answers that cannot be taken are refused by name."""

from typing import Any

import pytest

from bigfleet.engine.engine import Decision, Engine
from bigfleet.engine.records import (
    MAX_TIME,
    ClusterError,
    ClusterRecord,
    Kind,
    MachineRecord,
    Policy,
    PolicyError,
    Stamp,
    UnmetReason,
    Verdict,
)
from bigfleet.engine.tables.needs import NeedError
from bigfleet.engine.verdicts import StaleError
from bigfleet.model.demand.need import Daemon, Need, NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Profile
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("weight_priority", 2.5),
        ("weight_drain", -0.1),
        ("weight_interrupt", float("nan")),
        ("weight_reclaim", float("inf")),
        ("reclaim_percent", 101),
        ("draining_percent", -1),
        ("reclaim_after", -1),
        ("reclaim_after", 0.5),
        ("reclaim_percent", 2.5),
        ("idle_hold", {CapacityType.SPOT: -1}),
        ("idle_hold", {CapacityType.SPOT: float("nan")}),
        ("held_out_shapes", {("t", "z", CapacityType.SPOT): float("nan")}),
        ("held_out_shapes", {("t", "z", CapacityType.SPOT): MAX_TIME + 1}),
    ],
)
def test_a_setting_that_cannot_be_reckoned_with_is_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(PolicyError, match=setting):
        Policy(**{setting: value})


def unmet(decision: Decision) -> list[Verdict]:
    return [decision.verdicts[row] for row in decision.verdicts.short()]


def test_verdicts_are_those_of_the_last_decision_only() -> None:
    engine = Engine()
    engine.set_cluster(ClusterRecord(id="c"))
    unit = (("cpu", 1000),)
    engine.needs.replace("c", [Need(Profile(), unit, unit)])
    decision = engine.decide(Policy(), 0, 1)
    first = decision.verdicts
    assert first[0].unmet_reason is UnmetReason.NO_MATCHING_SUPPLY
    assert unmet(decision) == [first[0]]
    engine.decide(Policy(), 1, 1)
    with pytest.raises(StaleError, match="before that"):
        _ = first[0]


def test_verdicts_end_when_rows_or_machines_change() -> None:
    def rows(engine: Engine) -> None:
        engine.needs.replace("c", [need(2, 4)])

    def gone(engine: Engine) -> None:
        engine.inventory.remove(["m"])

    def come(engine: Engine) -> None:
        engine.inventory.apply([machine("n", 3)])

    for change in (rows, gone, come):
        engine = asked([machine("m", 8, "c", 1)], {"c": [need(1, 4)]})
        verdicts = engine.decide(Policy(), 0, 9).verdicts
        assert verdicts[0].satisfied
        change(engine)
        with pytest.raises(StaleError):
            _ = verdicts[0]


@pytest.mark.parametrize("victims", [255, 256, 257, 300])
def test_more_preemptions_than_there_was_room_for(victims: int) -> None:
    machines = [machine(f"m{i}", 8, "low", i + 1) for i in range(victims)]
    engine = asked(machines, {"low": [need(victims, 8)], "high": [need(victims, 8, priority=10)]})
    first = engine.decide(Policy(), 0, victims + 1)
    assert [a.kind for a in first.actions] == [Kind.PREEMPT] * victims
    assert engine.decide(Policy(), 0, victims + 1).actions == first.actions


def test_giving_back_more_than_there_was_room_for() -> None:
    machines = [machine(f"m{i:04}", 100, "c", i + 1, price=1.0 + i * 7919 % 1000) for i in range(100)]
    rows = [need(50, 1, priority=p, max_per_machine=1) for p in range(40)]
    engine = asked(machines, {"c": rows}, excess_since=0)
    decided = [[a.machine for a in engine.decide(Policy(), 100, 999).actions] for _ in range(6)]
    assert decided[0]
    assert decided == [decided[0]] * 6


def test_a_resource_that_only_a_daemon_names() -> None:
    daemon = Daemon((), (("cpu", 5000), ("ephemeral-storage", 7)))
    engine = asked([machine(f"m{i}", 8) for i in range(4)], {"a": [need(2, 4)]}, daemons=(daemon,))
    decision = engine.decide(Policy(), 0, 1)
    assert decision.actions == [], "three cores are free on a node, a pod asks for four"
    assert [v.unmet_reason for v in unmet(decision)] == [UnmetReason.NO_MATCHING_SUPPLY]


def test_a_resource_that_only_a_divisible_row_names() -> None:
    row = Need(Profile(), (("cpu", 1000), ("nvidia.com/gpu", 1)), ())
    engine = asked([machine("m", 8)], {"a": [need(1, 4)]})
    engine.decide(Policy(), 0, 1)
    engine.needs.replace("a", [need(1, 4), row])
    decision = engine.decide(Policy(), 0, 1)
    assert decision.verdicts.takes(1)["m"]["cpu"] == 1000
    assert [v.residual for v in unmet(decision)] == [(("nvidia.com/gpu", 1),)]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("id", {"id": ""}),
        ("reclaimed_in_window", {"reclaimed_in_window": -1}),
        ("reclaimed_in_window", {"reclaimed_in_window": 0.5}),
        ("excess_since", {"excess_since": float("nan")}),
        ("held_out", {"held_out": {"f": 1.5}}),
        ("held_out", {"held_out": {"f": float("nan")}}),
        ("held_out", {"held_out": {"f": -MAX_TIME - 1}}),
        ("cpu", {"daemons": (Daemon((), (("cpu", -1),)),)}),
    ],
)
def test_what_a_session_cannot_show_is_refused_by_name(field: str, changes: Any) -> None:
    with pytest.raises(ClusterError, match=field):
        ClusterRecord(**{"id": "c", **changes})


@pytest.mark.parametrize(
    "bad",
    [
        Need(Profile(), (("cpu", 1000),), (("cpu", 1000),), "\ud800"),
        Need(Profile(), (("cpu", 1000),), (("\ud800", 1000),)),
        Need(Profile(), (("cpu", 10_000),), (("cpu", 9000), ("cpu", 1000))),
        Need(Profile(), (("cpu", 1000),), (("memory", 1), ("cpu", 1000))),
    ],
)
def test_a_need_that_cannot_be_placed_is_refused_and_the_old_one_stays(bad: Need) -> None:
    engine = asked([machine("m", 8)], {"c": [need(1, 4)]})
    with pytest.raises(NeedError, match="'c'"):
        engine.needs.replace("c", [bad])
    decision = engine.decide(Policy(), 0, 1)
    assert len(decision.verdicts) == 1
    assert decision.verdicts[0].satisfied


@pytest.mark.parametrize(
    ("now", "number", "field"), [(0, 2**62, "next_binding"), (0, -1, "next_binding"), (2**63, 1, "now")]
)
def test_numbers_that_would_overflow_are_refused_by_name(now: int, number: int, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Engine().decide(Policy(), now, number)


def test_what_can_hardly_be_interrupted_is_not_what_cannot() -> None:
    engine = asked([machine("m", 8, chance=4e-10)], {"c": [need(1, 4, interruption=PenaltyBucket.PINNED)]})
    assert engine.inventory.probability.view.tolist() == [1]


def asked(machines: list[MachineRecord], demand: dict[str, list[Need]], **session: Any) -> Engine:
    engine = Engine()
    engine.inventory.apply(machines)
    for name, rows in demand.items():
        engine.set_cluster(ClusterRecord(id=name, **session))
        engine.needs.replace(name, rows)
    return engine


def need(units: int, cores: int, **profile: Any) -> Need:
    return Need(Profile(**profile), (("cpu", units * cores * 1000),), (("cpu", cores * 1000),))


def machine(
    name: str, cores: int, cluster: str = "", number: int = 0, price: float = 1.0, chance: float = 0.0
) -> MachineRecord:
    stamp = Stamp(NeedKey("", "", ()), 0, PenaltyBucket.ZERO, PenaltyBucket.ZERO, number) if number else None
    return MachineRecord(
        machine=Machine(
            id=name,
            state=MachineState.CONFIGURED if cluster else MachineState.IDLE,
            instance_type="any",
            capacity_type=CapacityType.RESERVED,
            host=Host("edge", name),
            price_per_hour=price,
            interruption_probability=chance,
            allocatable=(("cpu", cores * 1000),),
            cluster=cluster,
        ),
        stamp=stamp,
    )
