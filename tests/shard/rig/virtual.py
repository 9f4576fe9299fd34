"""The real shard on virtual time: kit providers without gRPC, operators on streams in memory, its file in memory too.

A `Rig` is a fleet around one shard that may crash and be started anew. Everything runs on one event loop, so whatever
happens is the same each time; whoever tests says what goes wrong, and when.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import grpc
import msgspec
from prometheus_client import CollectorRegistry

from bigfleet.engine.records import Policy
from bigfleet.provider.fencing import Fencing
from bigfleet.provider.records import Ack, Answer, MachinePage
from bigfleet.providerkit.backend import Change, Notice
from bigfleet.providerkit.provider import Provider
from bigfleet.providerkit.store import MemoryStore
from bigfleet.shard.api.answers import Answers
from bigfleet.shard.core.core import Core
from bigfleet.shard.core.decisions import Decisions
from bigfleet.shard.core.parts import Clocks, Settings
from bigfleet.shard.persistence.audit_log import Record
from bigfleet.shard.persistence.journal import Journal, JournalError
from bigfleet.shard.persistence.kept import Batch, Kept
from bigfleet.shard.shell.shard import Shard
from bigfleet.sim.cloud.backend import CloudBackend
from bigfleet.sim.cloud.config import CloudConfig, Failures
from bigfleet.sim.cloud.hosts import Hosts
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.drains import Frames
from bigfleet.sim.direct import NONE, DirectClient, Trouble
from bigfleet.telemetry.metrics import ProviderMetrics, ShardMetrics
from bigfleet.telemetry.traces import tracer
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

T = TypeVar("T")

SHARD = "shard-0"
WALL = 1_800_000_000.0
"""The wall clock when a rig begins; its event loop begins at 0."""

_NOWHERE = Path("in memory")
REPLACED = "ABORTED: replaced"
"""How a stream ends whose cluster has opened another."""

_POLL_SECONDS, _REPLACED_SECONDS = 1.0, 30.0


class Sky(CloudBackend):
    """The simulated cloud, whose troubles can be ended."""

    def calm(self) -> None:
        """From now on nothing fails, runs out or is taken back."""
        self._config = msgspec.structs.replace(self._config, failures=Failures())
        self._pools = {
            name: msgspec.structs.replace(pool, failures=None, stock_outs=()) for name, pool in self._pools.items()
        }
        self._interruptions.clear()
        self._hosts_changed.set()


class AbortedError(Exception):
    """The shard has ended a stream."""


class Line:
    """One stream in memory: a servicer's context to the shard, and what an operator has of it."""

    def __init__(self) -> None:
        self._up: asyncio.Queue[Any] = asyncio.Queue()
        self._down: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.takes = asyncio.Event()
        """While cleared, the operator's side takes no frame, and the shard's writes wait."""
        self.takes.set()
        self.ending = ""
        """How the shard ended it: code and reason, or what else happened to it."""

    # What the shard sees.

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    async def send_initial_metadata(self, metadata: tuple[()]) -> None:
        pass

    async def read(self) -> Any:
        return await self._up.get()

    async def write(self, data: bytes) -> None:
        await self.takes.wait()
        self._down.put_nowait(data)

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.ending = f"{code.name}: {details}"
        raise AbortedError

    # What the operator sees.

    def say(self, frame: pb.OperatorMessage) -> None:
        self._up.put_nowait(frame.SerializeToString())

    async def hear(self) -> pb.ShardMessage | None:
        """The next frame, or None once the stream is over."""
        data = await self._down.get()
        return None if data is None else pb.ShardMessage.FromString(data)

    def heard(self) -> list[pb.ShardMessage]:
        """All that has come and nobody has heard yet."""
        waiting = [self._down.get_nowait() for _ in range(self._down.qsize())]
        return [pb.ShardMessage.FromString(data) for data in waiting if data is not None]

    def hang_up(self) -> None:
        """End it from the operator's side."""
        self._up.put_nowait(grpc.aio.EOF)

    def over(self) -> None:
        """The shard's side is done with it."""
        self.ending = self.ending or "the shard is gone"
        self._down.put_nowait(None)


class _Server:
    """Takes the handler that a gRPC server would."""

    session: Callable[[None, Line], Any]

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        class Details(NamedTuple):
            method: str = "/bigfleet.v1alpha1.Shard/Session"
            invocation_metadata: tuple[()] = ()

        self.session = handlers[0].service(Details()).stream_stream


class Operator:
    """One cluster and its operator. Honest by the cluster's habits; here are the ways of its connection to fail."""

    def __init__(self, cluster: Cluster, dial: Callable[[], Line | None]) -> None:
        self.cluster = cluster
        self.online = True
        """Whether it dials; cleared by whoever takes it away, `cut` ends what is there."""
        self.mutes: frozenset[str] = frozenset()
        """Payloads that it never gets to send."""
        self.heard: list[pb.ShardMessage] = []
        """Instructions, requests and what was withdrawn of them, ever."""
        self.endings: list[str] = []
        self.line: Line | None = None
        self._dial = dial
        self._stirred = asyncio.Event()

    async def run(self) -> None:
        self.cluster.world.changed = self._stirred.set
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_time())
            tasks.create_task(self._keep_connected())

    def cut(self) -> None:
        """Lose the connection."""
        if self.line is not None:
            self.line.hang_up()

    def leave(self) -> None:
        """Lose the connection and stay away."""
        self.online = False
        self.cut()

    def slip(self) -> None:
        """Lose the connection without the shard's noticing, and dial again."""
        if self.line is not None:
            self.line.over()

    def of(self, payload: str) -> list[Any]:
        """What it heard of one kind, in order."""
        return [getattr(frame, payload) for frame in self.heard if frame.WhichOneof("payload") == payload]

    async def _keep_time(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self._stirred.clear()
            due = self.cluster.due()
            if due is None or due > clock():
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._stirred.wait()
            self._say(self.cluster.tick(clock()))

    async def _keep_connected(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            line = self._dial() if self.online else None
            if line is not None:
                self.line = line
                self._say(self.cluster.opened(clock()))
                while (frame := await line.hear()) is not None:
                    if frame.WhichOneof("payload") not in ("ack", "node_state_update", "available_capacity"):
                        self.heard.append(frame)
                    self._say(self.cluster.received(frame, clock()))
                self.line = None
                self.endings.append(line.ending)
                self.cluster.closed(line.ending, clock())
                if line.ending == REPLACED:
                    await asyncio.sleep(_REPLACED_SECONDS)
            await asyncio.sleep(_POLL_SECONDS)

    def _say(self, frames: Frames) -> None:
        line = self.line
        for frame in frames:
            if line is not None and frame.WhichOneof("payload") not in self.mutes:
                line.say(frame)
        self._stirred.set()


class Made(NamedTuple):
    """A mutating call: when it was made and on what."""

    at: float
    call: str
    machine: str
    cluster: str = ""
    grace_seconds: int = 0


class Witness:
    """A client that tells of every mutating call, and sees that no machine has two at a time."""

    def __init__(self, client: DirectClient, made: list[Made]) -> None:
        self._client, self._made = client, made
        self._running: set[str] = set()

    async def create(self, machine_id: str) -> Ack:
        return await self._see(Made(_now(), "Create", machine_id), self._client.create(machine_id))

    async def configure(
        self, machine_id: str, cluster_id: str, bootstrap_blob: bytes, shard_metadata: Mapping[str, str]
    ) -> Ack:
        asked = self._client.configure(machine_id, cluster_id, bootstrap_blob, shard_metadata)
        return await self._see(Made(_now(), "Configure", machine_id, cluster_id), asked)

    async def drain(self, machine_id: str, grace_seconds: int) -> Ack:
        made = Made(_now(), "Drain", machine_id, grace_seconds=grace_seconds)
        return await self._see(made, self._client.drain(machine_id, grace_seconds))

    async def delete(self, machine_id: str) -> Ack:
        return await self._see(Made(_now(), "Delete", machine_id), self._client.delete(machine_id))

    async def get(self, machine_id: str) -> Answer:
        return await self._client.get(machine_id)

    def pages(self, since: bytes = b"") -> AsyncGenerator[MachinePage, None]:
        return self._client.pages(since)

    async def _see(self, made: Made, asked: Any) -> Ack:
        assert made.machine not in self._running, f"{made} while another call on that machine runs"
        self._made.append(made)
        self._running.add(made.machine)
        try:
            ack: Ack = await asked
            return ack
        finally:
            self._running.discard(made.machine)


class Disk:
    """The shard's file: that of a real one, on an SQLite database in memory that outlives every life of the shard."""

    def __init__(self) -> None:
        self.broken = False
        self.writes = 0
        self.lose()

    def lose(self) -> None:
        """The file is gone."""
        self._file = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._journal = Journal(_NOWHERE, self._file)
        self._journal._prepare(SHARD)

    def copy(self) -> "Disk":
        """The same file on another disk, as a restored volume would be."""
        other = Disk()
        self._file.backup(other._file)
        return other

    def load(self) -> Kept:
        return self._journal.load()

    def write(self, batch: Batch, now: float, wall: float) -> None:
        if self.broken:
            raise JournalError(_NOWHERE, "the disk is full", "make room")
        self.writes += 1
        self._journal.write(batch, now, wall)


class _Outside:
    """Threads that are none: work is done at once, and what it takes is slept afterwards."""

    def __init__(self, rig: "Rig", fencing: Fencing) -> None:
        self._rig, self._fencing = rig, fencing
        self.file, self.log, self.tracing = rig.disk, self, tracer("", "shard")

    def append(self, records: list[Record]) -> None:
        self._rig.audit += records

    async def threads(self, work: Callable[..., T], /, *args: Any) -> T:
        result = work(*args)
        await asyncio.sleep(self._rig.work_seconds())
        return result

    async def raise_epoch(self, floor: int) -> int:
        self._rig.epoch = 1 + max(self._rig.epoch, floor)
        self._fencing.renew(self._rig.epoch)
        return self._rig.epoch


class Times(NamedTuple):
    cycle_interval: float = 10.0
    full_list_interval: float = 300.0
    provider_concurrency: int = 64


class Life:
    """One life of the shard."""

    def __init__(self, rig: "Rig", paused: bool, dry_run: bool) -> None:
        loop = asyncio.get_running_loop()
        self.fencing = Fencing(SHARD, rig.epoch)
        self._direct = [DirectClient(n, p, self.fencing, rig.fate_of(n)) for n, p in rig.providers.items()]
        clients = {client.name: Witness(client, rig.made) for client in self._direct}
        # Every process has a monotonic clock of its own.
        begins = loop.time() - 1000.0 * rig.lives
        clocks = Clocks(lambda: loop.time() - begins, lambda: WALL + loop.time())
        settings = Settings(SHARD, tuple(clients), 30.0, 600.0, paused, dry_run)
        self.core = Core(settings, rig.epoch, rig.disk.load(), clocks, ShardMetrics(CollectorRegistry()))
        deciding = Decisions(self.core, rig.policy)
        self.shard = Shard(self.core, deciding, clients, _Outside(rig, self.fencing), rig.times)
        self.answers = Answers(self.shard)
        self._server = _Server()
        self.shard.streams.add_to(cast("grpc.aio.Server", self._server))
        # In order: a set of tasks has another one each time.
        self._lines: dict[asyncio.Task[None], None] = {}

    def dial(self) -> Line:
        line = Line()
        task = asyncio.create_task(self._serve(line))
        self._lines[task] = None
        task.add_done_callback(self._lines.pop)
        return line

    async def _serve(self, line: Line) -> None:
        try:
            await self._server.session(None, line)
        except AbortedError:
            pass
        finally:
            line.over()

    async def end(self) -> None:
        lines = list(self._lines)
        for task in lines:
            task.cancel()
        await asyncio.gather(*lines, return_exceptions=True)
        for client in self._direct:
            await client.close()


class Rig:
    """Providers, operators and a shard. `rigged` makes one."""

    def __init__(self, times: Times, policy: Policy) -> None:
        self.times, self.policy = times, policy
        self.skies: dict[str, Sky] = {}
        self.hosts: dict[str, Hosts] = {}
        self.providers: dict[str, Provider] = {}
        self.operators: dict[str, Operator] = {}
        self.disk = Disk()
        self.epoch = int(WALL)
        self.lives = 0
        self.audit: list[Record] = []
        self.made: list[Made] = []
        self.fate: Callable[[str, str, str], Trouble] = lambda _provider, _method, _machine: NONE
        """What befalls a call, by provider, method and machine."""
        self.work_seconds: Callable[[], float] = lambda: 0.0
        """What a decision or a write takes."""
        self._life: Life | None = None
        self._running: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup

    # The shard.

    @property
    def life(self) -> Life:
        assert self._life is not None, "the shard is down"
        return self._life

    @property
    def core(self) -> Core:
        return self.life.core

    @property
    def shard(self) -> Shard:
        return self.life.shard

    def is_up(self) -> bool:
        return self._life is not None

    def start(self, *, paused: bool = False, dry_run: bool = False) -> None:
        """Begin a life of the shard."""
        assert self._life is None, "the shard is up"
        self.lives += 1
        self.epoch += 1
        self._life = Life(self, paused, dry_run)
        self._running = self._tasks.create_task(self._life.shard.run())

    def haunt(self) -> Life:
        """Begin another life beside the present one, which goes on as it is, on a disk and with streams of its own."""
        ghost, self._life, self._running = self.life, None, None
        self.disk = self.disk.copy()
        for operator in self.operators.values():
            operator.slip()
        self.start()
        return ghost

    async def crash(self) -> None:
        """End the shard without a word, wherever it is."""
        await self._end(lambda task, _: task.cancel())

    async def stop(self) -> None:
        """End the shard in order."""
        await self._end(lambda _, life: life.shard.stop())

    async def _end(self, how: Callable[[asyncio.Task[None], Life], object]) -> None:
        life, task = self.life, self._running
        assert task is not None
        self._life = self._running = None
        how(task, life)
        await asyncio.wait({task})
        await life.end()

    # Everybody else.

    def fate_of(self, provider: str) -> Callable[[str, str], Trouble]:
        return lambda method, machine: self.fate(provider, method, machine)

    def join(self, cluster: Cluster) -> Operator:
        """Have a cluster whose operator dials the shard from now on."""
        operator = self.operators[cluster.id] = Operator(cluster, self._dial)
        self._tasks.create_task(operator.run())
        return operator

    def _dial(self) -> Line | None:
        return None if self._life is None else self._life.dial()

    async def strike(self, machine: str, change: Change) -> None:
        """Have something happen to a machine's host by itself."""
        name = next(name for name, each in self.providers.items() if each.ledger.find(machine))
        provider, sky = self.providers[name], self.skies[name]
        host = provider.ledger.get(machine).host
        match change:
            case Change.GONE:
                notice = sky._lose(host)
            case Change.TAKEN_BACK:
                notice = sky._interrupt(host, _now())
                sky._hosts_changed.set()
            case Change.BROKEN:
                notice = Notice(machine, change, "its fan stopped", host=host)
        await provider._take(notice)

    async def until(self, is_so: Callable[[], object], within: float, *, every: float = 1.0) -> None:
        """Let time pass until it is so; AssertionError if it is not so in time."""
        ends = _now() + within
        while not is_so():
            assert _now() < ends, f"not so within {within:g} s"
            await asyncio.sleep(every)

    @asynccontextmanager
    async def _open(self, clouds: Iterable[CloudConfig]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for cloud in clouds:
                name, hosts = cloud.scheme, Hosts()
                sky = Sky(cloud, hosts)
                provider = Provider(sky, MemoryStore(), ProviderMetrics(CollectorRegistry()))
                self.skies[name], self.hosts[name] = sky, hosts
                self.providers[name] = await stack.enter_async_context(provider)
            async with asyncio.TaskGroup() as self._tasks:
                idle = set(asyncio.all_tasks())
                try:
                    yield
                finally:
                    if self._life is not None:
                        await self.crash()
                    for task in self._tasks._tasks - idle:
                        task.cancel()


@asynccontextmanager
async def rigged(
    clouds: Iterable[CloudConfig], *, times: Times | None = None, policy: Policy | None = None
) -> AsyncIterator[Rig]:
    """Providers of these clouds, named by their schemes, and nobody else yet."""
    rig = Rig(times or Times(), policy or Policy())
    async with rig._open(clouds):
        yield rig


def _now() -> float:
    return asyncio.get_running_loop().time()
