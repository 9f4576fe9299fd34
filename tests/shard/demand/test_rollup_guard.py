"""The roll-up guard: what it doubts, for how long, and in which words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Profile
from bigfleet.model.resources import MAX_TOTAL, Resources
from bigfleet.shard.demand.rollup_guard import RollupGuard, total_asked, total_bound

FULL: Resources = (("cpu", 100_000), ("memory", 1_000))


def judge(
    guard: RollupGuard, asked: Resources, now: float, said_at: int | None = None, before: Resources = FULL
) -> str:
    return guard.judge(asked, before, "was last accepted", int(now) + 1 if said_at is None else said_at, now)


def test_rule_17_three_in_a_row_and_sixty_seconds_before_next_to_nothing_is_believed() -> None:
    guard = RollupGuard()
    for now in (0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 59.9):
        assert judge(guard, (), now)
        assert guard.quarantined
    assert not judge(guard, (), 60.0)
    assert not guard.quarantined


def test_rule_17_sixty_seconds_alone_are_not_enough() -> None:
    guard = RollupGuard()
    assert judge(guard, (), 0.0)
    assert judge(guard, (), 3600.0)
    assert not judge(guard, (), 3601.0)


def test_rule_17_a_good_roll_up_between_them_starts_the_count_anew() -> None:
    guard = RollupGuard()
    assert judge(guard, (), 0.0)
    assert judge(guard, (), 30.0)
    assert not judge(guard, FULL, 50.0)
    assert not guard.quarantined
    assert judge(guard, (), 60.0)
    assert judge(guard, (), 90.0)
    assert judge(guard, (), 119.0)
    assert not judge(guard, (), 120.0)


def test_rule_17_one_roll_up_that_comes_twice_counts_once() -> None:
    guard = RollupGuard()
    assert judge(guard, (), 0.0, said_at=7)
    assert judge(guard, (), 0.1, said_at=7)
    assert judge(guard, (), 60.0, said_at=8)
    assert not judge(guard, (), 70.0, said_at=9)


def test_an_operator_that_fills_in_no_timestamp_is_believed_in_the_end() -> None:
    guard = RollupGuard()
    assert [bool(judge(guard, (), now, said_at=0)) for now in (0.0, 30.0, 60.0)] == [True, True, False]


@pytest.mark.parametrize(
    ("asked", "doubted"),
    [
        ((("cpu", 10_000), ("memory", 100)), False),
        ((("cpu", 9_999), ("memory", 1_000)), True),
        ((("cpu", 100_000), ("memory", 99)), True),
        ((("cpu", 100_000),), True),
        ((("cpu", 100_000), ("memory", 1_000), ("nvidia.com/gpu", 1)), False),
    ],
)
def test_rule_17_each_dimension_is_compared_for_itself(asked: Resources, doubted: bool) -> None:
    assert bool(judge(RollupGuard(), asked, 0.0)) == doubted


def test_a_cluster_that_had_nothing_may_go_on_with_nothing() -> None:
    assert not judge(RollupGuard(), (), 0.0, before=())


def test_the_words_name_what_fell_and_what_is_awaited() -> None:
    guard = RollupGuard()
    judge(guard, (), 0.0)
    reason = judge(guard, (("cpu", 1_500),), 12.0)
    assert reason == (
        "cpu from 100 to 1500m, memory from 1000Ki to 0: below 10 % of what was last accepted; believed after 3 such "
        "roll-ups in a row over 60 s, and this is number 2 after 12 s"
    )


def test_the_words_stay_short_however_many_dimensions_fall() -> None:
    before = tuple((f"r{i:03}", 10) for i in range(500))
    assert "r002 from 10 to 0, 497 more: below" in judge(RollupGuard(), (), 0.0, before=before)


def test_sums_do_not_overflow() -> None:
    row = Need(Profile(), (("cpu", MAX_TOTAL),), ())
    assert total_asked([row] * 5) == (("cpu", 5 * MAX_TOTAL),)


def test_what_is_bound_counts_in_the_dimensions_that_were_asked_for() -> None:
    usable: Resources = (
        ("cpu", 8_000),
        ("ephemeral-storage", 99),
        ("memory", 32),
        ("nvidia.com/gpu", 8),
        ("pods", 110),
    )
    stamped: Resources = (("cpu", 500), ("nvidia.com/gpu", 1))
    assert total_bound([(usable, stamped), (usable, stamped)]) == (("cpu", 16_000), ("nvidia.com/gpu", 16))
    assert total_bound([(usable, ()), (usable, stamped)]) == (("cpu", 16_000), ("memory", 32), ("nvidia.com/gpu", 8))


amounts = st.sampled_from([(), (("cpu", 1),), (("cpu", 9_999),), (("cpu", 10_000), ("memory", 100)), FULL])


@given(st.lists(st.tuples(amounts, st.floats(0.1, 90)), max_size=30))
def test_rule_17_nothing_small_is_ever_taken_on_less(said: list[tuple[Resources, float]]) -> None:
    guard, now, streak = RollupGuard(), 0.0, list[float]()
    for asked, gap in said:
        now += gap
        small = any(dict(asked).get(name, 0) * 10 < units for name, units in FULL)
        streak = [*streak, now] if small else []
        believed = not judge(guard, asked, now, said_at=0)
        assert believed == (not small or (len(streak) >= 3 and now - streak[0] >= 60))
        if believed:
            streak = []
