"""A backend that passes everything on to another one: what wrappers around an author's backend begin from."""

from collections.abc import AsyncIterator, Iterable

from bigfleet.model.machine import Call
from bigfleet.providerkit.backend import Backend, Job, Known, Notice
from bigfleet.providerkit.offer import Offer


class WrappedBackend(Backend):
    """Behaves as the backend inside; a wrapper overrides the methods that it changes."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.scheme, self.limits = inner.scheme, inner.limits
        self.ready_poll_seconds, self.doubt_seconds = inner.ready_poll_seconds, inner.doubt_seconds
        self.refresh_seconds = inner.refresh_seconds

    def has(self, method: str) -> bool:
        """Whether the backend inside has this optional method."""
        return self._inner.has(method)

    def limit(self, job: Job, call: Call) -> float:
        """The limit of the backend inside."""
        return self._inner.limit(job, call)

    async def offers(self) -> Iterable[Offer]:
        """The offers of the backend inside."""
        return await self._inner.offers()

    async def create(self, job: Job) -> str:
        """Create with the backend inside."""
        return await self._inner.create(job)

    async def configure(self, job: Job, blob: bytes) -> None:
        """Configure with the backend inside."""
        await self._inner.configure(job, blob)

    async def ready(self, job: Job) -> bool:
        """Ask the backend inside."""
        return await self._inner.ready(job)

    async def drain(self, job: Job, grace_seconds: int) -> None:
        """Drain with the backend inside."""
        await self._inner.drain(job, grace_seconds)

    async def delete(self, job: Job) -> None:
        """Delete with the backend inside."""
        await self._inner.delete(job)

    async def describe(self, job: Job) -> str:
        """Ask the backend inside."""
        return await self._inner.describe(job)

    async def watch(self, known: Known) -> AsyncIterator[Notice]:
        """Pass on the notices of the backend inside."""
        async for notice in self._inner.watch(known):
            yield notice

    async def close(self) -> None:
        """Close the backend inside."""
        await self._inner.close()
