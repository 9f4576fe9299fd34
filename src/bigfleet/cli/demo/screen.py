"""Showing the demo: on a terminal as a picture that changes in place, elsewhere as lines."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bigfleet.model.machine import CapacityType, MachineState

_ACTIONS = 8
# The least time between two lines of figures where there is no terminal.
_EVERY_SECONDS = 2.0


class Row(msgspec.Struct, frozen=True):
    """One workload of a cluster, with how many of its pods run and how many wait."""

    cluster: str
    workload: str
    priority: int
    running: int
    pending: int


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is shown at one moment."""

    rows: Sequence[Row]
    nodes: Mapping[str, int]
    """How many nodes each cluster has."""
    sessions: Mapping[str, str]
    """The state of each cluster's session with the shard, in words."""
    machines: Mapping[tuple[CapacityType, MachineState], int]
    shard: str
    """The shard's state and figures, in words."""
    dollars: float
    """What the machines cost an hour."""


class Screen(Protocol):
    """Where the demo is shown. `seconds` counts from the start of the demo."""

    def tell(self, seconds: float, text: str, *, loud: bool = False) -> None:
        """Print a sentence of the story, which stays; a `loud` one begins an act."""

    def offer(self, command: str) -> None:
        """Print a command that a person may paste, on a line of its own that is not wrapped."""

    def did(self, seconds: float, line: str) -> None:
        """Show one line about what the shard did."""

    def show(self, seconds: float, view: View) -> None:
        """Show the state of everything."""

    def close(self) -> None:
        """Stop drawing, and leave the terminal in order."""


def screen_on(console: Console) -> Screen:
    """A picture where the console is a terminal, else lines."""
    return _Picture(console) if console.is_terminal else _Lines(console)


class _Lines:
    """Shows everything as lines. Figures are printed when they have changed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown, self._shown_at = "", float("-inf")

    def tell(self, seconds: float, text: str, *, loud: bool = False) -> None:
        if loud:
            self._console.print()
        self._print(seconds, text)

    def offer(self, command: str) -> None:
        self._console.print(f"    {command}", soft_wrap=True)

    def did(self, seconds: float, line: str) -> None:
        self._print(seconds, f"  {line}")

    def show(self, seconds: float, view: View) -> None:
        pods = ", ".join(
            f"{row.workload} {row.running}" + (f" (+{row.pending} pending)" if row.pending else "")
            for row in view.rows
            if row.running or row.pending
        )
        nodes = ", ".join(f"{cluster} {count}" for cluster, count in view.nodes.items() if count)
        machines = ", ".join(
            f"{count} {kind.label} {state.label}" for (kind, state), count in sorted(view.machines.items())
        )
        odd = ", ".join(f"{cluster}: {said}" for cluster, said in view.sessions.items() if said != "connected")
        parts = [f"pods: {pods or 'none'}", f"nodes: {nodes or 'none'}", f"machines: {machines}"]
        line = " | ".join([*parts, f"${view.dollars:.2f} an hour", *([odd] if odd else [])])
        if line != self._shown and seconds - self._shown_at >= _EVERY_SECONDS:
            self._shown, self._shown_at = line, seconds
            self._print(seconds, f"    {line} | {view.shard}")

    def close(self) -> None:
        pass

    def _print(self, seconds: float, text: str) -> None:
        # Lines are not wrapped, since a pipe has no width.
        self._console.print(f"{seconds:5.1f} s  {text}", soft_wrap=True)


class _Picture:
    """Shows the story as lines that scroll by, and below them a picture of the fleet."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._did: deque[str] = deque(maxlen=_ACTIONS)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def tell(self, seconds: float, text: str, *, loud: bool = False) -> None:
        self._console.print(Text(f"{seconds:5.1f} s  {text}", style="bold" if loud else ""))

    def offer(self, command: str) -> None:
        self._console.print(Text(f"    {command}"), soft_wrap=True)

    def did(self, seconds: float, line: str) -> None:
        self._did.append(f"{seconds:5.1f} s  {line}")

    def show(self, seconds: float, view: View) -> None:
        actions = Table.grid()
        actions.add_column(no_wrap=True, overflow="ellipsis")
        for line in self._did:
            actions.add_row(Text(line))
        facts = Text(f"{seconds:5.1f} s  {view.shard}  ·  ${view.dollars:.2f} an hour", style="bold")
        self._live.update(Group(_clusters(view), _machines(view), facts, actions), refresh=True)

    def close(self) -> None:
        self._live.stop()


def _clusters(view: View) -> Table:
    table = Table(header_style="bold", expand=False)
    for name in ("cluster", "workload"):
        table.add_column(name, no_wrap=True)
    for name in ("priority", "pods running", "pending", "nodes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("operator")
    last = ""
    for row in view.rows:
        first = row.cluster != last
        table.add_row(
            row.cluster if first else "",
            row.workload,
            f"{row.priority:,}",
            str(row.running),
            Text(str(row.pending), style="yellow" if row.pending else "dim"),
            str(view.nodes[row.cluster]) if first else "",
            Text(view.sessions[row.cluster]) if first else "",
        )
        last = row.cluster
    return table


def _machines(view: View) -> Table:
    table = Table.grid(padding=(0, 2))
    for kind in sorted({kind for kind, _ in view.machines}):
        states = (
            f"{view.machines[kind, state]} {state.label}" for state in MachineState if (kind, state) in view.machines
        )
        table.add_row(Text(f"{kind.label} machines", style="bold"), Text("   ".join(states)))
    return table
