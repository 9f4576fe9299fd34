"""A roll-up as a table for people."""

from rich.console import Console
from rich.table import Table

from bigfleet.cli.wording import amounts, conditions, plain
from bigfleet.model.demand.need import Rollup
from bigfleet.wire.needs import rollup_to_wire


def show_rollup(rollup: Rollup, requests: int, console: Console) -> None:
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
            plain(amounts(need.unit)),
            plain(amounts(need.aggregate)),
            plain(conditions(need)),
            f"{need.profile.interruption.label} / {need.profile.reclamation.label}",
            need.profile.fingerprint[:8],
        )
    console.print(table)
    size = rollup_to_wire(rollup).ByteSize()
    console.print(f"{requests} requests → {len(rollup.needs)} rows, {size:,} bytes on the wire")
