"""The token bucket, on a clock of its own."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.kube.access.limiter import Limiter


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        await asyncio.sleep(0)
        self.now += seconds


@given(
    qps=st.floats(0.5, 1000),
    burst=st.integers(1, 50),
    pauses=st.lists(st.floats(0, 3), min_size=1, max_size=60),
)
def test_in_no_span_of_time_do_more_pass_than_burst_and_rate_allow(qps: float, burst: int, pauses: list[float]) -> None:
    async def run() -> list[float]:
        clock = Clock()
        limiter = Limiter(qps, burst, clock=clock, sleep=clock.sleep)
        times = []
        for pause in pauses:
            clock.now += pause
            await limiter.take()
            times.append(clock.now)
        return times

    times = asyncio.run(run())
    for i, start in enumerate(times):
        for j in range(i, len(times)):
            assert j - i + 1 <= burst + (times[j] - start) * qps + 1e-6


async def test_a_full_bucket_makes_nobody_wait() -> None:
    clock = Clock()
    limiter = Limiter(10, 5, clock=clock, sleep=clock.sleep)
    for _ in range(5):
        await limiter.take()
    assert clock.now == 0.0
    await limiter.take()
    assert clock.now == pytest.approx(0.1)


async def test_callers_are_served_in_the_order_in_which_they_came() -> None:
    clock = Clock()
    limiter = Limiter(10, 1, clock=clock, sleep=clock.sleep)
    served: list[int] = []

    async def caller(number: int) -> None:
        await limiter.take()
        served.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(caller(number))
    assert served == list(range(20))


async def test_a_cancelled_caller_takes_nothing_and_blocks_nobody() -> None:
    clock = Clock()
    asleep = asyncio.Event()
    wake = asyncio.Event()

    async def sleep(seconds: float) -> None:
        asleep.set()
        await wake.wait()
        clock.now += seconds

    limiter = Limiter(10, 1, clock=clock, sleep=sleep)
    await limiter.take()
    first, second = asyncio.create_task(limiter.take()), asyncio.create_task(limiter.take())
    await asleep.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    wake.set()
    await second
    assert clock.now == pytest.approx(0.1)


@pytest.mark.parametrize(("qps", "burst"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
async def test_limits_that_let_nothing_through_are_refused(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="lets nothing through"):
        Limiter(qps, burst)
