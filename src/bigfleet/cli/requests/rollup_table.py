"""A roll-up as a table for people."""

from rich.console import Console
from rich.table import Table

from bigfleet.model.demand.need import Need, Rollup
from bigfleet.model.demand.profile import Operator, Requirement, WhenUnsatisfiable
from bigfleet.model.resources import Resources, quantities
from bigfleet.wire.needs import rollup_to_wire


def show(rollup: Rollup, requests: int, console: Console) -> None:
    """Print the rows, highest priority first, and what they come to on the wire."""
    table = Table(title=f"demand of cluster {rollup.cluster_id}", title_justify="left", header_style="bold")
    table.add_column("priority", justify="right")
    table.add_column("units", justify="right")
    table.add_column("one unit", overflow="fold")
    table.add_column("in all", overflow="fold")
    table.add_column("machines must have", overflow="fold")
    table.add_column("penalties $", justify="right")
    table.add_column("profile")
    for need in sorted(rollup.needs, key=lambda need: (-need.profile.priority, need.key)):
        table.add_row(
            str(need.profile.priority),
            str(need.units),
            _amounts(need.unit),
            _amounts(need.aggregate),
            _conditions(need),
            f"{need.profile.interruption.label} / {need.profile.reclamation.label}",
            need.profile.fingerprint[:8],
        )
    console.print(table)
    size = rollup_to_wire(rollup).ByteSize()
    console.print(f"{requests} requests → {len(rollup.needs)} rows, {size:,} bytes on the wire")


def _amounts(vector: Resources) -> str:
    return ", ".join(f"{_short(name)} {amount}" for name, amount in quantities(vector).items())


def _conditions(need: Need) -> str:
    profile = need.profile
    parts = [_condition(requirement) for requirement in profile.requirements]
    for spread in profile.spread:
        strictness = "" if spread.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE else "rather "
        parts.append(f"{strictness}spread ≤ {spread.max_skew} over {_short(spread.topology_key)}")
    if profile.max_per_machine:
        parts.append(f"at most {profile.max_per_machine} a machine")
    return ", ".join(parts) or "anything"


def _condition(requirement: Requirement) -> str:
    key, values = _short(requirement.key), _plain("|".join(requirement.values))
    match requirement.operator:
        case Operator.IN:
            return f"{key} {values}"
        case Operator.NOT_IN:
            return f"{key} not {values}"
        case Operator.EXISTS:
            return f"has {key}"
        case Operator.DOES_NOT_EXIST:
            return f"no {key}"
        case Operator.SAME:
            return f"all in one {key}" + (f" of {values}" if values else "")


def _short(key: str) -> str:
    return _plain(key.rsplit("/", maxsplit=1)[-1])


def _plain(text: str) -> str:
    """Foreign text without characters that would move a terminal's cursor."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
