"""What a page of docs points at: links to other pages and their headings, and paths of files in the tree."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
_FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|pyi|md|yaml|yml|json|proto|binpb|toml|sh|j2))(?:::([^`]+))?`")
_MARKUP = re.compile(r"\[([^\]]*)\]\([^)]*\)|[`*]")
_NOT_IN_A_SLUG = re.compile(r"[^\w\- ]")
_TREES = ("api", "bench", "deploy", "docs", "examples", "hack", "src", "tests")


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Relative links of the page whose file or heading is not there."""
    for target in _LINK.findall(_FENCE.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if name and not path.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in _slugs(text if path == page else path.read_text(encoding="utf-8")):
            yield f"{target}: no such heading"


def missing_files(text: str) -> Iterator[str]:
    """Files that the text names by a path, or tests in them, that the tree does not have.

    A page may leave out the beginning of a path: `load/layout.py` is a file of the engine.
    """
    for name, test in _FILE.findall(_FENCE.sub("", text)):
        places = [path for path in _tree() if f"/{path}".endswith(f"/{name}")]
        if not places:
            yield name
        elif test and not any(_has(ROOT / path, test) for path in places):
            yield f"{name}::{test}"


def _has(path: Path, test: str) -> bool:
    """Whether the file has the class or function; its name may be cut short by an ellipsis."""
    *_, name = test.split("::")
    start, dots, _ = name.partition("\u2026")
    return re.search(rf"(?:def|class) {re.escape(start)}" + ("" if dots else r"\b"), path.read_text()) is not None


@cache
def _tree() -> tuple[str, ...]:
    found = [path for top in _TREES for path in (ROOT / top).rglob("*") if path.is_file()]
    return tuple(path.relative_to(ROOT).as_posix() for path in found if "__pycache__" not in path.parts)


def _slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    slugs: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = _MARKUP.sub(lambda match: match[1] or "", heading).lower()
        slug = _NOT_IN_A_SLUG.sub("", plain).replace(" ", "-")
        count = sum(each == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", each) is not None for each in slugs)
        slugs.add(slug if not count else f"{slug}-{count}")
    return slugs
