"""What becomes of a node after its drain: kept empty while its machine goes, and opened again only if it stays."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from bigfleet.kube.errors import UnreachableError
from bigfleet.kube.objects.resources import NODES, PODS
from bigfleet.operator.node_life.holds import INSTRUCTION
from tests.operator.fakes import FakeClock, FakeServer, settle
from tests.operator.node_life.drain_stage import Kind, annotations, living, node, renew

CORDON = "node.kubernetes.io/unschedulable"
EVERYTHING = ({"operator": "Exists"},)


async def drained_in_an_earlier_life(server: FakeServer, provider_id: str = "") -> None:
    server.node("n1", provider_id=provider_id)
    renew(server)
    async with living(server) as life:
        life.reclaim("n1")
        await server.clock.advance(5)
        assert life.reports() == [("n1", "DRAINED")]


def owned(workload: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "uid": workload, "controller": True}]


# Withdrawn, and whether the machine is still there is not known.


@pytest.mark.parametrize(("state", "stays"), [("CONFIGURED", False), ("DRAINING", True), ("FAILED", True)])
async def test_a_node_whose_machine_is_not_named_yet_stays_cordoned_until_it_is(
    server: FakeServer, clock: FakeClock, state: str, stays: bool
) -> None:
    await drained_in_an_earlier_life(server)
    async with living(server, named=False) as life:
        life.withdraw("n1")
        server.pod("bound", "n1")
        await clock.advance(50)
        assert node(server).spec.unschedulable
        life.hear("n1", state)
        await clock.advance(500)
        assert node(server).spec.unschedulable is stays
        assert bool(annotations(server)) is stays
        assert server.evictions == []


async def test_what_an_earlier_session_said_of_a_machine_opens_nothing(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(5)
        life.reconnect()
        life.withdraw("n1")
        await clock.advance(50)
        assert node(server).spec.unschedulable
        life.hear("n1")
        await settle()
        assert not node(server).spec.unschedulable


async def test_a_machine_of_the_same_name_on_another_host_opens_nothing(server: FakeServer, clock: FakeClock) -> None:
    await drained_in_an_earlier_life(server, "sim://h1")
    async with living(server, named=False) as life:
        life.hear("n1", provider_id="sim://h2")
        life.withdraw("n1")
        await clock.advance(50)
        assert node(server).spec.unschedulable


async def test_a_node_whose_machine_nobody_names_goes_once_its_lease_is_old(
    server: FakeServer, clock: FakeClock
) -> None:
    await drained_in_an_earlier_life(server)
    async with living(server, named=False) as life:
        life.withdraw("n1")
        await clock.advance(119)
        assert node(server).spec.unschedulable
        await clock.advance(2)
        assert server.names(NODES) == []
        assert list(life.drains) == []


async def test_a_machine_that_is_named_late_keeps_its_node(server: FakeServer, clock: FakeClock) -> None:
    await drained_in_an_earlier_life(server)
    async with living(server, named=False) as life:
        life.withdraw("n1")
        await clock.advance(110)
        life.hear("n1")
        await clock.advance(600)
        assert not node(server).spec.unschedulable


async def test_a_session_that_ends_before_its_minute_decides_nothing(server: FakeServer, clock: FakeClock) -> None:
    await drained_in_an_earlier_life(server)
    async with living(server, named=False) as life:
        life.withdraw("n1")
        await clock.advance(30)
        life.work.closed()
        life.objects.closed()
        await clock.advance(600)
        assert node(server).spec.unschedulable


async def test_without_a_session_nothing_is_decided_and_the_next_has_its_own_minute(
    server: FakeServer, clock: FakeClock
) -> None:
    await drained_in_an_earlier_life(server)
    async with living(server, named=False) as life:
        life.withdraw("n1")
        await clock.advance(70)
        life.work.closed()
        life.objects.closed()
        await clock.advance(600)
        assert node(server).spec.unschedulable
        life.machines.opened()
        life.work.opened()
        await clock.advance(59)
        assert node(server).spec.unschedulable
        # Watched since before, and not renewed since.
        await clock.advance(2)
        assert server.names(NODES) == []


async def test_a_node_that_no_shard_knows_but_whose_kubelet_lives_is_opened_and_let_be(
    server: FakeServer, clock: FakeClock
) -> None:
    await drained_in_an_earlier_life(server)
    async with living(server, named=False) as life:
        life.withdraw("n1")
        for _ in range(17):
            renew(server)
            await clock.advance(10)
            assert node(server).spec.unschedulable
        for _ in range(3):
            renew(server)
            await clock.advance(10)
        assert not node(server).spec.unschedulable
        assert annotations(server) == {}
        # It is somebody's own, and may be silent as long as they like.
        await clock.advance(600)
        assert server.names(NODES) == ["n1"]


@pytest.mark.parametrize("named", [False, True])
async def test_a_reclaim_that_a_new_life_gives_up_opens_only_a_machine_that_is_there(
    server: FakeServer, clock: FakeClock, named: bool
) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1", grace=30)
        await clock.advance(5)
    await clock.advance(100)
    async with living(server, named=named) as life:
        await clock.advance(50)
        assert node(server).spec.unschedulable is not named
        life.hear("n1")
        await settle()
        assert not node(server).spec.unschedulable


@pytest.mark.parametrize("before", ["FAILED", "DRAINING"])
async def test_a_node_is_opened_when_its_machine_is_said_to_be_well_after_the_withdrawal(
    server: FakeServer, clock: FakeClock, before: str
) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.hear("n1", before)
        life.reclaim("n1")
        await clock.advance(5)
        life.withdraw()
        await settle()
        assert node(server).spec.unschedulable
        life.hear("n1", "CONFIGURED")
        await settle()
        assert not node(server).spec.unschedulable


async def test_a_reclaim_said_again_without_time_does_not_open_a_node_whose_machine_leaves(
    server: FakeServer, clock: FakeClock
) -> None:
    server.lingering = True
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1", grace=60)
        await clock.advance(5)
        assert life.reports() == [("n1", "DRAINED")]
        life.hear("n1", "DRAINING")
        server.pod("bound-by-hand", "n1")
        await clock.advance(60)
        life.reconnect()
        life.reclaim("n1", grace=0)
        life.hear("n1", "DRAINING")
        await clock.advance(5)
        assert life.reports()[-1] == ("n1", "FAILED")
        assert node(server).spec.unschedulable


# Kept empty.


@pytest.mark.parametrize("after", [1, 1000])
async def test_a_pod_that_comes_after_the_report_is_evicted_and_nothing_more_is_said(
    server: FakeServer, clock: FakeClock, after: float
) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1", grace=300)
        await clock.advance(5)
        await clock.advance(after)
        server.budgets["web"] = 1
        server.pod("late", "n1", app="web")
        await clock.advance(20)
        assert server.evictions == []
        server.budgets.clear()
        await clock.advance(10)
        assert server.evictions == [("late", None)]
        assert life.reports() == [("n1", "DRAINED")]
        assert node(server).spec.unschedulable


async def test_what_comes_after_the_instruction_is_withdrawn_is_not_evicted(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(5)
        life.hear("n1", "DRAINING")
        life.withdraw()
        server.pod("late", "n1")
        await clock.advance(60)
        assert server.evictions == []
        assert node(server).spec.unschedulable


@pytest.mark.parametrize("when", ["draining", "drained", "failed", "leaving", "suspended"])
async def test_a_cordon_that_somebody_takes_off_is_put_back(server: FakeServer, clock: FakeClock, when: str) -> None:
    server.node("n1")
    if when in ("draining", "failed"):
        server.pod("web-1", "n1", app="web")
        server.budgets["web"] = 1
    async with living(server, named=when != "suspended") as life:
        life.reclaim("n1", grace=30, kind=Kind.KIND_PREEMPT)
        await clock.advance(31 if when == "failed" else 5)
        if when == "leaving":
            life.hear("n1", "IDLE")
        if when in ("leaving", "suspended"):
            life.withdraw()
            await settle()
        for _ in range(2):
            with capture_logs() as logs:
                server.change(NODES, "n1", {"spec": {"unschedulable": None}})
                await settle()
            assert node(server).spec.unschedulable
            assert [each["node"] for each in logs if each["event"] == "node_recordoned"] == ["n1"]


async def test_a_cordon_is_put_back_once_however_long_the_watch_takes_to_show_it(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(5)
        server.calls.clear()
        server.refuse = lambda verb, name: UnreachableError(verb, name) if verb == "patch" else None
        server.change(NODES, "n1", {"spec": {"unschedulable": None}})
        await settle()
        server.sinks, server.refuse = [], lambda _verb, _name: None
        await clock.advance(100)
        assert node(server).spec.unschedulable
        assert [verb for verb, _ in server.calls] == ["patch", "patch"]


async def test_a_node_without_our_annotation_is_not_cordoned_again(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(5)
        server.calls.clear()
        server.change(NODES, "n1", {"metadata": {"annotations": {INSTRUCTION: None}}, "spec": {"unschedulable": None}})
        await clock.advance(60)
        assert not node(server).spec.unschedulable
        assert server.calls == []


async def test_a_node_that_loses_our_annotation_unseen_is_not_cordoned_again(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(5)
        server.change(NODES, "n1", {"spec": {"unschedulable": None}})
        server.sinks.clear()
        server.change(NODES, "n1", {"metadata": {"annotations": {INSTRUCTION: None}}})
        await clock.advance(60)
        assert not node(server).spec.unschedulable


# Pods that a cordon does not keep away.


@pytest.mark.parametrize(
    ("toleration", "bears"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": CORDON, "operator": "Exists"}, True),
        ({"key": CORDON, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": CORDON}, True),
        ({"key": CORDON, "operator": "Equal", "value": "true"}, False),
        ({"key": CORDON, "operator": "Exists", "effect": "PreferNoSchedule"}, False),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "operator": "Exists"}, False),
    ],
)
async def test_what_comes_straight_back_is_evicted_once_and_then_holds_nothing(
    server: FakeServer, clock: FakeClock, toleration: dict[str, str], bears: bool
) -> None:
    server.node("n1")
    server.pod("web-0", "n1", tolerations=[toleration], ownerReferences=owned("web"))
    async with living(server) as life:
        life.reclaim("n1")
        with capture_logs() as logs:
            for number in range(1, 6):
                await settle()
                if f"web-{number - 1}" not in server.names(PODS):
                    server.pod(f"web-{number}", "n1", tolerations=[toleration], ownerReferences=owned("web"))
            await clock.advance(10)
        assert life.reports() == [("n1", "DRAINED")]
        assert len(server.evictions) == (1 if bears else 6)
        assert [each["event"] for each in logs].count("pod_returns_to_cordoned_node") == bears


async def test_every_pod_of_a_workload_that_comes_back_is_evicted_once(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    for number in range(3):
        server.pod(f"web-{number}", "n1", app="web", tolerations=EVERYTHING, ownerReferences=owned("web"))
    server.pod("alone", "n1", tolerations=EVERYTHING)
    server.budgets["web"] = 2
    async with living(server) as life:
        life.reclaim("n1")
        await settle()
        assert len(server.evictions) == 2
        server.pod("alone", "n1", tolerations=EVERYTHING)
        server.pod("web-again", "n1", app="web", tolerations=EVERYTHING, ownerReferences=owned("web"))
        server.budgets.clear()
        await clock.advance(30)
        assert sorted(name for name, _ in server.evictions) == ["alone", "web-0", "web-1", "web-2"]
        assert sorted(server.names(PODS)) == ["alone", "web-again"]
        assert life.reports() == [("n1", "DRAINED")]


async def test_a_repeat_does_not_evict_again_what_comes_back(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("web-0", "n1", tolerations=EVERYTHING, ownerReferences=owned("web"))
    async with living(server) as life:
        life.reclaim("n1")
        await settle()
        server.pod("web-1", "n1", tolerations=EVERYTHING, ownerReferences=owned("web"))
        await clock.advance(5)
        life.reclaim("n1")
        await clock.advance(5)
        assert [name for name, _ in server.evictions] == ["web-0"]
        assert life.reports() == [("n1", "DRAINED")] * 2
