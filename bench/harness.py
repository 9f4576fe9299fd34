"""Measuring and reporting: one table for people, one JSON file for whoever compares runs."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table


class Figure(msgspec.Struct, frozen=True):
    """One measured number and its budget."""

    name: str
    value: float
    unit: str
    budget: float | None = None
    """The most that the value may be; None where no budget is set."""
    at_least: bool = False
    """Whether the budget is instead the least that the value may be."""

    @property
    def holds(self) -> bool | None:
        """Whether the value keeps its budget; None without a budget."""
        if self.budget is None:
            return None
        return self.value >= self.budget if self.at_least else self.value <= self.budget


class Reason(msgspec.Struct, frozen=True):
    """Why a figure is outside its budget."""

    name: str
    """The figure's name."""
    measured: str
    """How the parts were measured."""
    parts: tuple[tuple[str, str], ...]
    """What the figure is made of: the name of each part, and its share."""
    tried: str
    """What was tried to bring the figure within its budget."""


class Report:
    """Collects figures as they are measured and shows them at the end."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.figures: list[Figure] = []
        self.reasons: list[Reason] = []

    def progress(self, text: str) -> None:
        """Say what is being measured now."""
        self.console.print(f"[dim]… {text}[/dim]", highlight=False)

    def add(self, name: str, value: float, unit: str, budget: float | None = None, *, at_least: bool = False) -> bool:
        """Record one figure; returns whether it is outside its budget. `Figure` says what each argument is."""
        self.figures.append(Figure(name, value, unit, budget, at_least))
        return self.figures[-1].holds is False

    def explain(self, name: str, measured: str, parts: Sequence[tuple[str, str]], tried: str) -> None:
        """Record why a figure is outside its budget; `Reason` says what each argument is."""
        self.reasons.append(Reason(name, measured, tuple(parts), tried))

    def show(self) -> None:
        """Print the table and the machine it was measured on."""
        table = Table(title=None, caption=machine(), caption_justify="left")
        for column, side in (("figure", "left"), ("value", "right"), ("unit", "left"), ("budget", "right")):
            table.add_column(column, justify="right" if side == "right" else "left")
        table.add_column("holds")
        for figure in self.figures:
            sign = "≥" if figure.at_least else "≤"
            holds = {None: "", True: "[green]yes[/green]", False: "[bold red]NO[/bold red]"}[figure.holds]
            budget = "" if figure.budget is None else f"{sign} {number(figure.budget)}"
            table.add_row(figure.name, number(figure.value), figure.unit, budget, holds)
        self.console.print(table)
        for reason in self.reasons:
            self.console.print(
                f"\n[bold]{reason.name}[/bold] is outside its budget. {reason.measured}:", highlight=False
            )
            for part, share in reason.parts:
                self.console.print(f"  {part:<44}{share:>24}", highlight=False, markup=False)
            self.console.print(f"  tried: {reason.tried}", highlight=False, markup=False)

    def write(self, path: Path) -> None:
        """Write the figures as a JSON list of {name, value, unit, budget, holds}; {why, tried} where one is outside."""
        path.parent.mkdir(parents=True, exist_ok=True)
        why = {reason.name: {"why": dict(reason.parts), "tried": reason.tried} for reason in self.reasons}
        rows = [
            {"name": f.name, "value": f.value, "unit": f.unit, "budget": f.budget, "holds": f.holds}
            | why.get(f.name, {})
            for f in self.figures
        ]
        path.write_text(json.dumps(rows, indent=1) + "\n")


def number(value: float) -> str:
    """A figure with three significant digits, without exponents."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def machine() -> str:
    """Cores, clock and Python of this machine, as one line."""
    clock = "clock unknown"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("cpu MHz"):
            clock = f"{float(line.split(':')[1]) / 1000:.2f} GHz"
            break
    return f"{len(os.sched_getaffinity(0))} cores, {clock}, Python {platform.python_version()}"


def seconds(work: Callable[[], object], *, rounds: int = 5) -> float:
    """The median wall time of `work` over this many rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
