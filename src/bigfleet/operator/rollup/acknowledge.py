"""Requests are marked Acknowledged once the shard has taken a roll-up that held them, several requests at a time."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime

import structlog

from bigfleet.kube.client import Client, Patch
from bigfleet.kube.errors import ApiError, NotFoundError
from bigfleet.kube.objects.resources import CAPACITY_REQUESTS
from bigfleet.operator.rollup.requests import UnacknowledgedRequest
from bigfleet.telemetry.metrics import OperatorMetrics

_log = structlog.get_logger("bigfleet.operator")


class Acknowledger:
    """Writes the phase Acknowledged to requests, with at most `concurrency` writes at a time."""

    def __init__(
        self, client: Client, metrics: OperatorMetrics, concurrency: int, wall: Callable[[], datetime]
    ) -> None:
        self._client, self._metrics, self._concurrency, self._wall = client, metrics, concurrency, wall
        self._queue: deque[UnacknowledgedRequest] = deque()
        #: UIDs of requests from when they are queued until the watch shows the new phase, or the write failed.
        self._under_way: set[str] = set()
        self._more = asyncio.Event()
        #: When the queue was last empty before what is in it now; monotonic, None while the queue is empty.
        self._began: float | None = None

    def acknowledge(self, requests: Iterable[UnacknowledgedRequest]) -> None:
        """The shard has taken a roll-up that held these requests."""
        new = [request for request in requests if request.uid not in self._under_way]
        if not new:
            return
        self._under_way.update(request.uid for request in new)
        self._queue.extend(new)
        if self._began is None:
            self._began = time.monotonic()
        self._more.set()

    def settle(self, waiting: Iterable[UnacknowledgedRequest]) -> None:
        """The watch shows these requests, and no others, as not yet Acknowledged: all other writes have arrived."""
        self._under_way &= {request.uid for request in waiting}

    async def run(self) -> None:
        """Write, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while self._queue:
                await self._mark(self._queue.popleft())
                if not self._queue and self._began is not None:
                    self._metrics.acknowledge_duration.observe(time.monotonic() - self._began)
                    self._began = None
            self._more.clear()
            await self._more.wait()

    async def _mark(self, request: UnacknowledgedRequest) -> None:
        at = self._wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        # The patch names the UID, so it cannot hit a newer request of the same name.
        body = {"metadata": {"uid": request.uid}, "status": {"phase": "Acknowledged", "acknowledgedAt": at}}
        try:
            await self._client.patch(
                CAPACITY_REQUESTS, request.name, body, request.namespace, "status", content=Patch.MERGE
            )
        except NotFoundError:
            # The watch will show that the request is gone.
            pass
        except ApiError as error:
            # The next acknowledgement takes the request up again if it still waits. A conflict says too little to drop
            # it: another request may have its name by now, or somebody else wrote to it at the same time.
            self._under_way.discard(request.uid)
            _log.warning("acknowledge_failed", request=f"{request.namespace}/{request.name}", error=str(error))
        else:
            self._metrics.acknowledged.of("Acknowledged").inc()
