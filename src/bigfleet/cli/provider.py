"""`bigfleet provider`: the simulated cloud as a provider of its own, and a look at its hosts."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from bigfleet.cli.program import examples
from bigfleet.providerkit.backend import Backend
from bigfleet.providerkit.faults import FaultyBackend
from bigfleet.providerkit.server.main import IN_MEMORY, open_store
from bigfleet.providerkit.server.serve import Endpoint, serve
from bigfleet.providerkit.store import Store
from bigfleet.sim.cloud.backend import CloudBackend
from bigfleet.sim.cloud.hosts import Hosts, beside, check_state, existing
from bigfleet.sim.cloud.reading import load
from bigfleet.telemetry.logs import Level, configure
from bigfleet.transport.address import listen_address, listen_tcp_address
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSFiles

app = typer.Typer(
    name="provider",
    help="Run the simulated cloud.",
    epilog=examples("bigfleet provider sim", "bigfleet provider sim --help"),
    no_args_is_help=True,
)


@app.command(
    epilog=examples(
        "bigfleet provider sim",
        "bigfleet provider sim --config examples/cloud/spot-and-stock-outs.yaml --state cloud.state",
        "bigfleet provider sim --listen unix:/tmp/cloud.sock",
    )
)
def sim(
    config: Annotated[Path | None, typer.Option(help="The cloud, as YAML. [default: a small one]")] = None,
    listen: Annotated[str, typer.Option(help="HOST:PORT or unix:PATH.")] = "127.0.0.1:7760",
    metrics_listen: Annotated[str, typer.Option(help="HOST:PORT for /metrics, /healthz and /readyz.")] = "",
    state: Annotated[
        str, typer.Option(help=f"A file, beside which FILE.cloud holds the hosts; {IN_MEMORY}: lost at the end.")
    ] = IN_MEMORY,
    tls_cert: Annotated[str | None, typer.Option(help="Certificate chain, PEM; all three TLS files or none.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its private key, PEM.")] = None,
    tls_ca: Annotated[str | None, typer.Option(help="The CA bundle that callers are checked against, PEM.")] = None,
    log_level: Annotated[Level, typer.Option(help="The least severe event that is logged.")] = Level.INFO,
) -> None:
    """Serve a simulated cloud until told to stop.

    Machines take their time, fail, run out and are taken back as the configuration says; examples/cloud shows how.
    """
    configure(log_level)
    tls = TLSFiles.from_flags(tls_cert, tls_key, tls_ca)
    endpoint = Endpoint(
        listen_address(listen),
        listen_tcp_address(metrics_listen) if metrics_listen else None,
        None if tls is None else LiveTLS.start(tls),
    )
    uvloop.run(serve(*open_cloud(config, state), endpoint))


@app.command(epilog=examples("bigfleet provider hosts --state cloud.state"))
def hosts(state: Annotated[Path, typer.Option(help="The file that `bigfleet provider sim --state` names.")]) -> None:
    """Print the hosts that exist in a simulated cloud, one a line."""
    for ref in existing(beside(state)):
        typer.echo(ref)


def open_cloud(config: Path | None, state: str) -> tuple[Backend, Store]:
    """The cloud of a configuration file, or the small example where none is named, and the store of its state."""
    cloud = load(config or _example())
    if state == IN_MEMORY:
        store, hosts = open_store(state, cloud.scheme), Hosts()
    else:
        check_state(Path(state))
        # The state is opened first: its lock guards the hosts' file as well.
        store = open_store(state, cloud.scheme)
        hosts = Hosts(beside(Path(state)), has_machines=bool(store.load().entries))
    backend = CloudBackend(cloud, hosts)
    return (FaultyBackend(backend) if cloud.faults else backend), store


def _example() -> Path:
    """The file of the small cloud: in the installed package, or else in the checkout."""
    package = Path(str(files("bigfleet")))
    installed = package / "examples" / "cloud" / "laptop.yaml"
    return installed if installed.is_file() else package.parents[1] / "examples" / "cloud" / "laptop.yaml"
