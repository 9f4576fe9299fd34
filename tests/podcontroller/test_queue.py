"""Keys that wait: each once, one worker a key, failing ones later and later."""

import asyncio

import pytest

from bigfleet.podcontroller.queue import FIRST_WAIT, LONGEST_WAIT, WorkQueue


@pytest.fixture
def timers() -> list[asyncio.TimerHandle]:
    return []


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, timers: list[asyncio.TimerHandle]) -> list[float]:
    """Every wait that is asked for, without chance in it; none of them ends by itself."""
    asked: list[float] = []
    real = asyncio.BaseEventLoop.call_later

    def call_later(
        loop: asyncio.BaseEventLoop, delay: float, callback: object, *args: object, **more: object
    ) -> object:
        ours = getattr(callback, "__name__", "") == "_again"
        if ours:
            asked.append(delay)
        timer = real(loop, 3600 if ours else delay, callback, *args, **more)  # type: ignore[arg-type]
        if ours:
            timers.append(timer)
        return timer

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", call_later)
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    return asked


async def test_a_key_waits_once_and_keys_come_in_order() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)
    assert len(queue) == 3
    assert [await queue.take() for _ in range(3)] == ["a", "b", "c"]


async def test_what_is_added_while_a_worker_has_it_comes_again_after_it_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    queue.add("a")
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not waiting.done(), "no two workers have one key"
    queue.done("a")
    assert await waiting == "a"
    assert len(queue) == 0


async def test_a_failing_key_waits_longer_each_time_up_to_a_limit_and_success_forgives(waits: list[float]) -> None:
    queue: WorkQueue[str] = WorkQueue()
    for count in range(1, 15):
        queue.add("a")
        await queue.take()
        assert queue.failed("a") == count
        queue.close()
    assert waits[:4] == [FIRST_WAIT, FIRST_WAIT * 2, FIRST_WAIT * 4, FIRST_WAIT * 8]
    assert waits[-1] == LONGEST_WAIT
    queue.add("a")
    await queue.take()
    queue.done("a")
    queue.add("a")
    await queue.take()
    assert queue.failed("a") == 1
    assert waits[-1] == FIRST_WAIT
    queue.close()


async def test_the_servers_own_time_is_kept(waits: list[float]) -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.take()
    queue.failed("a", at_least=7.0)
    assert waits == [7.0]
    queue.close()


async def test_a_failing_key_comes_at_once_when_something_changed_and_its_timer_goes_with_its_success(
    waits: list[float], timers: list[asyncio.TimerHandle]
) -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.take()
    queue.failed("a")
    assert len(queue) == 1
    queue.add("a")
    assert await queue.take() == "a"
    queue.done("a")
    assert len(queue) == 0
    assert [timer.cancelled() for timer in timers] == [True]


async def test_after_its_wait_a_key_comes_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.take()
    queue.failed("a")
    assert await asyncio.wait_for(queue.take(), 30) == "a"
    queue.done("a")
