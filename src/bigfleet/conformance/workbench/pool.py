"""The machines that the suite may use. One check at a time leases a machine, and all are brought back in the end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from bigfleet.conformance.errors import BrokenError, NotCheckedError
from bigfleet.conformance.workbench.faults import fault_of
from bigfleet.conformance.workbench.handle import Handle
from bigfleet.conformance.workbench.records import IDLE, SPECULATIVE, state_of, told
from bigfleet.conformance.workbench.tasks import to_the_end, together
from bigfleet.model.machine import MachineState
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

Hand = Callable[[pb.Machine], Handle]
"""Makes the handle for a machine."""


class Pool:
    """Leases machines that were Speculative or Idle and unbound when the run began."""

    def __init__(self, machines: Sequence[pb.Machine], hand: Hand) -> None:
        self._free = {record.id: record for record in machines}
        #: The state in which each machine was found.
        self._first = {record.id: state_of(record) for record in machines}
        #: The fault of each machine, empty for an ordinary one.
        self._faults = {record.id: fault_of(record) for record in machines}
        #: Machines that could not be brought back, and why.
        self._lost: dict[str, str] = {}
        self._hand = hand
        self._returned = asyncio.Condition()

    def usable(self, fault: str = "") -> int:
        """How many machines have this fault and are not lost, on lease or free."""
        return sum(of == fault and machine not in self._lost for machine, of in self._faults.items())

    @asynccontextmanager
    async def lease(self, count: int, state: MachineState, fault: str = "") -> AsyncIterator[tuple[Handle, ...]]:
        """Lease so many machines, brought to this state. They are brought to Idle or Speculative when given back."""
        async with self._returned:
            await self._returned.wait_for(
                lambda: len(self._idle(fault)) >= count or self.usable(fault) < count,
            )
            if self.usable(fault) < count:
                raise self._too_few(count, fault)
            # Machines that are in this state already come first: moving a machine costs time and, on a cloud, money.
            chosen = sorted(self._idle(fault), key=lambda record: state_of(record) is not state)[:count]
            for record in chosen:
                del self._free[record.id]
        handles = tuple(self._hand(record) for record in chosen)
        try:
            await together(handle.reach(state, record) for handle, record in zip(handles, chosen, strict=True))
            yield handles
        finally:
            await to_the_end(self._take_back(handles))

    async def restore(self) -> list[str]:
        """Bring every machine to the state in which it was found. Returns a sentence for each that could not be."""

        async def bring_back(record: pb.Machine) -> None:
            first = self._first[record.id]
            try:
                # A restart or a time-out may have changed the machine since it was given back.
                record = await self._hand(record).rest()
                if first is not None:
                    await self._hand(record).reach(first, record)
            except BrokenError as error:
                self._lost[record.id] = str(error)

        moved = [record for record in self._free.values() if state_of(record) is not self._first[record.id]]
        await asyncio.gather(*map(bring_back, moved))
        return [f"machine {machine!r} is not as it was found: {why}" for machine, why in sorted(self._lost.items())]

    async def _take_back(self, handles: Sequence[Handle]) -> None:
        rested = await asyncio.gather(*(self._rested(handle) for handle in handles))
        async with self._returned:
            self._free.update({record.id: record for record in rested if record is not None})
            self._returned.notify_all()

    async def _rested(self, handle: Handle) -> pb.Machine | None:
        try:
            if not handle.stuck:
                return await handle.rest()
            self._lost[handle.id] = f"{told(await handle.get())} never settled"
        except BrokenError as error:
            self._lost[handle.id] = str(error)
        return None

    def _idle(self, fault: str) -> list[pb.Machine]:
        return [record for record in self._free.values() if self._faults[record.id] == fault]

    def _too_few(self, count: int, fault: str) -> NotCheckedError:
        total = sum(of == fault for of in self._faults.values())
        if total >= count:
            text = "too many machines are stuck or cannot be brought back; the failures say why"
            return NotCheckedError("what needs a machine", text)
        if fault:
            return NotCheckedError("fault", f"needs {count} machines with fault {fault}; the target has {total}")
        text = f"needs {count} ordinary machines, Idle or Speculative and unbound; the target has {total}"
        return NotCheckedError("what needs several machines", text)


def leasable(record: pb.Machine) -> bool:
    """True if the suite may use a machine that it finds like this."""
    return state_of(record) in {SPECULATIVE, IDLE} and not record.cluster and not record.shard_metadata
