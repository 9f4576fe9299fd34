"""Faults on purpose, so that the conformance suite can see how a provider fails.

The first offers of a backend are labelled with one fault each, and the fault strikes on those machines. The suite reads
the labels. A provider that is written without this kit may offer such machines in its own way.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from bigfleet.model.labels import CONFORMANCE_FAULT, CONFORMANCE_SECONDS
from bigfleet.model.machine import Call
from bigfleet.providerkit.backend import Backend, BackendError, Job
from bigfleet.providerkit.offer import Offer
from bigfleet.providerkit.wrapped import WrappedBackend

# Faults of machines that have a host, and faults that need a Create or a Delete.
_BOUND = ("configure-error", "configure-hang", "drain-error", "join-late")
_MADE = ("create-error", "create-hang", "create-late", "delete-error")
# How long the kit waits for a transition that the fault makes slow, and how long the transition then takes.
_LIMIT_SECONDS = 1.0
_LATE_SECONDS = 2


class FaultyBackend(WrappedBackend):
    """Another backend with faults. A fault strikes every call of its kind, but none that leads out of Failed."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self._configured_at: dict[str, float] = {}
        self._late: set[asyncio.Task[str]] = set()

    def limit(self, job: Job, call: Call) -> float:
        """A short limit where the fault is to be slow."""
        slow = {Call.CREATE: ("create-hang", "create-late"), Call.CONFIGURE: ("configure-hang",)}.get(call, ())
        return _LIMIT_SECONDS if _strikes(job, *slow) else super().limit(job, call)

    async def offers(self) -> Iterable[Offer]:
        """The offers of the backend inside, the first of them with a fault each."""
        faults = _BOUND + (_MADE if self.has("create") else ())
        offers = list(await super().offers())
        return [*map(_labelled, offers, faults), *offers[len(faults) :]]

    async def create(self, job: Job) -> str:
        """Fail, hang, or succeed after the limit, if the machine has such a fault."""
        if _strikes(job, "create-error"):
            raise BackendError("an injected fault: no host was made")
        if _strikes(job, "create-hang"):
            await asyncio.Event().wait()
        if _strikes(job, "create-late"):
            late = asyncio.create_task(self._create_late(job))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            return await asyncio.shield(late)
        return await super().create(job)

    async def configure(self, job: Job, blob: bytes) -> None:
        """Fail or hang, if the machine has such a fault."""
        if _strikes(job, "configure-error"):
            raise BackendError("an injected fault: the host refused its bootstrap blob")
        if _strikes(job, "configure-hang"):
            await asyncio.Event().wait()
        await super().configure(job, blob)
        self._configured_at[job.machine] = asyncio.get_running_loop().time()

    async def ready(self, job: Job) -> bool:
        """Say no until the node of a machine with join-late may have joined."""
        if job.shape.labels.get(CONFORMANCE_FAULT) == "join-late":
            since = asyncio.get_running_loop().time() - self._configured_at.get(job.machine, 0.0)
            if since < _LATE_SECONDS:
                return False
        return await super().ready(job)

    async def drain(self, job: Job, grace_seconds: int) -> None:
        """Fail, if the machine has such a fault."""
        if _strikes(job, "drain-error"):
            raise BackendError("an injected fault: the host would not let go")
        await super().drain(job, grace_seconds)

    async def delete(self, job: Job) -> None:
        """Fail, if the machine has such a fault."""
        if _strikes(job, "delete-error"):
            raise BackendError("an injected fault: the host could not be ended")
        await super().delete(job)

    async def close(self) -> None:
        """End the Creates that are late, then the backend inside."""
        for late in self._late:
            late.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await super().close()

    async def _create_late(self, job: Job) -> str:
        await asyncio.sleep(_LATE_SECONDS)
        return await super().create(job)


def _strikes(job: Job, *faults: str) -> bool:
    return not job.recovering and job.shape.labels.get(CONFORMANCE_FAULT) in faults


def _labelled(offer: Offer, fault: str) -> Offer:
    labels = {**offer.shape.labels, CONFORMANCE_FAULT: fault, CONFORMANCE_SECONDS: str(_LATE_SECONDS)}
    return msgspec.structs.replace(offer, shape=msgspec.structs.replace(offer.shape, labels=labels))
