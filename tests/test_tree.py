"""The tree itself: folders and files of a size to read, and helpers of tests that come one way."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_LINES = 600
MOST_MODULES = 12
FILES = sorted((ROOT / "tests").rglob("*.py"))


def imported(text: str) -> Iterator[str]:
    """Every module that the text imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{'.' * node.level}{node.module or ''}"


def at_fault(text: str) -> list[str]:
    """What the text imports though no test may."""
    found = []
    for module in imported(text):
        name = module.rpartition(".")[2]
        if module.startswith(("bench", ".")) or (
            module.startswith("tests.") and (name == "conftest" or name.startswith("test_"))
        ):
            found.append(module)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_can_be_read_and_takes_nothing_from_benches_or_other_tests(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES
    assert at_fault(text) == []


@pytest.mark.parametrize(
    "line",
    [
        "from bench.harness import Report",
        "import bench",
        "from tests.conftest import PKI",
        "from tests.cli.test_bigfleet import run",
        "from .stage import x",
    ],
)
def test_what_no_test_may_import_is_found(line: str) -> None:
    assert at_fault(line) != []


def test_no_bench_imports_a_test() -> None:
    modules = [module for path in (ROOT / "bench").rglob("*.py") for module in imported(path.read_text())]
    assert [module for module in modules if module.partition(".")[0] == "tests"] == []


def test_no_folder_of_the_source_has_more_than_a_dozen_modules() -> None:
    folders = {path.parent for path in (ROOT / "src/bigfleet").rglob("*.py") if "v1alpha1" not in path.parts}
    counts = {folder: len([each for each in folder.glob("*.py") if each.name != "__init__.py"]) for folder in folders}
    assert {folder.name: count for folder, count in counts.items() if count > MOST_MODULES} == {}
