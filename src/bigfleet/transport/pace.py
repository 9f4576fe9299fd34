"""How long a program waits before it tries something again; tests put in a clock and dice of their own."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

# Doubling more often than this changes nothing: every wait is at its longest long before.
_MOST_DOUBLINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Waits that double up to a limit. A part of each is left to chance: those that failed together return apart."""

    #: Seconds to wait after the first failure.
    first_wait: float = 0.5
    #: Seconds that no wait exceeds.
    longest_wait: float = 30.0
    #: The part of a wait that is certain, from 0 to 1; the dice decide about the rest.
    certain: float = 0.5
    #: A number from 0 to 1 for each wait.
    dice: Callable[[], float] = random.random
    #: Waits for so many seconds.
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    #: Monotonic seconds.
    clock: Callable[[], float] = time.monotonic

    def wait(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        longest = min(self.longest_wait, self.first_wait * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
        return longest * (self.certain + (1.0 - self.certain) * self.dice())
