"""How long to wait before a call is tried again, and the clock and dice for it, so that tests need not wait."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """So many attempts, with full jitter between them: callers that failed together do not return together."""

    attempts: int = 4
    first_wait: float = 0.25
    longest_wait: float = 5.0
    dice: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic

    def wait(self, attempt: int) -> float:
        """Seconds to wait after that many failed attempts."""
        return self.dice() * min(self.longest_wait, self.first_wait * 2.0 ** (attempt - 1))
