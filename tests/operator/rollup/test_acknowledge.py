"""Requests are marked Acknowledged, whatever gets in between."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from bigfleet.kube.client import Client
from bigfleet.kube.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from bigfleet.operator.rollup.acknowledge import Acknowledger
from bigfleet.operator.rollup.requests import UnacknowledgedRequest
from bigfleet.telemetry.metrics import OperatorMetrics

WAITING = [UnacknowledgedRequest("team", "r", "uid-r")]


class Stage:
    """An API server that answers the first patch with an error."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: ApiError | None = None
        self.acknowledger = Acknowledger(
            cast("Client", self), OperatorMetrics(CollectorRegistry()), 2, lambda: datetime(2026, 11, 15, tzinfo=UTC)
        )

    async def patch(self, *_: Any, **__: Any) -> None:
        self.calls += 1
        if self.calls == 1 and self.error is not None:
            raise self.error

    async def rolls_up(self) -> None:
        """The watch still shows the request as waiting, and the shard counts it."""
        self.acknowledger.settle(WAITING)
        self.acknowledger.acknowledge(WAITING)
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    running = asyncio.create_task(stage.acknowledger.run())
    yield stage
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (None, 1),
        (NotFoundError("patch", "r"), 1),
        (ConflictError("patch", "r", "the object has been modified"), 2),
        (UnreachableError("patch", "r"), 2),
    ],
)
async def test_what_was_refused_and_still_waits_is_taken_up_again(
    stage: Stage, error: ApiError | None, calls: int
) -> None:
    stage.error = error
    for _ in range(3):
        await stage.rolls_up()
    assert stage.calls == calls
