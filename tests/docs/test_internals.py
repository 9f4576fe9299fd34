"""The two walks of `docs/internals/data-flow.md`: every hop is there, and counted."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERNALS = ROOT / "docs" / "internals"

CITED = re.compile(r"`([^`\s]+)`")
HOP = re.compile(r"^\| (\d+) \| `([^`]+)` \| `([^`]+)` \| (.+?) \| .+ \|$", re.MULTILINE)
WALK = re.compile(r"^## Walk ([AB]):(.+?)^\*\*(\d+) hops\.\*\*$", re.MULTILINE | re.DOTALL)


def walks() -> list[tuple[str, list[tuple[str, str, str, str]], int]]:
    found = WALK.findall((INTERNALS / "data-flow.md").read_text())
    return [(letter, HOP.findall(text), int(total)) for letter, text, total in found]


def test_both_walks_are_counted_hop_by_hop() -> None:
    assert [letter for letter, *_ in walks()] == ["A", "B"]
    for _, hops, total in walks():
        assert [int(number) for number, *_ in hops] == list(range(1, total + 1))


@pytest.mark.parametrize("letter", "AB")
def test_every_hop_leads_from_a_file_to_a_function_of_another(letter: str) -> None:
    wrong = []
    for number, source, target, functions in next(hops for name, hops, _ in walks() if name == letter):
        text = (ROOT / "src" / "bigfleet" / target).read_text()
        names = [name.split(".")[-1].split("[")[0] for name in CITED.findall(functions)]
        there = names and all(re.search(rf"\b(?:def|class) {name}\b", text) for name in names)
        if source == target or not (ROOT / "src" / "bigfleet" / source).is_file() or not there:
            wrong.append(number)
    assert wrong == []
