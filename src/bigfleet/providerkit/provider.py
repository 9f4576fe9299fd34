"""A provider in one process: the ledger, its store and the backend.

It speaks no gRPC, so a simulator may hold one and call it directly, on whatever clock its event loop has.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Self, TypeVar

import msgspec
import structlog

from bigfleet.model.machine import Call, MachineState
from bigfleet.providerkit.backend import Backend, BackendError, Notice
from bigfleet.providerkit.carrier import Carrier
from bigfleet.providerkit.ledger.entry import Entry, noticed
from bigfleet.providerkit.ledger.ledger import IllegalError, Ledger, RefusedError, Request
from bigfleet.providerkit.store import StateError, Store, Write
from bigfleet.providerkit.turns import Turns
from bigfleet.telemetry.metrics import ProviderMetrics

_log = structlog.get_logger("bigfleet.providerkit")

# A caller gives up after 30 s, so looking for a host inside a call must end before.
_LOOK_SECONDS = 20.0
_RETRY_SECONDS = 1.0

T = TypeVar("T")


class Ack(msgspec.Struct, frozen=True):
    """A call was taken: the transition that answers it and the machine right after."""

    operation_id: str
    entry: Entry


class BackendIncompleteError(TypeError):
    """A backend that lacks a method it needs; says which and why."""


class Provider:
    """Takes calls and shows machines. `async with` starts it, and ends every task at the end."""

    def __init__(self, backend: Backend, store: Store, metrics: ProviderMetrics) -> None:
        _check(backend)
        self._backend, self._store, self._metrics = backend, store, metrics
        self._carrier = Carrier(backend, metrics, self.apply)
        self._turns = Turns()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._deletes = backend.has("delete")
        self.ledger = Ledger((), (), (), deletes=self._deletes)

    @property
    def scheme(self) -> str:
        """The backend's name for its hosts."""
        return self._backend.scheme

    async def __aenter__(self) -> Self:
        kept = self._store.load()
        offers = await self._backend.offers()
        self.ledger = Ledger(offers, kept.entries, kept.marks, deletes=self._deletes)
        await self._part_with(entry.id for entry in kept.entries if self.ledger.find(entry.id) is None)
        for state in MachineState:
            self._metrics.machines.of(state.label).set_function(partial(self._count, state))
        for entry in list(self.ledger):
            if entry.running is not None:
                self._spawn(self._carrier.resume(entry, entry.running))
            if entry.doubts:
                self._carrier.doubt(entry.id)
        self._spawn(self._carrier.sweep(self.ledger.find))
        self._spawn(self._watch())
        if self._backend.refresh_seconds:
            self._spawn(self._refresh())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._carrier.hand_over()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._carrier.close()
        await self._backend.close()
        self._store.close()

    async def ask(self, request: Request, blob: bytes = b"") -> Ack:
        """Carry a mutating call out up to its ack, or raise what refuses it."""
        # A caller that goes away in the middle must not leave what is durable and what is shown apart.
        return await asyncio.shield(self._spawn(self._ask(request, blob)))

    async def apply(self, machine: str, change: Callable[[Entry], Entry | None]) -> Entry | None:
        """Change a machine unasked or at the end of a transition: durable first, then shown. None is no change.

        What happened has happened, so a write that fails is tried until it works.
        """
        async with self._turns.of(machine):
            while True:
                entry = self.ledger.find(machine)
                after = None if entry is None else change(entry)
                if after is None:
                    return None
                try:
                    await self._write(Write(after))
                except StateError as error:
                    _log.error("state_write_failed", machine=machine, reason=str(error))
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    if not self.ledger.install(after):
                        await self._part_with([machine])
                    return after

    async def _ask(self, request: Request, blob: bytes) -> Ack:
        async with self._turns.of(request.machine):
            judgement = self.ledger.judge(request)
            if judgement.starts and request.call is Call.DELETE and await self._adopted(request.machine):
                judgement = self.ledger.judge(request)
            if judgement.changed is not None or request.mark is not None:
                await self._write(Write(judgement.changed, request.mark))
            forgotten = self.ledger.settle(judgement)
            if forgotten:
                await self._store.write(Write(forgotten=forgotten))
            if isinstance(judgement.answer, RefusedError):
                raise judgement.answer
            step, shown = judgement.answer
            if judgement.starts and shown.running == step:
                self._spawn(self._carrier.carry_out(shown, step, blob))
            return Ack(step.id, shown)

    async def _write(self, write: Write) -> None:
        try:
            await self._store.write(write)
        except StateError:
            self._metrics.state_write_failures.inc()
            raise

    async def _part_with(self, machines: Iterable[str]) -> None:
        """Forget machines that went, in the file too."""
        for machine in machines:
            await self._store.write(Write(dropped=machine, forgotten=self.ledger.part_with(machine)))

    async def _adopted(self, machine: str) -> bool:
        """Whether a machine about to leave Failed without a host has one after all, which is made its own here."""
        entry = self.ledger.get(machine)
        if entry.host or not entry.doubts or entry.state is not MachineState.FAILED:
            return False
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                found = await self._carrier.look(entry)
        except (BackendError, TimeoutError) as error:
            raise IllegalError(
                f"machine {machine!r}: cannot leave Failed before it is known whether its Create made a host; "
                f"looking for one failed: {error or f'no answer within {_LOOK_SECONDS:.0f} s'}"
            ) from error
        if not found:
            return False
        adopted = msgspec.structs.replace(entry, host=found[0].host, token=found[0].token)
        await self._store.write(Write(adopted))
        self.ledger.install(adopted)
        return True

    async def _watch(self) -> None:
        """Take the backend's notices for as long as it gives any."""
        while self._backend.has("watch"):
            try:
                async for notice in self._backend.watch(self._hosts):
                    await self._take(notice)
            except Exception:  # noqa: BLE001 - an author's mistake must not end the watch
                _log.exception("watch_failed")
            await asyncio.sleep(_RETRY_SECONDS)

    async def _take(self, notice: Notice) -> None:
        shown = await self.apply(notice.machine, partial(noticed, notice=notice, deletes=self._deletes))
        if shown is None:
            return
        _log.info("unasked_change", machine=shown.id, change=notice.change.value, text=notice.text)
        if shown.running is not None:
            self._spawn(self._carrier.carry_out(shown, shown.running, b""))

    async def _refresh(self) -> None:
        """Take the offers anew, time and again; a failure keeps the old ones."""
        while True:
            await asyncio.sleep(self._backend.refresh_seconds)
            try:
                await self._part_with(self.ledger.offer(await self._backend.offers()))
            except Exception:  # noqa: BLE001 - an author's mistake must not end the refresh
                _log.exception("refresh_failed")

    def _hosts(self) -> dict[str, str]:
        return {entry.id: entry.host for entry in self.ledger if entry.host}

    def _count(self, state: MachineState) -> float:
        return self.ledger.counts[state]

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _check(backend: Backend) -> None:
    name = type(backend).__name__
    if backend.has("create") != backend.has("delete"):
        raise BackendIncompleteError(f"{name} needs both create and delete, or neither")
    if backend.has("create") and not backend.has("describe"):
        raise BackendIncompleteError(
            f"{name} has create but not describe: a Create that times out may still make a host; only describe finds it"
        )
