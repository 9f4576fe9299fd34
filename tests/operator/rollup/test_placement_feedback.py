"""Placement feedback (protocol rule 23): raised only when covered and still, by so much and no further, and let go."""

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.demand.profile import Profile
from bigfleet.model.resources import total
from bigfleet.operator.rollup.placement_feedback import STILL_SECONDS, PlacementFeedback, PlacementSigns

UNIT = (("cpu", 1000),)


def need(pods: int, priority: int = 0) -> Need:
    return Need(Profile(priority=priority), total([(UNIT, pods)]), UNIT)


ROW = need(1).key


def placed(
    unschedulable: int, *, covered: Collection[NeedKey] | None = (ROW,), moving: bool = False, empty: int = 0
) -> PlacementSigns:
    return PlacementSigns(unschedulable={ROW: unschedulable}, covered=covered, moving=moving, empty=empty)


class Patient(PlacementFeedback):
    """Judged once nothing has moved for long enough."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def judged(self, placement: PlacementSigns) -> list[NeedKey]:
        self.judge(placement, self.now)
        self.now += STILL_SECONDS
        given_up = self.judge(placement, self.now)
        self.now += 1
        return given_up


def asked(feedback: PlacementFeedback, pods: int = 10) -> int:
    (row,) = feedback.apply((need(pods),))
    return dict(row.aggregate)["cpu"] // 1000


def test_rule_23_a_covered_row_is_raised_by_its_unschedulable_pods() -> None:
    feedback = Patient()
    assert feedback.judged(placed(3)) == []
    assert asked(feedback) == 13


def test_rule_23_nothing_is_raised_while_short_moving_or_unanswered() -> None:
    feedback = Patient()
    feedback.judged(placed(3, covered=()))
    feedback.judged(placed(3, moving=True))
    feedback.judged(placed(3, covered=None))
    assert asked(feedback) == 10


def test_rule_23_nodes_that_have_just_come_are_given_time() -> None:
    feedback = PlacementFeedback()
    feedback.judge(placed(3, moving=True), 0.0)
    feedback.judge(placed(3), 1.0)
    feedback.judge(placed(3), STILL_SECONDS)
    assert asked(feedback) == 10
    feedback.judge(placed(3), 1.0 + STILL_SECONDS)
    feedback.judge(placed(3), 2.0 + STILL_SECONDS)
    assert asked(feedback) == 13


def test_rule_23_pods_that_have_just_come_into_a_still_cluster_are_given_time() -> None:
    feedback = PlacementFeedback()
    feedback.judge(placed(0), 0.0)
    # Eight come; the shard has answered for the demand without them, and no machine moves for them yet.
    feedback.judge(placed(8), STILL_SECONDS)
    feedback.judge(placed(8), 1.0 + STILL_SECONDS)
    assert asked(feedback) == 10
    feedback.judge(placed(9), 2 * STILL_SECONDS)
    assert asked(feedback) == 10
    feedback.judge(placed(9), 3 * STILL_SECONDS)
    assert asked(feedback) == 19


def test_rule_23_after_two_raises_that_placed_none_there_is_no_third_and_it_is_said_once() -> None:
    feedback = Patient()
    assert [feedback.judged(placed(2)) for _ in range(2)] == [[], []]
    assert asked(feedback) == 14
    assert feedback.judged(placed(2)) == [ROW]
    assert feedback.judged(placed(2)) == []
    assert asked(feedback) == 14


def test_rule_23_a_raise_that_placed_some_does_not_count_against_the_next() -> None:
    feedback = Patient()
    for left in (5, 4, 3, 2, 1):
        assert feedback.judged(placed(left)) == []
    assert asked(feedback) == 25


def test_rule_23_it_is_let_go_only_as_far_as_nodes_stand_empty_and_not_while_pods_wait() -> None:
    feedback = Patient()
    feedback.judged(placed(3))
    feedback.judged(placed(0))
    assert asked(feedback) == 13
    feedback.judged(placed(1, covered=(), empty=9))
    assert asked(feedback) == 13
    feedback.judged(placed(0, empty=2))
    assert asked(feedback) == 11
    feedback.judged(placed(0, empty=1))
    assert asked(feedback) == 10
    assert feedback.units == {}


def test_rule_23_a_row_that_nobody_asks_for_is_not_held_up_by_a_raise() -> None:
    feedback = Patient()
    feedback.judged(placed(3))
    other = need(4, priority=9)
    assert feedback.apply((other,)) == (other,)
    assert asked(feedback) == 10


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans(), st.integers(0, 3))))
def test_rule_23_it_never_asks_for_less_and_without_trouble_for_no_more(
    steps: list[tuple[int, bool, bool, int]],
) -> None:
    feedback = Patient()
    trouble = 0
    for pods, is_short, moving, empty in steps:
        before = asked(feedback)
        feedback.judged(placed(pods, covered=() if is_short else {ROW}, moving=moving, empty=empty))
        after = asked(feedback)
        assert after >= 10
        assert after - before <= pods
        assert before - after <= empty
        trouble += pods
    assert asked(feedback) <= 10 + trouble
