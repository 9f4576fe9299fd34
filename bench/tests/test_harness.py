import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from bench.harness import Figure, Report, number

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("figure", "holds"),
    [
        (Figure("a", 1.0, "s", 2.0), True),
        (Figure("a", 2.0, "s", 2.0), True),
        (Figure("a", 3.0, "s", 2.0), False),
        (Figure("a", 3.0, "calls/s", 2.0, at_least=True), True),
        (Figure("a", 1.0, "calls/s", 2.0, at_least=True), False),
        (Figure("a", 1.0, "rows"), None),
    ],
)
def test_a_figure_holds_on_its_own_side_of_the_budget(figure: Figure, holds: bool | None) -> None:
    assert figure.holds is holds


def test_the_report_is_a_table_and_a_list(tmp_path: Path) -> None:
    console = Console(record=True, width=120)
    report = Report(console)
    report.add("speed", 150.0, "ns", 200)
    report.add("throughput", 10, "calls/s", 2000, at_least=True)
    report.show()
    report.write(tmp_path / "build" / "bench.json")
    shown = console.export_text()
    assert "≤ 200" in shown
    assert "≥ 2,000" in shown
    assert "cores" in shown
    assert "Python 3." in shown
    assert json.loads((tmp_path / "build" / "bench.json").read_text()) == [
        {"name": "speed", "value": 150.0, "unit": "ns", "budget": 200, "holds": True},
        {"name": "throughput", "value": 10, "unit": "calls/s", "budget": 2000, "holds": False},
    ]


def test_a_figure_outside_its_budget_is_explained_below_the_table_and_in_the_list(tmp_path: Path) -> None:
    console = Console(record=True, width=120)
    report = Report(console)
    assert not report.add("speed", 150.0, "ns", 200)
    assert report.add("memory", 300.0, "bytes", 200)
    parts = [("names", "200 bytes 67%"), ("numbers", "100 bytes 33%")]
    report.explain("memory", "What is held", parts, "shorter names")
    report.show()
    report.write(tmp_path / "bench.json")
    shown = console.export_text()
    assert "memory is outside its budget. What is held:" in shown
    assert shown.index("names") < shown.index("numbers") < shown.index("tried: shorter names")
    speed, memory = json.loads((tmp_path / "bench.json").read_text())
    assert "why" not in speed
    assert (memory["why"], memory["tried"]) == (dict(parts), "shorter names")


def test_figures_are_written_without_exponents() -> None:
    assert [number(v) for v in (0, 0.0123456, 1.5, 99.94, 123456.7)] == ["0", "0.0123", "1.5", "99.9", "123,457"]


def test_an_unknown_part_is_named() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "bench", "modle"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 2
    assert result.stderr == "bench: no part named 'modle'; the parts are: model, engine, provider, shard, kube\n"
