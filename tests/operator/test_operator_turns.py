"""Leading in turns: the loss of the Lease ends what led and nothing else, and the next turn begins afresh."""

import asyncio
import gc
import weakref
from typing import cast

import pytest
from structlog.testing import capture_logs

from bigfleet.kube.election import Election, LeadershipLostError
from bigfleet.operator.run import LeadershipTurns, settle_memory


class Ballot:
    """An election whose outcome the test decides."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self._win, self._lose = asyncio.Event(), asyncio.Event()

    async def won(self) -> None:
        await self._win.wait()
        self._win.clear()
        self.story.append("won")

    async def kept(self) -> None:
        await self._lose.wait()
        self._lose.clear()
        raise LeadershipLostError("lease it: not renewed")

    async def release(self) -> None:
        await asyncio.sleep(0)
        self.story.append("released")

    async def win(self) -> None:
        self._win.set()
        await settle()

    async def lose(self) -> None:
        self._lose.set()
        await settle()


class Work:
    """A program that takes a moment to end."""

    def __init__(self, story: list[str]) -> None:
        self._story = story
        self.myself = self
        self.crash = asyncio.Event()

    async def run(self) -> None:
        self._story.append("runs")
        try:
            await self.crash.wait()
            raise ZeroDivisionError
        finally:
            await asyncio.sleep(0)
            self._story.append("ended")


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def ballot() -> Ballot:
    return Ballot()


def leading(turns: LeadershipTurns[Work]) -> Work | None:
    return turns.program


async def ended(task: asyncio.Task[None]) -> BaseException | None:
    task.cancel()
    return (await asyncio.gather(task, return_exceptions=True))[0]


async def test_each_turn_has_a_fresh_program_and_the_last_has_ended_before_the_lease_goes(ballot: Ballot) -> None:
    made: list[Work] = []

    def make() -> Work:
        made.append(Work(ballot.story))
        return made[-1]

    turns = LeadershipTurns(cast("Election", ballot), make)
    task = asyncio.create_task(turns.run())
    assert leading(turns) is None
    with capture_logs() as logs:
        for turn in range(3):
            await ballot.win()
            assert len(made) == turn + 1
            assert leading(turns) is made[-1]
            await ballot.lose()
            assert leading(turns) is None
    assert not task.done()
    assert ballot.story == ["won", "runs", "ended", "released"] * 3
    assert [log["reason"] for log in logs if log["event"] == "leadership_lost"] == ["lease it: not renewed"] * 3
    await ballot.win()
    assert isinstance(await ended(task), asyncio.CancelledError)
    assert ballot.story[-4:] == ["won", "runs", "ended", "released"]


async def test_a_program_that_crashes_ends_the_turns(ballot: Ballot) -> None:
    turns = LeadershipTurns(cast("Election", ballot), lambda: Work(ballot.story))
    task = asyncio.create_task(turns.run())
    await ballot.win()
    assert turns.program is not None
    turns.program.crash.set()
    await ballot.lose()
    with pytest.raises(ExceptionGroup) as raised:
        await task
    assert raised.group_contains(ZeroDivisionError)
    assert ballot.story == ["won", "runs", "ended", "released"]


async def test_a_turn_that_is_over_leaves_nothing_in_memory(ballot: Ballot) -> None:
    made: list[weakref.ref[Work]] = []

    def make() -> Work:
        work = Work(ballot.story)
        made.append(weakref.ref(work))
        return work

    task = asyncio.create_task(LeadershipTurns(cast("Election", ballot), make).run())
    await ballot.win()
    settle_memory()
    await ballot.lose()
    assert gc.get_freeze_count() == 0
    assert made[0]() is None
    await ended(task)
