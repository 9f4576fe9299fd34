"""The machines that the suite may use: each in the hands of one check at a time, all brought back in the end."""

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
"""Makes the handle of a machine that is being leased."""


class Pool:
    """Leases machines that were Speculative or Idle and unbound when the run began."""

    def __init__(self, machines: Sequence[pb.Machine], hand: Hand) -> None:
        self._free = {record.id: record for record in machines}
        self._first = {record.id: state_of(record) for record in machines}
        self._kinds = {record.id: fault_of(record) for record in machines}
        self._lost: dict[str, str] = {}
        self._hand = hand
        self._returned = asyncio.Condition()

    def usable(self, fault: str = "") -> int:
        """How many machines of the kind there are, lent or not, that still move."""
        return sum(kind == fault and machine not in self._lost for machine, kind in self._kinds.items())

    @asynccontextmanager
    async def lease(self, count: int, state: MachineState, fault: str = "") -> AsyncIterator[tuple[Handle, ...]]:
        """So many machines, all at once or none, brought to this resting state; they rest again when given back."""
        async with self._returned:
            await self._returned.wait_for(
                lambda: len(self._idle(fault)) >= count or self.usable(fault) < count,
            )
            if self.usable(fault) < count:
                raise self._too_few(count, fault)
            # Those that are already there first: moving a machine costs time and, on a cloud, money.
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
        """Bring every machine to the state it was found in; returns a sentence for each that could not be."""

        async def bring_back(record: pb.Machine) -> None:
            first = self._first[record.id]
            try:
                # What a restart or a time-out did to it meanwhile is made good first.
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
        return [record for record in self._free.values() if self._kinds[record.id] == fault]

    def _too_few(self, count: int, fault: str) -> NotCheckedError:
        total = sum(kind == fault for kind in self._kinds.values())
        if total >= count:
            text = "too many machines are stuck or cannot be brought back; the failures say why"
            return NotCheckedError("what needs a machine", text)
        if fault:
            return NotCheckedError("fault", f"needs {count} machines with fault {fault}; the target has {total}")
        text = f"needs {count} ordinary machines, Idle or Speculative and unbound; the target has {total}"
        return NotCheckedError("what needs several machines", text)


def leasable(record: pb.Machine) -> bool:
    """True if the suite may use a machine found like this."""
    return state_of(record) in {SPECULATIVE, IDLE} and not record.cluster and not record.shard_metadata
