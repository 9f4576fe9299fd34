"""Mutating calls to one provider: so many at a time, fewer while it pushes back. A slow provider slows only itself.

None begins before the provider has listed: until then the epoch may be below one that a life before this one used
(protocol.md 10). What a call comes to is told to the core, always: an action waits for it.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from bigfleet.model.machine import Call
from bigfleet.provider.errors import (
    AckMismatchError,
    ExhaustedError,
    FencedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ProviderError,
    RefusedError,
    UnavailableError,
    UnsupportedError,
)
from bigfleet.provider.records import Ack
from bigfleet.shard.core.core import Core
from bigfleet.shard.execution.effects import Ask
from bigfleet.shard.execution.lifecycle import Problem
from bigfleet.shard.execution.next_step import PAUSED
from bigfleet.shard.supply.stamps import to_metadata
from bigfleet.telemetry.traces import Tracing

_log = structlog.get_logger("bigfleet.shard")

_PROBLEMS: Mapping[type[ProviderError], Problem] = {
    NotFoundError: Problem.NOT_FOUND,
    UnsupportedError: Problem.UNSUPPORTED,
    FencedError: Problem.FENCED,
    InvalidError: Problem.INVALID,
    RefusedError: Problem.REFUSED,
    ForbiddenError: Problem.REFUSED,
    ExhaustedError: Problem.EXHAUSTED,
    AckMismatchError: Problem.MISMATCH,
}
"""What is not here left no word on what became of the call."""

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0


class Caller(Protocol):
    """The mutating calls of a provider's client."""

    async def create(self, machine_id: str) -> Ack:
        """Make a speculative machine real."""

    async def configure(
        self, machine_id: str, cluster_id: str, bootstrap_blob: bytes, shard_metadata: Mapping[str, str]
    ) -> Ack:
        """Have an idle machine join a cluster."""

    async def drain(self, machine_id: str, grace_seconds: int) -> Ack:
        """Have a machine leave its cluster."""

    async def delete(self, machine_id: str) -> Ack:
        """Give an idle machine back."""


class Throttle:
    """How many calls may run: halved when the provider pushes back, one more after as many successes as run.

    No I/O; `now` is the caller's clock.
    """

    def __init__(self, most: int, dice: Callable[[], float] = random.random) -> None:
        self._most, self._limit, self._dice = most, float(most), dice
        self._refusals = 0
        self._until = 0.0

    @property
    def limit(self) -> int:
        """Calls that may run at a time."""
        return int(self._limit)

    def wait(self, now: float) -> float:
        """Seconds until the next call may begin."""
        return max(0.0, self._until - now)

    def succeeded(self) -> None:
        """A call was answered."""
        self._refusals = 0
        self._limit = min(float(self._most), self._limit + 1 / self._limit)

    def pushed_back(self, now: float) -> None:
        """The provider did not answer, or said that it was too much. Many such at once are one sign."""
        if now < self._until:
            return
        self._limit = max(1.0, self._limit / 2)
        self._until = now + (0.5 + self._dice() / 2) * min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**self._refusals)
        self._refusals += 1


class Calls:
    """The calls to one provider that wait or run."""

    def __init__(self, core: Core, client: Caller, most: int, after: Callable[[], None], tracing: Tracing) -> None:
        self._core, self._client, self._after, self._tracing = core, client, after, tracing
        self._throttle = Throttle(most)
        self._waiting: deque[Ask] = deque()
        self._running = 0
        self._open = self._stopped = False
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """Calls that wait for their turn."""
        return len(self._waiting)

    async def idle(self) -> None:
        """Wait until no call is on its way."""
        await self._idle.wait()

    def put(self, ask: Ask) -> None:
        """Make this call when its turn comes."""
        self._waiting.append(ask)
        self._changed.set()

    def open(self) -> None:
        """The epoch is above all that the provider has seen: calls may begin."""
        if not self._open:
            self._open = True
            self._changed.set()

    def stop(self) -> None:
        """Begin no call any more; those on their way go on."""
        self._stopped = True

    def nudge(self) -> None:
        """A pause may have begun or be over."""
        self._changed.set()

    async def run(self) -> None:
        """Make calls for as long as this runs; cancelling it ends those on their way."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                while self._waiting and self._core.paused:
                    # No provider knows of it, so it is not held for the pause (protocol.md 18).
                    self._not_made(self._waiting.popleft(), PAUSED)
                while self._may_begin():
                    wait = self._throttle.wait(self._core.clocks.now())
                    if wait:
                        await asyncio.sleep(wait)
                        continue
                    ask = self._waiting.popleft()
                    if self._core.is_wanted(ask):
                        self._running += 1
                        self._idle.clear()
                        tasks.create_task(self._make(ask))
                    else:
                        self._not_made(ask, "it was overtaken")
                self._changed.clear()
                await self._changed.wait()

    def _not_made(self, ask: Ask, reason: str) -> None:
        self._core.call_failed(ask, Problem.UNAVAILABLE, f"not made: {reason}")
        self._after()

    def _may_begin(self) -> bool:
        held = not self._open or self._stopped or not self._core.acts
        return bool(self._waiting) and self._running < self._throttle.limit and not held

    async def _make(self, ask: Ask) -> None:
        try:
            with self._tracing.span("call", call=ask.call.value, machine=ask.machine, cluster=ask.cluster):
                ack = await self._sent(ask)
        except ProviderError as error:
            if isinstance(error, ExhaustedError | UnavailableError):
                self._throttle.pushed_back(self._core.clocks.now())
            problem = _PROBLEMS.get(type(error), Problem.UNAVAILABLE)
            _log.warning(
                "call_failed", call=ask.call.value, machine=ask.machine, problem=problem.name, error=str(error)
            )
            answer = error.ack if isinstance(error, AckMismatchError) else None
            self._core.call_failed(ask, problem, str(error), answer)
        except Exception as error:  # noqa: BLE001 - a fault of ours in one call must not end the shard with all others
            _log.exception("call_broke", call=ask.call.value, machine=ask.machine)
            self._core.call_failed(ask, Problem.INVALID, repr(error))
        else:
            self._throttle.succeeded()
            self._core.acknowledged(ask, ack)
        finally:
            self._running -= 1
            self._changed.set()
            if not self._running:
                self._idle.set()
        self._after()

    async def _sent(self, ask: Ask) -> Ack:
        match ask.call:
            case Call.CREATE:
                return await self._client.create(ask.machine)
            case Call.CONFIGURE:
                binding = self._core.binding(ask)
                return await self._client.configure(ask.machine, ask.cluster, ask.blob, to_metadata(binding))
            case Call.DRAIN:
                return await self._client.drain(ask.machine, ask.grace_seconds)
            case Call.DELETE:
                return await self._client.delete(ask.machine)
