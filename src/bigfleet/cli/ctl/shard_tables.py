"""A shard's answers for people: tables on a terminal, plain columns in a pipe. Foreign text is made printable."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bigfleet.cli.ctl.need_words import (
    InspectedNeed,
    asks,
    explain,
    has,
    missing,
    on_their_way,
    span,
    unmet_for,
    waits,
)
from bigfleet.cli.ctl.shard_client import InspectedNeeds, ShardState
from bigfleet.cli.wording import conditions, count, plain
from bigfleet.wire.v1alpha1.shardadmin_pb2 import ClusterStanding, GetStatusResponse, ProviderStanding

_RIGHT = frozenset({"#", "priority", "needs", "short", "machines"})
_WIDE = ["new machines", "domain", "penalties $", "first seen", "profile", "gang"]


def show_needs(answer: InspectedNeeds, cluster: str, limit: int, console: Console, *, unmet: bool, wide: bool) -> None:
    """Print the needs as a table, then for each need that is short why it is, and what to do."""
    for note in notes(answer.shard_state, cluster):
        _say(console, note, "yellow")
    _say(console, _title(answer, cluster, limit, unmet=unmet), "bold")
    if not answer.needs:
        return
    asked_by = any(each.view.owners for each in answer.needs)
    headings = ["#", *([] if cluster else ["cluster"]), *(["asked by"] if asked_by else [])]
    headings += ["priority", "asks", "machines must have", "has", "missing", "unmet for", *(_WIDE if wide else [])]
    rows = [
        [
            str(number),
            *([] if cluster else [each.view.cluster_id]),
            *([", ".join(each.view.owners) or "-"] if asked_by else []),
            *_cells(each, answer),
            *(_wide_cells(each) if wide else []),
        ]
        for number, each in enumerate(answer.needs, start=1)
    ]
    _print(headings, rows, console)
    for number, each in enumerate(answer.needs, start=1):
        if waits(each.view) or not each.view.satisfied:
            explanation, fate = (
                explain(each, answer.header),
                "is covered and waits" if each.view.satisfied else "is short",
            )
            console.print()
            _say(console, f"{number}. {asks(each.need)} at priority {each.need.profile.priority} {fate}.", "bold")
            _say(console, f"Why: {explanation.why}", indent=3)
            _say(console, f"Next: {explanation.next}", indent=3)


def show_clusters(clusters: Sequence[ClusterStanding], console: Console) -> None:
    """Print every cluster with its operator, its demand and how many of its needs are short."""
    rows = [
        [each.cluster_id, _operator(each), _demand(each), str(each.needs), str(each.needs_short), str(each.machines)]
        for each in clusters
    ]
    if rows:
        _print(["cluster", "operator", "demand", "needs", "short", "machines"], rows, console)
    else:
        _say(console, "no cluster has reported to this shard")


def show_status(status: GetStatusResponse, address: str, console: Console) -> None:
    """Print the shard's status. What keeps it from acting comes first."""
    _say(console, f"shard {status.shard_id} at {address}, epoch {status.epoch}", "bold")
    held = _held(status)
    for reason in held:
        _say(console, reason, "yellow")
    if not held:
        _say(console, "acting: decisions are carried out")
    decided = f"cycle {status.cycle}, decided {_time(status.decided_at_unix_nanos)}"
    _say(console, decided if status.decided_at_unix_nanos else "no decision yet")
    _say(console, f"machines: {_counts(status.machines_by_state)}")
    _say(console, f"actions in flight: {_counts(status.actions_in_flight)}")
    for provider in status.providers:
        _say(console, _provider(provider), "" if provider.reachable else "yellow")
    if not status.providers:
        _say(console, "no provider is configured")


def notes(shard_state: ShardState | None, cluster: str) -> list[str]:
    """What a reader of needs must know first."""
    found = []
    if shard_state is not None:
        found += _held(shard_state.status)
        lost = [provider.name for provider in shard_state.status.providers if not provider.reachable]
        found += [f"provider {name} does not answer: its machines stay as they are" for name in lost]
        found += [
            _away(each) for each in shard_state.clusters.values() if cluster in ("", each.cluster_id) and _is_away(each)
        ]
    one = None if shard_state is None else shard_state.clusters.get(cluster)
    if one is not None and one.quarantined:
        found.append(
            f"a roll-up of {cluster} that asks for far less waits for confirmation; these needs are from the one before"
        )
    return found


def why_no_needs(shard_state: ShardState | None, cluster: str) -> str:
    """Why a cluster has no needs here; empty where the shard does not know it."""
    if shard_state is None:
        return f"cluster {cluster} has not reported to this shard, or asks for nothing"
    one = shard_state.clusters.get(cluster)
    if one is None:
        return ""
    if one.forgotten:
        return f"cluster {cluster} was forgotten and still has {count(one.machines, 'machine')}"
    if not one.reported:
        session = "is connected" if one.connected else f"has had no session for {span(one.seconds_away)}"
        return f"cluster {cluster} has sent no roll-up since this shard started; its operator {session}"
    if one.needs:
        return f"the shard has yet to decide on the {count(one.needs, 'need')} of cluster {cluster}; ask again soon"
    return f"cluster {cluster} asks for nothing"


def _title(answer: InspectedNeeds, cluster: str, limit: int, *, unmet: bool) -> str:
    header, shown = answer.header, len(answer.needs)
    short = sum(not each.view.satisfied for each in answer.needs)
    whose = f"cluster {cluster}" if cluster else "all clusters"
    total = count(header.total_needs, "need")
    if unmet:
        counts = f"{total}, {short} short" if not limit or shown < limit else f"the first {shown} short ones of {total}"
    elif shown < header.total_needs:
        counts = f"the first {shown} of {total}, {short} of them short"
    else:
        counts = f"{total}, {short} short"
    if answer.waiting:
        counts += f", {answer.waiting} covered and waiting for machines"
    when = f"cycle {header.cycle}, decided {_time(header.computed_at_unix_nanos)}"
    return f"{whose}: {counts} ({when if header.computed_at_unix_nanos else 'no decision yet'})"


def _cells(each: InspectedNeed, answer: InspectedNeeds) -> list[str]:
    need, unmet = each.need, unmet_for(each.view, answer.header)
    return [str(need.profile.priority), asks(need), conditions(need), has(each), missing(each), unmet]


def _wide_cells(each: InspectedNeed) -> list[str]:
    profile, view = each.need.profile, each.view
    return [
        on_their_way(view),
        view.same_domain or "-",
        f"{profile.interruption.label} / {profile.reclamation.label}",
        _time(view.arrival_unix_nanos),
        view.profile_fingerprint,
        each.need.group or "-",
    ]


def _held(status: GetStatusResponse) -> list[str]:
    """What keeps decisions from being carried out."""
    found = []
    if status.fenced_reason:
        found.append(f"STOOD DOWN: another shard goes by this one's name ({status.fenced_reason}); nothing is done")
    if status.waits_for_engine:
        found.append(f"NO DECISIONS YET: {status.waits_for_engine}")
    if status.actuation_paused:
        found.append(f"PAUSED ({status.pause_reason}): decisions are not carried out until `bigfleetctl resume`")
    if status.dry_run:
        found.append("DRY RUN: decisions are only reported, none is carried out")
    if status.local_file_error:
        since = _time(status.local_file_error_since_unix_nanos)
        found.append(
            f"LOCAL FILE UNWRITABLE since {since} ({status.local_file_error}): no action begins until it can be written"
        )
    return found


def _is_away(cluster: ClusterStanding) -> bool:
    return not cluster.live and not cluster.forgotten and bool(cluster.needs or cluster.machines)


def _away(cluster: ClusterStanding) -> str:
    asks = count(cluster.needs, "need") if cluster.needs else "no known needs"
    return (
        f"the operator of cluster {cluster.cluster_id} has had no session for {span(cluster.seconds_away)}: the "
        f"cluster ({asks}, {count(cluster.machines, 'machine')}) keeps what it has, and nothing is acquired for it"
    )


def _operator(cluster: ClusterStanding) -> str:
    if cluster.connected:
        return "connected"
    return f"away for {span(cluster.seconds_away)}" + ("" if cluster.live else ", not live")


def _demand(cluster: ClusterStanding) -> str:
    if cluster.forgotten:
        return "forgotten"
    parts = ["reported" if cluster.reported else "not yet reported"]
    parts += [word for word, so in (("partial", cluster.partial), ("in doubt", cluster.quarantined)) if so]
    return ", ".join(parts)


def _provider(provider: ProviderStanding) -> str:
    listed = f"listed {span(provider.seconds_since_list)} ago" if provider.listed else "not listed yet"
    reach = "reachable" if provider.reachable else f"UNREACHABLE ({provider.last_error or 'no error reported'})"
    return f"provider {provider.name}: {reach}, {listed}, {count(provider.machines, 'machine')}"


def _counts(counts: Mapping[str, int]) -> str:
    parts = [f"{name} {number:,}" for name, number in sorted(counts.items())]
    return f"{sum(counts.values()):,}" + (f" ({', '.join(parts)})" if parts else "")


def _time(unix_nanos: int) -> str:
    return "-" if not unix_nanos else f"{datetime.fromtimestamp(unix_nanos // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _print(headings: Sequence[str], rows: Iterable[Sequence[str]], console: Console) -> None:
    cells = [[plain(cell) for cell in row] for row in rows]
    if not console.is_terminal:
        widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
        for row in (headings, *cells):
            columns = zip(headings, row, widths, strict=True)
            line = "  ".join(cell.rjust(w) if name in _RIGHT else cell.ljust(w) for name, cell, w in columns)
            console.print(line.rstrip(), soft_wrap=True)
        return
    table = Table(header_style="bold")
    for name in headings:
        table.add_column(name, justify="right" if name in _RIGHT else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _say(console: Console, line: str, style: str = "", indent: int = 0) -> None:
    """Print a line of text. On a terminal it is wrapped and indented; in a file or a pipe it stays one line."""
    text = Text(plain(line), style=style)
    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, indent), expand=False))
    else:
        console.print(Text.assemble(" " * indent, text), soft_wrap=True)
