"""The health of a program: whether its event loop runs, and which conditions of readiness hold."""

import asyncio
import time

_BEAT_SECONDS = 1.0


class Heartbeat:
    """When an event loop last gave a sign of life; another thread reads it.

    A loop that is silent for `allowed_silence` seconds is stuck, and a restart cures it. Shorter pauses are no fault:
    the garbage collector makes them, and so does swapping.
    """

    def __init__(self, allowed_silence: float = 30.0) -> None:
        self.allowed_silence = allowed_silence
        self._last = time.monotonic()

    def beat(self) -> None:
        """Note that the loop runs."""
        self._last = time.monotonic()

    def silence(self) -> float:
        """Seconds since the last beat."""
        return time.monotonic() - self._last

    async def keep(self) -> None:
        """Beat until cancelled. Run it as a task of the loop that is watched."""
        while True:
            self.beat()
            await asyncio.sleep(_BEAT_SECONDS)


class Readiness:
    """The conditions that must all hold before a program takes traffic. At first none holds."""

    def __init__(self, *conditions: str) -> None:
        # The keys never change, so that another thread may read while one is set.
        self._unmet: dict[str, str | None] = dict.fromkeys(conditions, "not yet")

    def meet(self, condition: str) -> None:
        """The condition holds."""
        self._set(condition, None)

    def fail(self, condition: str, why: str) -> None:
        """The condition does not hold."""
        self._set(condition, why)

    def unmet(self) -> list[str]:
        """A line for each condition that does not hold; empty when ready."""
        return [f"{condition}: {why}" for condition, why in self._unmet.items() if why is not None]

    def _set(self, condition: str, why: str | None) -> None:
        if condition not in self._unmet:
            raise KeyError(f"no readiness condition {condition!r}; there are {', '.join(self._unmet)}")
        self._unmet[condition] = why
