"""Faults on purpose, so that the conformance suite can see how a provider fails.

Wrapped around any backend, it labels the first of its offers, one a fault, and lets that fault strike there. The labels
are the suite's: whoever writes a provider without this kit offers such machines in its own way.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

import msgspec

from bigfleet.model.labels import CONFORMANCE_FAULT, CONFORMANCE_SECONDS
from bigfleet.model.machine import Call
from bigfleet.providerkit.backend import Backend, BackendError, Job, Known, Notice
from bigfleet.providerkit.offer import Offer

_BOUND = ("configure-error", "configure-hang", "drain-error", "join-late")
_MADE = ("create-error", "create-hang", "create-late", "delete-error")
# How long the kit waits for a machine whose fault is to be slow, and when what was slow comes after all.
_LIMIT_SECONDS = 1.0
_LATE_SECONDS = 2


class FaultyBackend(Backend):
    """Another backend with faults: each strikes every call of its kind, save one that leads out of Failed."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.scheme, self.limits = inner.scheme, inner.limits
        self.ready_poll_seconds, self.doubt_seconds = inner.ready_poll_seconds, inner.doubt_seconds
        self.refresh_seconds = inner.refresh_seconds
        self._configured: dict[str, float] = {}
        self._late: set[asyncio.Task[str]] = set()

    def has(self, method: str) -> bool:
        """The wrapped backend's methods are this one's."""
        return self._inner.has(method)

    def limit(self, job: Job, call: Call) -> float:
        """Short where the fault is to be slow."""
        slow = {Call.CREATE: ("create-hang", "create-late"), Call.CONFIGURE: ("configure-hang",)}.get(call, ())
        return _LIMIT_SECONDS if _strikes(job, *slow) else self._inner.limit(job, call)

    async def offers(self) -> Iterable[Offer]:
        """The wrapped backend's, the first of them with a fault each."""
        faults = _BOUND + (_MADE if self._inner.has("create") else ())
        offers = list(await self._inner.offers())
        return [*map(_labelled, offers, faults), *offers[len(faults) :]]

    async def create(self, job: Job) -> str:
        """Fail, hang, or succeed when nobody waits any more."""
        if _strikes(job, "create-error"):
            raise BackendError("an injected fault: no host was made")
        if _strikes(job, "create-hang"):
            await asyncio.Event().wait()
        if _strikes(job, "create-late"):
            late = asyncio.create_task(self._create_late(job))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            return await asyncio.shield(late)
        return await self._inner.create(job)

    async def configure(self, job: Job, blob: bytes) -> None:
        """Fail or hang."""
        if _strikes(job, "configure-error"):
            raise BackendError("an injected fault: the host refused its bootstrap blob")
        if _strikes(job, "configure-hang"):
            await asyncio.Event().wait()
        await self._inner.configure(job, blob)
        self._configured[job.machine] = asyncio.get_running_loop().time()

    async def ready(self, job: Job) -> bool:
        """Not before the node may have joined."""
        if job.shape.labels.get(CONFORMANCE_FAULT) == "join-late":
            since = asyncio.get_running_loop().time() - self._configured.get(job.machine, 0.0)
            if since < _LATE_SECONDS:
                return False
        return await self._inner.ready(job)

    async def drain(self, job: Job, grace_seconds: int) -> None:
        """Fail."""
        if _strikes(job, "drain-error"):
            raise BackendError("an injected fault: the host would not let go")
        await self._inner.drain(job, grace_seconds)

    async def delete(self, job: Job) -> None:
        """Fail."""
        if _strikes(job, "delete-error"):
            raise BackendError("an injected fault: the host could not be ended")
        await self._inner.delete(job)

    async def describe(self, job: Job) -> str:
        """What the wrapped backend says."""
        return await self._inner.describe(job)

    async def watch(self, known: Known) -> AsyncIterator[Notice]:
        """What the wrapped backend sees."""
        async for notice in self._inner.watch(known):
            yield notice

    async def close(self) -> None:
        """End what is late, then the wrapped backend."""
        for late in self._late:
            late.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await self._inner.close()

    async def _create_late(self, job: Job) -> str:
        await asyncio.sleep(_LATE_SECONDS)
        return await self._inner.create(job)


def _strikes(job: Job, *faults: str) -> bool:
    return not job.recovering and job.shape.labels.get(CONFORMANCE_FAULT) in faults


def _labelled(offer: Offer, fault: str) -> Offer:
    labels = {**offer.shape.labels, CONFORMANCE_FAULT: fault, CONFORMANCE_SECONDS: str(_LATE_SECONDS)}
    return msgspec.structs.replace(offer, shape=msgspec.structs.replace(offer.shape, labels=labels))
