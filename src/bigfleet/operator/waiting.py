"""How long the operator's parts wait: for something to happen, and for a new session to have told everything."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

SETTLED_SECONDS = 60.0
"""So long after a session has begun, its shard has named every machine and every profile of the cluster."""

WaitUntilWoken = Callable[[float, asyncio.Event], Awaitable[None]]
"""What `until_woken` is; tests put their own clock in its place."""


async def until_woken(seconds: float, woken: asyncio.Event) -> None:
    """Return when woken or when so many seconds are over; infinitely many are never over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(None if seconds == math.inf else max(seconds, 0.0)):
            await woken.wait()
