"""Liars among calls at the same time."""

import asyncio

from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.liar import TICK, liar
from tests.conformance.reference import ASKS_BY_CALL, Context, Operation, Reference, Request, S, clear_binding, copied


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
