"""Drains outlive the operator: wherever it dies, what it began is ended, and no cordon but its own is touched."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.kube.objects.resources import NODES, PODS
from bigfleet.operator.node_life.holds import CALLED, DEADLINE, INSTRUCTION, KIND
from tests.operator.fakes import FakeClock, FakeServer, settle
from tests.operator.node_life.drain_stage import Kind, Life, annotations, living, node

# Restarts.


async def test_rule_22_a_new_life_goes_on_before_there_is_a_session(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1", grace=60)
        await clock.advance(20)
    await clock.advance(20)
    async with living(server) as life:
        await clock.advance(19)
        assert node(server).spec.unschedulable
        await clock.advance(2)
        assert not node(server).spec.unschedulable
        assert annotations(server) == {}
        assert life.reports() == []


async def test_a_new_life_knows_what_the_shard_calls_a_node(server: FakeServer) -> None:
    server.node("ip-7", unschedulable=True)
    server.change(NODES, "ip-7", {"metadata": {"annotations": {INSTRUCTION: "i-1", CALLED: "m-1"}}})
    async with living(server) as life:
        assert [each.node for each in life.sent[0].cordoned_nodes.nodes] == ["m-1"]


async def test_a_new_life_cordons_anew_what_somebody_has_uncordoned(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await settle()
    server.change(NODES, "n1", {"spec": {"unschedulable": None}})
    async with living(server):
        await settle()
        assert node(server).spec.unschedulable


@pytest.mark.parametrize("written", ["", "soon", "2026-11-15T12:00:00", "9999-99-99T00:00:00Z"])
async def test_a_deadline_that_cannot_be_read_is_over(server: FakeServer, written: str) -> None:
    server.node("n1", unschedulable=True)
    server.change(
        NODES, "n1", {"metadata": {"annotations": {INSTRUCTION: "i-1", DEADLINE: written, KIND: "KIND_RECLAIM"}}}
    )
    server.pod("web-1", "n1")
    async with living(server):
        await settle()
    assert server.evictions == []
    assert not node(server).spec.unschedulable


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("ending", ["drained", "given up", "withdrawn"])
async def test_an_operator_that_dies_at_any_step_leaves_nothing_behind(
    server: FakeServer, clock: FakeClock, ending: str, step: int, takes_effect: bool
) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.pod("web-2", "n1", app="web")
    if ending != "drained":
        server.budgets["web"] = 1
    server.die_at = step, takes_effect
    async with living(server) as life:
        life.reclaim("n1", grace=60)
        await clock.advance(3)
        if ending == "withdrawn":
            life.withdraw()
        await clock.advance(3)
    server.die_at = None
    server.died.clear()
    async with living(server) as life:
        # The shard's part: it says again what stands, and withdraws what it does not know.
        named = {each.node for frame in life.sent for each in frame.cordoned_nodes.nodes}
        if ending != "withdrawn":
            life.reclaim("n1", grace=54)
        elif named:
            life.withdraw("n1")
        await clock.advance(100)
        cordoned = ending == "drained"
        assert node(server).spec.unschedulable is cordoned
        assert bool(annotations(server)) is cordoned
        left = {"drained": 0, "given up": 1, "withdrawn": 1}[ending]
        assert len(server.names(PODS)) >= left
        if ending != "withdrawn":
            assert len(server.names(PODS)) == left
            assert life.reports() == [("n1", "DRAINED" if cordoned else "FAILED")]


# Laws.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reclaim"), st.sampled_from(["a", "b"]), st.sampled_from([0, 5, 40])),
        st.tuples(st.just("withdraw"), st.sampled_from(["a", "b", "c"]), st.just(0)),
        st.tuples(st.just("advance"), st.just(""), st.sampled_from([0, 1, 10, 60])),
        st.tuples(st.just("remake"), st.just(""), st.booleans().map(int)),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
        st.tuples(st.just("reconnect"), st.just(""), st.just(0)),
        st.tuples(st.just("allow"), st.just(""), st.booleans().map(int)),
    ),
    max_size=12,
)


@given(steps=STEPS, theirs=st.booleans(), kind=st.sampled_from([Kind.KIND_RECLAIM, Kind.KIND_PREEMPT]))
def test_no_cordon_but_ours_is_taken_off_and_none_of_ours_is_left(steps: Any, theirs: bool, kind: Any) -> None:
    """Whatever happens, a Node that somebody else cordoned stays cordoned, and ours go with their instructions."""

    async def story() -> None:
        clock = FakeClock()
        server = FakeServer(clock)
        server.node("n1", unschedulable=theirs)
        server.pod("web-1", "n1", app="web")
        server.budgets["web"] = 1
        is_theirs = theirs
        async with _lives(server) as lives:
            for step, name, number in steps:
                life = lives[-1]
                match step:
                    case "reclaim":
                        life.reclaim("n1", name=name, grace=number, kind=kind)
                    case "withdraw":
                        life.withdraw(name=name)
                    case "advance":
                        await clock.advance(number)
                    case "remake":
                        is_theirs = bool(number)
                        server.node("n1", unschedulable=is_theirs)
                    case "restart":
                        await settle()
                        await lives.renew()
                    case "reconnect":
                        life.reconnect()
                        life.hear("n1")
                    case "allow":
                        server.budgets["web"] = number
                await settle()
                assert node(server).spec.unschedulable or not is_theirs
                assert (INSTRUCTION in annotations(server)) <= node(server).spec.unschedulable
            for name in ("a", "b"):
                lives[-1].withdraw(name=name)
            await clock.advance(60)
            assert annotations(server) == {}
            assert node(server).spec.unschedulable == is_theirs

    asyncio.run(story())


class _Lives(list[Life]):
    """Lives of the operator, one after the other on one server."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__()
        self._server = server
        self._living: Any = None

    async def renew(self) -> None:
        await self.end()
        self._living = living(self._server)
        self.append(await self._living.__aenter__())

    async def end(self) -> None:
        if self._living is not None:
            await self._living.__aexit__(None, None, None)


@asynccontextmanager
async def _lives(server: FakeServer) -> AsyncIterator[_Lives]:
    lives = _Lives(server)
    await lives.renew()
    try:
        yield lives
    finally:
        await lives.end()
