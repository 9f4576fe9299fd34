"""A client of a provider of the kit in the same process, without gRPC, so that it runs on virtual time.

Records are encoded and decoded as on the wire, errors are those of the real client, and every call carries its own
token. Whoever makes the client decides, call by call, what a network would do to it.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import grpc
import msgspec

from bigfleet.model.machine import Call, Machine
from bigfleet.provider.acks import misfit
from bigfleet.provider.client import CALL_SECONDS, LIST_SECONDS, PAGE_ROWS
from bigfleet.provider.errors import AckMismatchError, ProviderError, error_of
from bigfleet.provider.fencing import Fencing
from bigfleet.provider.records import Ack, Answer, MachinePage
from bigfleet.provider.walk import PageRequest, Walk
from bigfleet.providerkit import provider
from bigfleet.providerkit.ledger import ledger
from bigfleet.providerkit.ledger.entry import Entry
from bigfleet.providerkit.ledger.fence import Mark, Token
from bigfleet.providerkit.ledger.render import Renderer
from bigfleet.providerkit.store import StateError
from bigfleet.wire.machines import machine_from_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

T = TypeVar("T")

_Code = grpc.StatusCode
_CODES: Mapping[type[Exception], grpc.StatusCode] = {
    ledger.FencedError: _Code.FAILED_PRECONDITION,
    ledger.UnknownMachineError: _Code.NOT_FOUND,
    ledger.UnsupportedError: _Code.UNIMPLEMENTED,
    ledger.IllegalError: _Code.ABORTED,
    StateError: _Code.UNAVAILABLE,
}


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What the network does to one call."""

    before: float = 0.0
    """Seconds that the call takes to the provider."""
    after: float = 0.0
    """Seconds that the answer takes back."""
    refused: grpc.StatusCode | None = None
    """The call does not reach the provider, and the caller gets this code."""
    lost: bool = False
    """The call does not reach the provider before the caller gives up."""
    late_seconds: float | None = None
    """A lost call reaches the provider this many seconds after the caller gave up; None: it never does."""
    answer_lost: bool = False
    """The call reaches the provider, and its answer never reaches the caller."""


NONE = Trouble()

Fate = Callable[[str, str], Trouble]
"""What the network does to a call, given the method (`Create`, `Get`, `List`) and the machine, empty for a List."""


class DirectClient:
    """The six calls. `close` ends calls that were given up and are still on their way."""

    def __init__(
        self, name: str, home: provider.Provider, fencing: Fencing, fate: Fate = lambda _method, _machine: NONE
    ) -> None:
        self.name = name
        self._home, self._fencing, self._fate = home, fencing, fate
        self._render = Renderer(home.scheme)
        self._machines: dict[str, tuple[Entry, Machine]] = {}
        self._late: set[asyncio.Task[None]] = set()

    async def create(self, machine_id: str) -> Ack:
        """Ask for a speculative machine to be made real."""
        return await self._mutate(Call.CREATE, machine_id)

    async def configure(
        self, machine_id: str, cluster_id: str, bootstrap_blob: bytes, shard_metadata: Mapping[str, str]
    ) -> Ack:
        """Ask for an idle machine to join a cluster."""
        return await self._mutate(Call.CONFIGURE, machine_id, bootstrap_blob, cluster_id, shard_metadata)

    async def drain(self, machine_id: str, grace_seconds: int) -> Ack:
        """Ask for a machine to leave its cluster."""
        return await self._mutate(Call.DRAIN, machine_id, grace_seconds=grace_seconds)

    async def delete(self, machine_id: str) -> Ack:
        """Ask for a machine to be given back."""
        return await self._mutate(Call.DELETE, machine_id)

    async def get(self, machine_id: str) -> Answer:
        """One machine as it is now."""
        return Answer(await self._through("Get", machine_id, partial(self._get, machine_id), CALL_SECONDS))

    async def pages(self, since: bytes = b"") -> AsyncGenerator[MachinePage, None]:
        """What changed after the cursor or, without one, every machine."""
        walk = Walk(since, PAGE_ROWS)
        while walk.request is not None:
            page = await self._through("List", "", partial(self._page, walk.request), LIST_SECONDS)
            walk.take(page.ids(), page.rows, page.revision)
            yield page

    async def close(self) -> None:
        """End the calls that were given up and would still reach the provider."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)

    async def _mutate(
        self,
        call: Call,
        machine_id: str,
        blob: bytes = b"",
        cluster_id: str = "",
        metadata: Mapping[str, str] | None = None,
        grace_seconds: int = 0,
    ) -> Ack:
        token = self._fencing.token()
        request = ledger.Request(
            call=call,
            machine=machine_id,
            mark=Mark(machine_id, token.shard_id, Token(token.epoch, token.sequence)),
            cluster=cluster_id,
            metadata=dict(metadata or {}),
            grace_seconds=grace_seconds,
        )
        taken = await self._through(call.value, machine_id, lambda: self._home.ask(request, blob), CALL_SECONDS)
        ack = Ack(taken.operation_id, self._machine(taken.entry))
        problem = misfit(call, ack.machine, cluster_id, metadata)
        if problem is not None:
            raise AckMismatchError(self.name, call.value, ack, problem)
        return ack

    async def _through(self, method: str, machine_id: str, ask: Callable[[], Awaitable[T]], deadline: float) -> T:
        """The provider's answer, if the network lets it through."""
        trouble = self._fate(method, machine_id)
        await asyncio.sleep(trouble.before)
        if trouble.refused is not None:
            raise self._error(method, machine_id, trouble.refused, "refused on the way")
        if trouble.lost:
            await asyncio.sleep(deadline)
            if trouble.late_seconds is not None:
                self._arrive_late(ask, trouble.late_seconds)
            raise self._error(method, machine_id, _Code.DEADLINE_EXCEEDED, "the call was lost")
        try:
            answer = await ask()
        except (ledger.RefusedError, StateError) as error:
            await asyncio.sleep(trouble.after)
            raise self._error(method, machine_id, _CODES[type(error)], str(error)) from None
        if trouble.answer_lost:
            await asyncio.sleep(deadline)
            raise self._error(method, machine_id, _Code.DEADLINE_EXCEEDED, "the answer was lost")
        await asyncio.sleep(trouble.after)
        return answer

    def _arrive_late(self, ask: Callable[[], Awaitable[object]], seconds: float) -> None:
        async def arrive() -> None:
            await asyncio.sleep(seconds)
            try:
                await ask()
            except (ledger.RefusedError, StateError):
                # The caller has given up, so nobody hears of the refusal.
                return

        task = asyncio.create_task(arrive())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _get(self, machine_id: str) -> Machine:
        return self._machine(self._home.ledger.get(machine_id))

    async def _page(self, ask: PageRequest) -> MachinePage:
        entries, cursor = self._home.ledger.changed(ask.since, ask.limit, _every)
        return MachinePage({entry.id: self._machine(entry) for entry in entries}, (), len(entries), cursor)

    def _machine(self, entry: Entry) -> Machine:
        """The entry as it reads on the other side of the wire."""
        known = self._machines.get(entry.id)
        if known is None or known[0] is not entry:
            known = entry, machine_from_wire(pb.Machine.FromString(self._render.machine(entry)))
            self._machines[entry.id] = known
        return known[1]

    def _error(self, method: str, machine_id: str, code: grpc.StatusCode, words: str) -> ProviderError:
        return error_of(code)(self.name, method, machine_id, f"{code.name} {words!r}", code.name)


def _every(_: Entry) -> bool:
    return True
