"""Liars about fencing."""

import grpc

from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.liar import TICK, liar
from tests.conformance.reference import Reference, RefusalError, Request, copied


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
