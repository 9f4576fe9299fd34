"""The needs table: changed roll-up by roll-up it is what it would be built at once, and its order is section 4's."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.engine.engine import Engine
from bigfleet.engine.records import ClusterRecord, MachineRecord, Policy
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.tables.needs import MAX_ARRIVAL, MAX_ASKED, NeedError, NeedsTable, unit_size
from bigfleet.engine.tables.validate import MAX_PODS, MAX_PRICE
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import (
    INT32_MAX,
    INT32_MIN,
    Operator,
    Profile,
    Requirement,
    Spread,
    WhenUnsatisfiable,
)
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.model.resources import MAX_TOTAL, MAX_UNITS, Resources

CPU: Resources = (("cpu", 1000),)
PROFILES = [
    Profile(),
    Profile(priority=3),
    Profile(priority=-3, interruption=PenaltyBucket.P_4),
    Profile(interruption=PenaltyBucket.PINNED, requirements=(Requirement("x", Operator.IN, ("1",)),)),
    Profile(requirements=(Requirement("rack", Operator.SAME),)),
    Profile(spread=(Spread("zone", 1, WhenUnsatisfiable.DO_NOT_SCHEDULE),), max_per_machine=2),
]
CLUSTERS = ["a", "b", "ab"]
COLUMNS = ("asked", "limit", "priority", "interruption", "reclamation", "divisible")

needs = st.builds(
    lambda profile, unit, count, group: Need(profile, tuple((n, a * count) for n, a in unit), unit, group),
    st.sampled_from(PROFILES),
    st.sampled_from([CPU, (("cpu", 1000), ("memory", 7)), (("gpu", 1),)]),
    st.integers(1, 3),
    st.sampled_from(["", "g"]),
) | st.builds(lambda amount: Need(Profile(priority=1), (("cpu", amount),), ()), st.integers(1, 3))
rollups = st.lists(st.tuples(st.sampled_from(CLUSTERS), st.lists(needs, max_size=6)), max_size=8)


def copied(need: Need) -> Need:
    """An equal need of other objects, as decoding would make it."""
    return msgspec.json.decode(msgspec.json.encode(need), type=Need)


def rows(table: NeedsTable) -> list[tuple[Any, ...]]:
    """What stands in the table, in its order, in words instead of numbers."""
    seen = []
    for slot in table.order().tolist():
        need, vector = table.need[slot], table.unit_vectors.view[table.unit.view[slot]]
        assert need is not None
        plain = [getattr(table, name).view[slot] for name in COLUMNS]
        cluster = table._inventory.clusters.values[table.cluster.view[slot]]
        assert table._inventory.keys.values[table.key.view[slot]] == need.key
        spreads = table.spread_start.view[table.spread.view[slot] :][:2].tolist()
        skews = table.spread_skew.view[slice(*spreads)].tolist()
        width = {name: int(amount) for name, amount in zip(table._shapes.dimensions.names, vector, strict=False)}
        amounts = sorted((name, amount) for name, amount in width.items() if amount)
        seen.append((cluster, need.key, dict(need.aggregate), *plain, skews, amounts))
    return seen


def place(table: NeedsTable, slot: int, arrivals: dict[tuple[str, NeedKey], int]) -> tuple[Any, ...]:
    """Section 4, written as a key to sort by."""
    need = table.need[slot]
    assert need is not None
    profile, key = need.profile, need.key
    cluster = str(table._inventory.clusters.values[table.cluster.view[slot]])
    unit = ",".join(f"{name}={amount}" for name, amount in key.unit)
    penalties = (-profile.interruption, -profile.reclamation)
    arrival = arrivals[cluster, key]
    return -profile.priority, *penalties, arrival, cluster, -unit_size(key.unit), key.fingerprint, key.group, unit


@settings(deadline=None)
@given(rollups, st.data())
def test_a_table_changed_roll_up_by_roll_up_is_the_table_built_at_once(plan: Any, data: st.DataObject) -> None:
    table, truth = NeedsTable(Inventory()), dict[str, list[Need]]()
    arrivals: dict[tuple[str, NeedKey], int] = {}
    for cluster, asked in plan:
        # Some rows stay, as the very objects or as copies of them.
        kept = [need for need in truth.get(cluster, []) if data.draw(st.booleans())]
        asked += [copied(need) if data.draw(st.booleans()) else need for need in kept]
        now = table._arrivals
        table.replace(cluster, asked)
        for key in {need.key for need in truth.get(cluster, [])} - {need.key for need in asked}:
            del arrivals[cluster, key]
        for need in asked:
            arrivals.setdefault((cluster, need.key), now)
        truth[cluster] = asked
        if data.draw(st.booleans()):
            table.order()
        if data.draw(st.booleans()):
            table.compact()
        if data.draw(st.booleans()):
            table._inventory.compact()
    anew = NeedsTable(Inventory())
    for cluster, asked in truth.items():
        anew.replace(cluster, asked, {key: at for (name, key), at in arrivals.items() if name == cluster})
    assert rows(table) == rows(anew)
    assert len(table) == len(arrivals)
    order = table.order().tolist()
    assert order == sorted(order, key=lambda slot: place(table, slot, arrivals))


@settings(deadline=None)
@given(rollups)
def test_changes_are_the_clusters_that_ask_for_something_else(plan: Any) -> None:
    table = NeedsTable(Inventory())
    for cluster, asked in plan:
        before = [row for row in rows(table) if row[0] == cluster]
        table.replace(cluster, [copied(need) for need in asked])
        changed = {str(table._inventory.clusters.values[number]) for number in table.changes()}
        after = [row for row in rows(table) if row[0] == cluster]
        assert changed == ({cluster} if before != after else set())
        assert table.changes() == set()


@settings(deadline=None)
@given(rollups)
def test_compacting_changes_numbers_and_nothing_else(plan: Any) -> None:
    table = NeedsTable(Inventory())
    for cluster, asked in plan:
        table.replace(cluster, asked)
    before, generation = rows(table), table.generation
    table.changes()
    table.compact()
    table._inventory.compact()
    assert rows(table) == before
    assert table.generation == generation + 1
    assert table.changes() == set()
    live = [need for need in table.need if need is not None]
    assert len(table._inventory.keys) == len({need.key for need in live})
    assert len(table._units) == len({need.unit for need in live})
    assert len(table._fingerprints) == len({need.profile.fingerprint for need in live})
    profiles = [(need.unit, need.profile) for need in live]
    pinned = PenaltyBucket.PINNED
    kinds = {(u, p.requirements, p.spread, p.max_per_machine, p.interruption is pinned) for u, p in profiles}
    assert len(table._kinds) == len(kinds)


def wants_compacting(table: NeedsTable) -> bool:
    return table.wants_compacting


def test_a_table_wants_compacting_when_most_of_many_units_are_gone() -> None:
    table = NeedsTable(Inventory())
    many = [Need(Profile(), (("cpu", i),), (("cpu", i),)) for i in range(1, 1101)]
    table.replace("c", many)
    assert not wants_compacting(table)
    table.replace("c", many[550:])
    assert not wants_compacting(table), "half of them are still used"
    table.replace("c", many[551:])
    assert wants_compacting(table)
    before = rows(table)
    table.compact()
    assert not wants_compacting(table)
    assert rows(table) == before
    assert table.unit_vectors.shape[0] == 549
    table.replace("c", many)
    assert len(rows(table)) == 1100


def test_equal_rows_of_one_roll_up_are_summed_however_they_are_given() -> None:
    table = NeedsTable(Inventory())
    one = Need(Profile(), CPU, CPU)
    table.replace("c", [one])
    for given_twice in ([one, one], [one, copied(one)], [copied(one), one], [copied(one), copied(one)]):
        table.replace("c", given_twice)
        assert table.asked.view[table.order()].tolist() == [2]
    table.changes()
    table.replace("c", [one, copied(one)])
    assert table.changes() == set()
    table.replace("c", [one])
    assert table.asked.view[table.order()].tolist() == [1]


def test_a_row_that_stays_keeps_its_arrival_and_one_that_comes_back_does_not() -> None:
    table = NeedsTable(Inventory())
    first, second = Need(Profile(), CPU, CPU, "b"), Need(Profile(), CPU, CPU, "a")
    table.replace("c", [first])
    table.replace("c", [first, second])
    assert [table.need[slot] for slot in table.order()] == [first, second]
    table.replace("c", [second])
    table.replace("c", [first, second])
    assert [table.need[slot] for slot in table.order()] == [second, first]


def test_many_rows_put_in_place_one_by_one_stand_where_sorting_puts_them() -> None:
    table = NeedsTable(Inventory())
    for i in range(60):
        table.replace(f"c{i * 7 % 60:02d}", [Need(Profile(priority=i * 11 % 5), CPU, CPU)])
        table.order()
    assert table.order().tolist() == sorted(range(60), key=table._place.__getitem__)


def test_rows_that_come_together_stand_side_by_side_as_they_are_served() -> None:
    table = NeedsTable(Inventory())
    rows = [Need(Profile(priority=i * 7 % 30), CPU, CPU) for i in range(30)]
    for cluster in ("a", "b"):
        table.replace(cluster, rows)
    table.replace("a", rows[::2])
    table.replace("c", rows[:10])
    for number in range(3):
        mine = [slot for slot in table.order() if table.cluster.view[slot] == number]
        assert mine == sorted(mine)


def raw(need: Need, **changes: Any) -> Need:
    return msgspec.structs.replace(need, **changes)


GOOD = Need(Profile(priority=1), CPU, CPU)
WRONG = [
    ("unit['cpu']", raw(GOOD, unit=(("cpu", -1),)), {}),
    ("unit['cpu']", raw(GOOD, unit=(("cpu", MAX_UNITS + 1),)), {}),
    ("aggregate['cpu']", raw(GOOD, aggregate=(("cpu", -1),)), {}),
    ("aggregate['cpu']", raw(GOOD, aggregate=(("cpu", MAX_TOTAL + 1),)), {}),
    ("units", raw(GOOD, aggregate=(("cpu", MAX_ASKED + 1),), unit=(("cpu", 1),)), {}),
    ("group", raw(GOOD, group="a\0b"), {}),
    ("arrival", GOOD, {GOOD.key: -1}),
    ("arrival", GOOD, {GOOD.key: MAX_ARRIVAL + 1}),
]


@pytest.mark.parametrize(("field", "bad", "arrivals"), WRONG, ids=[f"{i}-{wrong[0]}" for i, wrong in enumerate(WRONG)])
def test_a_need_that_cannot_be_is_refused_by_name_and_nothing_changes(
    field: str, bad: Need, arrivals: dict[NeedKey, int]
) -> None:
    inventory = Inventory()
    table = NeedsTable(inventory)
    table.replace("c", [Need(Profile(), CPU, CPU), Need(Profile(priority=2), CPU, CPU)])
    table.changes()
    before = rows(table), len(inventory.keys), len(inventory.clusters)
    for cluster in ("c", "unheard-of"):
        with pytest.raises(NeedError) as refused:
            table.replace(cluster, [Need(Profile(priority=9), CPU, CPU), bad], arrivals)
        error = refused.value
        assert (error.cluster_id, error.fingerprint, error.field) == (cluster, bad.profile.fingerprint, field)
    assert (rows(table), len(inventory.keys), len(inventory.clusters)) == before
    assert table.changes() == set()


def test_a_need_without_amounts_below_its_unit_is_refused() -> None:
    nothing = raw(GOOD, unit=(("cpu", 0),))
    with pytest.raises(NeedError, match=r"unit\['cpu'\]: is 0"):
        NeedsTable(Inventory()).replace("c", [nothing])


def test_a_cluster_id_with_nul_is_refused() -> None:
    with pytest.raises(NeedError, match="cluster: must be text without NUL"):
        NeedsTable(Inventory()).replace("c\0", [GOOD])


def test_a_sum_beyond_what_can_be_counted_is_refused_by_name() -> None:
    largest = raw(GOOD, aggregate=(("cpu", MAX_TOTAL),), unit=(("cpu", MAX_UNITS),))
    table = NeedsTable(Inventory())
    with pytest.raises(NeedError, match=r"cluster 'c': need '\w+': aggregate\['cpu'\]"):
        table.replace("c", [largest, copied(largest)])
    assert len(table) == 0


def test_the_largest_needs_are_taken_as_they_are() -> None:
    table = NeedsTable(Inventory())
    most = Need(Profile(priority=INT32_MAX), (("cpu", MAX_ASKED),), (("cpu", 1),))
    widest = Need(Profile(priority=INT32_MIN), (("cpu", MAX_TOTAL),), (("cpu", MAX_UNITS), ("memory", MAX_UNITS)))
    divisible = Need(Profile(priority=0), (("cpu", MAX_TOTAL),), ())
    table.replace("c", [widest, divisible, most], dict.fromkeys((most.key, widest.key), MAX_ARRIVAL))
    assert [table.need[slot] for slot in table.order()] == [most, divisible, widest]
    assert table.asked.view[table.order()].tolist() == [MAX_ASKED, 1, MAX_TOTAL // MAX_UNITS]
    assert unit_size(widest.unit) < 2**79
    table.replace("c", [GOOD])
    assert [table.need[slot] for slot in table.order()] == [GOOD]


def test_what_the_largest_need_misses_is_a_number_that_columns_hold() -> None:
    # Units of all rows of 500,000, and the units of a row beside those of a fleet of 5,000,000 machines.
    assert 500_000 * MAX_ASKED < 2**63
    assert MAX_TOTAL + MAX_UNITS < 2**63, "an aggregate beside what one machine adds"


def test_the_largest_need_on_the_largest_machine_is_decided_to_the_unit() -> None:
    engine = largest_fleet()
    most = Need(Profile(priority=INT32_MAX), (("cpu", MAX_ASKED),), (("cpu", 1),))
    widest = Need(Profile(priority=INT32_MIN), (("cpu", MAX_TOTAL),), (("cpu", MAX_UNITS), ("pods", 1)))
    engine.needs.replace("c", [most, widest])
    decision = engine.decide(Policy(), 0, 1)
    first, last = decision.verdicts[0], decision.verdicts[1]
    assert (first.missing_units, first.claimed_machines) == (MAX_ASKED - 2 * MAX_PODS, 2)
    assert first.residual == (("cpu", MAX_ASKED - 2 * MAX_PODS),)
    assert last.missing_units == MAX_TOTAL // MAX_UNITS
    assert last.residual == (("cpu", MAX_TOTAL), ("pods", MAX_TOTAL // MAX_UNITS))


def test_the_largest_divisible_need_is_decided_to_the_unit() -> None:
    engine = largest_fleet()
    engine.needs.replace("c", [Need(Profile(), (("cpu", MAX_TOTAL),), ())])
    verdict = engine.decide(Policy(), 0, 1).verdicts[0]
    assert verdict.residual == (("cpu", MAX_TOTAL - 2 * MAX_UNITS),)


def largest_fleet() -> Engine:
    engine = Engine()
    engine.set_cluster(ClusterRecord(id="c"))
    room = (("cpu", MAX_UNITS), ("memory", MAX_UNITS), ("pods", MAX_PODS))
    engine.inventory.apply(
        MachineRecord(
            machine=Machine(
                id=name,
                state=MachineState.SPECULATIVE,
                instance_type="largest",
                capacity_type=CapacityType.ON_DEMAND,
                price_per_hour=MAX_PRICE,
                interruption_probability=1.0,
                allocatable=room,
            )
        )
        for name in ("a", "b")
    )
    return engine
