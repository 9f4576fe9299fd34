"""`bigfleet shard`: run a shard, which decides for its clusters."""

from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from bigfleet.cli.program import examples
from bigfleet.shard.config import Config, flag, load, plain, shown
from bigfleet.telemetry.logs import Level, configure

SHARD_EPILOG = examples(
    "bigfleet shard --provider sim=127.0.0.1:7760",
    "bigfleet shard --config examples/shard/laptop.yaml --dry-run",
    "bigfleet shard --config shard.yaml --reclaim-after 5m --print-config",
)

# The defaults as the help shows them. The two paths in _MADE follow from other settings and have none to show.
_DEFAULTS = plain(Config(data_dir=Path(), audit_log=Path()))
_MADE = {"data_dir", "audit_log"}
_OTHERS = {"config", "print_config"}


def _option(key: str, says: str, metavar: str | None = None) -> Any:
    default = None if key in _MADE else _DEFAULTS.get(key)
    if isinstance(default, list):
        default = ", ".join(default)
    said = says if default in (None, "", {}, False) else f"{says} [default: {default}]"
    names = f"{flag(key)}/--no-{flag(key)[2:]}" if default is False else flag(key)
    return typer.Option(names, help=said, metavar=metavar, show_default=False)


def shard(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings as YAML; flags win over it.")] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print all settings as YAML, and end.")] = False,
    shard_id: Annotated[
        str | None, _option("shard_id", "The shard; with TLS the one in its certificate.", "ID")
    ] = None,
    listen: Annotated[str | None, _option("listen", "For operators: HOST:PORT or unix:PATH.", "ADDRESS")] = None,
    metrics_listen: Annotated[
        str | None, _option("metrics_listen", "For /metrics, /healthz and /readyz.", "HOST:PORT")
    ] = None,
    advertise_address: Annotated[
        str | None,
        _option("advertise_address", "Where operators reach this shard, if not where it listens.", "ADDRESS"),
    ] = None,
    coordinator_addr: Annotated[
        str | None, _option("coordinator_addr", "The coordinator; taken, and not used yet.", "ADDRESS")
    ] = None,
    providers: Annotated[
        list[str] | None,
        _option("providers", "A provider: a name, and HOST:PORT or unix:PATH; repeatable.", "NAME=ADDRESS"),
    ] = None,
    data_dir: Annotated[
        str | None,
        _option("data_dir", "What outlives the process. [default: $XDG_STATE_HOME/bigfleet/<shard id>]", "DIR"),
    ] = None,
    tls_cert: Annotated[
        str | None, _option("tls_cert", "Certificate chain, PEM; all three TLS files or none.", "FILE")
    ] = None,
    tls_key: Annotated[str | None, _option("tls_key", "Its private key, PEM.", "FILE")] = None,
    tls_ca: Annotated[str | None, _option("tls_ca", "The CA bundle that peers are checked against.", "FILE")] = None,
    cycle_interval: Annotated[str | None, _option("cycle_interval", "Between two decisions.", "TIME")] = None,
    full_list_interval: Annotated[
        str | None, _option("full_list_interval", "Between two full lists of a provider.", "TIME")
    ] = None,
    bootstrap_timeout: Annotated[
        str | None, _option("bootstrap_timeout", "For an operator to answer with a bootstrap blob.", "TIME")
    ] = None,
    ready_timeout: Annotated[
        str | None, _option("ready_timeout", "For a node to be Ready once its machine is Configured.", "TIME")
    ] = None,
    provider_concurrency: Annotated[
        int | None, _option("provider_concurrency", "Calls to one provider at a time.", "N")
    ] = None,
    topology_keys: Annotated[
        list[str] | None,
        _option(
            "topology_keys", "A label that makes a domain; repeatable, the first that a machine has counts.", "LABEL"
        ),
    ] = None,
    weight_priority: Annotated[
        float | None, _option("weight_priority", "What a gap in priority counts when victims compare.", "0..2")
    ] = None,
    weight_drain: Annotated[float | None, _option("weight_drain", "What a fast drain counts.", "0..2")] = None,
    weight_interrupt: Annotated[
        float | None, _option("weight_interrupt", "What a cheap interruption counts.", "0..2")
    ] = None,
    weight_reclaim: Annotated[
        float | None, _option("weight_reclaim", "What a cheap reclamation counts.", "0..2")
    ] = None,
    idle_hold_on_demand: Annotated[
        str | None, _option("idle_hold_on_demand", "How long an idle on-demand machine is kept.", "TIME")
    ] = None,
    idle_hold_spot: Annotated[
        str | None, _option("idle_hold_spot", "How long an idle spot machine is kept.", "TIME")
    ] = None,
    reclaim_after: Annotated[
        str | None, _option("reclaim_after", "How long a cluster has excess before it gives back.", "TIME")
    ] = None,
    reclaim_percent: Annotated[
        int | None,
        _option(
            "reclaim_percent",
            "At most this share of a cluster's machines is reclaimed within 10 s; one always may be.",
            "0..100",
        ),
    ] = None,
    draining_percent: Annotated[
        int | None,
        _option(
            "draining_percent", "At most this share of a cluster's machines drains at once; one always may.", "0..100"
        ),
    ] = None,
    actuation_paused: Annotated[bool | None, _option("actuation_paused", "Decide, and carry out nothing.")] = None,
    dry_run: Annotated[
        bool | None, _option("dry_run", "Decide, carry out nothing, and report what would be done.")
    ] = None,
    audit_log: Annotated[
        str | None, _option("audit_log", "Every action and its reason. [default: <data dir>/audit.jsonl]", "FILE")
    ] = None,
    audit_log_size: Annotated[
        str | None, _option("audit_log_size", "How large it grows before it is set aside.", "SIZE")
    ] = None,
    audit_log_files: Annotated[
        int | None, _option("audit_log_files", "How many that were set aside are kept.", "N")
    ] = None,
    trace_endpoint: Annotated[
        str | None,
        _option("trace_endpoint", "Send traces there by OTLP/gRPC; needs bigfleet[tracing].", "http://HOST:PORT"),
    ] = None,
    log_level: Annotated[Level | None, _option("log_level", "The least severe event that is logged.")] = None,
) -> None:
    """Run a shard, which decides for its clusters.

    It takes the demand of clusters, decides, and drives providers until told to stop. The keys of the file are the
    flags with underscores, and providers and topology_keys; --print-config shows them all. Times are written 500ms,
    10s, 5m.
    """
    # This line must stay first, while the arguments are the only local variables.
    flags = {key: value for key, value in locals().items() if key not in _OTHERS and value != []}
    settings = load(config, flags)
    if print_config:
        typer.echo(shown(settings), nl=False)
        return
    configure(settings.log_level)
    settings.make_data_dir()
    # The engine takes longer to import than most other commands run.
    from bigfleet.shard.run import serve  # noqa: PLC0415

    uvloop.run(serve(settings))
