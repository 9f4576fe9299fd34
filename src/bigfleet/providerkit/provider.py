"""A provider in one process: the ledger, its store and the backend.

No gRPC is used here, so that a simulator can call a provider directly, on the clock of its own event loop.
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

# A caller gives up after 30 s. Looking for a host inside a call must end before that.
_LOOK_SECONDS = 20.0
_RETRY_SECONDS = 1.0

T = TypeVar("T")


class Ack(msgspec.Struct, frozen=True):
    """The answer to a call that was taken: its transition, and the machine right after it."""

    operation_id: str
    entry: Entry


class BackendIncompleteError(TypeError):
    """The backend lacks a method. The text says which, and why it is needed."""


class Provider:
    """Takes calls and shows machines. It runs inside `async with`."""

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
        """The scheme of the backend's hosts."""
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
        """Take a mutating call and return its ack, or raise why the call is refused."""
        # A caller that goes away must not stop the call between what is durable and what is shown.
        return await asyncio.shield(self._spawn(self._ask(request, blob)))

    async def apply(self, machine: str, change: Callable[[Entry], Entry | None]) -> Entry | None:
        """Change a machine without a call or at the end of a transition: make it durable, then show it.

        Returns None if there is nothing to change. The change has happened in the substrate already, so a write that
        fails is tried again until it works.
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
        """Forget machines that are no longer offered, also in the store."""
        for machine in machines:
            await self._store.write(Write(dropped=machine, forgotten=self.ledger.part_with(machine)))

    async def _adopted(self, machine: str) -> bool:
        """Look for the host of a Failed machine that has none. True if one was found, which is then the machine's."""
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
        """Take the notices of the backend, if it has a watch."""
        while self._backend.has("watch"):
            try:
                async for notice in self._backend.watch(self._hosts):
                    await self._take(notice)
            except Exception:  # noqa: BLE001 - a mistake in the backend must not end the watch
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
        """Ask for the offers again and again. A failure leaves the old offers."""
        while True:
            await asyncio.sleep(self._backend.refresh_seconds)
            try:
                await self._part_with(self.ledger.offer(await self._backend.offers()))
            except Exception:  # noqa: BLE001 - a mistake in the backend must not end the refresh
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
