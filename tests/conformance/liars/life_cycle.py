"""Liars about the life cycle."""

import asyncio
import time

from bigfleet.model.machine import Call
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.liar import liar
from tests.conformance.reference import Options, Reference, clear_binding, copied


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
        self.since.pop(record.id, None)
        super().put(record)

    def shown(self, record: pb.Machine) -> pb.Machine:
        # Whoever waits for Configured sees it first, however late the look is.
        if record.state == pb.MACHINE_STATE_CONFIGURED:
            now = time.monotonic()
            if now - self.since.setdefault(record.id, now) > 0.01:
                record = copied(record)
                record.host.ref += "-moved"
        return record


@liar("B110", whole=True, faults=("join-late",))
class ConfiguredTooEarly(Reference):
    def joining(self, late: bool) -> float:
        return self.options.latency
