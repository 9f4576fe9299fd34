"""`bigfleet dev`: real Kubernetes control planes on this machine, and simulated clusters that feed a shard."""

import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
import uvloop

from bigfleet.cli.dev.demand import DEMAND_EPILOG, demand
from bigfleet.cli.program import examples, leave
from bigfleet.sim.controlplane import places
from bigfleet.sim.controlplane.errors import ControlPlaneError
from bigfleet.sim.controlplane.places import Record
from bigfleet.sim.controlplane.programs.binaries import obtain
from bigfleet.sim.controlplane.supervise import leave_behind, supervise

app = typer.Typer(
    name="dev",
    help="Try BigFleet and work on it, on this machine.",
    epilog=examples("bigfleet dev demand requests.yaml --cluster a", "bigfleet dev cluster up --name a"),
    no_args_is_help=True,
)
cluster = typer.Typer(
    name="cluster",
    help="Run Kubernetes control planes as plain processes.",
    epilog=examples("bigfleet dev cluster up --name a"),
    no_args_is_help=True,
)
app.add_typer(cluster)
app.command(epilog=DEMAND_EPILOG)(demand)

Name = Annotated[str, typer.Option(help="Which cluster; several run side by side.")]

_COLUMNS = "{:<20} {:<9} {:<9} {:>8}  {}"


@cluster.command(epilog=examples("bigfleet dev cluster up --name a", "bigfleet dev cluster up --name a --detach"))
def up(
    name: Name = "dev",
    detach: Annotated[bool, typer.Option("--detach", help="Return once it is ready; `down` ends it.")] = False,
) -> None:
    """Start a cluster and run it until Ctrl-C.

    Its programs are those of KUBEBUILDER_ASSETS or PATH where they fit, else built from source once, into the user's
    cache. Everything of the cluster ends with this command, and its data is thrown away.
    """
    with _plainly():
        found = obtain(_say)
        began = time.monotonic()

        def ready(record: Record) -> None:
            typer.echo(
                f"cluster {record.name} is ready after {time.monotonic() - began:.1f} s: "
                f"Kubernetes {record.version} at {record.server}\n"
                f"export KUBECONFIG={record.kubeconfig}\n"
                f"kubectl is {found['kubectl']}"
            )

        if detach:
            ready(leave_behind(name))
        else:
            uvloop.run(supervise(name, found, ready))


@cluster.command(epilog=examples("bigfleet dev cluster down --name a"))
def down(name: Name = "dev") -> None:
    """End a cluster and throw its data away."""
    with _plainly():
        places.end(name)


@cluster.command(epilog=examples('eval "$(bigfleet dev cluster env --name a)"'))
def env(name: Name = "dev") -> None:
    """Print what points a shell at a cluster.

    That is KUBECONFIG, and a PATH on which a fitting kubectl is first.
    """
    with _plainly():
        record = next(
            (each.record for each in places.list_clusters() if (each.name, each.state) == (name, "running")), None
        )
        if record is None:
            # A shell that evaluates this must not go on with whichever cluster it was pointed at before.
            typer.echo("export KUBECONFIG=/dev/null")
            raise ControlPlaneError(f"no cluster {name!r} runs; bigfleet dev cluster up --name {name} starts it")
        typer.echo(f"export KUBECONFIG={shlex.quote(record.kubeconfig)}")
        kubectl = obtain(_say)["kubectl"]
        if shutil.which("kubectl") != str(kubectl):
            typer.echo(f'export PATH={shlex.quote(str(kubectl.parent))}:"$PATH"')


@cluster.command("list", epilog=examples("bigfleet dev cluster list"))
def list_() -> None:
    """Show the clusters of this machine's user."""
    typer.echo(_COLUMNS.format("NAME", "STATE", "VERSION", "AGE", "KUBECONFIG"))
    for each in places.list_clusters():
        record = each.record
        if record is None:
            typer.echo(_COLUMNS.format(each.name, each.state, "", "", "").rstrip())
        else:
            age = f"{max(time.time() - record.began, 0):.0f}s"
            typer.echo(_COLUMNS.format(each.name, each.state, record.version, age, record.kubeconfig))


@app.command(epilog=examples("bigfleet dev binaries"))
def binaries() -> None:
    """Find or build the programs of a control plane.

    Prints where each of them is.
    """
    with _plainly():
        for name, path in obtain(_say).items():
            typer.echo(f"{name} {path}")


@contextmanager
def _plainly() -> Iterator[None]:
    """End with one line on standard error where something is wrong that a person can mend."""
    try:
        yield
    except ControlPlaneError as error:
        leave("bigfleet dev", str(error), 1)


def _say(line: str) -> None:
    typer.echo(line, err=True)
