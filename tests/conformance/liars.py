"""Providers with one defect each, and the behaviour that names it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.reference import (
    ASKS_BY_CALL,
    Context,
    Operation,
    Options,
    Reference,
    RefusalError,
    Request,
    S,
    clear_binding,
    copied,
)

# Long enough for calls that are sent together to fall into, on a busy computer too.
TICK = 0.03


@dataclass(frozen=True)
class Liar:
    """A defect, who names it, and the sort of provider it is planted in."""

    make: type[Reference]
    named_by: str
    # Which behaviours still pass beside it.
    spares: tuple[str, ...]
    # Whether it meets the whole suite, or only those behaviours and the one that names it.
    whole: bool
    options: dict[str, Any]


LIARS: dict[str, Liar] = {}


def liar(
    named_by: str, *, whole: bool = False, spares: tuple[str, ...] = ("B208", "B215", "B902"), **options: Any
) -> Callable[[type[Reference]], type[Reference]]:
    """Put a class into the table under its name."""

    def register(make: type[Reference]) -> type[Reference]:
        LIARS[make.__name__] = Liar(make, named_by, spares, whole, options)
        return make

    return register


# Life cycle.


@liar("B101")
class LastErrorStaysAfterDrain(Reference):
    def clear_drained(self, record: pb.Machine) -> None:
        clear_binding(record)
        record.last_error = "drained"


@liar("B102", whole=True)
class CreateShowsDeleting(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CREATING:
            record = copied(record)
            record.state, record.host.provider, record.host.ref = pb.MACHINE_STATE_DELETING, "ref", "soon"
        return record


@liar("B103")
class ConfigureShowsDraining(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CONFIGURING:
            record = copied(record)
            record.state = pb.MACHINE_STATE_DRAINING
        return record


@liar("B105")
class DrainPassesThroughConfiguring(Reference):
    def finish(self, machine_id: str, call: Call) -> None:
        if call is Call.DRAIN and self.fleet.machines[machine_id].state == pb.MACHINE_STATE_DRAINING:
            new = copied(self.fleet.machines[machine_id])
            new.state = pb.MACHINE_STATE_CONFIGURING
            self.put(new)
            asyncio.get_running_loop().call_later(0.03, super().finish, machine_id, call)
        else:
            super().finish(machine_id, call)


@liar("B106")
class ClusterStaysAfterDrain(Reference):
    def clear_drained(self, record: pb.Machine) -> None:
        record.shard_metadata.clear()


@liar("B108", whole=True)
class ConfiguredFlaps(Reference):
    def __init__(self, options: Options) -> None:
        self.since: dict[str, float] = {}
        super().__init__(options)

    def put(self, record: pb.Machine) -> None:
        self.since[record.id] = time.monotonic()
        super().put(record)

    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CONFIGURED and time.monotonic() - self.since[record.id] > TICK:
            record = copied(record)
            record.host.ref += "-moved"
        return record


@liar("B110", whole=True, faults=("join-late",))
class ConfiguredTooEarly(Reference):
    def joining(self, late: bool) -> float:
        return self.options.latency


# What is refused, and how.


@liar("B201", whole=True)
class CreateRebuildsABoundMachine(Reference):
    def refuse_illegal(self, call: Call, record: pb.Machine) -> None:
        if call is not Call.CREATE or record.state != pb.MACHINE_STATE_CONFIGURED:
            super().refuse_illegal(call, record)
        new = copied(record)
        new.host.ref += "-rebuilt"
        self.put(new)
        super().refuse_illegal(call, record)


@liar("B202")
class ConfigureTakesASpeculativeMachine(Reference):
    async def transition(self, call: Call, request: Request) -> pb.TransitionAck:
        record = self.fleet.machines.get(request.machine_id)
        if call is Call.CONFIGURE and record is not None and record.state == pb.MACHINE_STATE_SPECULATIVE:
            return self.ack("op-nothing", record)
        return await super().transition(call, request)


@liar("B203")
class DrainOfASpeculativeMachineIsFencing(Reference):
    def refuse_illegal(self, call: Call, record: pb.Machine) -> None:
        if call is Call.DRAIN and record.state == pb.MACHINE_STATE_SPECULATIVE:
            raise RefusalError(grpc.StatusCode.FAILED_PRECONDITION, "it has no host")
        super().refuse_illegal(call, record)


@liar("B204")
class DeleteOfABoundMachineWorks(Reference):
    def begin(self, call: Call, request: Request, record: pb.Machine) -> str:
        if call is Call.DELETE and record.state == pb.MACHINE_STATE_CONFIGURED:
            new = copied(record)
            clear_binding(new)
            new.state = pb.MACHINE_STATE_IDLE
            self.put(new)
            record = new
        return super().begin(call, request, record)


@liar("B204", metal=True)
class MetalDeleteIsAborted(Reference):
    async def transition(self, call: Call, request: Request) -> pb.TransitionAck:
        record = self.fleet.machines.get(request.machine_id)
        if call is Call.DELETE and record is not None and record.state == pb.MACHINE_STATE_CONFIGURED:
            raise RefusalError(grpc.StatusCode.FAILED_PRECONDITION, "this is hardware")
        return await super().transition(call, request)


class _RepeatsAtTheEnd(Reference):
    calls: frozenset[Call] = frozenset()

    def repeated(self, call: Call, request: Request, record: pb.Machine) -> str:
        found = super().repeated(call, request, record)
        if found and call in self.calls and S(record.state) not in {ask.via for ask in ASKS_BY_CALL.values()}:
            found = self.new_operation(record.id)
            self.fleet.operations[record.id].id = found
        return found


@liar("B205")
class RepeatedConfigureIsANewOperation(_RepeatsAtTheEnd):
    calls = frozenset({Call.CONFIGURE})


@liar("B206")
class RepeatedDrainIsANewOperation(_RepeatsAtTheEnd):
    calls = frozenset({Call.DRAIN})


@liar("B205")
class RepeatOverwritesMetadata(Reference):
    def repeated(self, call: Call, request: Request, record: pb.Machine) -> str:
        found = super().repeated(call, request, record)
        if found and call is Call.CONFIGURE:
            new = copied(record)
            new.shard_metadata.clear()
            new.shard_metadata.update(request.shard_metadata)
            self.put(new)
        return found


@liar("B207", spares=("B208", "B902"))
class UnknownIdIsInternal(Reference):
    def find(self, machine_id: str) -> pb.Machine:
        if machine_id not in self.fleet.machines:
            raise RefusalError(grpc.StatusCode.INTERNAL, "KeyError")
        return super().find(machine_id)


@liar("B208", spares=("B207", "B215"))
class EmptyIdIsNotFound(Reference):
    def validate(self, call: Call, request: Request) -> None:
        if not request.machine_id:
            raise RefusalError(grpc.StatusCode.NOT_FOUND, "no machine ''")
        super().validate(call, request)


@liar("B209")
class LargeMetadataIsCut(Reference):
    max_bytes = 1 << 22

    def kept_metadata(self, request: pb.ConfigureRequest) -> dict[str, str]:
        return {key: value[: 512 * 1024] for key, value in request.shard_metadata.items()}


@liar("B210", whole=True)
class NegativeGraceIsTaken(Reference):
    def validate(self, call: Call, request: Request) -> None:
        if call is Call.DRAIN and request.grace_period_seconds == -1:
            request.grace_period_seconds = 0
        super().validate(call, request)


@liar("B211")
class NegativeTokenIsFenced(Reference):
    def validate(self, call: Call, request: Request) -> None:
        if request.machine_id and min(request.shard_epoch, request.sequence_number) < 0:
            raise RefusalError(grpc.StatusCode.FAILED_PRECONDITION, "a stale token")
        super().validate(call, request)


@liar("B212")
class LargeTokensAreRefused(Reference):
    def validate(self, call: Call, request: Request) -> None:
        super().validate(call, request)
        if request.shard_epoch > 2**53:
            raise RefusalError(grpc.StatusCode.INVALID_ARGUMENT, "the epoch is too large")


@liar("B213")
class LargeBlobIsInternal(Reference):
    def validate(self, call: Call, request: Request) -> None:
        if call is Call.CONFIGURE and len(request.bootstrap_blob) > self.max_bytes:
            raise RefusalError(grpc.StatusCode.INTERNAL, "out of buffers")
        super().validate(call, request)


@liar("B214", whole=True)
class OperationIdIsTheMachine(Reference):
    def new_operation(self, machine_id: str) -> str:
        return f"op-{machine_id}"


@liar("B215", spares=("B207", "B208"))
class GetInventsMachines(Reference):
    async def Get(self, request: pb.MachineRef, context: Context) -> pb.Machine:  # noqa: N802 - the contract's name
        if request.id and request.id not in self.fleet.machines:
            return pb.Machine(id=request.id)
        return await super().Get(request, context)


@liar("B216", whole=True)
class AnotherClusterIsARepeat(Reference):
    def same_cluster(self, call: Call, request: Request, last: Operation) -> bool:
        return True


@liar("B216", whole=True)
class RefusedConfigureLeavesItsMetadata(Reference):
    def begin(self, call: Call, request: Request, record: pb.Machine) -> str:
        if call is Call.CONFIGURE and record.cluster:
            new = copied(record)
            new.shard_metadata.clear()
            new.shard_metadata.update(request.shard_metadata)
            self.put(new)
        return super().begin(call, request, record)


# Fencing.


@liar("B301", whole=True)
class FenceAfterNotFound(Reference):
    def fence(self, request: Request) -> None:
        self.find(request.machine_id)
        super().fence(request)


@liar("B302", whole=True)
class MarksPerShard(Reference):
    def mark_key(self, request: Request) -> tuple[str, str]:
        return (request.shard_id, "")


@liar("B302")
class MarksPerMachine(Reference):
    def mark_key(self, request: Request) -> tuple[str, str]:
        return ("", request.machine_id)


@liar("B302", whole=True)
class OnlyTheNewestMarksAreKept(Reference):
    def fence(self, request: Request) -> None:
        super().fence(request)
        while len(self.fleet.marks) > 64:
            del self.fleet.marks[next(iter(self.fleet.marks))]


@liar("B303")
class EqualTokensPass(Reference):
    def newer(self, token: tuple[int, int], mark: tuple[int, int]) -> bool:
        return token >= mark


@liar("B303", whole=True)
class TokensComparedAsText(Reference):
    def newer(self, token: tuple[int, int], mark: tuple[int, int]) -> bool:
        return tuple(map(str, token)) > tuple(map(str, mark))


@liar("B305")
class ListMovesMarks(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        if list(request.states) == [pb.MACHINE_STATE_CONFIGURED]:
            self.fleet.marks = {key: (epoch, number + 1) for key, (epoch, number) in self.fleet.marks.items()}
        return super().listing(request)


class _ShortcutFirst(Reference):
    states: frozenset[int] = frozenset()

    async def transition(self, call: Call, request: Request) -> pb.TransitionAck:
        record = self.fleet.machines.get(request.machine_id)
        if record is not None and record.state in self.states and (found := self.repeated(call, request, record)):
            return self.ack(found, record)
        return await super().transition(call, request)


@liar("B306")
class ShortcutBeforeFencingAtRest(_ShortcutFirst):
    states = frozenset({pb.MACHINE_STATE_CONFIGURED})


@liar("B307", latency=TICK)
class ShortcutBeforeFencingInFlight(_ShortcutFirst):
    states = frozenset({pb.MACHINE_STATE_CONFIGURING})


class _FencedConfigureLeaves(Reference):
    states: frozenset[int] = frozenset()

    def leave(self, request: pb.ConfigureRequest, record: pb.Machine) -> None:
        raise NotImplementedError

    async def transition(self, call: Call, request: Request) -> pb.TransitionAck:
        try:
            return await super().transition(call, request)
        except RefusalError as refusal:
            record = self.fleet.machines.get(request.machine_id)
            fenced = refusal.code is grpc.StatusCode.FAILED_PRECONDITION and call is Call.CONFIGURE
            if fenced and record is not None and record.state in self.states:
                new = copied(record)
                self.leave(request, new)
                self.put(new)
            raise


@liar("B306", whole=True)
class FencedConfigureLeavesItsMetadata(_FencedConfigureLeaves):
    states = frozenset({pb.MACHINE_STATE_CONFIGURED})

    def leave(self, request: pb.ConfigureRequest, record: pb.Machine) -> None:
        record.shard_metadata.update(request.shard_metadata)


@liar("B307", latency=TICK)
class FencedConfigureLeavesItsCluster(_FencedConfigureLeaves):
    states = frozenset({pb.MACHINE_STATE_CONFIGURING})

    def leave(self, request: pb.ConfigureRequest, record: pb.Machine) -> None:
        record.cluster = request.cluster_id


@liar("B308", whole=True)
class NoTokenIsFenced(Reference):
    def fence(self, request: Request) -> None:
        if not request.shard_id and any(machine == request.machine_id for _, machine in self.fleet.marks):
            raise RefusalError(grpc.StatusCode.FAILED_PRECONDITION, "no token")
        super().fence(request)


@liar("B309")
class MarksPerCall(Reference):
    def mark_key(self, request: Request) -> tuple[str, str]:
        return (request.shard_id, f"{request.machine_id} {type(request).__name__}")


class _MarksEndWith(Reference):
    last: Call

    def finish(self, machine_id: str, call: Call) -> None:
        super().finish(machine_id, call)
        if call is self.last:
            self.fleet.marks = {key: mark for key, mark in self.fleet.marks.items() if key[1] != machine_id}


@liar("B309", whole=True)
class DeleteForgetsMarks(_MarksEndWith):
    last = Call.DELETE


@liar("B310", whole=True)
class DrainForgetsMarks(_MarksEndWith):
    last = Call.DRAIN


@liar("B310", whole=True)
class EpochDoesNotResetTheSequence(Reference):
    def newer(self, token: tuple[int, int], mark: tuple[int, int]) -> bool:
        return token[0] >= mark[0] and token[1] > mark[1]


@liar("B311", whole=True)
class FailedOperationKeepsTheMark(Reference):
    async def transition(self, call: Call, request: Request) -> pb.TransitionAck:
        key = self.mark_key(request)
        before = self.fleet.marks.get(key)
        try:
            return await super().transition(call, request)
        except RefusalError as refusal:
            if refusal.code is grpc.StatusCode.ABORTED and before is not None:
                self.fleet.marks[key] = before
            raise


# Calls at the same time.


class _LooksThenLeaps(Reference):
    """Waits between the look at the machine and the change to it."""

    slow: Call

    async def transition(self, call: Call, request: Request) -> pb.TransitionAck:
        record = self.fleet.machines.get(request.machine_id)
        if call is not self.slow or record is None or S(record.state) is not self.source:
            return await super().transition(call, request)
        self.validate(call, request)
        self.fence(request)
        await asyncio.sleep(TICK)
        operation = self.new_operation(record.id)
        if self.fleet.machines[record.id].state == record.state:
            return self.ack(self.begin(call, request, record), self.fleet.machines[record.id])
        return self.ack(operation, self.fleet.machines[record.id])

    @property
    def source(self) -> S:
        return next(source for call, source in ASKS_BY_CALL if call is self.slow)


@liar("B401")
class ParallelCreatesAreTwo(_LooksThenLeaps):
    slow = Call.CREATE


@liar("B402")
class ParallelConfiguresAreTwo(_LooksThenLeaps):
    slow = Call.CONFIGURE


@liar("B403")
class ParallelDrainsAreTwo(_LooksThenLeaps):
    slow = Call.DRAIN


@liar("B404", latency=TICK)
class ConflictingConfiguresAllWin(Reference):
    def refuse_illegal(self, call: Call, record: pb.Machine) -> None:
        if call is not Call.CONFIGURE or record.state != pb.MACHINE_STATE_CONFIGURING:
            super().refuse_illegal(call, record)

    def begin(self, call: Call, request: Request, record: pb.Machine) -> str:
        if call is Call.CONFIGURE and record.state == pb.MACHINE_STATE_CONFIGURING:
            new = copied(record)
            clear_binding(new)
            new.cluster = request.cluster_id
            new.shard_metadata.update(request.shard_metadata)
            self.put(new)
            return self.new_operation(record.id)
        return super().begin(call, request, record)


@liar("B404", latency=TICK)
class DrainBreaksIntoConfigure(Reference):
    def begin(self, call: Call, request: Request, record: pb.Machine) -> str:
        if call is Call.DRAIN and record.state == pb.MACHINE_STATE_CONFIGURING:
            record = copied(record)
            record.state = pb.MACHINE_STATE_CONFIGURED
        return super().begin(call, request, record)


@liar("B404", latency=TICK)
class DeleteCallsCreateOff(Reference):
    def begin(self, call: Call, request: Request, record: pb.Machine) -> str:
        if call is not Call.DELETE or record.state != pb.MACHINE_STATE_CREATING:
            return super().begin(call, request, record)
        operation = self.new_operation(record.id)
        self.fleet.operations[record.id] = Operation(operation, call, "")
        self.finish(record.id, call)
        return operation


@liar("B405")
class OldEpochOverwritesTheMark(Reference):
    def newer(self, token: tuple[int, int], mark: tuple[int, int]) -> bool:
        return token > mark or (mark[0] == 2 and mark[1] == 0 and token[0] == 1 and token[1] > 6)


@liar("B406")
class MarksPerConnection(Reference):
    peer = ""

    async def mutate(self, call: Call, request: Request, context: Context) -> pb.TransitionAck:
        self.peer = context.peer()
        return await super().mutate(call, request, context)

    def mark_key(self, request: Request) -> tuple[str, str]:
        return (request.shard_id, f"{request.machine_id} {self.peer}")


@liar("B407", latency=TICK)
class LastClusterWinsEverywhere(Reference):
    last = ""

    def entered(self, call: Call, request: Request, record: pb.Machine) -> pb.Machine:
        if call is Call.CONFIGURE:
            self.last = request.cluster_id
        return super().entered(call, request, record)

    def finish(self, machine_id: str, call: Call) -> None:
        if call is Call.CONFIGURE:
            self.fleet.machines[machine_id].cluster = self.last
        super().finish(machine_id, call)


@liar("B408", whole=True)
class TornSnapshot(Reference):
    async def transition(self, call: Call, request: Request) -> pb.TransitionAck:
        record = self.fleet.machines.get(request.machine_id)
        if call is Call.CONFIGURE and record is not None and record.state == pb.MACHINE_STATE_IDLE:
            self.torn = copied(record)
            self.torn.state, self.torn.cluster = pb.MACHINE_STATE_CONFIGURING, request.cluster_id
            ack = await super().transition(call, request)
            whole = self.fleet.machines[record.id]
            self.fleet.machines[record.id] = self.torn
            await asyncio.sleep(TICK)
            if self.fleet.machines[record.id] is self.torn:
                self.fleet.machines[record.id] = whole
            return ack
        return await super().transition(call, request)

    torn: pb.Machine


# Metadata.


@liar("B501", whole=True)
class MetadataDroppedOnList(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        listing = super().listing(request)
        for record in listing.machines:
            record.shard_metadata.clear()
        return listing


@liar("B501")
class MetadataEndsAtNul(Reference):
    def kept_metadata(self, request: pb.ConfigureRequest) -> dict[str, str]:
        return {key: value.split("\0")[0] for key, value in request.shard_metadata.items()}


@liar("B502", whole=True)
class MetadataResidue(Reference):
    def __init__(self, options: Options) -> None:
        self.residue: dict[str, dict[str, str]] = {}
        super().__init__(options)

    def clear_drained(self, record: pb.Machine) -> None:
        self.residue[record.id] = dict(record.shard_metadata)
        super().clear_drained(record)

    def entered(self, call: Call, request: Request, record: pb.Machine) -> pb.Machine:
        new = super().entered(call, request, record)
        if call is Call.CONFIGURE and request.shard_metadata:
            residue = self.residue.get(record.id, {})
            new.shard_metadata.update({key: value for key, value in residue.items() if key not in new.shard_metadata})
        return new


@liar("B503")
class MetadataIsTruncated(Reference):
    def kept_metadata(self, request: pb.ConfigureRequest) -> dict[str, str]:
        return {key[:253]: value[:4096] for key, value in request.shard_metadata.items()}


@liar("B504")
class MetadataOnlyOnceConfigured(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CONFIGURING:
            record = copied(record)
            record.shard_metadata.clear()
        return record


@liar("B505", whole=True)
class MetadataIsShared(Reference):
    def clear_drained(self, record: pb.Machine) -> None:
        shared = dict(record.shard_metadata)
        super().clear_drained(record)
        for other in self.fleet.machines.values():
            if other.id != record.id and shared and dict(other.shard_metadata) == shared:
                new = copied(other)
                new.shard_metadata.clear()
                self.put(new)


# Failure.


@liar("B701", faults=("create-error", "configure-error"))
class FailedCreateIsSpeculativeAgain(Reference):
    def fail(self, machine_id: str, operation: str, error: str) -> None:
        if self.fleet.machines[machine_id].state == pb.MACHINE_STATE_CREATING:
            new = copied(self.fleet.machines[machine_id])
            new.state = pb.MACHINE_STATE_SPECULATIVE
            self.put(new)
        else:
            super().fail(machine_id, operation, error)


@liar("B702", faults=("create-error", "configure-error"))
class FailedConfigureHasNoError(Reference):
    def fail(self, machine_id: str, operation: str, error: str) -> None:
        quiet = self.fleet.machines[machine_id].state == pb.MACHINE_STATE_CONFIGURING
        super().fail(machine_id, operation, "" if quiet else error)


@liar("B703", faults=("configure-hang",), settle=1.0)
class NoTimeout(Reference):
    def patience(self, call: Call, fault: str) -> float:
        return 3600.0


@liar("B704", whole=True, faults=("create-late",))
class LateSuccessRevives(Reference):
    async def late(self, machine_id: str, call: Call) -> None:
        if self.fleet.machines[machine_id].state == pb.MACHINE_STATE_FAILED and call is Call.CREATE:
            self.finish(machine_id, call)


@liar("B705", faults=("configure-error",) * 4)
class FailedForEver(Reference):
    def begin(self, call: Call, request: Request, record: pb.Machine) -> str:
        if record.state == pb.MACHINE_STATE_FAILED:
            self.refuse_illegal(call, record)
        return super().begin(call, request, record)


@liar("B706", whole=True, settle=1.0)
class StuckDraining(Reference):
    grace = 1

    async def transition(self, call: Call, request: Request) -> pb.TransitionAck:
        if call is Call.DRAIN:
            self.grace = request.grace_period_seconds
        return await super().transition(call, request)

    async def act(self, machine_id: str, call: Call, fault: str) -> None:
        if call is Call.DRAIN and self.grace == 0:
            await asyncio.sleep(3600)
        await super().act(machine_id, call, fault)


@liar("B707", faults=("configure-error",))
class FailedIsNotListed(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        listing = super().listing(request)
        kept = [record for record in listing.machines if record.state != pb.MACHINE_STATE_FAILED]
        return pb.MachineList(machines=kept, revision=listing.revision)


@liar("B708", faults=("create-late",), hosts=True, settle=1.0)
class OrphanHost(Reference):
    def reap(self, machine_id: str) -> None:
        if self.fleet.machines[machine_id].state == pb.MACHINE_STATE_DELETING:
            super().reap(machine_id)


# Fields.


@liar("B801")
class InstanceTypeIsALabel(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        record = copied(record)
        record.labels["node.kubernetes.io/instance-type"] = record.instance_type
        record.instance_type = "machine"
        return record


@liar("B802")
class PriceIsNotANumber(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        record = copied(record)
        record.price_per_hour = float("inf")
        return record


@liar("B802", spot=2)
class SpotNeverInterrupts(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        record = copied(record)
        record.interruption_probability = 0.0
        return record


@liar("B803")
class CreatingHasAHost(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CREATING:
            record = copied(record)
            record.host.provider, record.host.ref = "ref", "pending"
        return record


@liar("B804")
class AllocatableExceedsResources(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        record = copied(record)
        record.allocatable.resources["memory"] = "17Gi"
        return record


@liar("B805", whole=True)
class HostChangesWithTheCluster(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CONFIGURED:
            record = copied(record)
            record.host.ref += "-joined"
        return record


@liar("B806")
class ZoneIsForgotten(Reference):
    def shown(self, record: pb.Machine) -> pb.Machine:
        if record.state == pb.MACHINE_STATE_CONFIGURED:
            record = copied(record)
            record.zone = ""
            del record.labels["topology.kubernetes.io/zone"]
        return record


@liar("B807", whole=True)
class DeleteKeepsMetadata(Reference):
    def clear_deleted(self, record: pb.Machine) -> None:
        super().clear_deleted(record)
        record.shard_metadata["deleted"] = "yes"


# Lists.


@liar("B901", spares=("B208", "B215", "B906"))
class UnionIsItsFirstState(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        if len(request.states) > 1:
            del request.states[1:]
        return super().listing(request)


@liar("B902", spares=("B208", "B215", "B906"))
class MaxResultsIsIgnored(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        request.max_results = 0
        return super().listing(request)


@liar("B902", spares=("B208", "B215", "B906"), whole=True)
class FilterComesAfterTheBound(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        states = list(request.states)
        del request.states[:]
        listing = super().listing(request)
        kept = [record for record in listing.machines if not states or record.state in states]
        return pb.MachineList(machines=kept, revision=listing.revision)


@liar("B903")
class CursorNeverAdvances(Reference):
    def cursor(self, position: int) -> bytes:
        return b"rev:1"

    def position(self, cursor: bytes) -> int:
        return 0


@liar("B904")
class DeltaRepeatsTheLastChange(Reference):
    def position(self, cursor: bytes) -> int:
        return max(0, super().position(cursor) - 1)


@liar("B905", whole=True)
class CursorSkipsDrains(Reference):
    def put(self, record: pb.Machine) -> None:
        old = self.fleet.machines.get(record.id)
        if old is not None and pb.MACHINE_STATE_DRAINING in {old.state, record.state}:
            self.fleet.machines[record.id] = record
        else:
            super().put(record)


@liar("B905", whole=True)
class DeltaIgnoresTheFilter(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        if request.since_revision:
            del request.states[:]
        return super().listing(request)


@liar("B905")
class CursorIsReadAfterTheRows(Reference):
    async def List(self, request: pb.ListFilter, context: Context) -> pb.MachineList:  # noqa: N802 - the contract's name
        listing = await super().List(request, context)
        if not request.max_results:
            await asyncio.sleep(TICK / 2)
            listing.revision = self.cursor(self.head())
        return listing


@liar("B906")
class GarbageCursorIsAnError(Reference):
    def position(self, cursor: bytes) -> int:
        if cursor and not cursor.startswith(b"rev:"):
            raise RefusalError(grpc.StatusCode.INVALID_ARGUMENT, "no such cursor")
        return super().position(cursor)


@liar("B907", whole=True)
class PagesOverlap(Reference):
    def listing(self, request: pb.ListFilter) -> pb.MachineList:
        listing = super().listing(request)
        if request.max_results > 1 and len(listing.machines) == request.max_results:
            listing.revision = self.cursor(self.position(listing.revision) - 1)
        return listing


@liar("B908")
class IdleTicksBumpTheCursor(Reference):
    started = time.monotonic()

    def cursor(self, position: int) -> bytes:
        return b"rev:%d.%d" % (position, (time.monotonic() - self.started) / 0.05)

    def position(self, cursor: bytes) -> int:
        position = cursor.removeprefix(b"rev:").partition(b".")[0]
        if not cursor.startswith(b"rev:") or not position.isdigit() or len(cursor) > 16:
            return 0
        return int(position) if int(position) <= self.head() else 0


@liar("B909", whole=True)
class FutureCursorIsEmpty(Reference):
    def position(self, cursor: bytes) -> int:
        if cursor.startswith(b"rev:") and cursor[4:].isdigit():
            return int(cursor[4:])
        return super().position(cursor)


# Random cases.


@liar("B1202")
class HighPlanesAreReplaced(Reference):
    def kept_metadata(self, request: pb.ConfigureRequest) -> dict[str, str]:
        return {
            key: "".join("?" if ord(c) > 0x20000 else c for c in value) for key, value in request.shard_metadata.items()
        }


@liar("B1203", latency=TICK)
class RepeatInFlightIsANewOperation(Reference):
    def repeated(self, call: Call, request: Request, record: pb.Machine) -> str:
        found = super().repeated(call, request, record)
        return self.new_operation(record.id) if found and record.state == pb.MACHINE_STATE_CONFIGURING else found


@liar("B1203", latency=TICK)
class RepeatInFlightOverwritesMetadata(Reference):
    def repeated(self, call: Call, request: Request, record: pb.Machine) -> str:
        found = super().repeated(call, request, record)
        if found and record.state == pb.MACHINE_STATE_CONFIGURING:
            new = copied(record)
            new.shard_metadata.clear()
            new.shard_metadata.update(request.shard_metadata)
            self.put(new)
        return found


@liar("B1204", whole=True)
class IllegalIsFailedPrecondition(Reference):
    def refuse_illegal(self, call: Call, record: pb.Machine) -> None:
        raise RefusalError(grpc.StatusCode.FAILED_PRECONDITION, "not in this state")


@liar("B1205")
class VeryNegativeGraceCrashes(Reference):
    def validate(self, call: Call, request: Request) -> None:
        if call is Call.DRAIN and request.grace_period_seconds < -(2**31):
            raise RefusalError(grpc.StatusCode.UNKNOWN, "OverflowError: int too large to convert")
        super().validate(call, request)


# After a restart; these run as processes of their own.

DURABLE: dict[str, str] = {
    "MarksAreForgotten": "B1001",
    "AnswersBeforeItWrites": "B1001",
    "OperationsAreForgotten": "B1002",
    "MetadataIsForgotten": "B1003",
    "InventoryShrinks": "B1004",
    "OldCursorLeadsNowhere": "B1004",
    "OperationIdsStartAgain": "B1005",
    "InterruptedStaysInFlight": "B1006",
    "NewShardsAreStrangers": "B1007",
}


class MarksAreForgotten(Reference):
    def load(self, path: Any) -> None:
        super().load(path)
        self.fleet.marks.clear()


class AnswersBeforeItWrites(Reference):
    def write(self, path: Path, content: str) -> None:
        asyncio.get_running_loop().call_later(0.05, super().write, path, content)


class OperationsAreForgotten(Reference):
    def load(self, path: Any) -> None:
        super().load(path)
        for operation in self.fleet.operations.values():
            operation.id += "-restored"


class MetadataIsForgotten(Reference):
    def load(self, path: Any) -> None:
        super().load(path)
        for record in self.fleet.machines.values():
            record.shard_metadata.clear()


class InventoryShrinks(Reference):
    def load(self, path: Any) -> None:
        super().load(path)
        gone = max(self.fleet.machines)
        del self.fleet.machines[gone]
        self.fleet.log = [entry for entry in self.fleet.log if entry[1] != gone]


class OldCursorLeadsNowhere(Reference):
    restored = 0

    def load(self, path: Any) -> None:
        super().load(path)
        self.restored = self.head() + 10_000

    def position(self, cursor: bytes) -> int:
        position = super().position(cursor)
        return self.restored if 0 < position < self.restored else position


class OperationIdsStartAgain(Reference):
    def load(self, path: Any) -> None:
        super().load(path)
        self.fleet.issued = 0


class InterruptedStaysInFlight(Reference):
    def interrupted(self, record: pb.Machine) -> None:
        pass


class NewShardsAreStrangers(Reference):
    known: frozenset[str] | None = None

    def load(self, path: Any) -> None:
        super().load(path)
        self.known = frozenset(shard for shard, _ in self.fleet.marks)

    def fence(self, request: Request) -> None:
        if self.known is not None and request.shard_id and request.shard_id not in self.known:
            raise RefusalError(grpc.StatusCode.PERMISSION_DENIED, "unknown shard")
        super().fence(request)
