"""The provider under test: its six calls, and waiting until a machine has settled."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import grpc

from bigfleet.conformance.errors import BrokenError, RefusedError, StuckError
from bigfleet.conformance.workbench.records import at_work, label, told
from bigfleet.conformance.workbench.requests import Ask
from bigfleet.conformance.workbench.tasks import to_the_end
from bigfleet.conformance.workbench.witness import Witness
from bigfleet.model.machine import MachineState
from bigfleet.transport.address import Address
from bigfleet.transport.dial import Dialer
from bigfleet.transport.grpc_options import PROVIDER_CHANNEL_OPTIONS
from bigfleet.transport.identity import Role
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.server_check import DialError
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub

Trace = list[pb.Machine]
"""The records of a machine that were seen, one for each Get."""

_T = TypeVar("_T")

_FIRST_POLL_SECONDS = 0.01
_POLL_GROWTH = 1.5
_LAST_POLL_SECONDS = 1.0
_SHOWN_CURSOR_BYTES = 24
# Channels of one process share a connection unless told not to. The suite needs a second connection of its own.
_OPTIONS = (*PROVIDER_CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))


def shown_cursor(cursor: bytes) -> str:
    """A cursor for messages: in hexadecimal, and cut if it is long."""
    return f"{cursor[:_SHOWN_CURSOR_BYTES].hex()}{'…' if len(cursor) > _SHOWN_CURSOR_BYTES else ''}"


class Target:
    """One connection to the provider. Every answer passes the run's witness."""

    def __init__(self, address: Address, tls: LiveTLS | None, settle_seconds: float, witness: Witness) -> None:
        self.address = address
        self.settle_seconds = settle_seconds
        self.witness = witness
        self._tls = tls
        self._dialer = Dialer(address, Role.PROVIDER, tls, _OPTIONS)
        self._made: tuple[grpc.aio.Channel, CapacityProviderStub] | None = None

    async def connect(self) -> None:
        """Connect now. DialError says why that is not possible."""
        await self._dialer.channel()

    async def hang_up(self) -> None:
        """Close the connection. The next call makes a new one."""
        await self._dialer.hang_up()

    def another(self) -> "Target":
        """Another connection to the same provider. Whoever asks for it closes it."""
        return Target(self.address, self._tls, self.settle_seconds, self.witness)

    async def ask(self, ask: Ask) -> pb.TransitionAck:
        """Send a mutating call. RefusedError if the provider does not take it."""
        self.witness.asked(ask)

        async def send(stub: CapacityProviderStub) -> pb.TransitionAck:
            answer: pb.TransitionAck = await getattr(stub, ask.call.value)(ask.message(), timeout=self.settle_seconds)
            return answer

        try:
            # A call that is broken off may still arrive, after the look that follows it.
            ack = await to_the_end(self._called(ask.call.value, ask, send))
        except RefusedError as refused:
            self.witness.refused(ask, refused.code)
            raise
        self.witness.acked(ack)
        return ack

    async def refused(self, ask: Ask, because: str, *codes: grpc.StatusCode) -> RefusedError:
        """Send a call that must be refused: with one of these codes, or with any if none is given."""
        wanted = f"a refusal{' with ' + ' or '.join(code.name for code in codes) if codes else ''}, because {because}"
        try:
            ack = await self.ask(ask)
        except RefusedError as refused:
            if codes and refused.code not in codes:
                raise RefusedError(refused.done, refused.code, refused.details, wanted) from None
            return refused
        raise BrokenError(str(ask), wanted, f"an ack of operation {ack.operation_id!r} with {told(ack.machine)}")

    async def get(self, machine_id: str) -> pb.Machine:
        """The machine as it is now."""

        async def send(stub: CapacityProviderStub) -> pb.Machine:
            return await stub.Get(pb.MachineRef(id=machine_id), timeout=self.settle_seconds)

        record = await self._called("Get", f"Get of machine {machine_id!r}", send)
        self.witness.saw(record)
        return record

    async def list(
        self, states: Iterable[MachineState] = (), max_results: int = 0, since: bytes = b""
    ) -> pb.MachineList:
        """All machines, or those that the filter selects."""
        wanted = [pb.MachineState.ValueType(state) for state in states]
        what = f"List of states {[MachineState(state).label for state in wanted] or 'all'}"
        if max_results:
            what += f" with max_results {max_results}"
        if since:
            what += f" since cursor {shown_cursor(since)}"

        async def send(stub: CapacityProviderStub) -> pb.MachineList:
            request = pb.ListFilter(states=wanted, max_results=max_results, since_revision=since)
            return await stub.List(request, timeout=self.settle_seconds)

        return await self._called("List", what, send)

    async def settled(self, machine_id: str, seen: Trace | None = None) -> pb.Machine:
        """Poll until the machine has settled. Each record goes to `seen`. StuckError after the settle time."""
        end = time.monotonic() + self.settle_seconds
        pause = _FIRST_POLL_SECONDS
        while True:
            record = await self.get(machine_id)
            if seen is not None:
                seen.append(record)
            if not at_work(record):
                return record
            if time.monotonic() > end:
                done = f"waiting {self.settle_seconds:g} s for machine {machine_id!r}"
                cause = f"a machine does not leave {label(record)}"
                raise StuckError(done, f"the end of {label(record)}", told(record), cause=cause)
            await asyncio.sleep(pause)
            pause = min(pause * _POLL_GROWTH, _LAST_POLL_SECONDS)

    async def _called(self, method: str, what: object, send: Callable[[CapacityProviderStub], Awaitable[_T]]) -> _T:
        start = time.perf_counter()
        try:
            return await send(await self._stub())
        except grpc.aio.AioRpcError as error:
            raise RefusedError(str(what), error.code(), error.details() or "") from None
        except DialError as error:
            raise RefusedError(str(what), grpc.StatusCode.UNAVAILABLE, str(error)) from None
        finally:
            self.witness.took(method, time.perf_counter() - start)

    async def _stub(self) -> CapacityProviderStub:
        channel = await self._dialer.channel()
        if self._made is None or self._made[0] is not channel:
            self._made = (channel, CapacityProviderStub(channel))
        return self._made[1]
