"""`bigfleet`: the programs of the system, one subcommand each."""

import asyncio
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import bigfleet
from bigfleet.cli import provider, providerkit
from bigfleet.cli.conformance import EPILOG, conformance
from bigfleet.cli.manifests import examples, read_requests
from bigfleet.cli.program import check_id, console, run
from bigfleet.cli.rollup_table import show
from bigfleet.sim.demo import deliver, roll_up
from bigfleet.telemetry.logs import Level, configure
from bigfleet.transport.address import listen_address
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSFiles

app = typer.Typer(
    name="bigfleet",
    help="BigFleet: one decision engine for the machines of many Kubernetes clusters.",
    epilog="Example: bigfleet demo examples/capacity-requests",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(provider.app)
app.add_typer(providerkit.app)
app.command(epilog=EPILOG)(conformance)


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


@app.command(
    epilog="Examples: bigfleet demo · bigfleet demo my-requests.yaml --cluster-id shop · "
    "bigfleet demo --listen unix:/tmp/demo.sock"
)
def demo(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Manifests, or folders of them; the examples if none is named.")
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option(help="The cluster that asks; with TLS the certificate's. [default: demo]")
    ] = None,
    listen: Annotated[str, typer.Option(help="Where the shard's end listens: HOST:PORT or unix:PATH.")] = "127.0.0.1:0",
    tls_cert: Annotated[str | None, typer.Option(help="Certificate chain, PEM; all three TLS files or none.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its private key, PEM.")] = None,
    tls_ca: Annotated[str | None, typer.Option(help="The CA bundle that peers are checked against, PEM.")] = None,
    log_level: Annotated[Level, typer.Option(help="The least severe event that is logged.")] = Level.WARNING,
) -> None:
    """Roll up CapacityRequests and show the demand they make.

    The roll-up travels through a real session to a stand-in for the shard; the table shows what arrived there.
    """
    configure(log_level)
    files = TLSFiles.from_flags(tls_cert, tls_key, tls_ca)
    address = listen_address(listen)
    tls = None if files is None else LiveTLS.start(files)
    named = cluster_id if cluster_id is not None else (None if tls is None else tls.identity.id) or "demo"
    check_id(named, "--cluster-id")
    requests = read_requests(paths or [examples()])
    delivery = asyncio.run(deliver(roll_up(named, requests), address, tls))
    show(delivery, len(requests), console())


@app.command("warm-up", epilog="Example, in an image build: RUN bigfleet warm-up")
def warm_up() -> None:
    """Compile the decision engine ahead of time.

    Takes a minute or two the first time and a second from then on. What is compiled is kept below NUMBA_CACHE_DIR, else
    below XDG_CACHE_HOME or ~/.cache.
    """
    # The compiler takes longer to import than most other commands run.
    from bigfleet.engine.compiled import FOLDER  # noqa: PLC0415
    from bigfleet.engine.warmup import warm_up as compile_all  # noqa: PLC0415

    compile_all()
    typer.echo(f"the decision engine is compiled, in {FOLDER}")


def main() -> NoReturn:
    """The console script."""
    run(app, "bigfleet")
