"""`bigfleet all-in-one`: a shard and the simulated cloud in one process."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import uvloop

from bigfleet.cli.program import examples
from bigfleet.cli.provider import open_cloud
from bigfleet.cli.shard import shard
from bigfleet.providerkit.backend import Backend
from bigfleet.providerkit.server.serve import Endpoint, serving
from bigfleet.providerkit.store import Store
from bigfleet.shard.config import Config, ConfigError, Provider, load, shown
from bigfleet.telemetry.logs import configure
from bigfleet.transport.address import TCPAddress

ALL_IN_ONE_EPILOG = examples(
    "bigfleet all-in-one",
    "bigfleet all-in-one --config examples/shard/playground.yaml",
    "bigfleet all-in-one --cloud examples/cloud/spot-and-stock-outs.yaml --data-dir here",
)

CLOUD_STATE = "cloud.state"
"""The file in the data directory that holds the cloud's machines. Its hosts are in the same file name with `.cloud`."""

# Flags of `bigfleet shard` that are left out: with TLS the cloud would need a certificate of its own.
_NOT_HERE = {"tls_cert", "tls_key", "tls_ca"}


def _with_flags_of_shard(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the flags of `bigfleet shard` in the place of its own argument `settings`."""
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "settings"]
    taken = [each for name, each in inspect.signature(shard).parameters.items() if name not in _NOT_HERE]
    known = {each.name for each in own}
    signature = inspect.Signature([*own, *(each for each in taken if each.name not in known)])
    setattr(command, "__signature__", signature)  # noqa: B010 - functions have it, their type does not say so
    return command


@_with_flags_of_shard
def all_in_one(
    cloud: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The cloud, as YAML; examples/cloud has some. [default: small]")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings as YAML; flags win over it.")] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print all settings as YAML, and end.")] = False,
    **settings: Any,
) -> None:
    """Run a shard and a simulated cloud in one process.

    They run until told to stop; a coordinator comes with a later release. This is for a laptop: there is no TLS.
    All other settings are those of `bigfleet shard`; a provider that is named serves beside the cloud. Machines and
    decisions are kept in the data directory, and the next start goes on with them.
    """
    loaded = load(config, {key: value for key, value in settings.items() if value != []})
    if loaded.tls is not None:
        raise ConfigError(
            "TLS", "not in one process: run `bigfleet shard` and `bigfleet provider sim`, each with its certificate"
        )
    if print_config:
        typer.echo(shown(loaded), nl=False)
        return
    configure(loaded.log_level)
    loaded.make_data_dir()
    backend, store = open_cloud(cloud, str(loaded.data_dir / CLOUD_STATE))
    if any(each.name == backend.scheme for each in loaded.providers):
        raise ConfigError("providers", f"{backend.scheme!r} is the name of the cloud in this process; choose another")
    uvloop.run(_serve(loaded, backend, store))


async def _serve(config: Config, backend: Backend, store: Store) -> None:
    from bigfleet.shard.run import serve  # noqa: PLC0415 - the engine takes a second to import

    async with serving(backend, store, Endpoint(TCPAddress("127.0.0.1", 0))) as cloud:
        # The provider is named after the scheme of its hosts, as it would be in a fleet of several clouds.
        provider = Provider(backend.scheme, cloud.address)
        await serve(msgspec.structs.replace(config, providers=(provider, *config.providers)))
