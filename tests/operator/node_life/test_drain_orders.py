"""Instructions that are repeated, withdrawn or taken over, and cordons of others."""

import asyncio

import pytest

from bigfleet.kube.errors import UnreachableError
from bigfleet.kube.objects.resources import NODES
from bigfleet.operator.node_life.drain_work import EVICTIONS
from bigfleet.operator.node_life.holds import DEADLINE, INSTRUCTION
from tests.operator.fakes import FakeClock, FakeServer, settle
from tests.operator.node_life.drain_stage import annotations, living, node, renew


async def test_a_repeat_sets_the_deadline_anew_and_is_acknowledged_again(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1", grace=60)
        await clock.advance(30)
        life.reclaim("n1", grace=100)
        await clock.advance(99)
        assert life.acks() == [("i-1", 1)] * 2
        assert annotations(server)[DEADLINE] == "2026-11-15T12:02:10Z"
        assert life.reports() == []
        await clock.advance(2)
        assert life.reports() == [("n1", "FAILED")]


async def test_a_repeat_does_not_press_a_budget_that_has_just_refused(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(30)
        tried = server.calls.count(("evict", "web-1"))
        for _ in range(5):
            life.reclaim("n1")
            await settle()
        assert server.calls.count(("evict", "web-1")) == tried


async def test_an_instruction_that_another_takes_a_node_from_is_acknowledged_without_it(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    server.node("n2")
    server.refuse = UnreachableError
    async with living(server) as life:
        life.reclaim("n1", "n2", name="old")
        await settle()
        life.reclaim("n1", name="new")
        server.refuse = lambda _verb, _name: None
        await clock.advance(10)
        assert sorted(life.acks()) == [("new", 1), ("old", 1)]


async def test_a_repeat_after_the_end_reports_the_end_again_at_once(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(2)
        life.reclaim("n1")
        await settle()
        assert life.reports() == [("n1", "DRAINED")] * 2


async def test_rule_22_a_withdrawn_reclaim_uncordons_and_evicts_no_more(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(5)
        life.withdraw()
        await settle()
        server.budgets.clear()
        await clock.advance(600)
        assert not node(server).spec.unschedulable
        assert annotations(server) == {}
        assert server.evictions == []
        assert life.reports() == []


async def test_a_withdrawal_while_the_cordon_is_on_its_way_undoes_it(server: FakeServer) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await asyncio.sleep(0)
        life.withdraw()
        await settle()
        assert not node(server).spec.unschedulable
        assert annotations(server) == {}
        assert life.acks() == []


@pytest.mark.parametrize(("state", "stays"), [("CONFIGURED", False), ("DRAINING", True), ("IDLE", True)])
async def test_a_withdrawal_leaves_the_cordon_on_a_node_whose_machine_has_left(
    server: FakeServer, clock: FakeClock, state: str, stays: bool
) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1")
        await settle()
        renew(server)
        life.hear("n1", state)
        life.withdraw()
        server.budgets.clear()
        await clock.advance(59)
        assert node(server).spec.unschedulable is stays
        assert server.evictions == []


async def test_a_withdrawal_of_some_nodes_leaves_the_others(server: FakeServer) -> None:
    server.node("n1")
    server.node("n2")
    async with living(server) as life:
        life.reclaim("n1", "n2")
        await settle()
        life.withdraw("n1")
        await settle()
        assert not node(server, "n1").spec.unschedulable
        assert node(server, "n2").spec.unschedulable


async def test_a_withdrawal_before_the_watch_shows_the_cordon_undoes_it(server: FakeServer) -> None:
    server.node("n1")
    async with living(server) as life:
        server.sinks.clear()
        life.reclaim("n1")
        await settle()
        assert node(server).spec.unschedulable
        life.withdraw()
        await settle()
        assert not node(server).spec.unschedulable


async def test_what_bears_another_instruction_by_now_is_left_alone(server: FakeServer) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await settle()
        server.change(NODES, "n1", {"metadata": {"annotations": {INSTRUCTION: "another's"}}})
        life.withdraw()
        await settle()
        assert node(server).spec.unschedulable
        assert annotations(server)[INSTRUCTION] == "another's"
        assert list(life.drains) == []


async def test_a_withdrawal_stops_evictions_that_wait_their_turn(server: FakeServer) -> None:
    server.node("n1")
    for number in range(3 * EVICTIONS):
        server.pod(f"pod-{number}", "n1")
    async with living(server) as life:
        server.refuse = lambda verb, _name: life.withdraw() if verb == "evict" else None
        life.reclaim("n1")
        await settle()
        assert 0 < len(server.evictions) <= EVICTIONS
        assert not node(server).spec.unschedulable


async def test_a_cordon_by_somebody_else_stays_when_ours_goes(server: FakeServer) -> None:
    server.node("n1", unschedulable=True)
    async with living(server) as life:
        life.reclaim("n1")
        await settle()
        life.reclaim("n1", grace=500)
        await settle()
        life.withdraw()
        await settle()
        assert node(server).spec.unschedulable
        assert annotations(server) == {}


async def test_a_newer_instruction_takes_the_node_over(server: FakeServer) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1", name="old")
        await settle()
        life.reclaim("n1", name="new")
        await settle()
        life.withdraw(name="old")
        await settle()
        assert annotations(server)[INSTRUCTION] == "new"
        assert node(server).spec.unschedulable
