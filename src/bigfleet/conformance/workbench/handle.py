"""A machine that one check has on lease: the calls for it, and bringing it to a state."""

from dataclasses import dataclass
from typing import Any

from bigfleet.conformance.errors import BrokenError, RefusedError, StuckError
from bigfleet.conformance.workbench.records import (
    CONFIGURED,
    FAILED,
    IDLE,
    SPECULATIVE,
    at_work,
    has_host,
    label,
    state_of,
    told,
)
from bigfleet.conformance.workbench.requests import Ask, Shard, Token
from bigfleet.conformance.workbench.target import Target, Trace
from bigfleet.model.machine import ASKS, Call, MachineState
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

VIA = {ask.call: ask.via for ask in ASKS}
"""The one transitional state of each call."""

END = {ask.call: ask.end for ask in ASKS}
"""The state in which each call ends."""


def wrong_end(call: Call, record: pb.Machine) -> str:
    """The cause of a failure that is a transition with a wrong end."""
    why = f": {record.last_error.replace(record.id, '…')}" if record.last_error else ""
    return f"{call.value} ends in {label(record)}{why}"


@dataclass(frozen=True, slots=True)
class Journey:
    """A transition as the suite saw it: the ack, then every record until the machine settled."""

    ack: pb.TransitionAck
    seen: tuple[pb.Machine, ...]

    @property
    def end(self) -> pb.Machine:
        """The record of the settled machine."""
        return self.seen[-1]


class Handle:
    """A machine on lease, and a shard in whose name calls are sent for it."""

    def __init__(self, target: Target, record: pb.Machine, shard: Shard, blob: bytes) -> None:
        self.id = record.id
        self.target = target
        self.shard = shard
        #: The machine did not settle once. It is not used again.
        self.stuck = False
        self.blob = blob

    def asking(self, call: Call, token: Token | None = None, **fields: Any) -> Ask:
        """A request for this machine, with a fresh token unless one is given."""
        token = self.shard.next() if token is None else token
        return Ask(call, self.id, token, **{"blob": self.blob, **fields})

    async def get(self) -> pb.Machine:
        """The machine as it is now."""
        return await self.target.get(self.id)

    async def listed(self) -> pb.Machine:
        """The machine as List shows it: with a filter for its state if the machine has settled, else without."""
        record = await self.get()
        state = state_of(record)
        listing = await self.target.list([] if state is None or at_work(record) else [state])
        for found in listing.machines:
            if found.id == self.id:
                return found
        done = f"List of the machines that are {label(record)}"
        raise BrokenError(done, f"machine {self.id!r} among them, as Get shows it", f"{len(listing.machines)} others")

    async def ask(self, call: Call, token: Token | None = None, **fields: Any) -> pb.TransitionAck:
        """Send the call and return its ack."""
        return await self.target.ask(self.asking(call, token, **fields))

    async def watched(self, ack: pb.TransitionAck) -> Journey:
        """Follow the machine from an ack until it has settled."""
        seen: Trace = []
        await self.settled(seen)
        return Journey(ack, tuple(seen))

    async def settled(self, seen: Trace | None = None) -> pb.Machine:
        """Wait until the machine has settled. Mark it as stuck if it does not."""
        try:
            return await self.target.settled(self.id, seen)
        except StuckError:
            self.stuck = True
            raise

    async def drive(self, call: Call, token: Token | None = None, **fields: Any) -> Journey:
        """Send the call, and wait for the end that the call must have."""
        ask = self.asking(call, token, **fields)
        journey = await self.watched(await self.target.ask(ask))
        if state_of(journey.end) is not END[call]:
            expected = f"it to end {END[call].label}"
            raise BrokenError(str(ask), expected, told(journey.end), cause=wrong_end(call, journey.end))
        return journey

    async def rest(self) -> pb.Machine:
        """Bring the machine to Idle or Speculative from any state, and return its record."""
        record = await self.settled()
        if state_of(record) is CONFIGURED:
            record = (await self.watched(await self.ask(Call.DRAIN))).end
        return await self._recovered(record) if state_of(record) is FAILED else record

    async def reach(self, state: MachineState, record: pb.Machine) -> None:
        """Bring a machine that is Idle or Speculative to this one of the two."""
        if state_of(record) is state:
            return
        call = {IDLE: Call.CREATE, SPECULATIVE: Call.DELETE}[state]
        end = (await self.watched(await self.ask(call))).end
        # A fault in this call does not strike when the call leads out of Failed, so the second try works.
        if state_of(end) is not state:
            await self.drive(call)

    async def _recovered(self, record: pb.Machine) -> pb.Machine:
        """Lead the machine out of Failed: with a host by Drain or Delete, without one by Delete or Create."""
        calls = (Call.DRAIN, Call.DELETE) if has_host(record) else (Call.DELETE, Call.CREATE)
        try:
            return (await self.drive(calls[0])).end
        except RefusedError:
            return (await self.drive(calls[1])).end
