"""Liars whom only random cases find."""

import grpc

from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.liar import TICK, liar
from tests.conformance.reference import Reference, RefusalError, Request, copied


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
