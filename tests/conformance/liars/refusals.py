"""Liars about what is refused, and how."""

import grpc

from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.liar import liar
from tests.conformance.reference import (
    ASKS_BY_CALL,
    Context,
    Operation,
    Reference,
    RefusalError,
    Request,
    S,
    clear_binding,
    copied,
)


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
