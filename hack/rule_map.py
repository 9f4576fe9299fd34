"""Writes `docs/internals/rule-map.md`: the code that cites each rule, section and law, and the tests that guard it.

`make generate` runs it (`python -m hack.rule_map`). A test holds the committed file to what this would write.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.citations import INTERNALS, MAP, ROOT, Citation, Kind, Law, cited, defined

_RULE_TEST = re.compile(
    r"^\s*(?:async )?def test_(?:rule_(\d+(?:_and_\d+)?)|rules_(\d+(?:_\d+)*_and_\d+))_\w+\(", re.MULTILINE
)
_LAW_TEST = re.compile(r"^\s*(?:async )?def test_law_(\d+)_\w+\(", re.MULTILINE)
_LEGEND = """\
# From rule to code to test

Written by `make generate`; not edited by hand. *Code* is what cites the law under `src/`. *Tests* carry its
number in their names, as [protocol.md](protocol.md#how-to-cite) says. *Cited in* is everything else under `tests/` and
`bench/` that names it. For the engine's sections that is the oracle, which states them once more and which the engine
must equal.
"""


@dataclass(frozen=True, slots=True)
class Carried:
    """The files with tests that carry a number, by rule and by law."""

    rules: Mapping[str, frozenset[str]]
    laws: Mapping[str, frozenset[str]]


def carried(root: Path = ROOT) -> Carried:
    """Which test files carry which rules and laws in the names of their tests."""
    rules: dict[str, set[str]] = {}
    laws: dict[str, set[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
        for one, several in _RULE_TEST.findall(text):
            for number in re.findall(r"\d+", one or several):
                rules.setdefault(number, set()).add(name)
        for number in _LAW_TEST.findall(text):
            laws.setdefault(number, set()).add(name)
    return Carried(
        {number: frozenset(files) for number, files in rules.items()},
        {number: frozenset(files) for number, files in laws.items()},
    )


def unguarded(rules: Mapping[str, Law], carriers: Mapping[str, frozenset[str]]) -> list[str]:
    """The rules that are built and that no test carries."""
    return [number for number, rule in rules.items() if rule.is_built and number not in carriers]


def render(root: Path = ROOT) -> str:
    """The map as it should be."""
    laws, citations, carriers = defined(root), cited(root), carried(root)
    parts = [_LEGEND]
    for heading, page, kind, files in (
        ("Protocol rules", "protocol.md", Kind.RULE, carriers.rules),
        ("Engine sections", "engine.md", Kind.SECTION, {}),
        ("Engine laws", "engine.md", Kind.LAW, carriers.laws),
    ):
        parts.append(f"\n## {heading}\n")
        for name, law in laws[kind].items():
            here = [each for each in citations if (each.kind, each.name) == (kind, name)]
            parts.append(_entry(page, kind, law, here, files.get(name, frozenset())))
    return "".join(parts)


def _entry(page: str, kind: Kind, law: Law, citations: Iterable[Citation], carriers: frozenset[str]) -> str:
    paths = {each.path for each in citations}
    code = {path for path in paths if path.startswith("src/")}
    others = {path for path in paths if path.startswith(("tests/", "bench/"))} - carriers
    word = kind.value.split()[-1]
    lines = [f"\n### [{word.capitalize()} {law.name}]({page}#{word}-{law.name}): {law.title}\n"]
    if not law.is_built:
        lines.append("Not built yet.")
    for label, files in (("Code", code), ("Tests", carriers), ("Cited in", others)):
        if files:
            lines.append(f"- *{label}:* " + ", ".join(f"`{path}`" for path in sorted(files)))
    if len(lines) == 1:
        lines.append("Nothing cites it yet.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the map."""
    (ROOT / INTERNALS).mkdir(parents=True, exist_ok=True)
    (ROOT / MAP).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
