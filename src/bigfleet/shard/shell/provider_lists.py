"""Lists and Gets of one provider: changes by cursor, everything every few minutes, single machines where needed."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from itertools import islice
from typing import Protocol

import structlog

from bigfleet.model.machine import Machine
from bigfleet.provider.errors import NotFoundError, ProviderError
from bigfleet.provider.records import Answer, Gathering, Listing, MachinePage
from bigfleet.shard.core.core import Core

_log = structlog.get_logger("bigfleet.shard")

_SLICE = 500
"""How many rows are taken between two turns of the event loop: some ten milliseconds of work."""

_QUICK, _SLOW = 0.2, 5.0
"""How long after a list the next one begins while machines are under way: growing from the first to the second."""

_SLOWER = 1.5
"""How much longer the wait is after each list that showed no change."""

_WITHOUT_CURSOR = 10.0
"""How long after a list the next one begins, while machines are under way, at a provider without cursors."""

_FIRST_RETRY, _LONGEST_RETRY = 0.5, 30.0
"""How long after a failed list the next one begins: doubling from the first to the longest, less some chance."""

_MOST_DOUBLINGS = 10
_SILENT_SECONDS = 20.0
"""After how long without a page a provider counts as lost."""

_GETS_AT_A_TIME = 16


class Reader(Protocol):
    """The reads of a provider's client."""

    async def get(self, machine_id: str) -> Answer:
        """One machine as it is now."""

    def pages(self, since: bytes = b"") -> AsyncGenerator[MachinePage, None]:
        """What changed after the cursor or, without one, every machine."""


class ProviderLists:
    """One provider's machines, listed for as long as this runs."""

    def __init__(
        self,
        core: Core,
        name: str,
        client: Reader,
        *,
        interval: float,
        full_interval: float,
        after: Callable[[], Awaitable[None]],
    ) -> None:
        self._core, self._name, self._client, self._after = core, name, client, after
        self._interval, self._full_interval = interval, full_interval
        self._cursor = b""
        self._hurry = asyncio.Event()
        self._quick = _QUICK
        #: When a list last ended well.
        self.listed_at: float | None = None
        #: Why the last list failed; empty where it did not.
        self.problem = ""

    def hurry(self) -> None:
        """A call was answered: list soon, since the machine may change soon."""
        self._quick = _QUICK
        self._hurry.set()

    async def run(self) -> None:
        """List for ever."""
        clock, last_full, failures = self._core.clocks.now, float("-inf"), 0
        while True:
            full = not self._cursor or clock() - last_full >= self._full_interval
            began = clock()
            try:
                changed = await self._list(b"" if full else self._cursor, began)
            except ProviderError as error:
                failures += 1
                self._fail(str(error))
                wait = min(_LONGEST_RETRY, _FIRST_RETRY * 2.0 ** min(failures, _MOST_DOUBLINGS))
                await asyncio.sleep(wait * (0.5 + random.random() / 2))  # noqa: S311
                continue
            failures = 0
            if full:
                last_full = began
            self._succeed(clock())
            await self._pause(changed)

    async def _pause(self, changed: bool) -> None:
        wait = self._interval
        if self._core.awaits(self._name):
            self._quick = _QUICK if changed else min(_SLOW, self._quick * _SLOWER)
            wait = min(wait, self._quick if self._cursor else _WITHOUT_CURSOR)
        try:
            async with asyncio.timeout(wait):
                await self._hurry.wait()
            # Right after an ack the machine has hardly changed yet.
            await asyncio.sleep(_QUICK / 2)
        except TimeoutError:
            pass
        self._hurry.clear()

    async def _list(self, since: bytes, began: float) -> bool:
        """Take one list, in slices, so that streams go on. Returns whether it had a row."""
        gathering, rows, full = Gathering(), 0, not since
        async with aclosing(self._client.pages(since)) as pages, self._impatience() as patient:
            async for page in pages:
                patient()
                self._cursor = page.revision
                rows += page.rows
                for machines in _slices(page.machines):
                    self._core.listed(self._name, Listing(machines, (), b"", full=False, began=began))
                    await self._after()
                    await asyncio.sleep(0)
                if full:
                    gathering.add(page)
                elif page.refused or not page.machines:
                    self._core.listed(self._name, Listing({}, page.refused, b"", full=False, began=began))
        if full:
            self._core.listed(self._name, gathering.listing(self._cursor, full=True, began=began))
        await self._after()
        return bool(rows)

    @contextlib.asynccontextmanager
    async def _impatience(self) -> AsyncIterator[Callable[[], None]]:
        """Take the provider for lost when no page has come for a while, long before the call itself gives up."""
        loop = asyncio.get_running_loop()
        timer: list[asyncio.TimerHandle] = []

        def again() -> None:
            stop()
            timer.append(loop.call_later(_SILENT_SECONDS, self._fail, f"no answer to List for {_SILENT_SECONDS:.0f} s"))

        def stop() -> None:
            for handle in timer:
                handle.cancel()
            timer.clear()

        again()
        try:
            yield again
        finally:
            stop()

    def _fail(self, problem: str) -> None:
        if not self.problem:
            _log.warning("provider_unreachable", provider=self._name, error=problem)
        self.problem = problem
        self._core.provider_lost(self._name, problem)

    def _succeed(self, now: float) -> None:
        if self.problem or self.listed_at is None:
            _log.info(
                "provider_listed", provider=self._name, machines=len(self._core.parts.supply.machines_of(self._name))
            )
        self.problem, self.listed_at = "", now


class ProviderGets:
    """Gets of single machines of one provider, a few at a time."""

    def __init__(self, core: Core, name: str, client: Reader, after: Callable[[], Awaitable[None]]) -> None:
        self._core, self._name, self._client, self._after = core, name, client, after
        self._wanted: dict[str, None] = {}
        self._running: set[str] = set()
        self._changed = asyncio.Event()

    def want(self, machine_id: str) -> None:
        """Get this machine, once for however many times it is wanted before the Get begins."""
        self._wanted[machine_id] = None
        self._changed.set()

    async def run(self) -> None:
        """Make Gets for as long as this runs."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for machine_id in [i for i in self._wanted if i not in self._running]:
                    if len(self._running) >= _GETS_AT_A_TIME:
                        break
                    del self._wanted[machine_id]
                    self._running.add(machine_id)
                    tasks.create_task(self._get(machine_id))
                self._changed.clear()
                await self._changed.wait()

    async def _get(self, machine_id: str) -> None:
        began = self._core.clocks.now()
        try:
            answer: Answer | None = await self._client.get(machine_id)
        except NotFoundError:
            answer = None
        except ProviderError as error:
            # The core orders the Get again at every tick while the doubt stands.
            _log.info("get_failed", provider=self._name, machine=machine_id, error=str(error))
            return
        finally:
            self._running.discard(machine_id)
            self._changed.set()
        self._core.got(self._name, machine_id, answer, began)
        await self._after()


def _slices(machines: Mapping[str, Machine]) -> Iterator[dict[str, Machine]]:
    rows = iter(machines.items())
    while part := dict(islice(rows, _SLICE)):
        yield part
