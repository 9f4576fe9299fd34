"""Lengths of time and distributions: as written, as drawn."""

import statistics

import pytest

from bigfleet.sim.cloud.delays import Delay, Seconds, share


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(0, 0), (1.5, 1.5), ("90s", 90), ("250ms", 0.25), ("1h30m", 5400), ("2d", 172_800), ("0.5h", 1800)],
)
def test_times_are_numbers_or_texts(written: object, seconds: float) -> None:
    assert Seconds.read(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written", ["", "90", "1x", "h", "1h 30m", -1, "-5s", "9999d", True, None, [1], float("nan"), 10**400]
)
def test_what_is_no_time_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"is no length of time|is negative|is not between"):
        Seconds.read(written)


def test_a_lone_time_is_a_constant() -> None:
    assert [Delay.read("2m").at(u) for u in (0.001, 0.5, 0.999)] == [120, 120, 120]


def test_a_uniform_one_goes_from_its_least_to_its_most() -> None:
    delay = Delay.read({"min": 10, "max": "30s"})
    assert [delay.at(u) for u in (0.25, 0.5, 0.75)] == [15, 20, 25]


def test_a_lognormal_one_has_the_median_and_the_p99_that_are_written() -> None:
    delay = Delay.read({"median": 40, "p99": 180})
    assert delay.at(0.5) == pytest.approx(40)
    assert delay.at(0.99) == pytest.approx(180)
    drawn = sorted(delay.at(share("test", n)) for n in range(20_000))
    assert statistics.median(drawn) == pytest.approx(40, rel=0.03)
    assert drawn[int(0.99 * len(drawn))] == pytest.approx(180, rel=0.1)


@pytest.mark.parametrize(
    "written",
    [{}, {"min": 1}, {"min": 2, "max": 1}, {"median": 0, "p99": 1}, {"median": 2, "p99": 1}, {"median": 1, "max": 2}],
)
def test_what_is_no_distribution_is_refused_with_what_would_be(written: object) -> None:
    with pytest.raises(ValueError, match="median, p99"):
        Delay.read(written)


def test_draws_depend_on_their_key_alone_and_fill_the_range_evenly() -> None:
    first = [share(1, "m", n) for n in range(10_000)]
    again = {n: share(1, "m", n) for n in reversed(range(10_000))}
    assert first == [again[n] for n in range(10_000)]
    assert first != [share(2, "m", n) for n in range(10_000)]
    assert all(0 < drawn < 1 for drawn in first)
    tenths = [sum(int(drawn * 10) == tenth for drawn in first) for tenth in range(10)]
    assert all(850 < count < 1150 for count in tenths), tenths
