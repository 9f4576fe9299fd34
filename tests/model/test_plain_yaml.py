"""YAML of unknown origin: plain values or a refusal, and never more work than the text is long."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.plain_yaml import MAX_CHARACTERS, MAX_NESTING, PlainYamlError, documents

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=10)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def load(text: str) -> list[Any]:
    return [value for _, value in documents(text)]


@given(st.lists(values, max_size=3))
def test_what_yaml_writes_is_read_back(given_values: list[object]) -> None:
    class NoAliases(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    assert load(yaml.dump_all(given_values, Dumper=NoAliases)) == given_values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-03-02", "2026-03-02"),
        ("2026-03-02T09:14:05Z", "2026-03-02T09:14:05Z"),
        ("=", "="),
        ("500m", "500m"),
        ("1e3", "1e3"),
        ("'7'", "7"),
        ("!!str 7", "7"),
        ("7", 7),
        ("0.5", 0.5),
        ("~", None),
        ("yes", True),
        ("{}", {}),
        ("!!map {a: !!seq [b]}", {"a": ["b"]}),
    ],
)
def test_plain_text_stays_text_and_numbers_become_numbers(text: str, value: object) -> None:
    assert load(text) == [value]


def test_documents_are_numbered_and_an_empty_one_is_none() -> None:
    assert list(documents("---\n---\na: 1\n---\n")) == [(1, None), (2, {"a": 1}), (3, None)]
    assert list(documents("# nothing\n")) == []


@pytest.mark.parametrize(
    ("text", "document", "words"),
    [
        ("a: &x [1]\nb: *x", 1, "line 2: an alias is not taken"),
        ("a: 1\n---\nb: 1\nb: 2", 2, "line 4: the key 'b' stands twice in one mapping"),
        ("1: a", 1, "line 1: the key 1 is no string: put it in quotes"),
        ("on: a", 1, "the key True is no string"),
        ("? [a]\n: b", 1, "the key ['a'] is no string"),
        ("a: {<<: {b: 1}}", 1, "tag 'tag:yaml.org,2002:merge' has no meaning here"),
        ("!!python/object:os.system {}", 1, "has no meaning here"),
        ("!!python/name:os.system x", 1, "has no meaning here"),
        ("!!set {a}", 1, "has no meaning here"),
        ("! 7", 1, "has no meaning here"),
        ("a: !custom [b]", 1, "has no meaning here"),
        ("!!int ''", 1, "'' does not fit its tag"),
        ("!!bool maybe", 1, "'maybe' does not fit its tag"),
        ("0b_", 1, "'0b_' does not fit its tag"),
        ("a: b: c", 1, "line 1: mapping values are not allowed"),
        ("a: 1\n---\n[", 2, "line 4: "),
        ("\0", 0, "no YAML: "),
        ("\ud800", 0, "no YAML: "),
    ],
)
def test_what_is_not_plain_is_refused_with_its_place(text: str, document: int, words: str) -> None:
    with pytest.raises(PlainYamlError) as caught:
        load(text)
    assert caught.value.document == document
    assert words in caught.value.problem


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000, "? " * 100_000])
def test_deep_nesting_is_refused_before_it_costs_anything(text: str) -> None:
    with pytest.raises(PlainYamlError, match=f"nested more than {MAX_NESTING} deep"):
        load(text)


def test_nesting_up_to_the_limit_is_taken() -> None:
    deepest = MAX_NESTING - 1
    assert str(load("[" * deepest + "1" + "]" * deepest)[0]).count("[") == deepest


@pytest.mark.parametrize("text", ["1:" * 500_000 + "1", "9" * 500_000, "1." + "0" * 500_000])
def test_an_endless_number_is_refused_unread(text: str) -> None:
    with pytest.raises(PlainYamlError, match=r"a number of \d+ characters: put it in quotes"):
        load(text)


def test_a_text_of_the_largest_size_is_read_and_one_more_character_is_too_many() -> None:
    largest = "# ".ljust(MAX_CHARACTERS, "x")
    assert load(largest) == []
    with pytest.raises(PlainYamlError, match=f"split it, {MAX_CHARACTERS} at most"):
        load(largest + "x")
