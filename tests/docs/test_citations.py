"""What the tree cites stands in the tree, and every rule that is built has a test that carries its number."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from bigfleet.conformance.catalogue import BEHAVIOURS
from hack.citations import DECISIONS, INTERNALS, MAP, ROOT, Kind, Law, Laws, cited, cited_in, dangling, defined
from hack.rule_map import carried, render, unguarded


@pytest.fixture(scope="module")
def laws() -> Laws:
    return defined()


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A copy of the pages that define laws, to plant changes in."""
    for folder in (INTERNALS, DECISIONS):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "tests").mkdir()
    return tmp_path


def plant(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def names(text: str, path: str = "src/a.py") -> list[str]:
    return [f"{each.kind} {each.name}" for each in cited_in(text, path)]


def test_every_citation_leads_somewhere(laws: Laws) -> None:
    assert [str(each) for each in dangling(cited(), laws)] == []


def test_every_rule_that_is_built_has_a_test_that_carries_its_number(laws: Laws) -> None:
    assert unguarded(laws[Kind.RULE], carried().rules) == []


def test_every_law_of_the_engine_has_a_test_that_carries_its_number(laws: Laws) -> None:
    assert unguarded(laws[Kind.LAW], carried().laws) == []


def test_a_test_carries_only_numbers_that_there_are(laws: Laws) -> None:
    assert carried().rules.keys() <= laws[Kind.RULE].keys()
    assert carried().laws.keys() <= laws[Kind.LAW].keys()


def test_every_case_of_the_engine_has_its_test_by_letter(laws: Laws) -> None:
    text = (ROOT / "tests" / "engine" / "test_cases.py").read_text(encoding="utf-8")
    assert {letter.upper() for letter in re.findall(r"^def test_([a-z])_", text, re.MULTILINE)} == {*laws[Kind.CASE]}


def test_the_laws_are_numbered_without_a_gap(laws: Laws) -> None:
    counts: Mapping[Kind, int] = {Kind.RULE: 30, Kind.SECTION: 11, Kind.LAW: 8}
    for kind, last in counts.items():
        assert [*laws[kind]] == [str(number) for number in range(1, last + 1)]
    assert [*laws[Kind.PLACEMENT_RULE]] == ["1", "2", "3", "3a", *(str(number) for number in range(4, 14))]
    assert all(law.title for kind in counts for law in laws[kind].values())


def test_only_rules_of_the_coordinator_are_not_built(laws: Laws) -> None:
    assert [law.name for law in laws[Kind.RULE].values() if not law.is_built] == ["26", "27", "28", "29"]


def test_the_page_of_behaviours_has_those_that_the_suite_checks_with_their_profiles() -> None:
    page = (ROOT / INTERNALS / "provider-behaviours.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (B\d+) \| (\S+) \|", page, re.MULTILINE)
    assert rows == [(each.id, each.profile.value) for each in BEHAVIOURS]


def test_the_map_is_up_to_date() -> None:
    assert (ROOT / MAP).read_text(encoding="utf-8") == render(), "stale: run `make generate`"


# Each of the above can fail.


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("# protocol rule 31", "protocol rule 31"),
        ("# (protocol.md 6, 99)", "protocol rule 99"),
        ('"""Compiled; sections 5 and 12."""', "engine section 12"),
        ("# law 9", "engine law 9"),
        ("# engine case Z", "engine case Z"),
        ("# B304", "behaviour B304"),
        ("# ADR 9.38", "ADR 9.38"),
        ("# ADR 999", "ADR 999"),
        ("# see docs/adr/0999-nothing.md", "ADR 999"),
        ("# placement rule 14", "placement rule 14"),
    ],
)
def test_a_citation_that_leads_nowhere_is_found_with_its_line(text: str, lost: str, pages: Path) -> None:
    plant(pages, "src/a.py", f'"""Nothing."""\n\n{text}\n')
    planted = dangling(cited(pages), defined(pages))
    assert [str(each) for each in planted] == [f"src/a.py:3 cites {lost}"]


def test_a_rule_that_is_taken_out_of_its_page_leaves_its_citations_behind(pages: Path) -> None:
    page = pages / INTERNALS / "protocol.md"
    page.write_text(page.read_text(encoding="utf-8").replace("### Rule 6\n", "### Lagging rows\n"), encoding="utf-8")
    plant(pages, "src/a.py", "# protocol rule 6\n")
    assert "src/a.py:1 cites protocol rule 6" in {str(each) for each in dangling(cited(pages), defined(pages))}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("protocol rule 6", ["protocol rule 6"]),
        ("protocol rules 6, 9 and 30", ["protocol rule 6", "protocol rule 9", "protocol rule 30"]),
        ("protocol.md 13-15", ["protocol rule 13", "protocol rule 14", "protocol rule 15"]),
        ("(protocol.md\n    # 20).", ["protocol rule 20"]),
        ("Protocol 23 says", ["protocol rule 23"]),
        ("rules 9 to 11: no", ["protocol rule 9", "protocol rule 10", "protocol rule 11"]),
        ("Section 8: 5 % of 20", ["engine section 8"]),
        ("engine sections 3, 5 and 6.", ["engine section 3", "engine section 5", "engine section 6"]),
        ("section 10 law 8", ["engine section 10", "engine law 8"]),
        ("Laws 2 and 4 break", ["engine law 2", "engine law 4"]),
        ("ADR 9.1 and 9.26", ["ADR 9.1", "ADR 9.26"]),
        ("ADRs 10 and 11", ["ADR 10", "ADR 11"]),
        ("api: docs/adr/0004.", ["ADR 4"]),
        ("behaviour B704", ["behaviour B704"]),
        ("placement rules 3a and 5", ["placement rule 3a", "placement rule 5"]),
        ("placement cases f and f2", ["placement case f", "placement case f2"]),
        ("x = 1  # noqa: B023 - B704", []),
        ("the rules of section 7's score", ["engine section 7"]),
        ("a rule of thumb, 3 machines", []),
    ],
)
def test_what_counts_as_a_citation(text: str, found: list[str]) -> None:
    assert names(text) == found


def test_the_suites_own_tests_may_name_behaviours_that_there_are_not() -> None:
    assert names("B304", "tests/conformance/test_a.py") == []
    assert names("rule 99", "tests/conformance/test_a.py") == ["protocol rule 99"]


def test_a_rule_without_a_test_is_named_unless_it_is_not_built() -> None:
    rules = {"1": Law("1", "a"), "2": Law("2", "b", is_built=False), "3": Law("3", "c")}
    assert unguarded(rules, {"3": frozenset({"tests/test_a.py"})}) == ["1"]


def test_a_test_carries_the_numbers_in_its_name(tmp_path: Path) -> None:
    plant(
        tmp_path,
        "tests/test_a.py",
        "def test_rule_17_the_rail_is_per_10_seconds() -> None: ...\n"
        "class Test:\n"
        "    async def test_rule_2_and_18_taken_back(self) -> None: ...\n"
        "def test_rules_7_9_and_11_nothing() -> None: ...\n"
        "def test_the_rule_3_is_not_carried() -> None: ...\n"
        "# def test_rule_4_neither() -> None\n"
        "def test_law_6_deltas() -> None: ...\n",
    )
    found = carried(tmp_path)
    assert sorted(found.rules, key=int) == ["2", "7", "9", "11", "17", "18"]
    assert found.laws == {"6": {"tests/test_a.py"}}


def test_the_map_follows_the_tree(pages: Path) -> None:
    before = render(pages)
    plant(pages, "src/bigfleet/a.py", "# protocol rule 28\n")
    after = render(pages)
    assert "src/bigfleet/a.py" not in before
    assert "- *Code:* `src/bigfleet/a.py`" in after
