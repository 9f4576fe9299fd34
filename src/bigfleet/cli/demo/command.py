"""`bigfleet demo`: a shard, a cloud and four clusters live a day in a minute, and every claim is checked."""

import asyncio
import math
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import uvloop

from bigfleet.cli.ctl.shard_client import Target
from bigfleet.cli.demo.processes import ShardProcess
from bigfleet.cli.demo.screen import Screen, screen_on
from bigfleet.cli.demo.stage import DemoStage
from bigfleet.cli.demo.watch import Watch
from bigfleet.cli.program import console, examples, leave
from bigfleet.providerkit.server.serve import Endpoint, serving
from bigfleet.providerkit.store import MemoryStore
from bigfleet.sim.cloud.backend import CloudBackend
from bigfleet.sim.cloud.config import CloudConfig, Latency
from bigfleet.sim.cloud.delays import Delay, Seconds
from bigfleet.sim.cloud.hosts import Hosts
from bigfleet.sim.cloud.reading import load
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.habits import Habits
from bigfleet.sim.clusters.operator import SimOperator, Waits
from bigfleet.sim.clusters.world import World
from bigfleet.sim.story import CAST, StoryError, tell
from bigfleet.telemetry.logs import Level, configure
from bigfleet.transport.address import listen_address

DEMO_EPILOG = examples("bigfleet demo", "bigfleet demo --fast", "bigfleet demo --hold")

_WELCOME = (
    "One shard, one cloud, four clusters. Clocks run fast here: a machine comes up in a second or two, the shard "
    "decides every second, and what otherwise waits 30 s to 5 min (giving back what is too much or idle, believing "
    "that a cluster wants nothing any more) waits seconds. Look for yourself: {bigfleetctl} status --shard {address}"
)
_HELD = "The shard and the cloud stay up until Ctrl-C. In another terminal, as another cluster:"
_PLAY_ON = "Play on yourself, each line in a terminal of its own; docs/playground.md goes further, with its own shard:"
_LOOK_SECONDS = 0.5


class Tempo(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the demo goes, in seconds. Where a field is None, the files in examples/demo say it."""

    linger: float
    """How long each act waits for people to look."""
    guard: float
    """How long the shard's roll-up guard waits."""
    habits: Habits
    latency: Latency | None = None
    notice: Seconds | None = None
    """How long before its end the interruption of a host in use is announced."""
    interruptions: float = 1.0
    """How many times more often than the file says spot machines are taken back."""
    flags: tuple[str, ...] = ()
    """More flags for the shard."""


_CALM = Tempo(linger=3.0, guard=3.0, habits=Habits(rollup_seconds=1.0, ready_seconds=0.5))
_FAST = Tempo(
    linger=0.0,
    guard=1.0,
    habits=Habits(rollup_seconds=0.3, ready_seconds=0.1),
    latency=Latency(**{step: Delay.read("200ms") for step in Latency.__struct_fields__}),
    notice=Seconds(1),
    interruptions=2.5,
    flags=("--cycle-interval=500ms", "--reclaim-after=0s", "--idle-hold-on-demand=0s", "--idle-hold-spot=0s"),
)


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="The same story in less than half a minute.")] = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="Leave shard and cloud running at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Watch a shard serve four simulated clusters, live.

    It takes a minute or so. Only the clusters and the cloud are simulated. The shard is a process of its own, and
    all of them speak gRPC. Every claim is checked; where one does not come true, the demo fails and says which.
    """
    screen = screen_on(console())
    folder = Path(tempfile.mkdtemp(prefix="bigfleet-demo-"))
    try:
        uvloop.run(_play(_FAST if fast else _CALM, folder, screen, hold=hold))
    except StoryError as error:
        screen.close()
        leave("bigfleet demo", f"what was told did not come true: {error}; logs are in {folder}", 1)
    except BaseException:
        shutil.rmtree(folder)
        raise
    finally:
        screen.close()
    shutil.rmtree(folder)


async def _play(tempo: Tempo, folder: Path, screen: Screen, *, hold: bool) -> None:
    """Build the stage, tell the story on it, and end every process, however the story ends."""
    began = asyncio.get_running_loop().time()
    cloud_address, address = (listen_address(f"unix:{folder}/{name}.sock") for name in ("cloud", "shard"))
    async with AsyncExitStack() as stack:
        configure(Level.INFO, stack.enter_context((folder / "demo.log").open("w")))
        hosts = Hosts()
        cloud = await stack.enter_async_context(
            serving(CloudBackend(_cloud(tempo), hosts), MemoryStore(), Endpoint(cloud_address))
        )
        shard = ShardProcess(
            (
                f"--config={_file('shard.yaml')}",
                f"--provider=sim={cloud.address}",
                f"--data-dir={folder}",
                f"--listen={address}",
                "--metrics-listen=127.0.0.1:0",
                *tempo.flags,
            ),
            tempo.guard,
            stack.enter_context((folder / "shard.log").open("wb")),
        )
        stack.push_async_callback(shard.kill)
        watch = Watch(cloud.address, Target(address, None), folder / "audit.jsonl", lambda: shard.metrics_port)
        clusters = {name: Cluster(name, World(), tempo.habits) for name in CAST}
        stage = DemoStage(tempo.linger, screen, shard, watch, clusters, lambda: len(list(hosts)), began)
        try:
            async with asyncio.TaskGroup() as tasks:
                waits = Waits(first=0.2, most=1.0)
                background = [
                    tasks.create_task(watch.run()),
                    tasks.create_task(stage.draw()),
                    *(tasks.create_task(SimOperator(each, address, None, waits).run()) for each in clusters.values()),
                ]
                screen.tell(stage.seconds, _WELCOME.format(bigfleetctl=_program("bigfleetctl"), address=address))
                await shard.start()
                stage.say(_waited(stage.seconds))
                await tell(stage)
                if hold:
                    stage.say("The end. All that was told was checked while it was told.")
                    await _hold(stage, screen, shard, str(address))
                else:
                    await shard.stop()
                for task in background:
                    task.cancel()
        except ExceptionGroup as group:
            if untrue := group.subgroup(StoryError):
                raise _first(untrue) from None
            raise
        if hold:
            stage.say("Stopped.")
        else:
            stage.say("The end. All that was told was checked while it was told, and the shard has stopped in order.")
            stage.say(_PLAY_ON)
            for command in _commands(""):
                screen.offer(command)


def _waited(playing: float) -> str:
    """How long whoever asked for the demo has waited for its first act."""
    began = os.environ.get("BIGFLEET_DEMO_BEGAN", "")
    if not began.isdigit():
        return f"The shard serves after {playing:.1f} s."
    return f"The shard serves: {max(0, round(time.time() - int(began)))} s since `make demo`, set-up included."


async def _hold(stage: DemoStage, screen: Screen, shard: ShardProcess, address: str) -> None:
    """Leave everything running until a person ends it; StoryError where the shard ends before that."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stage.say(_HELD)
    for command in _commands(address):
        screen.offer(command)
    while not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await stop.wait()
                break
        shard.check()


def _commands(address: str) -> list[str]:
    """What a reader can paste: against the shard at this address, or from a start of its own where there is none."""
    bigfleet, bigfleetctl = _program("bigfleet"), _program("bigfleetctl")
    shard = f" --shard {shlex.quote(address)}" if address else ""
    requests = _pasted(_file("requests.yaml"))
    return [
        *([] if address else [f"{bigfleet} all-in-one"]),
        f"{bigfleet} dev demand {requests} --cluster mine{shard}",
        f"{bigfleetctl} needs --cluster mine{shard}",
        f"{bigfleetctl} status{shard}",
    ]


def _program(name: str) -> str:
    """How a reader starts a program: by its name where the shell finds it, else by the path beside this one."""
    beside = Path(sys.argv[0]).with_name(name)
    found = shutil.which(name)
    if not beside.is_file() or (found is not None and Path(found).resolve() == beside.resolve()):
        return name
    return _pasted(beside)


def _pasted(path: Path) -> str:
    """A path for a shell, from this folder on where it lies below."""
    whole = path.absolute()
    return shlex.quote(str(whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole))


def _cloud(tempo: Tempo) -> CloudConfig:
    """The demo's cloud at this tempo."""
    cloud = load(_file("cloud.yaml"))
    pools = []
    for pool in cloud.pools:
        rate = tempo.interruptions * math.log1p(-pool.interruption_probability)
        pools.append(msgspec.structs.replace(pool, interruption_probability=-math.expm1(rate)))
    return msgspec.structs.replace(
        cloud,
        pools=tuple(pools),
        latency=tempo.latency or cloud.latency,
        interruption_grace=tempo.notice or cloud.interruption_grace,
    )


def _file(name: str) -> Path:
    """A file of the demo: in the installed package, or else in the checkout."""
    package = Path(str(files("bigfleet")))
    installed = package / "examples" / "demo" / name
    return installed if installed.is_file() else package.parents[1] / "examples" / "demo" / name


def _first(group: BaseExceptionGroup[StoryError]) -> StoryError:
    """The first error of a group, from which the others followed."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
