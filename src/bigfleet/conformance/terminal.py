"""A run as a person watches it: one line a behaviour, in the order of the ids, as soon as its result is known.

Of several failures with one cause only the first is printed in its place. The end of the run lists the others.
"""

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


_DETAIL_INDENT = 8
_NAMED_MACHINES = 3


class Terminal:
    """Prints results in the order of their ids. A result that is early waits until those before it are printed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._waiting: list[Behaviour] = []
        self._done: dict[str, Result] = {}
        self._running: set[str] = set()
        self._shown_causes: set[str] = set()
        self._last_reason = ""
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
        """Print what is judged, and how to repeat the run."""
        self._waiting = list(chosen)
        self._total = len(chosen)
        self._console.print(Text(f"conformance of {options.address}", style="bold"))
        for name, value in described(facts, profiles):
            self._say(Text.assemble((f"  {name:<9} ", "dim"), value))
        self._console.print(
            Text.assemble(("  seed      ", "dim"), str(options.seed), (f"  replay with --seed {options.seed}", "dim"))
        )

    def started(self, behaviour: Behaviour) -> None:
        """Show the behaviour among those under check."""
        self._running.add(behaviour.id)
        self._update()

    def finished(self, result: Result) -> None:
        """Print the result, or keep it until its turn."""
        self._running.discard(result.behaviour.id)
        self._done[result.behaviour.id] = result
        while self._waiting and (ready := self._done.get(self._waiting[0].id)) is not None:
            self._waiting.pop(0)
            self._print(ready)
        self._update()

    def ended(self, report: Report) -> None:
        """Print what concerns the run as a whole, and at last the verdict."""
        self._console.print()
        for cause in report.causes:
            if len(cause.results) > 1:
                count = f"one cause, {len(cause.results)} failures: "
                self._say(Text.assemble(("✗ ", "bold red"), count, (plain(cause.text), "bold red")))
                self._say(Text(", ".join(cause.ids)), indent=_DETAIL_INDENT)
        for problem in report.problems:
            self._say(Text.assemble(("✗ ", "bold red"), plain(problem)))
        for line in report.log:
            self._say(Text(plain(line), "dim"), indent=_DETAIL_INDENT)
        for sentence in shortened(report.left_behind):
            self._say(Text.assemble(("! ", "yellow"), plain(sentence)))
        for subject, results in report.unchecked.items():
            behaviours = f"{results[0].behaviour.id} is" if len(results) == 1 else f"{len(results)} behaviours are"
            self._say(
                Text.assemble(("○ ", "yellow"), f"{subject}: {behaviours} not checked: {plain(results[0].message)}")
            )
        passed, failed, skipped = (report.count(outcome) for outcome in Outcome)
        counts = f"  {passed} passed, {failed} failed, {skipped} skipped in {report.seconds:.1f} s"
        style = "bold green" if report.passed else "bold red"
        self._say(Text.assemble((report.verdict, style), counts))

    def _print(self, result: Result) -> None:
        behaviour = result.behaviour
        if result.cause in self._shown_causes:
            return
        if result.cause:
            self._shown_causes.add(result.cause)
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
        # Neighbours that are skipped for one reason show it once.
        repeats = result.outcome is Outcome.SKIPPED and result.message == self._last_reason
        self._last_reason = result.message if result.outcome is Outcome.SKIPPED else ""
        details = [result.message] if result.message and not repeats else []
        for detail in (*details, *result.notes):
            self._say(Text(plain(detail), style=style if detail == result.message else "dim"), indent=_DETAIL_INDENT)

    def _say(self, line: Text, indent: int = 0) -> None:
        """Print a line: wrapped and indented on a terminal, whole in a file or a pipe."""
        if self._console.is_terminal:
            self._console.print(Padding(line, (0, 0, 0, indent), expand=False))
        else:
            self._console.print(Text.assemble(" " * indent, line), soft_wrap=True)

    def _update(self) -> None:
        if self._status is not None:
            running = ", ".join(sorted(self._running, key=lambda name: int(name[1:])))
            self._status.update(Text(f"{len(self._done)} of {self._total} done; running {running or 'none'}"))


def described(facts: Facts, profiles: Sequence[Profile]) -> list[tuple[str, str]]:
    """What the probes found, as pairs of name and value."""
    delete = "works" if facts.deletable else "UNIMPLEMENTED"
    return [
        ("profiles", ", ".join(profiles)),
        ("machines", f"{facts.machines:,}, of which {facts.ordinary:,} ordinary ones the suite may use"),
        ("Delete", delete),
        ("cursors", f"{'returned' if facts.cursors else 'none'}; {facts.cursor_need}"),
        ("faults", ", ".join(facts.faults) or "none offered"),
    ]


def shortened(left_behind: Sequence[str]) -> list[str]:
    """The first few sentences about machines that are not as they were found, and the number of the others."""
    shown = list(left_behind[:_NAMED_MACHINES])
    if more := len(left_behind) - len(shown):
        shown.append(f"{more} more machines are not as they were found")
    return shown


def plain(text: str) -> str:
    """The provider's text, without characters that would move a terminal's cursor or break a document."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
