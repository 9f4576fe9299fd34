"""The three regular expressions of the CRDs: label keys, label values and quantities, equal wherever they stand."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.quantity import parse

CRDS = sorted((Path(__file__).parents[2] / "api/crd").glob("*.yaml"))
IN_RULES = {found for path in CRDS for found in re.findall(r"\.matches\('(.+?)'\)", path.read_text())}
IN_SCHEMAS = {found for path in CRDS for found in re.findall(r" pattern: (.+)", path.read_text())}
# Exactly three, so that no copy can drift from the others: keys alone hold a slash, quantities alone a plus sign.
(LABEL_KEY,) = (pattern for pattern in IN_RULES if "/" in pattern)
(QUANTITY,) = (pattern for pattern in IN_RULES if "[+]" in pattern)
(LABEL_VALUE,) = IN_RULES - {LABEL_KEY, QUANTITY}


def matches(pattern: str, text: str) -> bool:
    """Whether the text matches, `$` being the very end as in Go, where Python lets a newline follow."""
    return re.search(pattern.removesuffix("$") + r"\Z", text) is not None


def test_the_pattern_of_a_quantity_is_the_one_that_its_rule_explains() -> None:
    assert {pattern for pattern in IN_SCHEMAS if "KMGTPE" in pattern} == {QUANTITY}


@pytest.mark.parametrize(
    "text",
    ["0", "+1", "1.", ".5Gi", "0.1", "500m", "5n", "7u", "1k", "1E", "1Ei", "1e3", "1E-3", "12e+6", "1" * 32, "1e59"],
)
def test_a_quantity_is_taken_in_every_form_of_kubernetes(text: str) -> None:
    assert matches(QUANTITY, text)
    assert parse(text).nano >= 0


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1\n", "-1", "-0", "1e", "1e60", "1e100", "1e1.5", "16GB", "16gi", "1K", "0x10", ".", "1ki"],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    assert not matches(QUANTITY, text)


@given(st.from_regex(QUANTITY.removesuffix("$") + r"\Z").filter(lambda text: len(text) <= 32))
def test_whatever_quantity_the_api_server_takes_the_model_takes(text: str) -> None:
    assert parse(text).nano >= 0
    assert PenaltyBucket.from_dollars(text) in PenaltyBucket


@pytest.mark.parametrize("key", ["zone", "topology.kubernetes.io/zone", "a.b-c.d/X_y.z", "k" * 63])
def test_a_qualified_name_is_a_label_key(key: str) -> None:
    assert matches(LABEL_KEY, key)


@pytest.mark.parametrize(
    "key", ["", "/zone", "a.io/", "A.io/zone", "a..b/zone", "-zone", "zone-", "a/b/c", "zone\n", "zöne", "k" * 64]
)
def test_what_is_no_qualified_name_is_no_label_key(key: str) -> None:
    assert not matches(LABEL_KEY, key)


@pytest.mark.parametrize(
    ("value", "valid"),
    [("", True), ("a", True), ("eu-west_1.a", True), ("-a", False), ("a.", False), ("a b", False), ("a\n", False)],
)
def test_a_label_value_may_be_empty_and_begins_and_ends_well(value: str, valid: bool) -> None:
    assert matches(LABEL_VALUE, value) == valid
