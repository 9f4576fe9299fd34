"""A small honest provider, written from the contract alone, for the suite to be tried on.

Every step that a liar may take differently is a method of its own. `python reference.py --help` runs it as a process.
"""

import argparse
import asyncio
import base64
import bisect
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from bigfleet.model.machine import ASKS, Call, MachineState, acknowledged, can
from bigfleet.transport.identity import peer_identity, refusals_abort, require_fencing_owner
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderServicer, add_CapacityProviderServicer_to_server

FAULT = "conformance.bigfleet.lucy.sh/fault"
SECONDS = "conformance.bigfleet.lucy.sh/seconds"
CLOUD_FAULTS = (
    "create-error", "configure-error", "drain-error", "delete-error",
    "create-hang", "configure-hang", "create-late", "join-late",
)  # fmt: skip
METAL_FAULTS = ("configure-error", "drain-error", "configure-hang", "join-late")

S = MachineState
ASKS_BY_CALL = {(ask.call, ask.source): ask for ask in ASKS}
Context = grpc.aio.ServicerContext[Any, Any]
Request = Any


class RefusalError(Exception):
    """A call that is answered with a code."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


@dataclass
class Operation:
    """The last transition of a machine, by which a repeat is known."""

    id: str
    call: Call
    cluster: str


@dataclass
class Options:
    """What sort of provider this is."""

    machines: int = 8
    metal: bool = False
    faults: tuple[str, ...] = ()
    latency: float = 0.003
    timeout: float = 0.08
    late: float = 0.2
    spot: int = 0
    state: Path | None = None
    hosts: Path | None = None
    tls: bool = False


@dataclass
class Fleet:
    """Everything a provider must not forget."""

    machines: dict[str, pb.Machine] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    log: list[tuple[int, str]] = field(default_factory=list)
    marks: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    issued: int = 0
    hosts: dict[str, str] = field(default_factory=dict)


class Reference(CapacityProviderServicer):
    """An asynchronous provider: acks at once in a transitional state, moves on a moment later."""

    max_bytes = 256 * 1024

    def __init__(self, options: Options) -> None:
        self.options = options
        self.fleet = Fleet()
        self.work: set[asyncio.Task[None]] = set()
        self.creating: dict[str, asyncio.Task[None]] = {}
        if options.state is not None and options.state.exists():
            self.load(options.state)
        else:
            for record in initial(options):
                self.fleet.hosts |= {record.host.ref: record.id} if record.host.ref else {}
                self.put(record)
            self.save()

    # The six calls.

    async def Create(self, request: pb.CreateRequest, context: Context) -> pb.TransitionAck:  # noqa: N802 - the contract's name
        return await self.mutate(Call.CREATE, request, context)

    async def Configure(self, request: pb.ConfigureRequest, context: Context) -> pb.TransitionAck:  # noqa: N802 - the contract's name
        return await self.mutate(Call.CONFIGURE, request, context)

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.TransitionAck:  # noqa: N802 - the contract's name
        return await self.mutate(Call.DRAIN, request, context)

    async def Delete(self, request: pb.DeleteRequest, context: Context) -> pb.TransitionAck:  # noqa: N802 - the contract's name
        return await self.mutate(Call.DELETE, request, context)

    async def Get(self, request: pb.MachineRef, context: Context) -> pb.Machine:  # noqa: N802 - the contract's name
        async with answering(context):
            if not request.id:
                raise RefusalError(grpc.StatusCode.INVALID_ARGUMENT, "the id is empty")
            return self.shown(self.find(request.id))

    async def List(self, request: pb.ListFilter, context: Context) -> pb.MachineList:  # noqa: N802 - the contract's name
        async with answering(context):
            return self.listing(request)

    async def mutate(self, call: Call, request: Request, context: Context) -> pb.TransitionAck:
        async with answering(context):
            if self.options.tls:
                async with refusals_abort(context):
                    require_fencing_owner(peer_identity(context), request.shard_id)
            return await self.transition(call, request)

    # The order of a mutating call.

    async def transition(self, call: Call, request: Request) -> pb.TransitionAck:
        if call is Call.DELETE and self.options.metal:
            raise RefusalError(grpc.StatusCode.UNIMPLEMENTED, "this is hardware")
        self.validate(call, request)
        self.fence(request)
        try:
            record = self.find(request.machine_id)
            operation = self.repeated(call, request, record) or self.begin(call, request, record)
        finally:
            # Refused or not, the token has moved the mark.
            self.save()
        return self.ack(operation, self.fleet.machines[record.id])

    def validate(self, call: Call, request: Request) -> None:
        problem = ""
        if not request.machine_id:
            problem = "the id is empty"
        elif request.shard_epoch < 0 or request.sequence_number < 0:
            problem = "the token is negative"
        elif call is Call.DRAIN and request.grace_period_seconds < 0:
            problem = "the grace is negative"
        elif call is Call.CONFIGURE and self.oversized(request):
            problem = "blob or metadata is too large"
        if problem:
            raise RefusalError(grpc.StatusCode.INVALID_ARGUMENT, problem)

    def oversized(self, request: pb.ConfigureRequest) -> bool:
        metadata = sum(len(key) + len(value) for key, value in request.shard_metadata.items())
        return max(len(request.bootstrap_blob), metadata) > self.max_bytes

    def fence(self, request: Request) -> None:
        token = (request.shard_epoch, request.sequence_number)
        if not request.shard_id and token == (0, 0):
            return
        key = self.mark_key(request)
        if (mark := self.fleet.marks.get(key)) is not None and not self.newer(token, mark):
            raise RefusalError(grpc.StatusCode.FAILED_PRECONDITION, f"{token} is not newer than {mark}")
        self.fleet.marks[key] = token

    def mark_key(self, request: Request) -> tuple[str, str]:
        return (request.shard_id, request.machine_id)

    def newer(self, token: tuple[int, int], mark: tuple[int, int]) -> bool:
        return token > mark

    def find(self, machine_id: str) -> pb.Machine:
        if machine_id not in self.fleet.machines:
            raise RefusalError(grpc.StatusCode.NOT_FOUND, f"no machine {machine_id!r}")
        return self.fleet.machines[machine_id]

    def repeated(self, call: Call, request: Request, record: pb.Machine) -> str:
        """The running or finished operation that this request repeats, if it does."""
        last = self.fleet.operations.get(record.id)
        ask = next(ask for (asked, _), ask in ASKS_BY_CALL.items() if asked is call)
        same = last is not None and last.call is call and S(record.state) in {ask.via, ask.end}
        if same and last is not None and self.same_cluster(call, request, last):
            return last.id
        return ""

    def same_cluster(self, call: Call, request: Request, last: Operation) -> bool:
        return call is not Call.CONFIGURE or last.cluster == request.cluster_id

    def begin(self, call: Call, request: Request, record: pb.Machine) -> str:
        state, host = S(record.state), bool(record.host.ref)
        if not can(call, state, host):
            self.refuse_illegal(call, record)
        ask = ASKS_BY_CALL[call, state]
        out_of_failed = state is S.FAILED
        if out_of_failed:
            self.reap(record.id)
        operation = self.new_operation(record.id)
        cluster = request.cluster_id if call is Call.CONFIGURE else ""
        self.fleet.operations[record.id] = Operation(operation, call, cluster)
        first = acknowledged(ask, host, bool(record.cluster))
        if first is ask.end:
            self.finish(record.id, call)
            return operation
        new = self.entered(call, request, record)
        new.state = pb.MachineState.ValueType(first)
        self.put(new)
        fault = "" if out_of_failed else record.labels.get(FAULT, "")
        task = asyncio.ensure_future(self.carry_out(record.id, call, operation, fault))
        self.work.add(task)
        task.add_done_callback(self.work.discard)
        return operation

    def refuse_illegal(self, call: Call, record: pb.Machine) -> None:
        raise RefusalError(grpc.StatusCode.ABORTED, f"{call.value} is not legal from {S(record.state).label}")

    def entered(self, call: Call, request: Request, record: pb.Machine) -> pb.Machine:
        """The record as the transition begins."""
        new = copied(record)
        new.last_error = ""
        if call is Call.CONFIGURE:
            new.cluster = request.cluster_id
            new.shard_metadata.update(self.kept_metadata(request))
        elif call is not Call.DRAIN:
            clear_binding(new)
        return new

    def kept_metadata(self, request: pb.ConfigureRequest) -> dict[str, str]:
        return dict(request.shard_metadata)

    def new_operation(self, machine_id: str) -> str:
        self.fleet.issued += 1
        return f"op-{self.fleet.issued}"

    def ack(self, operation: str, record: pb.Machine) -> pb.TransitionAck:
        return pb.TransitionAck(operation_id=operation, machine=self.shown(record))

    # What happens after the ack.

    async def carry_out(self, machine_id: str, call: Call, operation: str, fault: str) -> None:
        """Act, then move the machine on; a success that comes after the time-out changes nothing."""
        acting = asyncio.ensure_future(self.act(machine_id, call, fault))
        if call is Call.CREATE:
            self.creating[machine_id] = acting
        try:
            async with asyncio.timeout(self.patience(call, fault)):
                await asyncio.shield(acting)
        except TimeoutError:
            self.fail(machine_id, operation, f"{call.value} timed out")
            with suppress(asyncio.CancelledError, OSError):
                await acting
            await self.late(machine_id, call)
        except OSError as error:
            self.fail(machine_id, operation, str(error))
        except asyncio.CancelledError:
            acting.cancel()
            raise
        else:
            if self.fleet.operations[machine_id].id == operation:
                self.finish(machine_id, call)
                self.save()

    def patience(self, call: Call, fault: str) -> float:
        """Short only where the time-out is what is looked at: a busy computer must not make honest work fail."""
        return self.options.timeout if fault.endswith("-hang") or fault == "create-late" else 3600.0

    async def act(self, machine_id: str, call: Call, fault: str) -> None:
        """What the cloud does: it takes a moment, and on a faulty machine goes wrong."""
        kind = call.value.lower()
        if fault == f"{kind}-error":
            await asyncio.sleep(self.options.latency)
            raise OSError(f"the actuator refused to {kind}")
        if fault == f"{kind}-hang":
            await asyncio.sleep(3600)
        late = (fault == "join-late" and call is Call.CONFIGURE) or fault == f"{kind}-late"
        await asyncio.sleep(self.joining(late) if call is Call.CONFIGURE else self.duration(call, late))
        if call is Call.CREATE:
            self.host_appears(machine_id)

    def joining(self, late: bool) -> float:
        return self.duration(Call.CONFIGURE, late)

    def duration(self, call: Call, late: bool) -> float:
        return self.options.late if late else self.options.latency

    async def late(self, machine_id: str, call: Call) -> None:
        """A success after the time-out: the host stands there until the machine leaves Failed."""

    def fail(self, machine_id: str, operation: str, error: str) -> None:
        if self.fleet.operations[machine_id].id == operation:
            new = copied(self.fleet.machines[machine_id])
            new.state, new.last_error = pb.MACHINE_STATE_FAILED, error
            self.put(new)
            self.save()

    def finish(self, machine_id: str, call: Call) -> None:
        new = copied(self.fleet.machines[machine_id])
        new.last_error = ""
        if call is Call.CREATE:
            new.host.provider, new.host.ref = "ref", self.host_of(machine_id)
            new.state = pb.MACHINE_STATE_IDLE
        elif call is Call.CONFIGURE:
            new.state = pb.MACHINE_STATE_CONFIGURED
        elif call is Call.DRAIN:
            new.state = pb.MACHINE_STATE_IDLE
            self.clear_drained(new)
        else:
            self.reap(machine_id)
            new.state = pb.MACHINE_STATE_SPECULATIVE
            self.clear_deleted(new)
        self.put(new)

    def clear_drained(self, record: pb.Machine) -> None:
        clear_binding(record)

    def clear_deleted(self, record: pb.Machine) -> None:
        clear_binding(record)
        record.ClearField("host")

    # The cloud's side.

    def host_appears(self, machine_id: str) -> None:
        self.fleet.hosts[f"h-{machine_id}-{len(self.fleet.hosts)}-{time.monotonic_ns()}"] = machine_id
        self.show_hosts()

    def host_of(self, machine_id: str) -> str:
        return next(ref for ref, owner in self.fleet.hosts.items() if owner == machine_id)

    def reap(self, machine_id: str) -> None:
        """End whatever still creates or stands for this machine, unless the machine itself has it."""
        if (acting := self.creating.pop(machine_id, None)) is not None:
            acting.cancel()
        kept = self.fleet.machines[machine_id].host.ref
        deleting = self.fleet.machines[machine_id].state == pb.MACHINE_STATE_DELETING
        self.fleet.hosts = {
            ref: owner
            for ref, owner in self.fleet.hosts.items()
            if owner != machine_id or (ref == kept and not deleting)
        }
        self.show_hosts()

    def show_hosts(self) -> None:
        if self.options.hosts is not None:
            self.options.hosts.write_text("".join(f"{ref}\n" for ref in self.fleet.hosts))

    # Records and lists.

    def put(self, record: pb.Machine) -> None:
        revision = self.fleet.log[-1][0] + 1 if self.fleet.log else 1
        self.fleet.machines[record.id] = record
        self.fleet.revisions[record.id] = revision
        self.fleet.log.append((revision, record.id))

    def shown(self, record: pb.Machine) -> pb.Machine:
        return record

    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        since = self.position(request.since_revision)
        found: list[pb.Machine] = []
        position = self.head()
        for revision, machine_id in itertools.islice(self.fleet.log, self.after(since), None):
            if self.fleet.revisions[machine_id] != revision:
                continue
            record = self.fleet.machines[machine_id]
            if request.states and record.state not in request.states:
                continue
            if request.max_results and len(found) == request.max_results:
                break
            found.append(self.shown(record))
            position = revision
        else:
            position = self.head()
        return pb.MachineList(machines=found, revision=self.cursor(position))

    def after(self, since: int) -> int:
        return bisect.bisect_right(self.fleet.log, since, key=lambda entry: entry[0])

    def head(self) -> int:
        return self.fleet.log[-1][0] if self.fleet.log else 0

    def cursor(self, position: int) -> bytes:
        return b"rev:%d" % position

    def position(self, cursor: bytes) -> int:
        """Where a cursor stands; 0, before everything, for one that is not ours."""
        if not cursor.startswith(b"rev:") or not cursor[4:].isdigit() or len(cursor) > 24:
            return 0
        position = int(cursor[4:])
        return position if position <= self.head() and self.cursor(position) == cursor else 0

    # Keeping it.

    def save(self) -> None:
        if self.options.state is None:
            return
        fleet = self.fleet
        content = {
            "machines": [
                (revision, base64.b64encode(fleet.machines[machine].SerializeToString()).decode())
                for machine, revision in fleet.revisions.items()
            ],
            "marks": [[*key, *mark] for key, mark in fleet.marks.items()],
            "operations": {machine: [op.id, op.call.value, op.cluster] for machine, op in fleet.operations.items()},
            "issued": fleet.issued,
            "hosts": fleet.hosts,
        }
        self.write(self.options.state, json.dumps(content))

    def write(self, path: Path, content: str) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_text(content)
        fresh.replace(path)

    def load(self, path: Path) -> None:
        content = json.loads(path.read_text())
        fleet = self.fleet
        for revision, record in sorted(content["machines"]):
            machine = pb.Machine.FromString(base64.b64decode(record))
            fleet.machines[machine.id], fleet.revisions[machine.id] = machine, revision
            fleet.log.append((revision, machine.id))
        fleet.marks = {(shard, machine): (epoch, number) for shard, machine, epoch, number in content["marks"]}
        fleet.operations = {
            machine: Operation(op, Call(call), cluster)
            for machine, (op, call, cluster) in content["operations"].items()
        }
        fleet.issued, fleet.hosts = content["issued"], content["hosts"]
        for machine in list(fleet.machines.values()):
            if S(machine.state) in {S.CREATING, S.CONFIGURING, S.DRAINING, S.DELETING}:
                self.interrupted(machine)
        self.save()

    def interrupted(self, record: pb.Machine) -> None:
        self.fail(record.id, self.fleet.operations[record.id].id, "the provider was restarted in the middle")

    async def close(self) -> None:
        tasks = [*self.work, *self.creating.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def copied(record: pb.Machine) -> pb.Machine:
    new = pb.Machine()
    new.CopyFrom(record)
    return new


def clear_binding(record: pb.Machine) -> None:
    record.cluster = ""
    record.shard_metadata.clear()


def initial(options: Options) -> Iterator[pb.Machine]:
    """The fleet on its first day: speculative slots of a cloud, or hardware that just is."""
    kinds = itertools.chain(itertools.repeat("", options.machines), options.faults)
    for number, fault in enumerate(kinds):
        spot = number < options.spot
        kind = pb.CAPACITY_TYPE_BARE_METAL if options.metal else pb.CAPACITY_TYPE_ON_DEMAND
        record = pb.Machine(
            id=f"m-{number:05d}",
            state=pb.MACHINE_STATE_IDLE if options.metal else pb.MACHINE_STATE_SPECULATIVE,
            instance_type="m7.large",
            zone="eu-1a",
            capacity_type=pb.CAPACITY_TYPE_SPOT if spot else kind,
            price_per_hour=0.1,
            interruption_probability=0.05 if spot else 0.0,
            resources=pb.Resources(resources={"cpu": "4", "memory": "16Gi", "pods": "110"}),
            allocatable=pb.Resources(resources={"cpu": "3920m", "memory": "15Gi", "pods": "110"}),
            labels={"rack": f"r{number % 3}", "topology.kubernetes.io/zone": "eu-1a"},
        )
        if options.metal:
            record.host.provider, record.host.ref = "ref", f"rack-{number}"
        if fault:
            record.labels[FAULT] = fault
            record.labels[SECONDS] = str(options.late)
        yield record


@asynccontextmanager
async def answering(context: Context):  # type: ignore[no-untyped-def]  # an async generator of nothing
    try:
        yield
    except RefusalError as refusal:
        await context.abort(refusal.code, str(refusal))


@asynccontextmanager
async def serving(provider: Reference, address: str = "127.0.0.1:0", credentials: Any = None):  # type: ignore[no-untyped-def]
    """Serve a provider; yields the port."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add_CapacityProviderServicer_to_server(provider, server)
    port = server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)
        await provider.close()


async def serve_until_told(make: Callable[[Options], Reference], options: Options, address: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with serving(make(options), address):
        await ended.wait()


def main() -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    parser = argparse.ArgumentParser(description="An honest provider in memory, or one of the liars.")
    parser.add_argument("--listen", default="127.0.0.1:7799")
    parser.add_argument("--machines", type=int, default=8)
    parser.add_argument("--metal", action="store_true", help="hardware that cannot be deleted")
    parser.add_argument("--faults", action="store_true", help="offer a machine of every fault")
    parser.add_argument("--spot", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.003)
    parser.add_argument("--state", type=Path, help="keep everything in this file")
    parser.add_argument("--hosts", type=Path, help="write the references of all hosts to this file")
    parser.add_argument("--liar", default="", help="the name of a class in liars/durability.py")
    given = parser.parse_args()
    faults = (METAL_FAULTS if given.metal else CLOUD_FAULTS) if given.faults else ()
    options = Options(
        machines=given.machines,
        metal=given.metal,
        faults=faults,
        latency=given.latency,
        spot=given.spot,
        state=given.state,
        hosts=given.hosts,
    )
    make: Callable[[Options], Reference] = Reference
    if given.liar:
        from tests.conformance.liars import durability

        make = getattr(durability, given.liar)
    asyncio.run(serve_until_told(make, options, given.listen))


if __name__ == "__main__":
    main()
