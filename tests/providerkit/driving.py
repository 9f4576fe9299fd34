"""A provider of the kit, and how a test drives a machine of it from state to state."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bigfleet.model.machine import Call, MachineState
from bigfleet.providerkit import Backend
from bigfleet.providerkit.ledger.entry import Entry
from bigfleet.providerkit.ledger.fence import Mark
from bigfleet.providerkit.ledger.ledger import Request
from bigfleet.providerkit.provider import Ack, Provider
from bigfleet.providerkit.store import Kept, MemoryStore, StateError, Write
from bigfleet.telemetry.metrics import ProviderMetrics
from tests.shared.program import DEADLINE

S = MachineState


class Remembering(MemoryStore):
    """A store that outlives its provider, and that can be told to fail or to wait."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.marks: dict[tuple[str, str], Mark] = {}
        self.full = False
        self.gate: asyncio.Event | None = None
        self.waiting = False

    def load(self) -> Kept:
        return Kept(list(self.entries.values()), list(self.marks.values()))

    async def write(self, write: Write) -> None:
        if self.gate is not None:
            self.waiting = True
            await self.gate.wait()
        if self.full:
            raise StateError(Path("state"), "the disk is full")
        if write.entry is not None:
            self.entries[write.entry.id] = write.entry
        if write.mark is not None:
            self.marks[write.mark.machine, write.mark.shard] = write.mark


def provider(backend: Backend, store: MemoryStore | None = None) -> Provider:
    return Provider(backend, store or MemoryStore(), ProviderMetrics(CollectorRegistry()))


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not holds():  # noqa: ASYNC110 - the thing awaited has no event
            await asyncio.sleep(0.001)


async def reaches(subject: Provider, state: MachineState, machine: str = "m-0") -> Entry:
    await until(lambda: subject.ledger.get(machine).state is state)
    return subject.ledger.get(machine)


def ask(subject: Provider, call: Call, machine: str = "m-0", *, cluster: str = "") -> Coroutine[Any, Any, Ack]:
    metadata = {"k": "v"} if cluster else {}
    request = Request(call=call, machine=machine, cluster=cluster, metadata=metadata)
    return subject.ask(request, b"secret" if cluster else b"")


async def created(subject: Provider) -> Entry:
    await ask(subject, Call.CREATE)
    return await reaches(subject, S.IDLE)


async def configured(subject: Provider) -> Entry:
    await created(subject)
    await ask(subject, Call.CONFIGURE, cluster="c")
    return await reaches(subject, S.CONFIGURED)
