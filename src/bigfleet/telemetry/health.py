"""What a program knows of its own health: whether its event loop turns, and what it still waits for."""

import asyncio
import time

_BEAT_SECONDS = 1.0


class Heartbeat:
    """The last sign of life of an event loop, read from another thread.

    The longest pause that is no fault is the garbage collector's or a paged-out process's; a loop silent for
    `allowed_silence` seconds is stuck, and a restart is the cure.
    """

    def __init__(self, allowed_silence: float = 30.0) -> None:
        self.allowed_silence = allowed_silence
        self._last = time.monotonic()

    def beat(self) -> None:
        """Say that the loop turns."""
        self._last = time.monotonic()

    def silence(self) -> float:
        """Seconds since the last beat."""
        return time.monotonic() - self._last

    async def keep(self) -> None:
        """Beat for as long as the loop turns; run it as a task of the loop to be watched."""
        while True:
            self.beat()
            await asyncio.sleep(_BEAT_SECONDS)


class Readiness:
    """Named conditions that must all hold before a program takes traffic; none holds at first."""

    def __init__(self, *conditions: str) -> None:
        # The keys never change, so that another thread may read while one is set.
        self._unmet: dict[str, str | None] = dict.fromkeys(conditions, "not yet")

    def meet(self, condition: str) -> None:
        """The condition holds."""
        self._set(condition, None)

    def fail(self, condition: str, why: str) -> None:
        """The condition does not hold, or no longer."""
        self._set(condition, why)

    def unmet(self) -> list[str]:
        """A line for each condition that does not hold; empty when ready."""
        return [f"{condition}: {why}" for condition, why in self._unmet.items() if why is not None]

    def _set(self, condition: str, why: str | None) -> None:
        if condition not in self._unmet:
            raise KeyError(f"no readiness condition {condition!r}; there are {', '.join(self._unmet)}")
        self._unmet[condition] = why
