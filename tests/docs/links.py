"""What a page of docs points at: links to other pages and their headings, and paths of files in the tree."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
_FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|pyi|md|yaml|yml|json|proto|binpb|toml|sh|j2))(?:::[^`]*)?`")
_MARKUP = re.compile(r"\[([^\]]*)\]\([^)]*\)|[`*]")
_NOT_IN_A_SLUG = re.compile(r"[^\w\- ]")
# A page may name a file from its own folder, from the root of the tree, or from the package.
_STARTS = (ROOT, ROOT / "src", ROOT / "src" / "bigfleet")


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


def missing_files(page: Path, text: str) -> Iterator[str]:
    """Files that the page names by a path and that the tree does not have."""
    for name in _FILE.findall(_FENCE.sub("", text)):
        if not any((start / name).exists() for start in (page.parent, *_STARTS)):
            yield name


def _slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    slugs: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = _MARKUP.sub(lambda match: match[1] or "", heading).lower()
        slug = _NOT_IN_A_SLUG.sub("", plain).replace(" ", "-")
        count = sum(each == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", each) is not None for each in slugs)
        slugs.add(slug if not count else f"{slug}-{count}")
    return slugs
