"""`bigfleet dev demand`: a simulated cluster whose demand is a file of CapacityRequests."""

import asyncio
import signal
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from bigfleet.cli.ctl.need_words import asks, explain
from bigfleet.cli.ctl.shard_client import (
    DEFAULT_SHARD,
    CAFlag,
    CertFlag,
    KeyFlag,
    ShardFlag,
    Target,
    inspect_needs,
)
from bigfleet.cli.program import InputError, check_id, console, examples
from bigfleet.cli.requests.changes import Changes
from bigfleet.cli.requests.demand_lines import DemandLines, row_line
from bigfleet.cli.requests.manifests import read_requests
from bigfleet.cli.wording import count, plain
from bigfleet.model.crd import ManifestError
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.habits import Habits
from bigfleet.sim.clusters.operator import SimOperator, Waits
from bigfleet.sim.clusters.request_world import RequestWorld
from bigfleet.telemetry.logs import Level, configure
from bigfleet.transport.server_check import DialError

DEMAND_EPILOG = examples(
    "bigfleet dev demand requests.yaml --cluster a",
    "bigfleet dev demand examples/capacity-requests --cluster b",
)

# A person watches: sooner than a real operator, whose nodes take minutes.
_HABITS = Habits(rollup_seconds=2.0, ready_seconds=1.0)
_WAITS = Waits(first=0.5, most=3.0)
_LOOK_SECONDS = 0.25
_FILES_SECONDS = 0.5
_SHORT_SECONDS = 2.0

Say = Callable[[str], None]


def demand(
    paths: Annotated[
        list[Path], typer.Argument(help="Files of CapacityRequests, or folders of them.", show_default=False)
    ],
    cluster: Annotated[str, typer.Option(help="The cluster that asks.", show_default=False)],
    shard: ShardFlag = DEFAULT_SHARD,
    tls_cert: CertFlag = None,
    tls_key: KeyFlag = None,
    tls_ca: CAFlag = None,
) -> None:
    """Be a cluster that asks a shard for what is in a file.

    What becomes of it is said, line by line. The cluster is simulated: one pod for each request, a node for each
    machine, an operator that speaks the real protocol. Change the file and the demand changes; a file with a mistake
    changes nothing. Run it several times for several clusters.

    Ctrl-C takes the operator away and leaves the demand: the shard keeps what the cluster has, and the same command
    goes on with it. To give everything back, end it and run `bigfleetctl clusters forget CLUSTER --yes`.
    """
    check_id(cluster, "--cluster")
    # Looked at before they are read: a change in between is then seen as one.
    changes = Changes(paths)
    requests = read_requests(paths)
    target = Target.from_flags(shard, tls_cert, tls_key, tls_ca)
    configure(Level.ERROR)
    out = console()

    def say(line: str) -> None:
        out.print(f"{cluster}: {line}", soft_wrap=True)

    world = RequestWorld()
    world.replace_requests(requests)
    _tell_rows(world, len(requests), say)
    operator = SimOperator(Cluster(cluster, world, _HABITS), target.address, target.tls, _WAITS)
    uvloop.run(_operate(operator, world, paths, changes, target, say))
    machines = count(len(operator.cluster.machines), "machine")
    say(
        f"the operator is gone, the demand stays: the cluster keeps its {machines}. The same command goes on from here;"
    )
    where = "" if shard == DEFAULT_SHARD else f" --shard {shard}"
    say(f"bigfleetctl clusters forget {cluster} --yes{where} gives everything back")


async def _operate(
    operator: SimOperator, world: RequestWorld, paths: list[Path], changes: Changes, target: Target, say: Say
) -> None:
    """Run the operator until a person ends it."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(operator.run()),
            tasks.create_task(_tell(operator, say)),
            tasks.create_task(_follow(world, paths, changes, say)),
            tasks.create_task(_tell_short(operator.cluster, target, say)),
        ]
        await stop.wait()
        for task in running:
            task.cancel()


async def _tell(operator: SimOperator, say: Say) -> None:
    """Say what happens to the cluster. Looking a few times a second lets alike things share a line."""
    lines = DemandLines(operator)
    while True:
        for line in lines.look():
            say(line)
        await asyncio.sleep(_LOOK_SECONDS)


async def _follow(world: RequestWorld, paths: list[Path], changes: Changes, say: Say) -> None:
    """Ask for what the files hold, each time they have changed."""
    while True:
        await asyncio.sleep(_FILES_SECONDS)
        if not changes.settled():
            continue
        try:
            requests = read_requests(paths, may_be_none=True)
        except (InputError, ManifestError) as error:
            say(f"the demand stays as it was, because {error}")
            continue
        world.replace_requests(requests)
        _tell_rows(world, len(requests), say)


Short = dict[Hashable, list[str]]
"""What is short, and the lines that say so."""


async def _tell_short(cluster: Cluster, target: Target, say: Say) -> None:
    """Say why rows are short, when that changes."""
    told: Short = {}
    while True:
        await asyncio.sleep(_SHORT_SECONDS)
        lines = await _why_short(cluster, target) if cluster.connected and cluster.short else {}
        if not lines and told and cluster.connected:
            say("nothing is short any more")
        # The words say for how long it has been so: what is compared is what is so.
        news = lines.keys() != told.keys()
        for line in (line for each in lines.values() for line in each) if news else ():
            say(line)
        told = lines


async def _why_short(cluster: Cluster, target: Target) -> Short:
    """Two lines for each row that the shard's last decision left short."""
    try:
        answer = await inspect_needs(target, cluster.id, 0, unmet=True)
    except (InputError, DialError):
        # An operator's certificate may not ask this; a shard that is down is told of elsewhere.
        rows = count(cluster.short, "row")
        return {rows: [f"short: {rows}; bigfleetctl needs --cluster {cluster.id} --unmet says why"]}
    lines: Short = {}
    for each in answer.needs:
        explanation = explain(each, answer.header)
        lacking = f"{each.missing_units} of {asks(each.need)}" if each.need.unit else asks(each.need)
        so = (each.need.key, each.missing_units, each.view.cause)
        lines[so] = [plain(f"short: {lacking}. {explanation.why}"), plain(f"short: next: {explanation.next}")]
    return lines


def _tell_rows(world: RequestWorld, requests: int, say: Say) -> None:
    rows = world.needs()
    say(f"asks for {count(requests, 'request')} in {count(len(rows), 'row')}")
    for need in sorted(rows, key=lambda need: (-need.profile.priority, need.key)):
        say(f"  {row_line(need)}")
