"""`bigfleet`: the programs of the system, one subcommand each."""

from typing import Annotated, NoReturn

import typer

import bigfleet
from bigfleet.cli import provider, providerkit
from bigfleet.cli.all_in_one import ALL_IN_ONE_EPILOG, all_in_one
from bigfleet.cli.conformance import CONFORMANCE_EPILOG, conformance
from bigfleet.cli.demo.command import DEMO_EPILOG, demo
from bigfleet.cli.dev.clusters import app as dev
from bigfleet.cli.operator import OPERATOR_EPILOG, operator
from bigfleet.cli.pod_controller import POD_CONTROLLER_EPILOG, pod_controller
from bigfleet.cli.program import InputError, examples, run
from bigfleet.cli.rollup import ROLLUP_EPILOG, rollup
from bigfleet.cli.shard import SHARD_EPILOG, shard

app = typer.Typer(
    name="bigfleet",
    help="BigFleet: one decision engine for the machines of many Kubernetes clusters.",
    epilog=examples("bigfleet demo", "bigfleet shard --help"),
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(provider.app)
app.add_typer(providerkit.app)
app.add_typer(dev)
app.command(epilog=DEMO_EPILOG)(demo)
app.command("all-in-one", epilog=ALL_IN_ONE_EPILOG)(all_in_one)
app.command(epilog=SHARD_EPILOG)(shard)
app.command(epilog=OPERATOR_EPILOG)(operator)
app.command("pod-controller", epilog=POD_CONTROLLER_EPILOG)(pod_controller)
app.command(epilog=ROLLUP_EPILOG)(rollup)
app.command(epilog=CONFORMANCE_EPILOG)(conformance)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bigfleet {bigfleet.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command("warm-up", epilog=examples("bigfleet warm-up"))
def warm_up() -> None:
    """Compile the decision engine ahead of time.

    Takes about a minute the first time and a second from then on. A shard does it by itself, and decides interpreted
    meanwhile; done ahead, it spares a large fleet that minute. What is compiled is kept below NUMBA_CACHE_DIR, else
    below XDG_CACHE_HOME or ~/.cache.
    """
    # The engine takes longer to import than most other commands run.
    from bigfleet.engine.compiled import ensure, kept  # noqa: PLC0415

    if not kept.is_allowed():
        raise InputError("NUMBA_DISABLE_JIT is set, which keeps the decision engine interpreted; unset it")
    try:
        place = ensure.ensure()
    except (OSError, ensure.BuildError) as error:
        raise InputError(f"the decision engine could not be compiled: {error}") from None
    if place.problem:
        raise InputError(f"what was compiled cannot be kept: {place.problem}")
    typer.echo(f"the decision engine is compiled, in {place.folder}")


def main() -> NoReturn:
    """The console script."""
    run(app, "bigfleet")
