"""The free pool is ordered by counting; the order is the one that comparing would give."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.engine.load.pool import _numbered, _places, _stable_order

NUMBERS = st.lists(st.integers(0, 70_000), max_size=60).map(lambda numbers: np.array(numbers, np.int64))


@given(NUMBERS)
def test_numbering_is_that_of_sorted_values_and_finds_the_first_of_each(values: np.ndarray) -> None:
    first, number = _numbered(values)
    _, expected_first, expected_number = np.unique(values, return_index=True, return_inverse=True)
    assert first.tolist() == expected_first.tolist()
    assert number.tolist() == expected_number.reshape(-1).tolist()


@given(NUMBERS)
def test_equal_numbers_stay_as_they_stand(numbers: np.ndarray) -> None:
    assert _stable_order(numbers).tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)


@given(st.permutations(range(30)), st.sets(st.integers(0, 29)))
def test_places_follow_the_order_and_leave_out_what_is_not_there(order: list[int], chosen: set[int]) -> None:
    rows = np.array(sorted(chosen), np.int64)
    found = _places(rows, np.array(order, np.int64), 30)
    assert rows[found].tolist() == [row for row in order if row in chosen]
