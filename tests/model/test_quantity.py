"""Quantities against apimachinery's own answers (quantity_cases.json), our deliberate differences, and the laws."""

import json
import math
from collections.abc import Hashable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bigfleet.model.quantity import Format, Quantity, QuantityError, parse

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("quantity_cases.json").read_text("utf-8"))["cases"]

# Where we part from Go on purpose: what we write, or None where we refuse.
DIFFERENCES: dict[str, str | None] = {
    **dict.fromkeys(("1e101", "1e-101", "0e101", "11e99", "1e999999999", "1e4294967296")),
    **dict.fromkeys((".", "+", "-", "+.", "-.", "m", "Ki", ".Ki", "+m", "-Ki", "e3", "E")),
    "1000E": "1000E",
    "10000E": "10000E",
    "-10000E": "-10000E",
}
AGREED = [case for case in CASES if case["text"] not in DIFFERENCES]
DIFFERING = [case for case in CASES if case["text"] in DIFFERENCES]

NANO = 10**9
MILLI_NANO = 10**6
INT64_MAX = 2**63 - 1
MULTIPLIERS = {
    "": Fraction(1),
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", start=1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
    **{f"{e}{power}": Fraction(10) ** power for e in "eE" for power in range(-30, 31)},
}


class Count(int):
    """An integer of a type of its own, as an IntEnum would be."""


digits = st.text("0123456789", max_size=30)
amounts = st.integers(min_value=-(10**109), max_value=10**109)
round_amounts = st.builds(
    lambda mantissa, power: mantissa * 10**power, st.integers(-(2**128), 2**128), st.integers(0, 40)
)
quantities = st.builds(Quantity, amounts | round_amounts, st.sampled_from(Format))
units = st.sampled_from((1, MILLI_NANO, NANO, 1024 * NANO, 2**20 * NANO)) | st.integers(1, 10**15)


@st.composite
def well_formed(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A text by the documented grammar, and the exact value it stands for."""
    sign, whole, fraction = draw(st.sampled_from(("", "+", "-"))), draw(digits), draw(digits)
    whole = whole or ("" if fraction else "0")
    point = "." if fraction else draw(st.sampled_from(("", ".")))
    suffix = draw(st.sampled_from(tuple(MULTIPLIERS)))
    value = Fraction(int(whole + fraction), 10 ** len(fraction)) * MULTIPLIERS[suffix]
    return f"{sign}{whole}{point}{fraction}{suffix}", -value if sign == "-" else value


well_formed_texts = well_formed().map(lambda pair: pair[0])
FRAGMENTS = ["0", "1", "9", "000", ".", "+", "-", "e", "E", "e9", "E-", "n", "u", "m", "k", "K", "M", "i", "Ki", "Ei"]
nearly_well_formed = st.lists(st.sampled_from([*FRAGMENTS, " ", "\n", "\u0661"]), max_size=12).map("".join)


@pytest.mark.parametrize("case", AGREED, ids=lambda case: ascii(case["text"]))
def test_apimachinery_says_the_same(case: dict[str, Any]) -> None:
    text = case["text"]
    if not case["accepted"]:
        with pytest.raises(QuantityError):
            parse(text)
        return
    quantity = parse(text)
    assert (quantity.nano, quantity.format.value, str(quantity)) == (case["nano"], case["format"], case["canonical"])
    if "value" in case:
        assert parse(text).ceil(NANO) == case["value"]
    if "milli" in case:
        assert parse(text).ceil(MILLI_NANO) == case["milli"]


@pytest.mark.parametrize("case", DIFFERING, ids=lambda case: case["text"])
def test_a_difference_from_apimachinery_is_one_of_the_stated_rules(case: dict[str, Any]) -> None:
    ours = DIFFERENCES[case["text"]]
    assert case["accepted"]
    assert case["canonical"] != ours
    if ours is None:
        with pytest.raises(QuantityError):
            parse(case["text"])
    else:
        assert parse(case["text"]).nano == case["nano"]
        assert str(parse(case["text"])) == ours


def test_the_table_is_whole() -> None:
    assert len({case["text"] for case in CASES}) == len(CASES) >= 120
    assert DIFFERENCES.keys() == {case["text"] for case in DIFFERING}
    assert sum(not case["accepted"] for case in AGREED) >= 60


@pytest.mark.parametrize("case", [case for case in AGREED if "echo" in case], ids=lambda case: case["text"])
def test_a_text_that_go_echoes_is_written_canonically(case: dict[str, Any]) -> None:
    assert str(parse(case["text"])) == case["canonical"] != case["echo"]


@pytest.mark.parametrize("number", [0, 1, -1, 1000, 2**63, -(10**30), 10**100])
def test_an_integer_reads_as_its_digits_do(number: int) -> None:
    assert parse(number) == parse(str(number))
    assert parse(number).ceil(MILLI_NANO) == parse(number).floor(MILLI_NANO) == number * 1000


@pytest.mark.parametrize("impostor", [True, False, 1.0, 0.0, 1.5, math.nan, None, b"1"], ids=repr)
def test_only_strings_and_integers_are_quantities_even_after_an_equal_integer_was_cached(impostor: Hashable) -> None:
    for number in (0, 1, Count(0), Count(1)):
        parse(number)
    with pytest.raises(QuantityError, match=type(impostor).__name__):
        parse(impostor)


@pytest.mark.parametrize(
    "absurd",
    [
        "1" * 129,
        "1" * 10_000,
        "0" * 129,
        "1e-999999999",
        f"1e{'9' * 100}",
        f"-1e-{'9' * 100}",
        "9" * 101,
        f"{10**100}.1",
        f"1{'0' * 83}E",
    ],
    ids=lambda text: f"{text[:12]} of {len(text)}",
)
def test_an_absurd_size_is_refused_at_once(absurd: str) -> None:
    with pytest.raises(QuantityError, match=r"too long|too large|out of range"):
        parse(absurd)


@pytest.mark.parametrize("number", [10**100 + 1, -(10**100) - 1, 10**10_000], ids=lambda n: f"{n.bit_length()} bits")
def test_an_absurd_integer_is_refused(number: int) -> None:
    with pytest.raises(QuantityError, match="too large"):
        parse(number)


@pytest.mark.parametrize("text", [str(10**100), f"-{10**100}", "1e100", "0" * 128, "1." + "0" * 126, f"1{'0' * 82}E"])
def test_what_lies_on_the_bounds_is_read(text: str) -> None:
    assert abs(parse(text).nano) in {0, NANO, 10**109}


def test_the_error_names_the_text_and_says_what_to_write() -> None:
    with pytest.raises(QuantityError, match=r"^'4GiB' is no quantity: write .*'1.5Gi'"):
        parse("4GiB")


@pytest.mark.parametrize(
    "text", ["x" * 10_000, "x" * 100, "1\n2", "\x00", "\u202e1", "\ud800", "1e999"], ids=lambda t: ascii(t[:12])
)
def test_the_error_is_one_short_printable_line(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 240
    assert repr(text)[:20] in message


def test_answers_are_cached_in_a_bounded_cache_and_refusals_are_not() -> None:
    assert parse("1536Mi") is parse("1536Mi")
    assert parse.cache_info().maxsize is not None
    parse.cache_clear()
    for text in ("x" * 10_000, "9" * 129, "1Gib"):
        with pytest.raises(QuantityError):
            parse(text)
    assert parse.cache_info().currsize == 0


@pytest.mark.parametrize(
    ("text", "unit", "ceil", "floor"),
    [
        ("1500u", MILLI_NANO, 2, 1),
        ("-1500u", MILLI_NANO, -1, -2),
        ("1Ki", 1024 * NANO, 1, 1),
        ("1025", 1024 * NANO, 2, 1),
        ("1n", NANO, 1, 0),
        ("-1n", NANO, 0, -1),
        ("24Ti", 1024 * NANO, 24 * 2**30, 24 * 2**30),
    ],
)
def test_demand_rounds_up_and_supply_rounds_down(text: str, unit: int, ceil: int, floor: int) -> None:
    assert (parse(text).ceil(unit), parse(text).floor(unit)) == (ceil, floor)


@pytest.mark.parametrize(
    ("total", "written"),
    [
        (INT64_MAX, "9223372036854775807"),
        (2**62, "4Ei"),
        (2**63, "9223372036854775808"),
        (-(2**63), "-9223372036854775808"),
        (120 * 10**18, "120E"),
    ],
)
def test_a_binary_sum_that_a_reader_would_cap_is_written_in_decimal(total: int, written: str) -> None:
    assert str(Quantity(total * NANO, Format.BINARY_SI)) == written
    assert parse(written).nano == total * NANO


@given(quantities)
@example(Quantity(2**70 * NANO, Format.BINARY_SI))
@example(Quantity(10**109, Format.DECIMAL_SI))
@example(Quantity(-(10**109) + 1, Format.DECIMAL_EXPONENT))
def test_a_written_quantity_reads_back_as_the_same_amount(quantity: Quantity) -> None:
    assert parse(str(quantity)).nano == quantity.nano


@given(well_formed_texts)
@example("1.5Gi")
@example("10000E")
def test_a_canonical_string_is_a_fixed_point(text: str) -> None:
    quantity = parse(text)
    written = str(quantity)
    again = str(parse(written))
    # Kubernetes writes a binary amount with no factor of 1024 as bare digits, which it then reads as decimal.
    if quantity.format is not Format.BINARY_SI or written.endswith("i"):
        assert again == written
    assert str(parse(again)) == again


def test_bare_digits_of_a_binary_amount_settle_as_decimal() -> None:
    assert str(parse("1000.9765625Ki")) == "1025000"
    assert str(parse("1025000")) == "1025k"


@given(well_formed())
def test_reading_is_exact_to_the_nano_and_never_loses_magnitude(pair: tuple[str, Fraction]) -> None:
    text, exact = pair
    quantity = parse(text)
    if text.endswith("i"):
        exact = max(min(exact, Fraction(INT64_MAX)), Fraction(-INT64_MAX))
    assert 0 <= abs(quantity.nano) - abs(exact) * NANO < 1
    assert quantity.nano * exact >= 0


@given(well_formed_texts, units)
def test_the_exact_value_lies_between_floor_and_ceil(text: str, unit: int) -> None:
    exact = Fraction(parse(text).nano, unit)
    ceil, floor = parse(text).ceil(unit), parse(text).floor(unit)
    assert floor <= exact <= ceil
    assert ceil - floor == (exact.denominator != 1)


@given(st.text() | nearly_well_formed | st.text("0123456789.+-eEinumkKMGTP", max_size=140))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        quantity = parse(text)
    except QuantityError:
        return
    assert text.isascii()
    assert parse(str(quantity)).nano == quantity.nano


@given(well_formed_texts, st.sampled_from((" ", "\n", "\0", "B", "e", "\u0661")), st.booleans())
def test_a_stray_character_spoils_a_quantity(text: str, stray: str, before: bool) -> None:
    with pytest.raises(QuantityError):
        parse(stray + text if before else text + stray)
