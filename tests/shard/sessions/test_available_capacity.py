"""What clusters are told that they could still have, and when."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.engine.available import NOTHING, Available, Supply
from bigfleet.model.demand.profile import Operator, Profile, Requirement
from bigfleet.shard.sessions.available_capacity import AGAIN_SECONDS, AT_LEAST, AvailableCapacity
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

CYCLE = 10.0
U = pb.AvailableCapacityUpdate
WEB = Profile(requirements=(Requirement("kubernetes.io/arch", Operator.IN, ("amd64",)),), priority=5)
BATCH = Profile(priority=1)
ROOM = (("cpu", 31_500), ("memory", 126 * 2**20), ("pods", 108))
IDLE = Supply(idle=42, price=1.536, instance_type="m7", room=ROOM)


def never(instance_type: str) -> None:
    """No slot has ever become a node."""


def met(*profiles: Profile) -> AvailableCapacity:
    """A cluster that has rolled these up."""
    capacity = AvailableCapacity()
    capacity.rolled_up("c", profiles, 0)
    return capacity


def told(capacity: AvailableCapacity, *answers: tuple[Profile, Supply]) -> list[U]:
    """What the cluster hears when it is looked at and this is found."""
    return capacity.worked_out("c", [Available(*answer) for answer in answers], never, 0)


def one(supply: Supply, eta: float | None = None) -> U:
    """What is said of it the first time."""
    (update,) = met(WEB).worked_out("c", [Available(WEB, supply)], lambda _: eta, 0)
    return update


def test_the_operator_hears_the_profile_the_machine_and_its_terms() -> None:
    update = one(Supply(idle=42, atomic=True, price=1.536, instance_type="m7", room=ROOM))
    assert update.supersedes_key == f"available:{WEB.fingerprint}"
    assert [(r.key, r.operator, list(r.values)) for r in update.requirements] == [("kubernetes.io/arch", 1, ["amd64"])]
    assert dict(update.resources.resources) == {"cpu": "31500m", "memory": "126Gi", "pods": "108"}
    assert (update.available_count, update.cost_per_hour, update.atomic) == (42, 1.536, True)


@pytest.mark.parametrize(
    ("supply", "confidence"),
    [
        (Supply(idle=1, owned=1, on_demand=1, spot=1), U.CONFIDENCE_HIGH),
        (Supply(owned=1, spot=1), U.CONFIDENCE_MEDIUM),
        (Supply(on_demand=1, spot=1), U.CONFIDENCE_MEDIUM),
        (Supply(spot=1), U.CONFIDENCE_LOW),
        (Supply(preemptible=1), U.CONFIDENCE_LOW),
        (NOTHING, U.CONFIDENCE_NONE),
    ],
)
def test_confidence_is_that_of_one_unit_more(supply: Supply, confidence: int) -> None:
    update = one(supply)
    assert (update.confidence, update.available_count) == (confidence, supply.count)


def test_what_stands_idle_is_there_at_once_and_a_slot_when_others_of_its_type_were() -> None:
    medians = {"m7": 93.2}
    assert one(Supply(idle=1, on_demand=9, instance_type="m7"), 93.2).eta_seconds == 0
    (update,) = met(WEB).worked_out("c", [Available(WEB, Supply(on_demand=9, instance_type="m7"))], medians.get, 0)
    assert update.eta_seconds == 94


@pytest.mark.parametrize(("supply", "eta"), [(Supply(spot=9), None), (Supply(preemptible=9), 60.0), (NOTHING, 60.0)])
def test_nothing_is_said_of_how_long_where_nobody_knows(supply: Supply, eta: float | None) -> None:
    assert not one(supply, eta).HasField("eta_seconds")


def test_a_count_beyond_32_bits_is_as_much_as_can_be_said() -> None:
    assert one(Supply(spot=2**40)).available_count == 2_100_000_000


# News.


def test_a_fleet_at_rest_sends_nothing() -> None:
    capacity = met(WEB, BATCH)
    found = (WEB, IDLE), (BATCH, NOTHING)
    assert len(told(capacity, *found)) == 2
    assert told(capacity, *found) == []


@pytest.mark.parametrize(
    "after",
    [
        Supply(idle=41, price=1.536, room=ROOM),
        Supply(idle=43, price=1.536, room=ROOM),
        Supply(owned=42, price=1.536, room=ROOM),
        Supply(idle=42, atomic=True, price=1.536, room=ROOM),
        Supply(idle=42, price=1.536, room=ROOM[:2]),
        Supply(idle=42, price=1.62, room=ROOM),
        Supply(idle=42, price=1.45, room=ROOM),
        NOTHING,
    ],
)
def test_what_somebody_would_act_on_is_news(after: Supply) -> None:
    capacity = met(WEB)
    told(capacity, (WEB, IDLE))
    assert [update.available_count for update in told(capacity, (WEB, after))] == [after.count]


def test_large_counts_are_cut_to_two_digits_and_never_say_too_much() -> None:
    counts = (99, 100, 109, 110, 1_234, 987_654)
    assert [one(Supply(idle=count)).available_count for count in counts] == [99, 100, 100, 110, 1_200, 980_000]


def test_a_large_count_that_moves_a_little_is_no_news_and_one_that_flaps_is_news_once() -> None:
    capacity = met(WEB)
    counts = {1_200: 1_200, 1_319: None, 1_399: None, 1_199: 1_100, 1_201: None, 1_198: None, 1_299: None, 1_300: 1_300}
    for count, shown in counts.items():
        heard = [update.available_count for update in told(capacity, (WEB, Supply(idle=count)))]
        assert heard == ([] if shown is None else [shown])


def test_a_price_or_a_time_that_moves_a_little_is_no_news_until_it_has_moved_far() -> None:
    capacity = met(WEB)
    heard = []
    for price, eta in ((1.0, 100), (1.04, 119), (0.96, 81), (1.06, 100), (1.06, 121), (1.06, None), (1.06, 130)):
        answers = [Available(WEB, Supply(on_demand=5, price=price))]
        heard += capacity.worked_out("c", answers, {"": eta}.get, 0)
    assert [(u.cost_per_hour, u.eta_seconds if u.HasField("eta_seconds") else None) for u in heard] == [
        (1.0, 100), (1.06, 100), (1.06, 121), (1.06, None), (1.06, 130),
    ]  # fmt: skip


def test_small_steps_add_up_to_news() -> None:
    capacity = met(WEB)
    told(capacity, (WEB, Supply(idle=1_000, price=1.0)))
    sent = [told(capacity, (WEB, Supply(idle=1_000, price=1 + step / 50))) for step in range(1, 7)]
    assert [bool(updates) for updates in sent] == [False, False, True, False, False, True]


def test_a_profile_that_is_asked_for_no_more_ends_with_nothing_once() -> None:
    capacity = met(WEB, BATCH)
    told(capacity, (WEB, IDLE), (BATCH, IDLE))
    (end,) = told(capacity, (WEB, IDLE))
    assert (end.supersedes_key, end.available_count, end.confidence) == (
        f"available:{BATCH.fingerprint}",
        0,
        U.CONFIDENCE_NONE,
    )
    assert told(capacity, (WEB, IDLE)) == []
    assert len(told(capacity, (WEB, IDLE), (BATCH, IDLE))) == 1, "it is back"


def test_a_profile_that_went_and_came_back_between_two_looks_is_told_again() -> None:
    capacity = met(WEB, BATCH)
    told(capacity, (WEB, IDLE), (BATCH, IDLE))
    capacity.rolled_up("c", [WEB], 1)
    capacity.rolled_up("c", [WEB, BATCH], 2)
    (again,) = told(capacity, (WEB, IDLE), (BATCH, IDLE))
    assert (again.supersedes_key, again.available_count) == (f"available:{BATCH.fingerprint}", 42)
    assert told(capacity, (WEB, IDLE), (BATCH, IDLE)) == []


def test_an_operator_that_connects_hears_what_was_said_last() -> None:
    capacity = met(WEB, BATCH)
    first = told(capacity, (WEB, IDLE), (BATCH, NOTHING))
    assert capacity.replay("c") == first
    changed = told(capacity, (WEB, Supply(spot=1)))
    assert capacity.replay("c") == changed[:1]
    capacity.forget("c")
    assert capacity.replay("c") == []


def test_what_was_found_for_a_cluster_forgotten_meanwhile_is_not_said() -> None:
    capacity = met(WEB)
    capacity.forget("c")
    capacity.forget("c")
    assert told(capacity, (WEB, IDLE)) == []
    assert capacity.due(1_000.0) == []


# When.


def look(capacity: AvailableCapacity, now: float) -> list[str]:
    """One cycle: whoever is due is looked at."""
    due = capacity.due(now)
    for cluster in due:
        capacity.worked_out(cluster, (), never, now)
    return due


def test_a_cluster_is_due_with_its_first_roll_up_and_with_a_new_profile() -> None:
    capacity = met(WEB)
    assert look(capacity, 0.5) == ["c"]
    capacity.rolled_up("c", [WEB], 1.0)
    assert look(capacity, 1.0) == []
    capacity.rolled_up("c", [WEB, BATCH], 2.0)
    assert look(capacity, 2.5) == ["c"]
    capacity.rolled_up("c", [BATCH], 3.0)
    assert look(capacity, 3.5) == []
    capacity.rolled_up("c", [WEB, BATCH], 4.0)
    assert look(capacity, 4.5) == ["c"], "one that is back is new"
    assert look(capacity, 4.5 + AGAIN_SECONDS) == ["c"]


def test_whoever_waits_longest_is_looked_at_first() -> None:
    capacity, old, new = (
        AvailableCapacity(),
        [f"a{i:02}" for i in range(AT_LEAST)],
        [f"b{i:02}" for i in range(AT_LEAST)],
    )
    for name in old:
        capacity.rolled_up(name, [WEB], 0.0)
    assert look(capacity, 0.0) == old
    for name in new:
        capacity.rolled_up(name, [WEB], AGAIN_SECONDS - 1)
    capacity.due(AGAIN_SECONDS - 0.5)
    assert look(capacity, AGAIN_SECONDS) == new


def test_one_that_was_due_and_not_looked_at_stays_due() -> None:
    capacity = met(WEB)
    assert capacity.due(0.0) == capacity.due(0.5) == ["c"]


def test_two_thousand_clusters_that_come_at_once_are_looked_at_in_turn_and_none_waits_30_seconds() -> None:
    capacity, names = AvailableCapacity(), [f"c{i:04}" for i in range(2_000)]
    for name in names:
        capacity.rolled_up(name, [WEB], 0.0)
    capacity.due(-CYCLE)
    seen: dict[str, float] = {}
    for cycle in range(20):
        now = cycle * CYCLE
        due = look(capacity, now)
        assert len(due) <= len(names) / 2
        assert all(now - seen.get(name, 0.0) <= 30.0 for name in due)
        seen |= dict.fromkeys(due, now)
        assert all(now - seen.get(name, 0.0) < 30.0 for name in names)


def test_early_cycles_in_a_row_look_at_few() -> None:
    capacity = AvailableCapacity()
    for i in range(4_000):
        capacity.rolled_up(f"c{i:04}", [WEB], 0.0)
    capacity.due(-0.5)
    assert [len(look(capacity, n / 2)) for n in range(3)] == [AT_LEAST] * 3


@given(st.lists(st.tuples(st.floats(0.5, 10.0), st.integers(0, 40)), min_size=1, max_size=60))
def test_nobody_waits_longer_than_30_seconds_whenever_cycles_and_clusters_come(
    steps: Iterable[tuple[float, int]],
) -> None:
    capacity, now, seen = AvailableCapacity(), 0.0, dict[str, float]()
    for gap, newcomers in steps:
        for _ in range(newcomers):
            name = f"c{len(seen)}"
            seen[name] = now
            capacity.rolled_up(name, [WEB], now)
        now += gap
        seen |= dict.fromkeys(look(capacity, now), now)
        assert all(now - last <= 30.0 for last in seen.values())
