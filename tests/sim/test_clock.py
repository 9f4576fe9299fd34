"""Virtual time: it passes in jumps, in order, and stops the program when nothing can happen any more."""

import asyncio
import threading

import pytest

from bigfleet.sim import clock


def test_time_begins_at_nothing_and_jumps_to_each_timer() -> None:
    async def work() -> list[float]:
        loop = asyncio.get_running_loop()
        seen = [loop.time()]
        for seconds in (0.25, 86_400, 3e7):
            await asyncio.sleep(seconds)
            seen.append(loop.time())
        return seen

    assert clock.run(work()) == pytest.approx([0, 0.25, 86_400.25, 30_086_400.25], abs=1e-6)


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def work() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        fired = []

        async def wait(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            fired.append((name, loop.time()))

        await asyncio.gather(wait("long", 7200), wait("short", 5), wait("middle", 60))
        return fired

    assert clock.run(work()) == [("short", 5), ("middle", 60), ("long", 7200)]


def test_no_time_passes_while_there_is_something_to_do() -> None:
    async def work() -> float:
        timer = asyncio.create_task(asyncio.sleep(1))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not timer.done()
        now = asyncio.get_running_loop().time()
        await timer
        return now

    assert clock.run(work()) == 0


def test_a_time_out_strikes_in_virtual_time() -> None:
    async def work() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(900):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert clock.run(work()) == 900


@pytest.mark.parametrize("start", [0.0, 86_399.7, 3e7 + 0.1, 1e9 / 3])
def test_whoever_waits_for_the_rest_of_a_time_finds_it_passed(start: float) -> None:
    async def work() -> int:
        await asyncio.sleep(start)
        clock_now = asyncio.get_running_loop().time
        looks = 0
        for step in (1 / 3, 1e-7, 1e-6, 0.1, 7.7):
            deadline = clock_now() + step
            asyncio.get_running_loop().call_at(deadline - 1e-7, lambda: None)
            while clock_now() < deadline:
                looks += 1
                await asyncio.sleep(deadline - clock_now())
        return looks

    assert clock.run(work()) <= 10


def test_a_standstill_ends_the_run_instead_of_hanging_it() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(clock.StandstillError):
        clock.run(work())


def test_what_another_thread_hands_over_is_taken() -> None:
    async def work() -> str:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(done.set_result, "handed over"))
        thread.start()
        thread.join()
        return str(await done)

    assert clock.run(work()) == "handed over"
