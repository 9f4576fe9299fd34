"""One at a time: whoever holds a Lease does the work, and its copies wait (as client-go's leader election).

The holder renews; a copy takes over once nobody has renewed for the Lease's duration, measured on the copy's own clock
from when it last saw a change, so clocks need not agree. A holder that cannot renew in time stops before a copy may
begin.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime

import structlog

from bigfleet.kube.client import Client, Patch
from bigfleet.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from bigfleet.kube.objects import Lease
from bigfleet.kube.resources import LEASES

_log = structlog.get_logger("bigfleet.kube")

DURATION_SECONDS = 15
_RENEW_SECONDS = 5.0
# A holder gives up well before the Lease runs out for others.
_GIVE_UP_SECONDS = 10.0
_LOOK_SECONDS = 2.0


class LeadershipLostError(Exception):
    """The Lease could not be renewed in time, or another holds it."""


class Election:
    """A Lease and who this program is in it."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        wall: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self._namespace, self._name, self._identity = client, namespace, name, identity
        self._wall, self._clock, self._sleep = wall, clock, sleep
        self._seen: tuple[str, float] = ("", 0.0)

    async def won(self) -> None:
        """Wait until this one holds the Lease."""
        said = ""
        while True:
            try:
                holder = await self._try()
            except ApiError as error:
                if str(error) != said:
                    said = str(error)
                    _log.warning("lease_unreadable", lease=f"{self._namespace}/{self._name}", error=said)
            else:
                if holder == self._identity:
                    _log.info("leadership_won", lease=self._name, identity=self._identity)
                    return
                if holder != said:
                    said = holder
                    _log.info("leadership_awaited", lease=self._name, holder=holder)
            await self._sleep(_LOOK_SECONDS)

    async def kept(self) -> None:
        """Renew for as long as that works, then LeadershipLostError."""
        renewed = self._clock()
        while True:
            await self._sleep(_RENEW_SECONDS)
            problem = ""
            while True:
                began = self._clock()
                try:
                    async with asyncio.timeout(max(0.1, renewed + _GIVE_UP_SECONDS - began)):
                        holder = await self._try()
                except (ApiError, TimeoutError) as error:
                    problem = str(error) or "no answer in time"
                else:
                    if holder != self._identity:
                        raise LeadershipLostError(f"lease {self._name}: {holder} holds it")
                    renewed = began
                    break
                if self._clock() - renewed >= _GIVE_UP_SECONDS:
                    raise LeadershipLostError(
                        f"lease {self._name}: not renewed for {_GIVE_UP_SECONDS:.0f} s: {problem}"
                    )
                await self._sleep(1.0)

    async def release(self) -> None:
        """Let a copy take over at once."""
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(2.0):
                lease = await self._client.get(LEASES, self._name, self._namespace)
                if lease.spec.holder_identity == self._identity:
                    await self._write(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})

    async def _try(self) -> str:
        """Take or renew the Lease if that may be; whoever holds it then."""
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFoundError:
            return await self._make()
        spec, now = lease.spec, self._clock()
        if lease.metadata.resource_version != self._seen[0]:
            self._seen = lease.metadata.resource_version, now
        holder = spec.holder_identity or ""
        duration = spec.lease_duration_seconds or DURATION_SECONDS
        if holder not in ("", self._identity) and now - self._seen[1] < duration:
            return holder
        stamp = _micro_time(self._wall())
        change: dict[str, object] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": stamp,
        }
        if holder != self._identity:
            change |= {"acquireTime": stamp, "leaseTransitions": (spec.lease_transitions or 0) + 1}
        try:
            await self._write(lease, change)
        except ConflictError:
            return f"somebody faster than {self._identity}"
        return self._identity

    async def _make(self) -> str:
        stamp = _micro_time(self._wall())
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": stamp,
                "renewTime": stamp,
                "leaseTransitions": 0,
            },
        }
        try:
            await self._client.create(LEASES, body, self._namespace)
        except AlreadyExistsError:
            return f"somebody faster than {self._identity}"
        return self._identity

    async def _write(self, lease: Lease, spec: dict[str, object]) -> None:
        body = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        written = await self._client.patch(LEASES, self._name, body, self._namespace, content=Patch.MERGE)
        self._seen = written.metadata.resource_version, self._clock()


def _micro_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
