"""Holding an author's `create`, `describe` and `delete` against each other while the conformance suite runs.

The suite sees a provider from outside, where a host that was made twice or forgotten does not show. So the backend is
asked here: after each Create it must find the host under its token and must not make another one, and after each Delete
it must find none. A backend that does not fails the transition, in words that name the method at fault.
"""

import asyncio
from contextlib import suppress

import msgspec

from bigfleet.providerkit.backend import Backend, BackendError, Job
from bigfleet.providerkit.wrapped import WrappedBackend

# A cloud may show what it did only a little later.
_LAG_SECONDS = 10.0
_LOOK_SECONDS = 0.1


class CrossCheckedBackend(WrappedBackend):
    """Another backend whose hosts are looked for after each Create and each Delete."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self._lag_seconds = _LAG_SECONDS

    async def create(self, job: Job) -> str:
        """Create, then do what the kit does after a crash: look for the host, and create again under the same token."""
        host = await super().create(job)
        found = await self._described(job, host)
        if found != host:
            await self._clean_up(job, host)
            named = repr(found) if found else "nothing"
            raise BackendError(f"describe finds {named} under the token of host {host!r}, which was just made")
        for again in (job, _with_host(job, host)):
            other = await super().create(again)
            if other != host:
                await self._clean_up(job, host, other)
                raise BackendError(f"create made host {host!r} and then host {other!r} under the same token")
        return host

    async def delete(self, job: Job) -> None:
        """Delete, look whether the host is gone, and delete again, as the kit does after a crash."""
        await super().delete(job)
        if job.token and (found := await self._described(job, "")):
            raise BackendError(
                f"describe still finds {found!r} under the token of host {job.host!r}, which was deleted"
            )
        await super().delete(job)

    async def _clean_up(self, job: Job, *hosts: str) -> None:
        """End the hosts of a Create that is about to fail, as far as the backend can."""
        for host in hosts:
            with suppress(BackendError):
                await super().delete(_with_host(job, host))

    async def _described(self, job: Job, expected: str) -> str:
        """What describe says: as soon as it is what is expected, or after the time that a cloud may lag."""
        clock = asyncio.get_running_loop().time
        end = clock() + self._lag_seconds
        while (found := await self.describe(_with_host(job, ""))) != expected:
            if clock() >= end:
                # A backend that is wrong once is wrong each time, and nobody wants to wait for it each time.
                self._lag_seconds = 0.0
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return found


def _with_host(job: Job, host: str) -> Job:
    return msgspec.structs.replace(job, host=host)
