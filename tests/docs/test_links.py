"""Every relative link, heading and file that a page names is there."""

from pathlib import Path

import pytest

from tests.docs.links import ROOT, broken_links, missing_files

PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "hack").rglob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ]
)
# Made by whoever reads: the project of the author's guide, the figures of a bench.
READERS_OWN = {"acme_cloud/backend.py", "build/bench.json"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_points_only_at_what_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert list(broken_links(page, text)) == []
    assert [name for name in missing_files(text) if name not in READERS_OWN] == []


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[a](there.md)", []),
        ("[a](nowhere.md)", ["nowhere.md: no such file"]),
        ("[a](there.md#a-heading-with-code)", []),
        ("[a](there.md#another)", ["there.md#another: no such heading"]),
        ("# Here\n\n[a](#here) [b](#gone)", ["#gone: no such heading"]),
        ("[a](https://example.com/nowhere)", []),
        ("```\n[a](nowhere.md)\n```", []),
    ],
)
def test_a_link_that_leads_nowhere_is_found(text: str, broken: list[str], tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A *heading*, with `code`\n", encoding="utf-8")
    assert list(broken_links(tmp_path / "page.md", text)) == broken


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`src/bigfleet/model/machine.py`", []),
        ("`model/machine.py`", []),
        ("`layout/nothing.py`", ["layout/nothing.py"]),
        ("`docs/test_links.py::test_a_file_that_is_not_there_is_found`", []),
        ("`docs/test_links.py::test_a_file_that_is…`", []),
        ("`docs/test_links.py::test_a_file`", ["docs/test_links.py::test_a_file"]),
        ("`src/bigfleet/model/nothing.py`", ["src/bigfleet/model/nothing.py"]),
        ("`machine.py` and `bigfleet.lucy.sh/node-name`", []),
    ],
)
def test_a_file_that_is_not_there_is_found(text: str, missing: list[str]) -> None:
    assert list(missing_files(text)) == missing
