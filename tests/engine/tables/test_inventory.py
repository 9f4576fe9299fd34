"""The inventory: changed batch by batch it is what it would be built at once; what cannot be taken changes nothing."""

import math
from collections.abc import Iterable
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.engine.codes import NOBODY
from bigfleet.engine.records import MAX_TIME, MachineRecord, Stakes, Stamp
from bigfleet.engine.tables.arrays import Ids, NarrowColumn
from bigfleet.engine.tables.inventory import VACANT, Inventory
from bigfleet.engine.tables.shapes import DaemonSets
from bigfleet.engine.tables.validate import MAX_NUMBER, MAX_PODS, MAX_PRICE, RecordError
from bigfleet.model.demand.need import Daemon, NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import INT32_MAX, INT32_MIN
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.model.resources import MAX_UNITS

COLUMNS = (
    "shape", "state", "cluster", "bound", "binding", "stamped_for", "price", "probability", "stamp_priority",
    "stamp_interruption", "stamp_reclamation", "flags", "drain_seconds", "not_before", "idle_since", "hold_until",
    "stakes_priority", "stakes_interruption", "stakes_reclamation", "offer",
)  # fmt: skip
NUMBERED = {"shape", "cluster", "bound", "stamped_for", "offer"}
SEATING = ("shape", "bound", "binding", "stamped_for")
HOSTLESS = (MachineState.SPECULATIVE, MachineState.CREATING)
BOUND = (MachineState.CONFIGURING, MachineState.CONFIGURED, MachineState.DRAINING)

NAMES = [f"m{i}" for i in range(12)] + ["é", "m1\x00", "Z"]
KEYS = [NeedKey(f"f{i}", "", (("cpu", 1000),)) for i in range(3)]


def record(name: str = "m", state: MachineState = MachineState.CONFIGURED, **more: Any) -> MachineRecord:
    own = {field: more.pop(field) for field in list(more) if field in Machine.__struct_fields__}
    facts = {
        "host": None if state in HOSTLESS else Host("test", name),
        "cluster": "c" if state in BOUND else "",
        "last_error": "broken" if state is MachineState.FAILED else "",
        "allocatable": (("cpu", 8000),),
    }
    machine = Machine(id=name, state=state, instance_type="t", capacity_type=CapacityType.ON_DEMAND, **(facts | own))
    return MachineRecord(machine=machine, **more)


def stamp(number: int = 1, key: NeedKey = KEYS[0], priority: int = 5) -> Stamp:
    return Stamp(key, priority, PenaltyBucket.P_1, PenaltyBucket.P_2, number)


@st.composite
def records(draw: st.DrawFn) -> MachineRecord:
    state = draw(st.sampled_from(MachineState))
    labels = draw(st.sampled_from([{}, {"rack": "a", "row": "b"}, {"row": "b", "rack": "a"}, {"rack": "b"}]))
    made = draw(st.none() | st.builds(stamp, st.integers(0, 6), st.sampled_from(KEYS)))
    return record(
        draw(st.sampled_from(NAMES)),
        state,
        labels=labels,
        zone=draw(st.sampled_from(["", "z"])),
        price_per_hour=draw(st.sampled_from([0.0, 1.0, 2.5])),
        interruption_probability=draw(st.sampled_from([0.0, 1e-9, 0.5])),
        cluster=draw(st.sampled_from(["c", "d"])) if state in BOUND else "",
        committed_to=draw(st.sampled_from(["", "", "d", "e"])),
        stamp=made,
        drain_seconds=draw(st.integers(0, 2)),
        not_before=draw(st.integers(-1, 1)),
        empty=draw(st.booleans()),
        not_ready=draw(st.booleans()),
        unrequested=draw(st.none() | st.just(Stakes(7, PenaltyBucket.P_4, PenaltyBucket.P_8))),
        reclaim_hold_until=draw(st.integers(0, 1)),
    )


batches = st.lists(records(), max_size=8)
steps = st.lists(batches | st.sets(st.sampled_from(NAMES), max_size=5), max_size=8)


def raw(inventory: Inventory, names: Iterable[str] = COLUMNS) -> list[tuple[Any, ...]]:
    """Each row's id and columns."""
    columns = [getattr(inventory, name).view.tolist() for name in names]
    return list(zip([inventory.ids[row] for row in range(len(inventory.ids))], *columns, strict=True))


def look_at(inventory: Inventory, *labels: str) -> None:
    """Tell machines apart by these labels too."""
    for label in labels:
        inventory.shapes.look_at(label)
    inventory.reshape()


def values_of(inventory: Inventory, label: str) -> list[str]:
    """The label's value of each row."""
    texts = list(inventory.shapes.value_ids(label))
    return [texts[inventory.shapes.values(label)[shape]] for shape in inventory.shape.view.tolist()]


def picture(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Each machine in its own words: what its numbers stand for instead of the numbers."""
    look_at(inventory, "rack", "row")
    shapes, clusters = inventory.shapes, [*inventory.clusters.values, ""]
    plain = raw(inventory, [name for name in COLUMNS if name not in NUMBERED])
    offers: dict[int, list[str]] = {}
    for row, (name, *_) in enumerate(plain):
        if inventory.state.view[row] != VACANT:
            offers.setdefault(int(inventory.offer.view[row]), []).append(name)
    seen = {}
    for row, (name, *columns) in enumerate(plain):
        if inventory.state.view[row] == VACANT:
            continue
        shape, own = int(inventory.shape.view[row]), int(inventory.stamped_for.view[row])
        texts = [{number: text for text, number in shapes.value_ids(key).items()} for key in ("rack", "row")]
        labels = [text.get(int(shapes.values(key)[shape])) for text, key in zip(texts, ("rack", "row"), strict=True)]
        seen[name] = (
            *columns,
            shapes.allocatable.view[shape].tolist(),
            labels,
            clusters[inventory.cluster.view[row]],
            clusters[inventory.bound.view[row]],
            None if own == NOBODY else inventory.keys.values[own],
            sorted(offers[int(inventory.offer.view[row])]),
        )
    return seen


def row_of(inventory: Inventory, name: str) -> int:
    return int(inventory.ids.find([name])[0])


def changed_by(inventory: Inventory, step: Any, truth: dict[str, MachineRecord]) -> None:
    if isinstance(step, list):
        inventory.apply(step)
        truth.update((r.machine.id, r) for r in step)
    else:
        inventory.remove(step)
        for name in step:
            truth.pop(name, None)


@settings(deadline=None)
@given(steps, st.data())
def test_a_table_changed_step_by_step_is_the_table_built_at_once(plan: list[Any], data: st.DataObject) -> None:
    inventory, truth = Inventory(), dict[str, MachineRecord]()
    for step in plan:
        changed_by(inventory, step, truth)
        if data.draw(st.booleans()):
            look_at(inventory, data.draw(st.sampled_from(["rack", "row"])))
        if data.draw(st.booleans()):
            inventory.ranked()
        if data.draw(st.booleans()):
            inventory.compact()
    anew = Inventory()
    anew.apply(truth.values())
    assert picture(inventory) == picture(anew)
    assert len(inventory) == len(truth)
    assert all(inventory.ids[row_of(inventory, name)] == name for name in truth)
    inventory.ranked()
    live = [row for row in range(len(inventory.ids)) if inventory.state.view[row] != VACANT]
    by_rank = [inventory.ids[row] for row in sorted(live, key=lambda row: inventory.rank.view[row])]
    assert by_rank == sorted(truth)


@settings(deadline=None)
@given(steps)
def test_changes_are_the_rows_that_changed(plan: list[Any]) -> None:
    inventory, truth = Inventory(), dict[str, MachineRecord]()
    for step in plan:
        before, seats = raw(inventory), raw(inventory, SEATING)
        changed_by(inventory, step, truth)
        changed, reseated = inventory.changes()
        assert {changed.dtype, reseated.dtype} == {np.dtype(np.int64)}
        after, now = raw(inventory), raw(inventory, SEATING)
        old = range(len(before))
        fresh = {*range(len(before), len(after))}
        assert {*changed.tolist()} == fresh | {row for row in old if before[row] != after[row]}
        assert {*reseated.tolist()} == fresh | {row for row in old if seats[row] != now[row]}
        assert [part.tolist() for part in inventory.changes()] == [[], []]


@settings(deadline=None)
@given(steps)
def test_compacting_changes_numbers_and_nothing_else(plan: list[Any]) -> None:
    inventory, truth = Inventory(), dict[str, MachineRecord]()
    for step in plan:
        changed_by(inventory, step, truth)
    before, generation = picture(inventory), inventory.generation
    inventory.changes()
    inventory.compact()
    assert picture(inventory) == before
    assert inventory.generation == generation + 1
    assert len(inventory.keys) == len({r.stamp.key for r in truth.values() if r.stamp is not None})
    inventory.apply(truth.values())
    assert inventory.changes()[0].tolist() == []


def wants_compacting(inventory: Inventory) -> bool:
    return inventory.wants_compacting


def test_an_inventory_wants_compacting_when_most_of_many_keys_are_nobodys() -> None:
    inventory = Inventory()
    keys = [NeedKey(f"f{i}", "", ()) for i in range(1100)]
    inventory.apply(record(f"m{i}", stamp=stamp(i, key)) for i, key in enumerate(keys))
    assert not wants_compacting(inventory)
    inventory.remove(f"m{i}" for i in range(550))
    assert not wants_compacting(inventory), "half of them are still used"
    inventory.apply([record("m550", stamp=stamp(550, keys[551]))])
    assert wants_compacting(inventory)
    inventory.compact()
    assert len(inventory.keys) == 549
    assert not wants_compacting(inventory)
    assert inventory.keys.values[int(inventory.stamped_for.view[row_of(inventory, "m550")])] == keys[551]


def test_an_inventory_wants_compacting_when_most_of_many_offers_are_gone() -> None:
    inventory = Inventory()
    for cents in range(1100):
        inventory.apply([record("a", price_per_hour=cents / 100)])
    assert wants_compacting(inventory)
    inventory.compact()
    assert not wants_compacting(inventory)
    assert inventory.offer.view.tolist() == [0]


def test_a_record_equal_to_what_is_there_is_no_change() -> None:
    inventory = Inventory()
    inventory.apply([record("a", stamp=stamp()), record("b")])
    inventory.changes()
    inventory.apply([record("b"), record("a", stamp=stamp())])
    assert [part.tolist() for part in inventory.changes()] == [[], []]


def test_the_last_record_of_a_batch_counts() -> None:
    inventory = Inventory()
    inventory.apply([record("a", price_per_hour=1.0), record("a", price_per_hour=2.0)])
    assert len(inventory) == 1
    assert inventory.price.view[row_of(inventory, "a")] == 2_000_000


def test_a_new_machine_moves_no_rank_while_there_is_room_between_its_neighbours() -> None:
    inventory = Inventory()
    inventory.apply(record(f"m{i:02d}") for i in range(20))
    inventory.ranked()
    before, times = inventory.rank.view.copy(), inventory.rankings
    inventory.apply([record("m05x")])
    inventory.ranked()
    assert inventory.rankings == times
    assert inventory.rank.view[:20].tolist() == before.tolist()


def test_ranks_stay_right_when_there_is_no_room_left() -> None:
    inventory = Inventory()
    inventory.apply(record(f"m{i:02d}") for i in range(20))
    inventory.ranked()
    names = [f"m05{'x' * i}" for i in range(60, 0, -1)]
    for name in names:
        inventory.apply([record(name)])
        inventory.ranked()
    ordered = sorted(range(len(inventory.ids)), key=lambda row: inventory.rank.view[row])
    assert [inventory.ids[row] for row in ordered] == sorted([f"m{i:02d}" for i in range(20)] + names)
    assert inventory.rankings > 1


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 400), max_size=120)), max_size=8))
def test_ids_are_found_again_through_growth_removal_and_packing(plan: list[tuple[bool, set[int]]]) -> None:
    ids, truth = Ids(), dict[str, int]()
    vacant: list[int] = []
    for adds, numbers in plan:
        names = [f"{'é' if number % 7 == 0 else 'm'}{number}" * (1 + number % 3) for number in sorted(numbers)]
        if not adds:
            gone = [truth.pop(name) for name in names if name in truth]
            assert sorted(ids.remove(names).tolist()) == sorted(gone)
            vacant += gone
            continue
        fresh = [name for name in names if name not in truth]
        if fresh:
            rows = [vacant.pop() if vacant else len(ids) + i for i in range(len(fresh))]
            ids.place(fresh, np.array(rows, np.int64))
            size = len(ids)
            vacant += set(range(size)) - set(rows) - set(truth.values()) - set(vacant)
            truth.update(zip(fresh, rows, strict=True))
    every = [f"m{number}" * (1 + number % 3) for number in range(400)] + list(truth)
    assert ids.find(every).tolist() == [truth.get(name, NOBODY) for name in every]
    assert {name: ids[row] for name, row in truth.items()} == {name: name for name in truth}
    assert [word.decode() for word in ids.words(np.array(list(truth.values()), np.int64))] == list(truth)


WRONG = [
    ("id", record("")),
    ("id", record("x" * 20_000)),
    ("host", record(state=MachineState.IDLE, host=None)),
    ("host", record(state=MachineState.SPECULATIVE, host=Host("p", "r"))),
    ("cluster", record(cluster="")),
    ("cluster", record(state=MachineState.IDLE, cluster="c")),
    ("last_error", record(state=MachineState.FAILED, last_error="")),
    ("price_per_hour", record(price_per_hour=-0.01)),
    ("price_per_hour", record(price_per_hour=MAX_PRICE * 1.01)),
    ("price_per_hour", record(price_per_hour=math.nan)),
    ("price_per_hour", record(price_per_hour=math.inf)),
    ("interruption_probability", record(interruption_probability=-0.1)),
    ("interruption_probability", record(interruption_probability=1.1)),
    ("interruption_probability", record(interruption_probability=math.nan)),
    ("drain_seconds", record(drain_seconds=-1)),
    ("drain_seconds", record(drain_seconds=2**31)),
    ("drain_seconds", record(drain_seconds=2**70)),
    ("drain_seconds", record(drain_seconds=cast("int", 1.7))),
    ("idle_since", record(idle_since=cast("int", math.nan))),
    ("not_before", record(not_before=MAX_TIME + 1)),
    ("idle_since", record(idle_since=-MAX_TIME - 1)),
    ("reclaim_hold_until", record(reclaim_hold_until=2**64)),
    ("stamp.number", record(stamp=stamp(-1))),
    ("stamp.number", record(stamp=stamp(MAX_NUMBER + 1))),
    ("stamp.number", record(stamp=stamp(2**64))),
    ("stamp.priority", record(stamp=stamp(priority=2**31))),
    ("unrequested.priority", record(unrequested=Stakes(INT32_MIN - 1, PenaltyBucket.ZERO, PenaltyBucket.ZERO))),
    ("allocatable['cpu']", record(allocatable=(("cpu", -1),))),
    ("allocatable['cpu']", record(allocatable=(("cpu", MAX_UNITS + 1),))),
    ("allocatable['pods']", record(allocatable=(("pods", MAX_PODS + 1),))),
    ("resources['cpu']", record(allocatable=None, resources=(("cpu", MAX_UNITS + 1),))),
]


@pytest.mark.parametrize(("field", "bad"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_a_record_that_cannot_be_is_refused_by_name_and_nothing_changes(
    field: str, bad: MachineRecord, known: bool
) -> None:
    inventory = Inventory()
    inventory.apply([record("a", stamp=stamp(3)), record("b")] + ([record("m")] if known else []))
    inventory.changes()
    before, counts = raw(inventory), _counts(inventory)
    new = record("new", zone="elsewhere", cluster="new", stamp=stamp(key=NeedKey("new", "", ())))
    for batch in ([new, bad], [bad, new], [record("a", price_per_hour=9.0), bad, new], [bad, record(bad.machine.id)]):
        with pytest.raises(RecordError) as refused:
            inventory.apply(batch)
        assert (refused.value.machine_id, refused.value.field) == (bad.machine.id, field)
        assert repr(bad.machine.id) in str(refused.value)
    assert raw(inventory) == before
    assert _counts(inventory) == counts
    assert [part.tolist() for part in inventory.changes()] == [[], []]


def _counts(inventory: Inventory) -> tuple[int, ...]:
    return len(inventory), len(inventory.shapes), len(inventory.clusters), len(inventory.keys)


def test_the_largest_values_are_taken_as_they_are() -> None:
    inventory = Inventory()
    largest = record(
        price_per_hour=MAX_PRICE,
        interruption_probability=1.0,
        allocatable=(("cpu", MAX_UNITS), ("memory", MAX_UNITS), ("pods", MAX_PODS)),
        stamp=Stamp(KEYS[0], INT32_MAX, PenaltyBucket.PINNED, PenaltyBucket.PINNED, MAX_NUMBER),
        unrequested=Stakes(INT32_MIN, PenaltyBucket.PINNED, PenaltyBucket.PINNED),
        drain_seconds=INT32_MAX,
        not_before=MAX_TIME,
        idle_since=-MAX_TIME,
        reclaim_hold_until=MAX_TIME,
    )
    inventory.apply([largest])
    assert inventory.price.view[0] == 500_000_000_000
    assert inventory.probability.view[0] == 1_000_000
    assert inventory.binding.view[0] == MAX_NUMBER
    assert inventory.stamp_priority.view[0] == INT32_MAX
    assert inventory.stakes_priority.view[0] == INT32_MIN
    assert inventory.drain_seconds.view[0] == INT32_MAX
    assert (inventory.not_before.view[0], inventory.idle_since.view[0]) == (MAX_TIME, -MAX_TIME)
    assert inventory.hold_until.view[0] == MAX_TIME
    assert inventory.shapes.allocatable.view[0].tolist() == [MAX_PODS, MAX_UNITS, MAX_UNITS]


def test_a_snug_column_widens_for_what_does_not_fit_and_keeps_what_it_held() -> None:
    column = NarrowColumn(NOBODY)
    column.resize(6)
    held = [NOBODY] * 6
    for row, (value, size) in enumerate([(127, 1), (128, 2), (-(2**15) - 1, 4), (2**31, 8), (0, 8)]):
        column.write(np.array([row]), np.array([value]))
        held[row] = value
        assert (column.view.tolist(), column.view.itemsize) == (held, size)
    column.resize(40)
    assert column.view.tolist() == held + [NOBODY] * 34


def test_machines_whose_labels_are_told_apart_later_share_equal_ones_again() -> None:
    inventory = Inventory()
    zones = ["a", "b", "a", "b"]
    inventory.apply([record(f"m{i}", labels={"rack": zone}) for i, zone in enumerate(zones)])
    assert len(set(inventory.shape.view.tolist())) == 1
    inventory.remove(["m1"])
    inventory.shapes.look_at("rack")
    inventory.reshape()
    shapes = [int(inventory.shape.view[row_of(inventory, f"m{i}")]) for i in (0, 2, 3)]
    assert shapes[0] == shapes[1] != shapes[2]
    inventory.shapes.look_at("nowhere")
    inventory.reshape()
    assert [int(inventory.shape.view[row_of(inventory, f"m{i}")]) for i in (0, 2, 3)] == shapes


def test_no_price_below_the_largest_loses_a_digit_against_a_penalty() -> None:
    # effective cost in half micro-dollars: 2 * price + probability * half dollars of the largest penalty but PINNED.
    largest = 2 * round(MAX_PRICE * 1e6) + 1_000_000 * 2 * int(PenaltyBucket.P_8388608.dollars or 0)
    assert largest + 1 < 2**53


def test_five_million_of_the_largest_machines_sum_to_less_than_63_bits() -> None:
    fleet = 5_000_000
    assert fleet * MAX_PODS < 2**63, "units, each of which takes a pod"
    assert fleet * 24 * 2**30 < 2**63, "KiB of machines of 24 TiB"
    assert -MAX_TIME - MAX_TIME > -(2**63), "the difference of two times"


def test_what_can_be_interrupted_at_all_never_counts_as_what_cannot() -> None:
    inventory = Inventory()
    inventory.apply([record("a", interruption_probability=1e-9), record("b", interruption_probability=0.0)])
    assert inventory.probability.view.tolist() == [1, 0]


def test_daemons_that_leave_nothing_are_counted_no_further() -> None:
    shapes = Inventory().shapes
    daemons = DaemonSets(shapes)
    number = daemons.intern(Daemon((), (("cpu", MAX_UNITS - i),)) for i in range(5))
    assert daemons.base.view[number].tolist() == [5, MAX_UNITS, 0]


def test_a_label_that_nobody_looks_at_makes_no_shape_until_somebody_does() -> None:
    inventory = Inventory()
    inventory.apply([record(name, labels={"host": name}) for name in "abc"])
    inventory.apply([record("d")])
    assert inventory.shape.view.tolist() == [0, 0, 0, 0]
    inventory.changes()
    look_at(inventory, "host")
    assert len(set(inventory.shape.view.tolist())) == 4
    assert len(set(inventory.offer.view.tolist())) == 4
    assert [rows.tolist() for rows in inventory.changes()] == [[0, 1, 2], [0, 1, 2]]


def test_equal_labels_make_one_shape_in_any_order() -> None:
    inventory = Inventory()
    look_at(inventory, "x", "y")
    inventory.apply([record("a", labels={"x": "1", "y": "2"}), record("b", labels={"y": "2", "x": "1"})])
    inventory.apply([record("c", labels={"y": "1", "x": "2"})])
    assert inventory.shape.view.tolist() == [0, 0, 1]


def test_labels_that_a_caller_changes_afterwards_change_no_shape() -> None:
    labels = {"x": "1"}
    inventory = Inventory()
    inventory.apply([record("a", labels=labels)])
    labels["x"] = "2"
    inventory.apply([record("b", labels=labels)])
    look_at(inventory, "x")
    assert values_of(inventory, "x") == ["1", "2"]


def test_needs_may_be_known_before_any_machine() -> None:
    inventory = Inventory()
    number = inventory.keys.intern(KEYS[1])
    inventory.apply([record("a", stamp=stamp(1, KEYS[1])), record("b")])
    assert inventory.stamped_for.view.tolist() == [number, NOBODY]


def test_a_removed_machine_leaves_its_row_to_the_next() -> None:
    inventory = Inventory()
    inventory.apply([record("a", stamp=stamp()), record("b")])
    row = row_of(inventory, "a")
    inventory.remove(["a", "nobody"])
    assert len(inventory) == 1
    assert row_of(inventory, "a") == NOBODY
    assert (inventory.state.view[row], inventory.stamped_for.view[row], inventory.bound.view[row]) == (
        VACANT,
        NOBODY,
        NOBODY,
    )
    inventory.apply([record("c")])
    assert row_of(inventory, "c") == row


def test_decoded_copies_are_the_same_machines() -> None:
    inventory = Inventory()
    one = record("a", labels={"x": "1"}, stamp=stamp())
    inventory.apply([one])
    inventory.changes()
    inventory.apply([msgspec.json.decode(msgspec.json.encode(one), type=MachineRecord)])
    assert inventory.changes()[0].tolist() == []
