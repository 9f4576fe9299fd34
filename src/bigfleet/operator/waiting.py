"""Waiting for something to happen, but no longer than so many seconds. Tests put their own clock in its place."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

Waiting = Callable[[float, asyncio.Event], Awaitable[None]]


async def until_woken(seconds: float, woken: asyncio.Event) -> None:
    """Return when woken or when the time is over, for ever where it is infinite."""
    with suppress(TimeoutError):
        async with asyncio.timeout(None if seconds == math.inf else max(seconds, 0.0)):
            await woken.wait()
