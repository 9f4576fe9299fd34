"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing else is to be done.

A day of timers then takes as long as what they do. Work in other threads takes no virtual time and is not waited for,
so whatever runs on it keeps to the loop: a provider with a memory store, and no gRPC.
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# All times are whole ticks, about a microsecond each. Sums of them are exact for centuries, so that a timer is reached
# exactly, and whoever waits for the rest of a time finds that it has passed.
_TICK = 2.0**-20


class StandstillError(RuntimeError):
    """Everything waits, and no timer is set: nothing would ever happen again."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that begins at 0 s and never waits."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumping(self))
        # asyncio's own: a timer this near is due. Less than a tick, so none is early; more than 0, so none is late.
        self._clock_resolution = _TICK / 2

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer, for the first tick that is not before its time."""
        return super().call_at(math.ceil(when / _TICK) * _TICK, callback, *args, context=context)

    def jump(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self._now += seconds


class _Jumping(selectors.DefaultSelector):
    """Where a loop would wait for its next timer, it lets the time pass instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; if nothing is, the time is that of the next timer afterwards."""
        ready = super().select(0)
        if not ready and timeout is None:
            raise StandstillError("every task waits and no timer is set")
        if not ready and timeout is not None and timeout > 0:
            self._loop.jump(timeout)
        return ready


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end in virtual time, as asyncio.run does in real time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
