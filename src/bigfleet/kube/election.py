"""Leader election by a Lease, as client-go does it: the holder works, and the other copies wait.

The holder renews the Lease. A copy takes over once the Lease has not changed for its duration, by the copy's own clock,
so clocks need not agree. A holder that cannot renew in time stops before a copy may begin.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime

import structlog

from bigfleet.kube.client import Client, Patch
from bigfleet.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from bigfleet.kube.objects.kinds import Lease
from bigfleet.kube.objects.resources import LEASES

_log = structlog.get_logger("bigfleet.kube")

DURATION_SECONDS = 15
"""How long a Lease holds without renewal."""

_RENEW_SECONDS = 5.0
# The holder gives up well before copies may take over.
_GIVE_UP_SECONDS = 10.0
# How often a copy looks at the Lease.
_LOOK_SECONDS = 2.0
# How soon a renewal that failed is tried again.
_AGAIN_SECONDS = 1.0
# A renewal is given at least this long, however late it is.
_LEAST_SECONDS = 0.1
_RELEASE_SECONDS = 2.0
_NO_ANSWER = "no answer in time"


class LeadershipLostError(Exception):
    """The Lease could not be renewed in time, or another copy holds it."""


class Election:
    """A Lease, and the identity under which this program holds it."""

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
        #: The Lease as it was last read or written.
        self._lease: Lease | None = None
        #: When the Lease was last seen to change; monotonic.
        self._changed_at = 0.0
        #: When this program last renewed the Lease; monotonic.
        self._renewed_at = 0.0

    async def won(self) -> None:
        """Wait until this program holds the Lease."""
        said = ""
        while True:
            try:
                # An answer that takes longer may leave too little of the Lease.
                async with asyncio.timeout(_RENEW_SECONDS):
                    holder = await self._try()
            except (ApiError, TimeoutError) as error:
                problem = str(error) or _NO_ANSWER
                if problem != said:
                    said = problem
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
        """Renew the Lease until that fails, then raise LeadershipLostError."""
        while True:
            await self._sleep(max(0.0, self._renewed_at + _RENEW_SECONDS - self._clock()))
            while True:
                left = self._renewed_at + _GIVE_UP_SECONDS - self._clock()
                try:
                    async with asyncio.timeout(max(_LEAST_SECONDS, left)):
                        holder = await self._try()
                except (ApiError, TimeoutError) as error:
                    problem = str(error) or _NO_ANSWER
                else:
                    if holder != self._identity:
                        raise LeadershipLostError(f"lease {self._name}: {holder} holds it")
                    break
                if self._clock() - self._renewed_at >= _GIVE_UP_SECONDS:
                    raise LeadershipLostError(
                        f"lease {self._name}: not renewed for {_GIVE_UP_SECONDS:.0f} s: {problem}"
                    )
                await self._sleep(_AGAIN_SECONDS)

    async def release(self) -> None:
        """Give the Lease back, so that a copy can take over at once."""
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                # The last renewal may have taken effect without an answer, so the Lease is read first.
                lease = await self._read()
                if lease.spec.holder_identity == self._identity:
                    await self._write(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})

    async def _try(self) -> str:
        """Take or renew the Lease where that is allowed. Returns the identity of its holder afterwards."""
        if self._lease is not None and self._lease.spec.holder_identity == self._identity:
            # The patch names the version, so the holder need not read the Lease first.
            with suppress(ConflictError, NotFoundError):
                await self._take(self._lease)
                return self._identity
        try:
            lease = await self._read()
        except NotFoundError:
            return await self._make()
        holder = lease.spec.holder_identity or ""
        duration = lease.spec.lease_duration_seconds or DURATION_SECONDS
        if holder not in ("", self._identity) and self._clock() - self._changed_at < duration:
            return holder
        try:
            await self._take(lease)
        except ConflictError:
            return f"somebody faster than {self._identity}"
        return self._identity

    async def _take(self, lease: Lease) -> None:
        began, stamp = self._clock(), _micro_time(self._wall())
        change: dict[str, object] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": stamp,
        }
        if lease.spec.holder_identity != self._identity:
            change |= {"acquireTime": stamp, "leaseTransitions": (lease.spec.lease_transitions or 0) + 1}
        await self._write(lease, change)
        # Copies count from when the Lease was written, which may be long before the answer.
        self._renewed_at = began

    async def _make(self) -> str:
        began, stamp = self._clock(), _micro_time(self._wall())
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
            self._see(await self._client.create(LEASES, body, self._namespace))
        except AlreadyExistsError:
            return f"somebody faster than {self._identity}"
        self._renewed_at = began
        return self._identity

    async def _read(self) -> Lease:
        lease = await self._client.get(LEASES, self._name, self._namespace)
        self._see(lease)
        return lease

    async def _write(self, lease: Lease, spec: dict[str, object]) -> None:
        body = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        self._see(await self._client.patch(LEASES, self._name, body, self._namespace, content=Patch.MERGE))

    def _see(self, lease: Lease) -> None:
        if self._lease is None or lease.metadata.resource_version != self._lease.metadata.resource_version:
            self._changed_at = self._clock()
        self._lease = lease


def _micro_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
