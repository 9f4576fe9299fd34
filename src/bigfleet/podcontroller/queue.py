"""A queue of keys: each waits at most once, two workers never have the same key, and a failing key waits longer."""

import asyncio
import random
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_WAIT, LONGEST_WAIT = 0.1, 60.0
"""Seconds that a key waits after its first failure, and at most."""

# Doubling more often changes nothing: the wait is at its longest before.
_MOST_DOUBLINGS = 16
# Keys that failed together must not come back together.
_SHORTEST_SHARE, _LONGEST_SHARE = 0.75, 1.25


class WorkQueue(Generic[K]):
    """Keys in the order in which they came. A key that is added while a worker has it comes again afterwards."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        #: Keys that wait, or are to come again once their worker is done.
        self._waiting: set[K] = set()
        #: Keys that workers have.
        self._worked: set[K] = set()
        #: By key, failures in succession.
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._timers)

    def add(self, key: K) -> None:
        """Put a key into the queue, unless it waits already."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._worked:
            self._ready.put_nowait(key)

    async def take(self) -> K:
        """The next key, which belongs to the caller until `done` or `failed`."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._worked.add(key)
        return key

    def done(self, key: K) -> None:
        """The caller is done with the key."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._leave(key)

    def failed(self, key: K, at_least: float = 0.0) -> int:
        """The caller failed: the key comes again after a wait. Returns how often it has failed in succession."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(failures - 1, _MOST_DOUBLINGS))
        wait *= random.uniform(_SHORTEST_SHARE, _LONGEST_SHARE)  # noqa: S311
        if key not in self._timers:
            self._timers[key] = asyncio.get_running_loop().call_later(max(wait, at_least), self._again, key)
        self._leave(key)
        return failures

    def close(self) -> None:
        """Cancel the waits of keys that failed."""
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
