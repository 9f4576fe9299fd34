"""How long a watcher waits after a failure, and the clock and dice for it, so that tests need not wait."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Ever longer waits up to a limit, half of each left to chance: watchers cut together do not return together."""

    first_wait: float = 0.5
    longest_wait: float = 30.0
    dice: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic

    def wait(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        longest = min(self.longest_wait, self.first_wait * 2.0 ** min(failures - 1, 30))
        return longest * (0.5 + 0.5 * self.dice())
