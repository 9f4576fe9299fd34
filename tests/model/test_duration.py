"""Lengths of time: as written, as read, and back."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bigfleet.model.duration import MAX_SECONDS, DurationError, parse, written

times = st.floats(0, MAX_SECONDS).map(parse)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("1.5h", 5400.0),
        ("1100ms", 1.1),
        ("0s", 0.0),
        ("366d", MAX_SECONDS),
        (1.5, 1.5),
        (30, 30.0),
    ],
)
def test_a_time_is_a_text_with_units_or_a_number_of_seconds(text: object, seconds: float) -> None:
    assert parse(text) == seconds


@pytest.mark.parametrize(
    "given_",
    ["", "10", "s", "5 m", "1h 30m", "-s5", "+5s", "1e3s", "5M", "٣s", "1s" * 40, True, None, [1], {"s": 1}],
)
def test_what_is_no_time_is_refused_with_what_would_be(given_: object) -> None:
    with pytest.raises(DurationError, match=r"is no length of time: give its unit, as in 500ms"):
        parse(given_)


@pytest.mark.parametrize("given_", ["367d", "9999999h", float("nan"), float("inf"), 10**400])
def test_a_time_out_of_range_is_refused_with_the_range(given_: object) -> None:
    with pytest.raises(DurationError, match="is not between 0 and 366 days"):
        parse(given_)


@pytest.mark.parametrize("given_", ["-5s", "-1h30m", "-5", "-0.5ms", -1, -0.001])
def test_a_time_below_nothing_is_called_negative(given_: object) -> None:
    with pytest.raises(DurationError, match=f"'{given_}' is negative: a length of time is 0 or more"):
        parse(given_)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (0.5, "500ms"), (10.0, "10s"), (90.0, "90s"), (300.0, "5m"), (86_400.0, "1d"), (0.0015, "0.0015s")],
)
def test_a_time_is_written_whole_in_the_largest_unit_that_allows_it(seconds: float, text: str) -> None:
    assert written(seconds) == text


@given(times)
def test_what_is_written_is_read_back(seconds: float) -> None:
    assert parse(written(seconds)) == seconds


@given(st.integers(0, int(MAX_SECONDS) * 1000))
@example(14_060_124_540)
def test_the_unit_makes_no_difference(milliseconds: int) -> None:
    assert parse(f"{milliseconds}ms") == parse(milliseconds / 1000)


@given(times)
def test_reading_twice_changes_nothing(seconds: float) -> None:
    assert parse(seconds) == seconds


@given(st.text("0123456789.dhms", max_size=70) | st.text() | st.integers() | st.floats())
def test_whatever_is_given_is_a_time_in_range_or_refused(anything: object) -> None:
    try:
        seconds = parse(anything)
    except DurationError:
        return
    assert 0 <= seconds <= MAX_SECONDS


def test_a_number_too_long_to_be_shown_is_refused_by_its_size() -> None:
    with pytest.raises(DurationError, match="an integer of 16610 bits"):
        parse(10**5000)
