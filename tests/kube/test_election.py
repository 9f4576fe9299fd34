"""The Lease: won when nobody holds it, kept by renewing, given up in time, and never held by two."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.kube.client import Client, Patch
from bigfleet.kube.election import DURATION_SECONDS, Election, LeadershipLostError
from bigfleet.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError, UnreachableError
from bigfleet.kube.objects.kinds import Lease
from bigfleet.kube.objects.resources import Resource

START = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


class Clock:
    """Time that passes when somebody sleeps: a test moves on to the next who wakes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self.now + seconds, next(self._order), woken))
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        until = self.now + seconds
        await settle()
        while due := [each for each in self._sleepers if each[0] <= until]:
            first = min(due)
            self._sleepers.remove(first)
            self.now = max(self.now, first[0])
            first[2].set()
            await settle()
        self.now = until


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Server:
    """One Lease, as an API server keeps it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.calls: list[str] = []
        self.refuse: ApiError | None = None
        self._versions = itertools.count(1)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def store(self, spec: dict[str, Any]) -> Lease:
        self.lease = {"metadata": {"name": "it", "resourceVersion": str(next(self._versions))}, "spec": spec}
        return msgspec.convert(self.lease, Lease)

    async def get(self, _resource: Resource[Lease], _name: str, _namespace: str) -> Lease:
        await self._called("get")
        if self.lease is None:
            raise NotFoundError("get", "it")
        return msgspec.convert(self.lease, Lease)

    async def create(self, _resource: Resource[Lease], body: dict[str, Any], _namespace: str) -> Lease:
        await self._called("create")
        if self.lease is not None:
            raise AlreadyExistsError("create", "it")
        return self.store(body["spec"])

    async def patch(
        self, _resource: Resource[Lease], _name: str, body: dict[str, Any], _namespace: str, content: Patch
    ) -> Lease:
        await self._called("patch")
        assert content is Patch.MERGE
        if self.lease is None:
            raise NotFoundError("patch", "it")
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ConflictError("patch", "it")
        return self.store(self.spec | body["spec"])

    async def _called(self, verb: str) -> None:
        self.calls.append(verb)
        # A real call never returns within the same step.
        await asyncio.sleep(0)
        if self.refuse is not None:
            raise self.refuse


class Member:
    """One of the copies: `leads` while it believes that it holds the Lease."""

    def __init__(self, stage: "Stage", name: str) -> None:
        self.name, self.leads, self.lost = name, False, ""
        clock = stage.clock
        client = cast("Client", stage.server)
        self._wall = lambda: START + timedelta(seconds=clock.now)
        self.election = Election(client, "bigfleet-system", "it", name, self._wall, clock, clock.sleep)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.election.won()
        self.leads = True
        try:
            await self.election.kept()
        except LeadershipLostError as error:
            self.lost = str(error)
        finally:
            self.leads = False

    async def crash(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Stage:
    """A server, a clock and the copies."""

    def __init__(self) -> None:
        self.server, self.clock = Server(), Clock()
        self.members: list[Member] = []

    async def join(self, name: str) -> Member:
        self.members.append(member := Member(self, name))
        await settle()
        return member

    def leaders(self) -> list[str]:
        return [member.name for member in self.members if member.leads]

    async def close(self) -> None:
        for member in self.members:
            await member.crash()


@pytest.fixture
async def stage() -> Any:
    made = Stage()
    yield made
    await made.close()


async def test_a_lease_that_is_not_there_is_made(stage: Stage) -> None:
    member = await stage.join("a")
    assert member.leads
    assert stage.server.spec["holderIdentity"] == "a"
    assert stage.server.spec["leaseDurationSeconds"] == DURATION_SECONDS
    assert stage.server.spec["renewTime"] == stage.server.spec["acquireTime"] == "2026-11-15T12:16:40.000000Z"


async def test_a_holder_renews_without_reading(stage: Stage) -> None:
    member = await stage.join("a")
    stage.server.calls.clear()
    await stage.clock.advance(60)
    assert member.leads
    assert stage.server.calls == ["patch"] * 12
    assert stage.server.spec["renewTime"] == "2026-11-15T12:17:40.000000Z"
    assert stage.server.spec["leaseTransitions"] == 0


async def test_a_holder_reads_when_somebody_has_touched_its_lease(stage: Stage) -> None:
    member = await stage.join("a")
    stage.server.calls.clear()
    stage.server.store(stage.server.spec)
    await stage.clock.advance(10)
    assert member.leads
    assert stage.server.calls == ["patch", "get", "patch", "patch"]


async def test_a_lease_that_was_deleted_is_made_again(stage: Stage) -> None:
    member = await stage.join("a")
    stage.server.lease = None
    await stage.clock.advance(5)
    assert member.leads
    assert stage.server.spec["holderIdentity"] == "a"


async def test_a_copy_waits_for_as_long_as_the_holder_lives(stage: Stage) -> None:
    first, second = await stage.join("a"), await stage.join("b")
    await stage.clock.advance(600)
    assert (first.leads, second.leads) == (True, False)


async def test_a_copy_takes_over_after_the_duration_by_its_own_clock(stage: Stage) -> None:
    # Times in the Lease are of a clock that runs hours ahead: they do not count.
    late = "2026-11-15T23:00:00.000000Z"
    stage.server.store({"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": late, "leaseTransitions": 4})
    await stage.join("b")
    await stage.clock.advance(14)
    assert stage.leaders() == []
    await stage.clock.advance(3)
    assert stage.leaders() == ["b"]
    assert stage.server.spec["leaseTransitions"] == 5


async def test_a_holder_that_cannot_renew_stops_before_a_copy_begins(stage: Stage) -> None:
    first, _ = await stage.join("a"), await stage.join("b")
    stage.server.refuse = UnreachableError("patch", "it", "nobody there")
    await stage.clock.advance(9)
    assert stage.leaders() == ["a"]
    await stage.clock.advance(3)
    assert stage.leaders() == []
    assert "not renewed for 10 s" in first.lost
    assert "nobody there" in first.lost
    stage.server.refuse = None
    await stage.clock.advance(10)
    assert stage.leaders() == ["b"]


async def test_a_holder_whose_lease_another_has_stops_at_once(stage: Stage) -> None:
    member = await stage.join("a")
    stage.server.store(stage.server.spec | {"holderIdentity": "b"})
    await stage.clock.advance(5)
    assert not member.leads
    assert "b holds it" in member.lost


async def test_a_holder_that_lost_its_lease_may_win_again(stage: Stage) -> None:
    member = await stage.join("a")
    stage.server.refuse = UnreachableError("patch", "it")
    await stage.clock.advance(30)
    assert not member.leads
    await member.election.release()
    stage.server.refuse = None
    winning = asyncio.create_task(member.election.won())
    await settle()
    assert winning.done()
    await winning
    assert stage.server.spec["holderIdentity"] == "a"


async def test_a_release_lets_the_next_win_at_once(stage: Stage) -> None:
    first, second = await stage.join("a"), await stage.join("b")
    await first.crash()
    await first.election.release()
    await stage.clock.advance(2)
    assert second.leads


async def test_a_release_leaves_the_lease_of_another_alone(stage: Stage) -> None:
    first, second = await stage.join("a"), await stage.join("b")
    await second.election.release()
    assert stage.server.spec["holderIdentity"] == "a"
    assert first.leads


async def test_of_two_that_write_at_once_one_wins(stage: Stage) -> None:
    stage.server.store({"holderIdentity": "", "leaseDurationSeconds": 1})
    first, second = Member(stage, "a"), Member(stage, "b")
    stage.members += [first, second]
    await settle()
    assert [first.leads, second.leads].count(True) == 1


async def test_a_lease_that_cannot_be_read_is_tried_again(stage: Stage) -> None:
    stage.server.refuse = ApiError("get", "it", code=403)
    await stage.join("a")
    assert stage.leaders() == []
    stage.server.refuse = None
    await stage.clock.advance(2)
    assert stage.leaders() == ["a"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "crash", "release", "refuse", "answer", "touch", "advance"]),
        st.integers(0, 20),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_two_never_hold_it_at_once(steps: list[tuple[str, int]]) -> None:
    async def story() -> None:
        stage = Stage()
        for step, number in steps:
            member = stage.members[number % len(stage.members)] if stage.members else None
            match step:
                case "join" if len(stage.members) < 6:
                    await stage.join(f"m{len(stage.members)}")
                case "crash" if member is not None:
                    await member.crash()
                case "release" if member is not None:
                    await member.crash()
                    await member.election.release()
                case "refuse":
                    stage.server.refuse = UnreachableError("call", "it")
                case "answer":
                    stage.server.refuse = None
                case "touch" if stage.server.lease is not None:
                    stage.server.store(stage.server.spec)
                case "advance":
                    for _ in range(number):
                        await stage.clock.advance(1)
                        assert len(stage.leaders()) <= 1
            await settle()
            assert len(stage.leaders()) <= 1
        await stage.close()

    asyncio.run(story())
