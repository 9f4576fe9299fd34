"""Finds the laws that `docs/internals` and `docs/adr` define, and every place in the tree that cites one.

The form of a citation stands in `docs/internals/protocol.md`. Older forms are understood too: `protocol.md 6, 9`, a
bare `rule 6`, `section 5`, `law 3`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INTERNALS = Path("docs/internals")
DECISIONS = Path("docs/adr")
MAP = INTERNALS / "rule-map.md"


class Kind(StrEnum):
    """What a citation may name."""

    RULE = "protocol rule"
    SECTION = "engine section"
    LAW = "engine law"
    CASE = "engine case"
    BEHAVIOUR = "behaviour"
    DECISION = "ADR"
    PLACEMENT_RULE = "placement rule"
    PLACEMENT_LAW = "placement law"
    PLACEMENT_CASE = "placement case"


@dataclass(frozen=True, slots=True)
class Law:
    """One thing that can be cited: its number, its title, and whether nothing of it is built yet."""

    name: str
    title: str
    is_built: bool = True


@dataclass(frozen=True, slots=True)
class Citation:
    """One place that names a law. `path` is relative to the root of the tree."""

    path: str
    line: int
    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} cites {self.kind} {self.name}"


Laws = Mapping[Kind, Mapping[str, Law]]

# What is defined. Under a heading the first bold or slanted words are the title.
_HEADINGS = (
    ("protocol.md", Kind.RULE, r"^### Rule (\d+)$"),
    ("engine.md", Kind.SECTION, r"^## Section (\d+)$"),
    ("engine.md", Kind.LAW, r"^### Law (\d+)$"),
    ("engine-cases.md", Kind.CASE, r"^### Case ([A-Z])$"),
    ("placement.md", Kind.PLACEMENT_RULE, r"^### Placement rule (\d+a?)$"),
    ("placement.md", Kind.PLACEMENT_LAW, r"^- \*\*Placement law ([A-Z])\b"),
    ("placement.md", Kind.PLACEMENT_CASE, r"^- \*\*([a-z]\d?)\*\* "),
    ("provider-behaviours.md", Kind.BEHAVIOUR, r"^\| (B\d{3,4}) \|"),
)
_TITLE = re.compile(r"\*{1,2}([^*]+?)[.,:]?\*{1,2}")
_NOT_BUILT = "Status: not built yet\n"
_DECISION_FILE = re.compile(r"(\d{4})-[\w-]+\.md")
_DECISION_TITLE = re.compile(r"^# \d+\. (.+)$", re.MULTILINE)
_DECISION_ENTRY = re.compile(r"^(?:\*\*)?(\d+)\. ", re.MULTILINE)

# What is cited. A citation may be broken over two lines of a comment.
_GAP = r"(?:\s|\#|//)+"
_BETWEEN = rf"(?:,?{_GAP}(?:and|or|to){_GAP}|,{_GAP}|[-\u2013])"
_NUMBERS = rf"\d+(?:\.\d+)?(?:{_BETWEEN}\d+(?:\.\d+)?)*"
_CITED = re.compile(
    rf"""
      \bplacement{_GAP}rules?{_GAP}(?P<placement_rule>\d+a?(?:{_BETWEEN}\d+a?)*)
    | \bplacement{_GAP}laws?{_GAP}(?P<placement_law>[A-Z]\b(?:{_BETWEEN}[A-Z]\b)*)
    | \bplacement{_GAP}cases?{_GAP}(?P<placement_case>[a-z]\d?\b(?:{_BETWEEN}[a-z]\d?\b)*)
    | \bengine{_GAP}cases?{_GAP}(?P<case>[A-Z]\b(?:{_BETWEEN}[A-Z]\b)*)
    | \b[Pp]rotocol(?:\.md)?{_GAP}(?:rules?{_GAP})?(?P<protocol>{_NUMBERS})
    | \b[Rr]ules?{_GAP}(?P<rule>{_NUMBERS})
    | \b[Ss]ections?{_GAP}(?P<section>{_NUMBERS})
    | \b[Ll]aws?{_GAP}(?P<law>{_NUMBERS})
    | \bADRs?{_GAP}(?P<decision>{_NUMBERS})
    | \badr/(?P<decision_file>\d{{4}})\b
    | \b(?P<behaviour>B\d{{3,4}})\b
    """,
    re.VERBOSE,
)
_GROUPS = {
    "protocol": Kind.RULE,
    "rule": Kind.RULE,
    "section": Kind.SECTION,
    "law": Kind.LAW,
    "case": Kind.CASE,
    "behaviour": Kind.BEHAVIOUR,
    "decision": Kind.DECISION,
    "decision_file": Kind.DECISION,
    "placement_rule": Kind.PLACEMENT_RULE,
    "placement_law": Kind.PLACEMENT_LAW,
    "placement_case": Kind.PLACEMENT_CASE,
}
_NAME = re.compile(r"\b(?:\d+\.\d+|\d+a?|[A-Za-z]\d?)\b")
_RANGE = re.compile(rf"(\d+)(?:{_GAP}to{_GAP}|[-\u2013])(\d+)(?![.\d])")
# ruff's rules are named as behaviours are.
_LINTER = re.compile(r"#\s*noqa\b[^\n]*")

_LOOKED_AT = ("src", "tests", "bench", "examples", "api", "hack", "docs", "README.md", "CONTRIBUTING.md", "Makefile")
_SUFFIXES = {".py", ".pyi", ".md", ".yaml", ".proto", ".j2", ".sh", ".toml"}
# Stubs come from the protos; the map comes from citations; these tests plant citations that lead nowhere.
_PASSED_OVER = ("src/bigfleet/wire/v1alpha1/", MAP.as_posix(), "tests/docs/", "hack/citations.py", "hack/kube/")
# The suite's own tests name behaviours that there are not, to see them refused.
_NAMES_AT_WILL = "tests/conformance/"


def defined(root: Path = ROOT) -> Laws:
    """Every law of the tree, by kind and number."""
    laws: dict[Kind, dict[str, Law]] = {kind: {} for kind in Kind}
    for file, kind, pattern in _HEADINGS:
        text = (root / INTERNALS / file).read_text(encoding="utf-8")
        found = list(re.finditer(pattern, text, re.MULTILINE))
        ends = [match.start() for match in found[1:]] + [len(text)]
        for match, end in zip(found, ends, strict=True):
            body = text[match.end() : end]
            title = _TITLE.search(body)
            laws[kind][match[1]] = Law(match[1], " ".join(title[1].split()) if title else "", _NOT_BUILT not in body)
    for path in sorted((root / DECISIONS).iterdir()):
        if (name := _DECISION_FILE.fullmatch(path.name)) is not None:
            text = path.read_text(encoding="utf-8")
            number = str(int(name[1]))
            title = _DECISION_TITLE.search(text)
            laws[Kind.DECISION][number] = Law(number, title[1] if title else "")
            for entry in _DECISION_ENTRY.findall(text):
                laws[Kind.DECISION][f"{number}.{entry}"] = Law(f"{number}.{entry}", "")
    return laws


def cited(root: Path = ROOT) -> list[Citation]:
    """Every citation in the tree, by path and line."""
    found: list[Citation] = []
    for path in _files(root):
        found.extend(cited_in(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()))
    return found


def cited_in(text: str, path: str) -> Iterator[Citation]:
    """The citations in one file's text."""
    text = _LINTER.sub("", text)
    for match in _CITED.finditer(text):
        group = str(match.lastgroup)
        kind = _GROUPS[group]
        if kind is Kind.BEHAVIOUR and path.startswith(_NAMES_AT_WILL):
            continue
        line = text.count("\n", 0, match.start()) + 1
        for name in _names(kind, match[group]):
            yield Citation(path, line, kind, name)


def dangling(citations: list[Citation], laws: Laws) -> list[Citation]:
    """The citations that lead nowhere."""
    return [each for each in citations if each.name not in laws[each.kind]]


def _names(kind: Kind, written: str) -> list[str]:
    if kind is Kind.BEHAVIOUR:
        return [written]
    whole = _RANGE.sub(lambda ends: ", ".join(map(str, range(int(ends[1]), int(ends[2]) + 1))), written)
    return [str(int(word)) if word.isdigit() else word for word in _NAME.findall(whole)]


def _files(root: Path) -> Iterator[Path]:
    for top in _LOOKED_AT:
        start = root / top
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            name = path.relative_to(root).as_posix()
            is_text = path == start or path.suffix in _SUFFIXES
            if path.is_file() and is_text and not name.startswith(_PASSED_OVER):
                yield path
