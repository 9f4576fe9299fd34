"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing else is to be done.

A day of timers then takes only as long as the work that they start. Work in other threads takes no virtual time and is
not waited for, so code that runs on this loop uses no threads: a provider with a memory store, and no gRPC.
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# All times are whole ticks, about a microsecond each. Sums of ticks are exact for centuries. So a timer is reached
# exactly, and code that waits for the rest of a period then finds that the period has passed.
_TICK = 2.0**-20


class StandstillError(RuntimeError):
    """Everything waits, and no timer is set: nothing would ever happen again."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that begins at 0 s and never waits."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumping(self))
        # asyncio takes a timer that is this near for due. Less than a tick, so none is early; more than 0, so none is
        # late.
        self._clock_resolution = _TICK / 2

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer, for the first tick that is not before `when`."""
        return super().call_at(math.ceil(when / _TICK) * _TICK, callback, *args, context=context)

    def jump(self, seconds: float) -> None:
        """Let this much time pass at once."""
        self._now += seconds


class _Jumping(selectors.DefaultSelector):
    """A selector that lets virtual time pass where a loop would wait for its next timer."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now. If nothing is, the loop's time is that of its next timer afterwards."""
        ready = super().select(0)
        if not ready and timeout is None:
            raise StandstillError("every task waits and no timer is set")
        if not ready and timeout is not None and timeout > 0:
            self._loop.jump(timeout)
        return ready


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, as asyncio.run does in real time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
