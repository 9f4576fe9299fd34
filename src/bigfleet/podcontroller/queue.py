"""Keys that wait to be looked at: each at most once, never by two workers, a failing one ever more rarely."""

import asyncio
import random
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_WAIT, LONGEST_WAIT = 0.1, 60.0


class WorkQueue(Generic[K]):
    """First come, first served. What is added while a worker has it comes again once that worker is done."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()
        self._worked: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._timers)

    def add(self, key: K) -> None:
        """Have the key looked at soon."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._worked:
            self._ready.put_nowait(key)

    async def take(self) -> K:
        """The next key; it is this worker's until `done` or `failed`."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._worked.add(key)
        return key

    def done(self, key: K) -> None:
        """The key was looked at, and all is well."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._leave(key)

    def failed(self, key: K, at_least: float = 0.0) -> int:
        """Look at the key again after a while, longer with each failure in a row; returns how many there were."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(failures - 1, 16)) * random.uniform(0.75, 1.25)  # noqa: S311
        if key not in self._timers:
            self._timers[key] = asyncio.get_running_loop().call_later(max(wait, at_least), self._again, key)
        self._leave(key)
        return failures

    def close(self) -> None:
        """Drop the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _again(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    def _leave(self, key: K) -> None:
        self._worked.discard(key)
        if key in self._waiting:
            self._ready.put_nowait(key)
