"""A drain as its nodes, pods and API server see it, from the cordon to the report."""

from typing import Any

import pytest

from bigfleet.kube.errors import ApiError, UnreachableError
from bigfleet.kube.objects.resources import NODES, PODS
from bigfleet.operator.node_life.drain_acts import Cordon
from bigfleet.operator.node_life.drains import Drains
from bigfleet.operator.node_life.holds import CALLED, DEADLINE, INSTRUCTION, KIND, Hold
from bigfleet.operator.node_life.left_nodes import LeftNodes
from bigfleet.operator.node_life.machines import KnownMachines
from bigfleet.operator.rollup.nodes import Nodes
from bigfleet.operator.rollup.pods import Pods
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.operator.fakes import BUDGET, FakeClock, FakeServer, settle
from tests.operator.node_life.drain_stage import Kind, annotations, living, node

DAEMON = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "d", "controller": True}]


# The course of a drain.


async def test_a_node_is_cordoned_acknowledged_emptied_and_reported(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("web-1", "n1")
    server.pod("bare", "n1")
    async with living(server) as life:
        life.reclaim("n1")
        assert life.acks() == []
        await settle()
        assert life.acks() == [("i-1", 1)]
        assert node(server).spec.unschedulable
        assert annotations(server) == {
            INSTRUCTION: "i-1",
            DEADLINE: "2026-11-15T12:05:00Z",
            KIND: "KIND_RECLAIM",
        }
        assert server.names(PODS) == []
        await clock.advance(2)
        assert life.reports() == [("n1", "DRAINED")]


async def test_a_node_is_confirmed_empty_twice_before_it_is_reported(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(1.9)
        assert life.reports() == []
        # A bind that was in flight when the cordon took effect.
        server.pod("late", "n1", app="web")
        server.budgets["web"] = 1
        await clock.advance(30)
        assert life.reports() == []
        server.budgets.clear()
        await clock.advance(9)
        assert server.evictions == [("late", None)]
        assert life.reports() == [("n1", "DRAINED")]


async def test_a_pod_that_came_between_two_looks_and_went_starts_the_count_anew(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(1)
        server.pod("late", "n1")
        await clock.advance(1.9)
        assert server.evictions == [("late", None)]
        assert life.reports() == []
        await clock.advance(0.2)
        assert life.reports() == [("n1", "DRAINED")]


async def test_a_pod_that_the_watch_did_not_show_starts_the_count_anew(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    async with living(server) as life:
        server.sinks = [each for each in server.sinks if each[0] is NODES]
        life.reclaim("n1")
        await clock.advance(1)
        server.pod("late", "n1")
        await clock.advance(1.5)
        server.remove(PODS, "late", "default")
        await clock.advance(1)
        assert server.calls.count(("list", "pods")) == 3
        assert life.reports() == []
        await clock.advance(2)
        assert life.reports() == [("n1", "DRAINED")]


@pytest.mark.parametrize(("grace", "reports"), [(1, 1), (2, 0)])
async def test_once_is_enough_where_the_deadline_is_close(server: FakeServer, grace: int, reports: int) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1", grace=grace)
        await settle()
        assert life.reports() == [("n1", "DRAINED")] * reports


async def test_rule_22_the_cordon_and_its_annotations_are_one_patch(server: FakeServer) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        await settle()
    assert [verb for verb, _ in server.calls] == ["patch", "list"]


async def test_daemons_mirrors_and_ended_pods_stay_and_pods_of_other_nodes_too(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    server.pod("daemon", "n1", ownerReferences=DAEMON)
    server.pod("mirror", "n1", annotations={"kubernetes.io/config.mirror": "x"})
    server.pod("done", "n1", phase="Succeeded")
    server.pod("crashed", "n1", phase="Failed")
    server.pod("elsewhere", "n2")
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(2)
        assert life.reports() == [("n1", "DRAINED")]
    assert server.evictions == []


async def test_a_terminating_pod_is_waited_for_and_not_evicted_again(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("slow", "n1", deletionTimestamp="2026-11-15T12:00:00Z")
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(60)
        assert server.evictions == []
        assert life.reports() == []
        server.remove(PODS, "slow", "default")
        await clock.advance(2)
        assert life.reports() == [("n1", "DRAINED")]


async def test_a_budget_that_blocks_is_respected_until_it_allows(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(100)
        assert server.names(PODS) == ["web-1"]
        assert life.reports() == []
        server.pod("web-2", "n2", app="web")
        await clock.advance(10)
        assert server.names(PODS) == ["web-2"]
        assert life.reports() == [("n1", "DRAINED")]
        tries = [name for verb, name in server.calls if verb == "evict"]
        assert len(tries) < 20


async def test_rule_14_a_reclaim_that_a_budget_blocks_to_the_end_is_given_up(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.pod("other", "n1", deletionTimestamp="2026-11-15T12:00:00Z")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1", grace=60)
        await clock.advance(59)
        assert node(server).spec.unschedulable
        await clock.advance(2)
        assert life.reports() == [("n1", "FAILED")]
        assert life.reason() == f"pod default/web-1 is left, and 1 more: {BUDGET}"
        assert not node(server).spec.unschedulable
        assert annotations(server) == {}
        calls = len(server.calls)
        await clock.advance(600)
        assert len(server.calls) == calls


@pytest.mark.parametrize("kind", [Kind.KIND_PREEMPT, Kind.KIND_PROVIDER_TAKES_BACK, Kind.KIND_UNSPECIFIED])
async def test_what_somebody_else_gets_stays_cordoned(server: FakeServer, clock: FakeClock, kind: Any) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1", grace=60, kind=kind)
        await clock.advance(61)
        assert life.reports() == [("n1", "FAILED")]
        assert node(server).spec.unschedulable
        assert annotations(server)[INSTRUCTION] == "i-1"


@pytest.mark.parametrize(
    ("kind", "grace", "given"),
    [
        (Kind.KIND_RECLAIM, 10, None),
        (Kind.KIND_PREEMPT, 10, 10),
        (Kind.KIND_PROVIDER_TAKES_BACK, 20, 20),
        (Kind.KIND_PREEMPT, 31, None),
        (Kind.KIND_PREEMPT, 30, None),
    ],
)
async def test_a_pods_own_grace_is_cut_only_for_a_machine_that_goes_anyway(
    server: FakeServer, kind: Any, grace: int, given: int | None
) -> None:
    server.node("n1")
    server.pod("web-1", "n1")
    async with living(server) as life:
        life.reclaim("n1", grace=grace, kind=kind)
        await settle()
    assert server.evictions == [("web-1", given)]


async def test_a_pod_that_the_watch_has_not_shown_yet_keeps_the_node_from_being_empty(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    async with living(server) as life:
        hidden, server.sinks = server.sinks, [each for each in server.sinks if each[0] is NODES]
        server.pod("late", "n1")
        life.reclaim("n1", grace=60)
        await clock.advance(10)
        assert life.reports() == []
        assert [verb for verb, _ in server.calls].count("list") <= 12
        server.sinks = hidden
        server.change(PODS, "late", {"metadata": {"labels": {"seen": "now"}}}, "default")
        await clock.advance(4)
        assert server.evictions == [("late", None)]
        assert life.reports() == [("n1", "DRAINED")]


async def test_an_eviction_that_is_granted_is_not_asked_for_again(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("web-1", "n1")
    server.lingering = True
    async with living(server) as life:
        life.reclaim("n1", grace=20)
        await clock.advance(21)
        assert server.evictions == [("web-1", None)]
        assert life.reason() == "pod default/web-1 is left: it was still terminating"


async def test_many_nodes_drain_at_once_and_the_ack_counts_those_found(server: FakeServer, clock: FakeClock) -> None:
    for number in range(40):
        server.node(f"n{number}")
        server.pod(f"pod-{number}", f"n{number}")
    async with living(server) as life:
        life.reclaim(*(f"n{number}" for number in range(41)))
        await clock.advance(3)
        assert life.acks() == [("i-1", 40)]
        assert sorted(life.reports()) == sorted((f"n{number}", "DRAINED") for number in range(41))


async def test_a_node_is_found_by_its_provider_id_and_reported_under_the_shards_name(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("ip-10-0-0-7", provider_id="sim://h1")
    server.node("m-1", provider_id="sim://other")
    async with living(server) as life:
        life.hear("m-1", provider_id="sim://h1")
        life.reclaim("m-1")
        await clock.advance(2)
        assert annotations(server, "ip-10-0-0-7")[CALLED] == "m-1"
        assert life.reports() == [("m-1", "DRAINED")]
        assert not node(server, "m-1").spec.unschedulable
        life.sent.clear()
        life.work.opened()
        assert life.sent[0].cordoned_nodes.nodes[0].node == "m-1"


# UIDs.


async def test_rule_22_a_node_made_anew_under_the_same_name_is_not_touched(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1", grace=60)
        await clock.advance(5)
        server.node("n1")
        server.budgets.clear()
        await clock.advance(100)
        assert life.reports() == [("n1", "FAILED")]
        assert server.evictions == []
        assert annotations(server) == {}


async def test_a_pod_made_anew_under_the_same_name_is_not_evicted(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("web-0", "n1")
    async with living(server) as life:
        server.sinks = [each for each in server.sinks if each[0] is NODES]
        server.pod("web-0", "n2")
        life.reclaim("n1")
        await clock.advance(5)
        assert server.evictions == []


def drains_of(server: FakeServer) -> tuple[Drains, Nodes]:
    """The machine alone, on a watch that announces nothing."""
    nodes, pods = Nodes(lambda _name: None), Pods(lambda _uid: True, lambda _node: None)
    server.watch(NODES, nodes)
    machines = KnownMachines("prod")
    objects = LeftNodes(server.client(), machines, nodes, server.clock.now)
    return Drains(machines, nodes, pods, objects, lambda _frame: None), nodes


def held(drains: Drains, server: FakeServer) -> Hold:
    instruction = pb.ReclaimInstruction(instruction_id="i-1", nodes=["n1"], grace_period_seconds=60)
    assert drains.instructed(instruction, 0.0, server.clock.wall()) == ["n1"]
    act = drains.next("n1", 0.0)
    assert isinstance(act, Cordon)
    drains.cordoned(act.hold)
    return act.hold


def test_a_node_that_is_gone_unannounced_ends_its_drain(server: FakeServer) -> None:
    server.node("n1")
    drains, nodes = drains_of(server)
    held(drains, server)
    nodes.replaced([])
    assert drains.next("n1", 0.0) is None
    assert list(drains) == []


def test_pods_are_evicted_only_for_the_instruction_that_stands_before_its_deadline_on_its_own_node(
    server: FakeServer,
) -> None:
    server.node("n1")
    drains, nodes = drains_of(server)
    hold = held(drains, server)
    assert drains.may_evict(hold, 59.9)
    assert not drains.may_evict(hold, 60.0)
    again = held(drains, server)
    assert drains.may_evict(again, 0.0)
    assert not drains.may_evict(hold, 0.0)
    server.node("n1")
    assert not drains.may_evict(again, 0.0)
    nodes.replaced([])
    assert not drains.may_evict(again, 0.0)


async def test_a_pod_that_the_watch_never_shows_ends_the_drain_at_its_deadline(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    async with living(server) as life:
        server.sinks = [each for each in server.sinks if each[0] is NODES]
        server.pod("late", "n1")
        life.reclaim("n1", grace=20)
        await clock.advance(22)
        assert life.reports() == [("n1", "FAILED")]
        assert not node(server).spec.unschedulable


async def test_a_node_made_anew_before_the_cordon_took_effect_is_not_cordoned(server: FakeServer) -> None:
    server.node("n1")
    async with living(server) as life:
        life.reclaim("n1")
        server.sinks.clear()
        server.node("n1")
        await settle()
        assert not node(server).spec.unschedulable
        assert life.acks() == [("i-1", 0)]


async def test_a_node_that_is_gone_is_as_empty_as_can_be(server: FakeServer) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1", "absent")
        await settle()
        server.remove(NODES, "n1")
        await settle()
        assert life.reports() == [("absent", "DRAINED"), ("n1", "DRAINED")]
        assert list(life.drains) == []


async def test_a_node_that_others_change_meanwhile_is_looked_at_anew(server: FakeServer) -> None:
    server.node("n1")
    async with living(server) as life:
        watched, server.sinks = server.sinks, []
        server.change(NODES, "n1", {"metadata": {"annotations": {"theirs": "1"}}})
        life.reclaim("n1")
        await settle()
        server.sinks = watched
        assert life.acks() == [("i-1", 1)]
        assert node(server).metadata.annotations["theirs"] == "1"


# Sessions and trouble.


async def test_nothing_is_reported_to_a_session_that_has_not_named_the_instruction(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    server.pod("web-1", "n1", app="web")
    server.budgets["web"] = 1
    async with living(server) as life:
        life.reclaim("n1")
        await settle()
        life.work.closed()
        life.sent.clear()
        life.work.opened()
        named = life.sent[0].cordoned_nodes.nodes
        assert [(each.instruction_id, each.node) for each in named] == [("i-1", "n1")]
        server.budgets.clear()
        await clock.advance(20)
        assert server.names(PODS) == []
        assert life.reports() == []
        life.reclaim("n1")
        await settle()
        assert life.reports() == [("n1", "DRAINED")]
        assert server.calls.count(("list", "pods")) == 3


async def test_an_api_server_that_is_away_only_delays(server: FakeServer, clock: FakeClock) -> None:
    server.node("n1")
    server.pod("web-1", "n1")
    server.refuse = UnreachableError
    async with living(server) as life:
        life.reclaim("n1")
        await clock.advance(30)
        assert life.acks() == []
        server.refuse = lambda _verb, _name: None
        await clock.advance(30)
        assert life.acks() == [("i-1", 1)]
        assert life.reports() == [("n1", "DRAINED")]


async def test_an_eviction_that_fails_for_another_reason_is_tried_again_and_named(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("n1")
    server.pod("web-1", "n1")
    two_budgets = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    server.refuse = lambda verb, name: ApiError(verb, name, two_budgets, code=500) if verb == "evict" else None
    async with living(server) as life:
        life.reclaim("n1", grace=30)
        await clock.advance(31)
        assert life.reason() == f"pod default/web-1 is left: {two_budgets}"
        assert len([verb for verb, _ in server.calls if verb == "evict"]) > 3
