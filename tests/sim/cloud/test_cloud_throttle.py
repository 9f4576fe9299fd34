"""The cloud's rate limits, in virtual time."""

import asyncio

import pytest

from bigfleet.providerkit.backend import BackendError
from bigfleet.sim import clock
from bigfleet.sim.cloud.config import Exceeded, RateLimit
from bigfleet.sim.cloud.throttle import Throttle


async def admissions(throttle: Throttle, calls: int) -> list[float]:
    async def one() -> float:
        await throttle.admit()
        return asyncio.get_running_loop().time()

    return await asyncio.gather(*(one() for _ in range(calls)))


def test_a_burst_goes_through_and_the_rest_wait_their_turn() -> None:
    throttle = Throttle("create", RateLimit(per_second=2, burst=3))
    assert clock.run(admissions(throttle, 7)) == pytest.approx([0, 0, 0, 0.5, 1.0, 1.5, 2.0])


def test_the_bucket_fills_up_again_and_no_further_than_its_burst() -> None:
    async def work() -> list[float]:
        throttle = Throttle("create", RateLimit(per_second=1, burst=2))
        await admissions(throttle, 2)
        await asyncio.sleep(1000)
        return await admissions(throttle, 4)

    assert clock.run(work()) == pytest.approx([1000, 1000, 1001, 1002])


def test_where_the_limit_says_so_the_rest_fail_and_later_calls_do_not() -> None:
    async def work() -> None:
        throttle = Throttle("create", RateLimit(per_second=1, burst=2, exceeded=Exceeded.FAIL))
        await admissions(throttle, 2)
        for _ in range(3):
            with pytest.raises(BackendError, match="RequestLimitExceeded: more than 1 calls of create a second"):
                await throttle.admit()
        await asyncio.sleep(1)
        await throttle.admit()

    clock.run(work())
