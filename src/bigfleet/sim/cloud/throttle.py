"""The cloud's rate limits: a token bucket for each kind of call."""

import asyncio

from bigfleet.providerkit.backend import BackendError
from bigfleet.sim.cloud.config import Exceeded, RateLimit


class Throttle:
    """Lets calls of one kind through at their rate; those above it wait their turn or fail, as the limit says."""

    def __init__(self, kind: str, limit: RateLimit) -> None:
        self._kind, self._limit = kind, limit
        self._left = float(limit.burst)
        self._last = 0.0

    async def admit(self) -> None:
        """Return once the call may go on, or raise BackendError."""
        now, limit = asyncio.get_running_loop().time(), self._limit
        self._left = min(self._left + (now - self._last) * limit.per_second, limit.burst)
        self._last = now
        if self._left < 1 and limit.exceeded is Exceeded.FAIL:
            raise BackendError(
                f"RequestLimitExceeded: more than {limit.per_second:g} calls of {self._kind} a second; ask again later"
            )
        # A call that waits has taken its token ahead of time, so the next one waits for this one as well.
        self._left -= 1
        if self._left < 0:
            await asyncio.sleep(-self._left / limit.per_second)
