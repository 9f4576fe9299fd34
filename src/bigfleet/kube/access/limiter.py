"""The limit of calls a second: a token bucket that serves its callers in the order in which they came."""

import asyncio
import time
from collections.abc import Awaitable, Callable

# Less of a token than this is a rounding error.
_NEXT_TO_NOTHING = 1e-6


class Limiter:
    """Allows `qps` calls a second on average, and `burst` calls at once after a pause."""

    def __init__(
        self,
        qps: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"{qps} calls a second with a burst of {burst} lets nothing through")
        self._qps, self._burst = qps, burst
        self._clock, self._sleep = clock, sleep
        self._tokens = float(burst)
        self._filled = clock()
        # An asyncio lock wakes its waiters in order, and a waiter that is cancelled has taken no token.
        self._turn = asyncio.Lock()

    async def take(self) -> None:
        """Wait for a token and take it."""
        async with self._turn:
            while (missing := 1.0 - self._level()) > _NEXT_TO_NOTHING:
                await self._sleep(missing / self._qps)
            self._tokens -= 1.0

    def _level(self) -> float:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._qps)
        self._filled = now
        return self._tokens
