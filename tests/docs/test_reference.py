"""The reference pages say what the code says: written anew in memory, they equal the files."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

INTERNALS = [
    "README",
    "machine-life-cycle",
    "needs-table",
    "decision-engine",
    "shard",
    "coordinator",
    "provider-protocol",
    "fencing-and-identity",
    "operator",
    "pod-controller",
    "static-stability",
    "data-flow",
    "domain-attribution",
    "wire",
    "observability",
    "testing",
    "scale-harness",
    "simulator",
]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hack_reference", ROOT / "hack" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page",
    [
        "reference/metrics.md",
        "reference/flags.md",
        "reference/crds.md",
        "adr/README.md",
        "internals/machine-life-cycle.md",
    ],
)
def test_a_page_equals_what_the_code_would_write(
    reference: ModuleType, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "37")
    assert (DOCS / page).read_text() == reference.PAGES[DOCS / page](), f"docs/{page} is stale: run `make generate`"


def test_every_generated_page_is_held_to_the_code(reference: ModuleType) -> None:
    assert len(reference.PAGES) == 5


def test_every_decision_is_in_the_index() -> None:
    index = (DOCS / "adr" / "README.md").read_text()
    pages = sorted(path.name for path in (DOCS / "adr").glob("[0-9]*.md"))
    assert pages
    assert [name for name in pages if f"({name})" not in index] == []


def test_two_decisions_never_share_a_number() -> None:
    numbers = [path.name[:4] for path in (DOCS / "adr").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("name", INTERNALS)
def test_a_page_about_the_internals_is_there_and_in_their_index(name: str) -> None:
    assert (DOCS / "internals" / f"{name}.md").is_file()
    assert name == "README" or f"({name}.md)" in (DOCS / "internals" / "README.md").read_text()


def test_a_metric_that_nobody_reads_is_refused(reference: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from bigfleet.telemetry.metric_types import MetricTable, gauge

    class More(MetricTable):
        """One more program."""

        depth = gauge("bigfleet_more_depth", "How deep.")

    monkeypatch.setattr(reference, "_PROGRAMS", (*reference._PROGRAMS, (More, "More")))
    with pytest.raises(reference.PageError, match="bigfleet_more_depth has no reader"):
        reference.metrics_page()


def test_the_flags_are_those_of_every_console_script(reference: ModuleType) -> None:
    page = reference.flags_page()
    for name in reference._entry_points():
        assert f"## `{name}`\n" in page
    assert "`--reclaim-after`" in page


def test_a_decision_that_was_overtaken_says_by_which(
    reference: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adr").mkdir()
    (tmp_path / "adr" / "0001-first.md").write_text("# 1. First\n\nStatus: Amended by 0003 (the half of it)\n")
    (tmp_path / "adr" / "0002-second.md").write_text("# 2. Second\n\nStatus: Superseded by 0003.\n")
    (tmp_path / "adr" / "0003-third.md").write_text("# 3. Third\n\nStatus: accepted\n")
    monkeypatch.setattr(reference, "_DOCS", tmp_path)
    page = reference.adr_page()
    assert "| First | Amended by [3](0003-third.md) (the half of it) |" in page
    assert "| Second | Superseded by [3](0003-third.md) |" in page
    assert "| Third | Accepted |" in page


@pytest.mark.parametrize("head", ["**Context.** None.", "Status: Amended by 0007"])
def test_a_decision_without_a_status_or_with_one_that_names_no_page_is_refused(
    reference: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    (tmp_path / "adr").mkdir()
    (tmp_path / "adr" / "0001-first.md").write_text(f"# 1. First\n\n{head}\n")
    monkeypatch.setattr(reference, "_DOCS", tmp_path)
    with pytest.raises(reference.PageError, match=r"0001-first\.md must begin|names ADR 0007"):
        reference.adr_page()
