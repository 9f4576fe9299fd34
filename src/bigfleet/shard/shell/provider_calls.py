"""Mutating calls to one provider: so many at a time, and fewer while the provider pushes back.

No call begins before the provider has listed: until then the epoch may be below an earlier life's (protocol rule 10).
The core is told in every case what came of a call, since a commitment waits for it.
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
from bigfleet.shard.execution.effects import Problem, ProviderCall
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
"""The problem of each error. After an error that is not here, nobody knows what became of the call."""

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
"""How long no call begins after the provider has pushed back, in seconds: doubling from the first to the longest."""


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
    """How many calls may run at a time: halved when the provider pushes back, and slowly more with success.

    One more call may run after as many successes as calls may run. There is no I/O; `now` is the caller's clock.
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
        """The provider did not answer, or said that it had too much to do. Many such answers at once count as one."""
        if now < self._until:
            return
        self._limit = max(1.0, self._limit / 2)
        self._until = now + (0.5 + self._dice() / 2) * min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**self._refusals)
        self._refusals += 1


class ProviderCalls:
    """The calls to one provider that wait or run."""

    def __init__(self, core: Core, client: Caller, most: int, after: Callable[[], None], tracing: Tracing) -> None:
        self._core, self._client, self._after, self._tracing = core, client, after, tracing
        self._throttle = Throttle(most)
        self._waiting: deque[ProviderCall] = deque()
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

    def put(self, call: ProviderCall) -> None:
        """Make this call when its turn comes."""
        self._waiting.append(call)
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
        """A pause may have begun or ended: look again what may be done."""
        self._changed.set()

    async def run(self) -> None:
        """Make calls for as long as this runs. Cancelling it cancels calls on their way."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                while self._waiting and self._core.parts.actuation.paused:
                    # No provider knows of the call, so the pause cancels it (protocol rule 18).
                    self._not_made(self._waiting.popleft(), PAUSED)
                while self._may_begin():
                    wait = self._throttle.wait(self._core.clocks.now())
                    if wait:
                        await asyncio.sleep(wait)
                        continue
                    call = self._waiting.popleft()
                    if self._core.is_wanted(call):
                        self._running += 1
                        self._idle.clear()
                        tasks.create_task(self._make(call))
                    else:
                        self._not_made(call, "it was overtaken")
                self._changed.clear()
                await self._changed.wait()

    def _not_made(self, call: ProviderCall, reason: str) -> None:
        self._core.call_failed(call, Problem.UNAVAILABLE, f"not made: {reason}")
        self._after()

    def _may_begin(self) -> bool:
        held = not self._open or self._stopped or not self._core.parts.actuation.acts
        return bool(self._waiting) and self._running < self._throttle.limit and not held

    async def _make(self, call: ProviderCall) -> None:
        try:
            with self._tracing.span("call", call=call.call.value, machine=call.machine, cluster=call.cluster):
                ack = await self._sent(call)
        except ProviderError as error:
            if isinstance(error, ExhaustedError | UnavailableError):
                self._throttle.pushed_back(self._core.clocks.now())
            problem = _PROBLEMS.get(type(error), Problem.UNAVAILABLE)
            _log.warning(
                "call_failed", call=call.call.value, machine=call.machine, problem=problem.name, error=str(error)
            )
            answer = error.ack if isinstance(error, AckMismatchError) else None
            self._core.call_failed(call, problem, str(error), answer)
        except Exception as error:  # noqa: BLE001 - a fault of ours in one call must not end the shard with all others
            _log.exception("call_broke", call=call.call.value, machine=call.machine)
            self._core.call_failed(call, Problem.INVALID, repr(error))
        else:
            self._throttle.succeeded()
            self._core.acknowledged(call, ack)
        finally:
            self._running -= 1
            self._changed.set()
            if not self._running:
                self._idle.set()
        self._after()

    async def _sent(self, call: ProviderCall) -> Ack:
        match call.call:
            case Call.CREATE:
                return await self._client.create(call.machine)
            case Call.CONFIGURE:
                binding = self._core.binding(call)
                return await self._client.configure(call.machine, call.cluster, call.blob, to_metadata(binding))
            case Call.DRAIN:
                return await self._client.drain(call.machine, call.grace_seconds)
            case Call.DELETE:
                return await self._client.delete(call.machine)
