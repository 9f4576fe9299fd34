"""A run as a person watches it: a line for each behaviour, in the order of the ids, as soon as it is known."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from bigfleet.conformance.catalogue import TITLES
from bigfleet.conformance.run import Options, Report
from bigfleet.conformance.suite import Behaviour, Outcome, Profile, Result
from bigfleet.conformance.workbench.bench import Facts

_MARKS = {
    Outcome.PASSED: ("✓", "green"),
    Outcome.FAILED: ("✗", "bold red"),
    Outcome.SKIPPED: ("○", "yellow"),
}


class Terminal:
    """Prints results in order; those that end early wait for the ones before them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._waiting: list[Behaviour] = []
        self._done: dict[str, Result] = {}
        self._running: set[str] = set()
        self._area = 0
        self._total = 0
        self._status = console.status("probing the target") if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def began(self, options: Options, facts: Facts, profiles: Sequence[Profile], chosen: Sequence[Behaviour]) -> None:
        """Say what is judged and how to do it again."""
        self._waiting = list(chosen)
        self._total = len(chosen)
        self._console.print(Text(f"conformance of {options.address}", style="bold"))
        for name, value in described(facts, profiles):
            self._say(Text.assemble((f"  {name:<9} ", "dim"), value))
        self._console.print(
            Text.assemble(("  seed      ", "dim"), str(options.seed), (f"  replay with --seed {options.seed}", "dim"))
        )

    def started(self, behaviour: Behaviour) -> None:
        """Show it among those that run."""
        self._running.add(behaviour.id)
        self._update()

    def finished(self, result: Result) -> None:
        """Print it, or keep it until its turn."""
        self._running.discard(result.behaviour.id)
        self._done[result.behaviour.id] = result
        while self._waiting and (ready := self._done.get(self._waiting[0].id)) is not None:
            self._waiting.pop(0)
            self._print(ready)
        self._update()

    def ended(self, report: Report) -> None:
        """The verdict, after everything that needs to be said about the run as a whole."""
        self._console.print()
        for problem in report.problems:
            self._say(Text.assemble(("✗ ", "bold red"), plain(problem)))
        for sentence in report.left_behind:
            self._say(Text.assemble(("! ", "yellow"), plain(sentence)))
        passed, failed, skipped = (report.count(outcome) for outcome in Outcome)
        verdict, style = ("CONFORMS", "bold green") if report.passed else ("DOES NOT CONFORM", "bold red")
        counts = f"  {passed} passed, {failed} failed, {skipped} skipped in {report.seconds:.1f} s"
        self._console.print(Text.assemble((verdict, style), counts))

    def _print(self, result: Result) -> None:
        behaviour = result.behaviour
        if behaviour.area != self._area:
            self._area = behaviour.area
            self._console.print(Text(f"\nB{self._area}xx {TITLES[self._area]}", style="bold"))
        mark, style = _MARKS[result.outcome]
        quiet = "dim" if result.outcome is Outcome.SKIPPED else ""
        line = Text.assemble((f"{mark} ", style), (f"{behaviour.id:<6}", quiet or "bold"))
        line.append(behaviour.sentence, quiet)
        if result.outcome is Outcome.PASSED:
            line.append(f"  {result.seconds:.2f} s", "dim")
        self._say(line)
        details = [result.message] if result.message else []
        for detail in (*details, *result.notes):
            self._say(Text(plain(detail), style=style if detail == result.message else "dim"), indent=8)

    def _say(self, line: Text, indent: int = 0) -> None:
        """A terminal gets its lines wrapped and indented; a file or a pipe gets one line each."""
        if self._console.is_terminal:
            self._console.print(Padding(line, (0, 0, 0, indent), expand=False))
        else:
            self._console.print(Text.assemble(" " * indent, line), soft_wrap=True)

    def _update(self) -> None:
        if self._status is not None:
            running = ", ".join(sorted(self._running, key=lambda name: int(name[1:])))
            self._status.update(Text(f"{len(self._done)} of {self._total} done; running {running or 'none'}"))


def described(facts: Facts, profiles: Sequence[Profile]) -> list[tuple[str, str]]:
    """What the probes found, as name and value."""
    delete = "works" if facts.deletable else "UNIMPLEMENTED"
    return [
        ("profiles", ", ".join(profiles)),
        ("machines", f"{facts.machines:,}, of which {facts.ordinary:,} ordinary ones the suite may use"),
        ("Delete", delete),
        ("cursors", f"{'returned' if facts.cursors else 'none'}; {facts.cursor_need}"),
        ("faults", ", ".join(facts.faults) or "none offered"),
    ]


def plain(text: str) -> str:
    """Foreign text without characters that would move a terminal's cursor or break a document."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
