"""Carrying transitions out: the backend's methods under their limits, and hosts that nobody may forget.

A Create that failed may have made a host all the same (protocol.md 4). Its token stays in doubt: the machine does not
leave Failed before the substrate was asked, and the sweep goes on asking for a while, ending whatever comes to light.
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
Apply = Callable[[str, Step], Awaitable[Entry | None]]

_SWEEPS = 15
# What looking for the late hosts of one machine may take; a substrate that hangs must not hold up the others'.
_SWEEP_SECONDS = 60.0
_HAND_OVER_SECONDS = 5.0
# What author's code may take to let go once it is told to end.
_UNWIND_SECONDS = 2.0
_MOST_HOST_BYTES = 1024
# A drain has its grace besides its limit; a grace that means "for ever" must still end.
_MOST_GRACE_SECONDS = 30 * 86_400


class Carrier:
    """Runs transitions; `apply` is how it shows what came of them."""

    def __init__(self, backend: Backend, metrics: ProviderMetrics, apply: Apply) -> None:
        self._backend, self._metrics, self._apply = backend, metrics, apply
        self._doubted: dict[str, int] = {}
        self._handing: set[asyncio.Future[None]] = set()
        self._begun: set[asyncio.Future[str]] = set()

    async def hand_over(self) -> None:
        """Let blobs that are on their way arrive: they are written down nowhere, and the next life could not go on."""
        if self._handing:
            await asyncio.wait(self._handing, timeout=_HAND_OVER_SECONDS)

    async def close(self) -> None:
        """End what the backend is doing, once nobody waits for it: how it ends then says nothing about a machine."""
        for task in self._begun:
            task.cancel()
        if self._begun:
            await asyncio.wait(self._begun, timeout=_UNWIND_SECONDS)

    async def carry_out(self, entry: Entry, step: Operation, blob: bytes) -> None:
        """Have the backend do a transition and show how it ended, unless the machine has moved on by then."""
        await self._limited(entry, step, lambda: self._act(entry, step, blob))

    async def resume(self, entry: Entry, step: Operation) -> None:
        """Go on with a transition that the last life of the provider began."""
        if step.call is Call.CREATE:
            await self._limited(entry, step, lambda: self._adopt(entry))
        elif step.call is Call.CONFIGURE and not step.handed_over:
            # The blob is a secret and was never written down.
            await self._limited(entry, step, _interrupted)
        else:
            await self.carry_out(entry, step, b"")

    async def look(self, entry: Entry) -> list[Job]:
        """The hosts that the machine's failed Creates made after all, each under its Create's token."""
        jobs = [Job(entry.id, entry.shape, token) for token in entry.doubts]
        hosts = [await self._backend.describe(job) for job in jobs]
        return [
            msgspec.structs.replace(job, host=_checked(host)) for job, host in zip(jobs, hosts, strict=True) if host
        ]

    def doubt(self, machine: str) -> None:
        """Sweep for hosts of this machine from now on."""
        self._doubted[machine] = 0

    async def sweep(self, find: Callable[[str], Entry | None]) -> None:
        """End hosts that come to light late, time and again until each doubt is old."""
        while True:
            await asyncio.sleep(self._backend.doubt_seconds / _SWEEPS)
            for machine in list(self._doubted):
                entry = find(machine)
                if entry is None or not entry.doubts:
                    del self._doubted[machine]
                # While Failed, the call that leads out of it looks; while Creating, its first step does.
                elif entry.state not in (MachineState.FAILED, MachineState.CREATING):
                    await self._sweep_one(entry)

    async def _sweep_one(self, entry: Entry) -> None:
        try:
            async with asyncio.timeout(_SWEEP_SECONDS):
                await self._end_late(entry)
        except Exception:  # noqa: BLE001 - an author's mistake with one machine must not end the sweep
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
            problem = f"the backend cancelled itself {error}"
        except Exception as error:  # noqa: BLE001 - an author's mistake costs one transition, not the provider
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
        """What the work returns, or BackendError at the limit, even if it does not let itself be cancelled."""
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
        # One that came after its limit has nobody left to tell.
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
                while not await backend.ready(job):  # noqa: ASYNC110 - there is nothing to wait on but the clock
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
        """The host that an earlier life began to make, once it is up; none is made anew."""
        job = entry.job()
        host = await self._backend.describe(job)
        if not host:
            raise BackendError("the provider was restarted, and no host is known for it")
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
    """Whether the machine is still in this very transition."""
    return entry.running is not None and entry.running.id == step.id


def _handed_over(entry: Entry) -> Entry:
    if entry.bound is None:
        return entry
    return msgspec.structs.replace(entry, bound=msgspec.structs.replace(entry.bound, handed_over=True))


def _checked(host: object) -> str:
    """A host's name that records can carry; some substrates have numbers, which an author must write out."""
    if not isinstance(host, str) or not host:
        raise BackendError(f"the backend must name the host as text, and said {host!r:.200}")
    if len(host.encode(errors="replace")) > _MOST_HOST_BYTES or not host.isprintable():
        raise BackendError(f"the host's name must be at most {_MOST_HOST_BYTES} printable bytes, and is {host!r:.200}")
    return host


def _is_cancelled() -> bool:
    """Whether this very task is being ended, and not only something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
