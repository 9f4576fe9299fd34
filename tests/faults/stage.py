"""The parts of a fault: a cloud and a shard as processes that can be killed, and operators in the test's own loop.

Nothing here sleeps to let something happen: a process is heard by the lines it logs, operators by what they are told,
and what can only be looked at is looked at again until it is so or the deadline has passed.
"""

import asyncio
import json
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc

from bigfleet.model.demand.need import Need, Rollup
from bigfleet.model.demand.profile import Profile, Requirement
from bigfleet.model.resources import total
from bigfleet.shard.persistence.journal import Journal
from bigfleet.shard.persistence.kept import Kept
from bigfleet.shard.supply.stamps import Binding, from_metadata
from bigfleet.sim.cloud.hosts import beside, existing
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.habits import Habits
from bigfleet.sim.clusters.operator import SimOperator, Waits
from bigfleet.sim.clusters.world import Workload, World
from bigfleet.transport.address import UnixAddress
from bigfleet.transport.session_stream import Ending, Stream, StreamEndedError, shard_dialer
from bigfleet.wire.hello import PROTOCOL_VERSION
from bigfleet.wire.needs import rollup_to_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1 import shard_pb2 as shard_pb
from bigfleet.wire.v1alpha1 import shardadmin_pb2 as admin
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from bigfleet.wire.v1alpha1.shardadmin_pb2_grpc import ShardAdminStub
from tests.shared.program import DEADLINE, Program

SHARD_ID = "shard-0"
_BIGFLEET = str(Path(sys.executable).with_name("bigfleet"))
_FAULTY = str(Path(__file__).with_name("faulty.py"))
_LOOK_SECONDS = 0.05
# Lines of each log that are shown with a failure.
_SHOWN = 30

GIB = 2**20
POD = (("cpu", 5000), ("memory", 20 * GIB))
"""One of these fits a machine of the cloud, and no second."""

AT_ONCE = dict.fromkeys(("create", "configure", "join", "drain", "wipe", "delete"), 0)
"""Latencies of a cloud in which nothing takes time."""

_QUICK = Habits(rollup_seconds=0.5, ready_seconds=0.0, forget_seconds=3.0)
_WAITS = Waits(first=0.1, most=0.5, replaced=0.5)
_SHARD_FLAGS = {
    "cycle-interval": "500ms",
    "reclaim-after": "0s",
    "reclaim-percent": "100",
    "draining-percent": "100",
    "idle-hold-on-demand": "1s",
}


async def until(is_so: Callable[[], Awaitable[object] | object], what: str = "") -> None:
    """Look again and again until it is so."""
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                found = is_so()
                if isinstance(found, Awaitable):
                    found = await found
                if found:
                    return
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"it did not come to this within {DEADLINE:.0f} s: {what or is_so}") from None


class Cloud:
    """A simulated cloud. Its address and its state outlive the process."""

    def __init__(self, folder: Path, name: str, config: dict[str, object]) -> None:
        self.name = name
        self._config, self._state, self._socket = (folder / f"{name}.{end}" for end in ("yaml", "state", "sock"))
        self._config.write_text(json.dumps({"scheme": name, **config}))
        self._program: Program | None = None
        self._channel = grpc.aio.insecure_channel(
            f"unix:{self._socket}", (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100))
        )
        self.stub = CapacityProviderStub(self._channel)

    @property
    def flag(self) -> str:
        """How a shard is told of it."""
        return f"{self.name}=unix:{self._socket}"

    async def start(self) -> None:
        """Run, for the first time or again."""
        sockets = ("--listen", f"unix:{self._socket}")
        self._program = await Program.start(
            self.name,
            _BIGFLEET,
            "provider",
            "sim",
            "--config",
            str(self._config),
            "--state",
            str(self._state),
            *sockets,
        )
        await self._program.said("provider_serving")

    @property
    def program(self) -> Program:
        """The process that it is, or last was."""
        assert self._program is not None, "it was never started"
        return self._program

    async def machines(self) -> dict[str, pb.Machine]:
        """Every machine, as the provider shows it."""
        answer = await self.stub.List(pb.ListFilter(), wait_for_ready=True, timeout=DEADLINE)
        return {machine.id: machine for machine in answer.machines}

    def hosts(self) -> list[str]:
        """Every host that there is, whether or not the provider knows of it."""
        return existing(beside(self._state))

    async def close(self) -> None:
        """End it for good."""
        await self._channel.close()
        if self._program is not None:
            self._program.signal(signal.SIGCONT)
            await self._program.stop()


class Shard:
    """One life of a shard."""

    def __init__(self, program: Program, address: UnixAddress, served: dict[str, Any]) -> None:
        self.program, self.address = program, address
        self.epoch: int = served["epoch"]
        self.served = served
        self._channel = grpc.aio.insecure_channel(str(address))
        self.admin = ShardAdminStub(self._channel)

    async def status(self) -> admin.GetStatusResponse:
        """How it is, by its own word."""
        answer: admin.GetStatusResponse = await self.admin.GetStatus(admin.GetStatusRequest(), timeout=DEADLINE)
        return answer

    async def cycles(self, count: int) -> None:
        """Wait until it has decided so many times more."""
        goal = (await self.status()).cycle + count

        async def has_decided() -> bool:
            return (await self.status()).cycle >= goal

        await until(has_decided, f"{count} more decisions")

    async def has_in_flight(self, actions: dict[str, int]) -> bool:
        """Whether just so many actions of each kind are under way."""
        return bool((await self.status()).actions_in_flight == actions)

    async def has_lost(self, provider: str) -> bool:
        """Whether that provider is out of its reach."""
        return any(each.name == provider and not each.reachable for each in (await self.status()).providers)

    async def is_unready(self, why: str) -> bool:
        """Whether /readyz complains of this; nothing, where it is ready."""
        said = await self.unready()
        return why in said if why else not said

    async def unready(self) -> str:
        """All that /readyz complains of."""
        url = f"http://127.0.0.1:{self.served['metrics_port']}/readyz"

        def look() -> str:
            try:
                with urllib.request.urlopen(url, timeout=DEADLINE):
                    return ""
            except urllib.error.HTTPError as error:
                with error:
                    return error.read().decode()

        return await asyncio.to_thread(look)

    async def kill(self) -> None:
        """End it as a loss of power would."""
        await self._channel.close()
        await self.program.kill()

    async def stop(self) -> int:
        """End it as a person would; its exit code."""
        await self._channel.close()
        return await self.program.stop()


class Puppet:
    """An operator that says what the test says, and keeps what it hears."""

    def __init__(self, cluster: str, stream: Stream) -> None:
        self.cluster, self._stream = cluster, stream
        self.heard: list[shard_pb.ShardMessage] = []
        self._unread: list[shard_pb.ShardMessage] = []
        self._more = asyncio.Event()

    async def read(self) -> None:
        """Hear until the stream ends."""
        with suppress(StreamEndedError):
            while True:
                frame = shard_pb.ShardMessage.FromString(await self._stream.read())
                self.heard.append(frame)
                self._unread.append(frame)
                self._more.set()

    async def say(self, **payload: Any) -> None:
        """Send a frame."""
        await self._stream.write(shard_pb.OperatorMessage(**payload).SerializeToString())

    async def ask(self, pods: int) -> None:
        """Roll up so many pods, each of which takes a machine, and wait until that is the demand."""
        need = Need(Profile(priority=100), total([(POD, pods)]), POD)
        rollup = rollup_to_wire(Rollup(cluster_id=self.cluster, timestamp_unix_nanos=time.time_ns(), needs=(need,)))
        await self.say(rollup=rollup)
        await self.hears("ack", lambda ack: ack.echo == str(rollup.timestamp_unix_nanos))

    async def hears(self, payload: str, is_it: Callable[[Any], bool] = lambda _: True) -> Any:
        """The first frame of that kind of which it is so and that was not waited for before."""
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    for frame in self._unread:
                        if frame.WhichOneof("payload") == payload and is_it(getattr(frame, payload)):
                            self._unread.remove(frame)
                            return getattr(frame, payload)
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            kinds = [frame.WhichOneof("payload") for frame in self.heard]
            raise AssertionError(f"{self.cluster} heard no {payload}, but {kinds}") from None

    def has_heard(self, payload: str) -> int:
        """How many frames of that kind there were."""
        return sum(frame.WhichOneof("payload") == payload for frame in self.heard)

    async def bind(self, machines: int) -> list[str]:
        """Give user data for so many machines, and wait until they are Configured."""
        bound: list[str] = []
        since = len(self.heard)
        for _ in range(machines):
            request = await self.hears("bootstrap_request")
            blob = shard_pb.BootstrapBlobResponse(request_id=request.request_id, user_data=b"#!", ttl_seconds=3600)
            await self.say(bootstrap_response=blob)
            bound.append(request.machine_id)

        def are_configured() -> bool:
            updates = (frame.node_state_update for frame in self.heard[since:])
            return set(bound) <= {each.machine_id for each in updates if each.state == pb.MACHINE_STATE_CONFIGURED}

        await until(are_configured, f"{bound} Configured")
        return bound

    async def drained(self, instruction: str, node: str, *, empty: bool = True) -> None:
        """Acknowledge an instruction, and say that its node is empty or cannot be emptied."""
        await self.say(reclaim_ack=shard_pb.ReclaimAck(instruction_id=instruction, nodes_started=1))
        kinds = shard_pb.NodeDrainedReport
        outcome = kinds.OUTCOME_DRAINED if empty else kinds.OUTCOME_FAILED
        await self.say(node_drained=kinds(instruction_id=instruction, node_name=node, outcome=outcome))

    async def ending(self) -> Ending:
        """How its stream ended, once it has."""
        async with asyncio.timeout(DEADLINE):
            return await self._stream.ending()


class Stage:
    """Whatever was started ends with it."""

    def __init__(self, folder: Path, stack: AsyncExitStack, tasks: asyncio.TaskGroup) -> None:
        self.folder, self._stack, self._tasks = folder, stack, tasks
        self.programs: list[Program] = []
        self._running: dict[object, asyncio.Task[None]] = {}

    async def cloud(self, name: str = "sim", *, start: bool = True, **config: object) -> Cloud:
        """A cloud that serves, or one that does not yet."""
        cloud = Cloud(self.folder, name, config)
        self._stack.push_async_callback(cloud.close)
        if start:
            await cloud.start()
        return cloud

    async def launch(
        self, *clouds: Cloud, data: str = "data", name: str = "shard", faulty: str | None = None, **flags: str
    ) -> Program:
        """A shard's process, wherever it has got to; `faulty` is the first command to one that takes commands."""
        settings = {
            "listen": f"unix:{self.folder / name}.sock",
            "metrics-listen": "127.0.0.1:0",
            "data-dir": str(self.folder / data),
            **_SHARD_FLAGS,
            **{key.replace("_", "-"): value for key, value in flags.items()},
        }
        arguments = [part for key, value in settings.items() for part in (f"--{key}", value)]
        arguments += [part for cloud in clouds for part in ("--provider", cloud.flag)]
        command = [_BIGFLEET] if faulty is None else [sys.executable, _FAULTY]
        program = await Program.start(name, *command, "shard", *arguments)
        self.programs.append(program)
        self._stack.push_async_callback(program.kill)
        if faulty is not None:
            program.tell(faulty)
        return program

    async def shard(self, *clouds: Cloud, name: str = "shard", **options: Any) -> Shard:
        """A shard that serves."""
        program = await self.launch(*clouds, name=name, **options)
        served = await program.said("shard_serving")
        return Shard(program, UnixAddress(str(self.folder / f"{name}.sock")), served)

    def go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Have it done beside the test, until that ends."""
        self._running[work] = self._tasks.create_task(work)

    def address(self, name: str = "shard") -> UnixAddress:
        """Where the shard of that name serves, or will."""
        return UnixAddress(str(self.folder / f"{name}.sock"))

    def operator(
        self,
        cluster: str,
        *,
        kind: type[SimOperator] = SimOperator,
        world: World | None = None,
        shard: str = "shard",
    ) -> SimOperator:
        """A cluster's operator, which dials until it is heard."""
        operator = kind(Cluster(cluster, world or World(), _QUICK), self.address(shard), waits=_WAITS)
        self._running[operator] = self._tasks.create_task(operator.run())
        return operator

    async def puppet(self, cluster: str, *features: str, shard: str = "shard") -> Puppet:
        """An operator on strings, which has said Hello."""
        dialer = shard_dialer(self.address(shard), None)
        self._stack.push_async_callback(dialer.hang_up)
        puppet = Puppet(cluster, Stream(await dialer.channel()))
        hello = shard_pb.Hello(cluster_id=cluster, protocol_version=PROTOCOL_VERSION, features=features)
        self.go_on(puppet.read())
        await puppet.say(hello=hello)
        return puppet

    async def hang_up(self, operator: SimOperator) -> None:
        """The operator is gone; its cluster stays."""
        task = self._running.pop(operator)
        task.cancel()
        await asyncio.wait([task])

    def dial(self, operator: SimOperator) -> None:
        """It is back."""
        self._running[operator] = self._tasks.create_task(operator.run())

    def leave(self) -> None:
        """Have all that goes on beside the test end."""
        for task in self._running.values():
            task.cancel()

    def kept(self, data: str = "data") -> Kept:
        """What a shard that has ended left on file; looked at in a copy."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / data, copy)
        journal = Journal.open(copy / "shard.db", SHARD_ID)
        try:
            return journal.load()
        finally:
            journal.close()


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    """A stage in that folder."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        stage = Stage(folder, stack, tasks)
        try:
            yield stage
        except BaseException as error:
            for program in stage.programs:
                lines = [line for line in program.lines if line.get("event") != "shortfalls detected"][-_SHOWN:]
                error.add_note("\n".join([f"{program.name} last said:", *map(str, lines)]))
            raise
        finally:
            stage.leave()


def pool(name: str, capacity_type: str, count: int, price: float = 0.1, zone: str = "eu-1a") -> dict[str, object]:
    """Machines of one kind, as a cloud's configuration has them."""
    kind = {"name": name, "instance_type": "c.8", "zone": zone, "capacity_type": capacity_type}
    return {**kind, "count": count, "price_per_hour": price, "resources": {"cpu": 8, "memory": "32Gi", "pods": 110}}


def workload(name: str = "web", priority: int = 100, requirements: tuple[Requirement, ...] = ()) -> Workload:
    """Pods of which each takes a machine."""
    profile = Profile(requirements=requirements, priority=priority)
    return Workload(name=name, unit=POD, profile=profile, leave_seconds=0.05)


def bindings(machines: dict[str, pb.Machine]) -> dict[str, Binding]:
    """What every machine was stamped with; one that is bound has a stamp of ours, or this raises."""
    found: dict[str, Binding] = {}
    for machine in machines.values():
        if machine.cluster:
            verdict = from_metadata(machine.shard_metadata)
            assert isinstance(verdict, Binding), (machine.id, verdict)
            found[machine.id] = verdict
    return found


def states(machines: dict[str, pb.Machine]) -> Counter[str]:
    """How many machines are in each state, by its short name."""
    return Counter(state_of(machine) for machine in machines.values())


def state_of(machine: pb.Machine) -> str:
    """The state's short name."""
    return pb.MachineState.Name(machine.state).removeprefix("MACHINE_STATE_").capitalize()
