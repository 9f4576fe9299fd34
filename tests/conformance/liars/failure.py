"""Liars about failure."""

import asyncio

from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.liar import liar
from tests.conformance.reference import Reference, Request, copied


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


# Behaviour B807 deletes a machine.
@liar("B708", hosts=True, settle=1.0, spares=("B208", "B215", "B807"))
class DeletedHostStays(Reference):
    def reap(self, machine_id: str) -> None:
        pass


@liar("B708", faults=("create-late",), hosts=True, settle=1.0)
class OrphanHost(Reference):
    def reap(self, machine_id: str) -> None:
        if self.fleet.machines[machine_id].state == pb.MACHINE_STATE_DELETING:
            super().reap(machine_id)
