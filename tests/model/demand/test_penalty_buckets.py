from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.quantity import QuantityError

BOUNDS = [Fraction(0), Fraction(1, 2), *(Fraction(2) ** power for power in range(24))]
LABELS = ["0", "0.5", *(str(2**power) for power in range(24)), "pinned"]


@pytest.mark.parametrize("number", range(1, 28))
def test_number_dollars_and_label_name_one_bucket(number: int) -> None:
    bucket = PenaltyBucket(number)
    assert bucket.label == LABELS[number - 1]
    assert PenaltyBucket.from_label(LABELS[number - 1]) is bucket
    assert bucket.dollars == (None if number == 27 else BOUNDS[number - 1])


@pytest.mark.parametrize("number", range(1, 27))
def test_a_bound_falls_into_its_own_bucket_and_a_billionth_more_into_the_next(number: int) -> None:
    nano = int(BOUNDS[number - 1] * 10**9)
    assert PenaltyBucket.from_dollars(f"{nano}n") == number
    assert PenaltyBucket.from_dollars(f"{nano + 1}n") == number + 1
    if nano:
        assert PenaltyBucket.from_dollars(f"{nano - 1}n") in (number, number - 1)
        assert (PenaltyBucket.from_dollars(f"{nano - 1}n") == number) == (nano > 1)


@given(st.integers(0, 2**24 * 10**9))
def test_the_bucket_is_the_smallest_whose_bound_is_enough(nano: int) -> None:
    bucket = PenaltyBucket.from_dollars(f"{nano}n")
    enough = [i + 1 for i, bound in enumerate(BOUNDS) if bound * 10**9 >= nano]
    assert bucket == (enough[0] if enough else PenaltyBucket.PINNED)


@pytest.mark.parametrize(
    ("dollars", "label"),
    [(0, "0"), ("0", "0"), ("500m", "0.5"), ("0.5", "0.5"), (1, "1"), (3, "4"), ("8k", "8192"), ("8388608", "8388608")],
)
def test_penalties_are_written_as_quantities_or_integers(dollars: str | int, label: str) -> None:
    assert PenaltyBucket.from_dollars(dollars).label == label


@pytest.mark.parametrize("dollars", ["-1", -1, "-1n", "$5", "", "much"])
def test_what_is_no_amount_of_money_is_refused_by_name(dollars: str | int) -> None:
    with pytest.raises(QuantityError, match=r"negative|quantity"):
        PenaltyBucket.from_dollars(dollars)


def test_an_unknown_label_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'3' is no penalty bucket"):
        PenaltyBucket.from_label("3")
