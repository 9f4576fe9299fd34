"""Locks by machine: each machine is changed by one task at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class _Turn:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Turns:
    """A lock for each machine that somebody holds or waits for, and none for the others."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    @asynccontextmanager
    async def of(self, machine: str) -> AsyncIterator[None]:
        """Hold the lock of this machine."""
        turn = self._turns.setdefault(machine, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[machine]
