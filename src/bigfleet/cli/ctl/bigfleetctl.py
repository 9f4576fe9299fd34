"""`bigfleetctl`: the commands by which a person asks a shard, and tells it what to do."""

import asyncio
from enum import StrEnum
from typing import Annotated, NoReturn

import typer

import bigfleet
from bigfleet.cli.ctl.need_json import json_line
from bigfleet.cli.ctl.shard_client import (
    DEFAULT_SHARD,
    CAFlag,
    CertFlag,
    KeyFlag,
    ShardFlag,
    Target,
    forget_cluster,
    get_status,
    inspect_needs,
    list_clusters,
    set_actuation,
)
from bigfleet.cli.ctl.shard_json import json_of
from bigfleet.cli.ctl.shard_tables import show_clusters, show_needs, show_status, why_no_needs
from bigfleet.cli.program import InputError, console, examples, run
from bigfleet.cli.wording import count

app = typer.Typer(
    name="bigfleetctl",
    help="Ask a BigFleet shard what it decided and why, and steer it.",
    epilog=examples("bigfleetctl status", "bigfleetctl needs --cluster shop --unmet"),
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
clusters_app = typer.Typer(name="clusters", help="The clusters that a shard knows.", invoke_without_command=True)
app.add_typer(
    clusters_app,
    epilog=examples("bigfleetctl clusters", "bigfleetctl clusters forget shop --yes --shard 10.0.0.7:7780"),
)


class Output(StrEnum):
    """How needs are shown."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


class PlainOutput(StrEnum):
    """How everything else is shown."""

    TABLE = "table"
    JSON = "json"


PlainOutputFlag = Annotated[
    PlainOutput, typer.Option("--output", "-o", help="table, for people, or json, for programs.")
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bigfleetctl {bigfleet.__version__}")
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
    epilog=examples(
        "bigfleetctl needs --cluster shop",
        "bigfleetctl needs --cluster shop --unmet --output wide",
        "bigfleetctl needs --output json | jq -r 'select(.satisfied | not) | .why'",
    )
)
def needs(
    cluster: Annotated[str, typer.Option(help="Only this cluster's needs. [default: all clusters']")] = "",
    unmet: Annotated[bool, typer.Option("--unmet", help="Only needs that are short.")] = False,
    limit: Annotated[int, typer.Option(help="Show at most so many; 0: all.", min=0, max=2**31 - 1)] = 0,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="table, wide (more columns) or json (a line a need).")
    ] = Output.TABLE,
    shard: ShardFlag = DEFAULT_SHARD,
    tls_cert: CertFlag = None,
    tls_key: KeyFlag = None,
    tls_ca: CAFlag = None,
) -> None:
    """Show what clusters ask for and have, and why a need is unmet.

    Needs stand in the order in which the shard serves them, as its last decision left them.
    """
    target = Target.from_flags(shard, tls_cert, tls_key, tls_ca)
    answer = asyncio.run(inspect_needs(target, cluster, limit, unmet=unmet))
    if cluster and not answer.header.total_needs:
        said = why_no_needs(answer.shard_state, cluster)
        if not said:
            raise _unknown(cluster, target)
        typer.echo(said, err=output is Output.JSON)
    elif output is Output.JSON:
        for each in answer.needs:
            typer.echo(json_line(each, answer.header))
    else:
        show_needs(answer, cluster, limit, console(), unmet=unmet, wide=output is Output.WIDE)


@clusters_app.callback()
def clusters(
    context: typer.Context,
    output: PlainOutputFlag = PlainOutput.TABLE,
    shard: ShardFlag = DEFAULT_SHARD,
    tls_cert: CertFlag = None,
    tls_key: KeyFlag = None,
    tls_ca: CAFlag = None,
) -> None:
    """List the clusters that a shard knows, how many of their needs are short, and how many machines they have."""
    if context.invoked_subcommand is None:
        target = Target.from_flags(shard, tls_cert, tls_key, tls_ca)
        found = asyncio.run(list_clusters(target))
        if output is PlainOutput.JSON:
            for each in found:
                typer.echo(json_of(each))
        else:
            show_clusters(found, console())
        return
    early = [name for name in context.params if _is_given(context, name)]
    if early:
        # The subcommand would not see these flags, and would speak to another shard than the one meant.
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in early)
        raise typer.BadParameter(f"{flags} must come after {context.invoked_subcommand}")


@clusters_app.command(epilog=examples("bigfleetctl clusters forget shop --yes"))
def forget(
    cluster: Annotated[str, typer.Argument(help="The cluster, as `bigfleetctl clusters` shows it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without, only say what would be done.")] = False,
    shard: ShardFlag = DEFAULT_SHARD,
    tls_cert: CertFlag = None,
    tls_key: KeyFlag = None,
    tls_ca: CAFlag = None,
) -> None:
    """Withdraw the demand of a cluster, and drain its machines.

    This is for a cluster that is gone for good. Refused while its operator is connected. A cluster that comes back
    is taken for a new one.
    """
    target = Target.from_flags(shard, tls_cert, tls_key, tls_ca)
    if not yes:
        found = [each for each in asyncio.run(list_clusters(target)) if each.cluster_id == cluster]
        if not found:
            raise _unknown(cluster, target)
        machines = count(found[0].machines, "machine")
        raise InputError(f"to forget cluster {cluster!r} drains its {machines}; add --yes if that is meant")
    machines = count(asyncio.run(forget_cluster(target, cluster)), "machine")
    typer.echo(f"cluster {cluster} is forgotten; it has {machines}, which are drained a few at a time")


@app.command(epilog=examples("bigfleetctl pause --reason 'network maintenance, ask dana'"))
def pause(
    reason: Annotated[str, typer.Option(help="Why, for whoever looks at the status.")],
    shard: ShardFlag = DEFAULT_SHARD,
    tls_cert: CertFlag = None,
    tls_key: KeyFlag = None,
    tls_ca: CAFlag = None,
) -> None:
    """Let a shard decide but not act.

    No provider gets a mutating call, and no operator a new instruction. Drains that have not reached a provider are
    cancelled. Survives a restart of the shard; ends with resume.
    """
    target = Target.from_flags(shard, tls_cert, tls_key, tls_ca)
    was_paused = asyncio.run(set_actuation(target, paused=True, reason=reason))
    typer.echo("it was paused already; the reason is now this one" if was_paused else "paused")


@app.command(epilog=examples("bigfleetctl resume"))
def resume(
    shard: ShardFlag = DEFAULT_SHARD,
    tls_cert: CertFlag = None,
    tls_key: KeyFlag = None,
    tls_ca: CAFlag = None,
) -> None:
    """Let a paused shard act again."""
    target = Target.from_flags(shard, tls_cert, tls_key, tls_ca)
    was_paused = asyncio.run(set_actuation(target, paused=False))
    typer.echo("resumed" if was_paused else "it was not paused")


@app.command(epilog=examples("bigfleetctl status --shard 10.0.0.7:7780"))
def status(
    output: PlainOutputFlag = PlainOutput.TABLE,
    shard: ShardFlag = DEFAULT_SHARD,
    tls_cert: CertFlag = None,
    tls_key: KeyFlag = None,
    tls_ca: CAFlag = None,
) -> None:
    """Show whether a shard acts, its machines and its providers.

    What is in flight is shown as well.
    """
    target = Target.from_flags(shard, tls_cert, tls_key, tls_ca)
    found = asyncio.run(get_status(target))
    if output is PlainOutput.JSON:
        typer.echo(json_of(found, address=str(target.address)))
    else:
        show_status(found, str(target.address), console())


def _unknown(cluster: str, target: Target) -> InputError:
    advice = "`bigfleetctl clusters` lists those that have"
    return InputError(f"cluster {cluster!r} has not reported to the shard at {target.address}; {advice}")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def main() -> NoReturn:
    """The console script."""
    run(app, "bigfleetctl")


if __name__ == "__main__":
    main()
