"""Carrying transitions out: the backend's methods under their limits, and the hosts of Creates that failed.

A Create that failed may have made a host all the same (protocol rule 4). Its token is a doubt then. The machine does
not leave Failed before the backend was asked for the host. A sweep goes on asking for a while and ends what it finds.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from bigfleet.model.machine import Call, MachineState
from bigfleet.providerkit.backend import Backend, BackendError, Job
from bigfleet.providerkit.ledger.entry import Entry, Operation, ended, failed
from bigfleet.telemetry.metrics import ProviderMetrics

_log = structlog.get_logger("bigfleet.providerkit")

Step = Callable[[Entry], Entry | None]
"""Returns the machine after a change, or None if there is nothing to change."""
Apply = Callable[[str, Step], Awaitable[Entry | None]]
"""Changes a machine by a step, durably. Returns the machine after it, or None if there was no change."""

# How often the sweep looks for the host of a failed Create, spread over the backend's doubt_seconds.
_SWEEPS = 15
# How long the sweep may look for the hosts of one machine. A substrate that hangs must not hold up the other machines.
_SWEEP_SECONDS = 60.0
# How long blobs on their way to a host may take to arrive when the provider ends.
_HAND_OVER_SECONDS = 5.0
# How long the backend's methods may take to end once they are cancelled.
_UNWIND_SECONDS = 2.0
_MOST_HOST_BYTES = 1024
# A drain has its grace on top of its limit. A grace that is meant to be endless must still end.
_MOST_GRACE_SECONDS = 30 * 86_400


class Carrier:
    """Runs transitions. It changes machines through `apply` alone."""

    def __init__(self, backend: Backend, metrics: ProviderMetrics, apply: Apply) -> None:
        self._backend, self._metrics, self._apply = backend, metrics, apply
        #: Machines with doubts, and how often the sweep has looked for their hosts.
        self._doubted: dict[str, int] = {}
        #: Blobs that are on their way to a host.
        self._handing: set[asyncio.Future[None]] = set()
        #: Calls of the backend that have not ended.
        self._begun: set[asyncio.Future[str]] = set()

    async def hand_over(self) -> None:
        """Wait for blobs on their way to a host. A blob is not stored, so no later process could send it again."""
        if self._handing:
            await asyncio.wait(self._handing, timeout=_HAND_OVER_SECONDS)

    async def close(self) -> None:
        """Cancel the backend's calls. How a cancelled call ends says nothing about its machine."""
        for task in self._begun:
            task.cancel()
        if self._begun:
            await asyncio.wait(self._begun, timeout=_UNWIND_SECONDS)

    async def carry_out(self, entry: Entry, step: Operation, blob: bytes) -> None:
        """Have the backend do a transition, and show how it ended unless the machine has moved on by then."""
        await self._limited(entry, step, lambda: self._act(entry, step, blob))

    async def resume(self, entry: Entry, step: Operation) -> None:
        """Go on with a transition that an earlier process of the provider began."""
        if step.call is Call.CREATE:
            await self._limited(entry, step, lambda: self._adopt(entry))
        elif step.call is Call.CONFIGURE and not step.handed_over:
            # The blob is a secret and is not stored, so it cannot be sent again.
            await self._limited(entry, step, _interrupted)
        else:
            await self.carry_out(entry, step, b"")

    async def look(self, entry: Entry) -> list[Job]:
        """Find the hosts that the machine's failed Creates made after all. Each job has its Create's token."""
        jobs = [Job(entry.id, entry.shape, token) for token in entry.doubts]
        hosts = [await self._backend.describe(job) for job in jobs]
        return [
            msgspec.structs.replace(job, host=_checked(host)) for job, host in zip(jobs, hosts, strict=True) if host
        ]

    def doubt(self, machine: str) -> None:
        """Have the sweep look for hosts of this machine from now on."""
        self._doubted[machine] = 0

    async def sweep(self, find: Callable[[str], Entry | None]) -> None:
        """Look for the hosts of failed Creates again and again, and end those that appear, until each doubt is old."""
        while True:
            await asyncio.sleep(self._backend.doubt_seconds / _SWEEPS)
            for machine in list(self._doubted):
                entry = find(machine)
                if entry is None or not entry.doubts:
                    del self._doubted[machine]
                # The call that leads out of Failed looks for hosts itself, and so does the first step of a Create.
                elif entry.state not in (MachineState.FAILED, MachineState.CREATING):
                    await self._sweep_one(entry)

    async def _sweep_one(self, entry: Entry) -> None:
        try:
            async with asyncio.timeout(_SWEEP_SECONDS):
                await self._end_late(entry)
        except Exception:  # noqa: BLE001 - a mistake in the backend must not end the sweep
            _log.exception("sweep_failed", machine=entry.id)
            return
        self._doubted[entry.id] += 1
        if self._doubted[entry.id] >= _SWEEPS:
            old = entry.doubts
            await self._apply(
                entry.id, lambda now: msgspec.structs.replace(now, doubts=tuple(t for t in now.doubts if t not in old))
            )

    async def _limited(self, entry: Entry, step: Operation, work: Callable[[], Awaitable[str]]) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        host, problem = "", ""
        try:
            limit = self._backend.limit(entry.job(), step.call) + min(step.grace_seconds, _MOST_GRACE_SECONDS)
            host = await self._in_time(work, limit)
        except BackendError as error:
            problem = str(error) or "the backend gave no reason"
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            problem = f"the backend cancelled itself {error}".rstrip()
        except Exception as error:  # noqa: BLE001 - a mistake in the backend costs one transition, not the provider
            _log.exception("backend_raised", machine=entry.id, operation=step.id)
            problem = f"{type(error).__name__}: {error}"
        outcome: Step = (
            (lambda now: failed(now, f"{step.call.value}: {problem}"))
            if problem
            else (lambda now: ended(now, now.running or step, host))
        )
        shown = await self._apply(entry.id, lambda now: outcome(now) if _is_at(now, step) else None)
        if shown is not None and shown.doubts:
            self.doubt(shown.id)
        result = "late" if shown is None else "failed" if problem else "done"
        self._metrics.transitions.of(step.call.value, result).inc()
        self._metrics.transition_duration.of(step.call.value).observe(clock() - began)
        if problem:
            _log.warning("transition_failed", machine=entry.id, operation=step.id, outcome=result, reason=problem)
        else:
            _log.debug("transition_ended", machine=entry.id, operation=step.id, outcome=result)

    async def _in_time(self, work: Callable[[], Awaitable[str]], limit: float) -> str:
        """What the work returns. BackendError at the limit, even if the work cannot be cancelled."""
        task = asyncio.ensure_future(work())
        self._begun.add(task)
        task.add_done_callback(self._done)
        done, _ = await asyncio.wait({task}, timeout=limit)
        if done:
            return task.result()
        task.cancel()
        raise BackendError(f"did not end within {limit:g} s")

    def _done(self, task: asyncio.Future[str]) -> None:
        self._begun.discard(task)
        # Nobody waits for a call that ends after its limit, so its error is marked as seen.
        if not task.cancelled():
            task.exception()

    async def _act(self, entry: Entry, step: Operation, blob: bytes) -> str:
        backend, job = self._backend, entry.job()
        match step.call:
            case Call.CREATE:
                await self._end_late(entry)
                return _checked(await backend.create(job))
            case Call.CONFIGURE:
                if not step.handed_over:
                    handing = asyncio.ensure_future(self._hand(entry, step, blob))
                    self._handing.add(handing)
                    handing.add_done_callback(self._handing.discard)
                    await handing
                while not await backend.ready(job):  # noqa: ASYNC110 - only the backend knows, so it is polled
                    await asyncio.sleep(backend.ready_poll_seconds)
            case Call.DRAIN:
                await backend.drain(job, step.grace_seconds)
            case Call.DELETE:
                await backend.delete(job)
        return ""

    async def _hand(self, entry: Entry, step: Operation, blob: bytes) -> None:
        await self._backend.configure(entry.job(), blob)
        await self._apply(entry.id, lambda now: _handed_over(now) if _is_at(now, step) else None)

    async def _adopt(self, entry: Entry) -> str:
        """Wait for the host that an earlier process began to make. No other host is made."""
        job = entry.job()
        host = await self._backend.describe(job)
        if not host:
            raise BackendError("the provider was restarted in the middle, and describe finds no host")
        return _checked(await self._backend.create(msgspec.structs.replace(job, host=_checked(host))))

    async def _end_late(self, entry: Entry) -> None:
        for late in await self.look(entry):
            if late.host != entry.host:
                await self._backend.delete(late)
                self._metrics.orphans_ended.inc()
                _log.warning("orphan_ended", machine=entry.id, host=late.host, token=late.token)


async def _interrupted() -> str:
    raise BackendError("the provider was restarted before the host had its bootstrap blob")


def _is_at(entry: Entry, step: Operation) -> bool:
    """Whether this transition of the machine is still under way."""
    return entry.running is not None and entry.running.id == step.id


def _handed_over(entry: Entry) -> Entry:
    if entry.bound is None:
        return entry
    return msgspec.structs.replace(entry, bound=msgspec.structs.replace(entry.bound, handed_over=True))


def _checked(host: object) -> str:
    """The host's name, or BackendError if no record can carry it."""
    if not isinstance(host, str) or not host:
        raise BackendError(f"the backend must name the host as text that is not empty; it returned {host!r:.200}")
    if len(host.encode(errors="replace")) > _MOST_HOST_BYTES or not host.isprintable():
        raise BackendError(
            f"a host's name has at most {_MOST_HOST_BYTES} bytes, all printable; this one is {host!r:.200}"
        )
    return host


def _is_cancelled() -> bool:
    """Whether this task is being cancelled, and not only something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
