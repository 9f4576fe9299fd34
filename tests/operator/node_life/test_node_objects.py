"""Nodes left over go, Nodes in use stay, and the shard hears which have come up (protocol rules 16, 22)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from bigfleet.kube.errors import UnreachableError
from bigfleet.kube.objects.resources import LEASES, NODES
from bigfleet.operator.node_life.left_nodes import LeftNodes, NodeInTheWayError
from bigfleet.operator.node_life.machines import KnownMachines
from bigfleet.operator.node_life.ready_reports import NodeReadyReports
from bigfleet.operator.rollup.nodes import Nodes
from bigfleet.operator.waiting import SETTLED_SECONDS
from bigfleet.wire.v1alpha1 import provider_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.operator.fakes import FakeClock, FakeServer, settle


class Life:
    """One life of the operator, as far as Node objects go."""

    def __init__(self, server: FakeServer) -> None:
        clock, self.sent = server.clock, list[tuple[str, str, str]]()
        self.asked: dict[str, datetime] = {}
        self.ready: list[str] = []
        self.machines, self.nodes = KnownMachines("prod"), Nodes(self._changed)
        self.objects = LeftNodes(server.client(), self.machines, self.nodes, clock.now, wait=clock.wait)
        self.readiness = NodeReadyReports(self.machines, self.nodes, self.asked.get, self.ready.append)

    def _changed(self, name: str) -> None:
        self.objects.node_changed(name)
        self._say(self.readiness.node_changed(name))

    def reconnected(self) -> None:
        self.objects.closed()
        self.machines.opened()
        self.readiness.opened()
        self.objects.opened()
        self.sent.clear()

    def heard(self, state: str, machine: str = "m-1", provider_id: str = "sim://h1", **fields: Any) -> None:
        number = provider_pb2.MachineState.Value(f"MACHINE_STATE_{state}")
        fields = {"cluster_id": "prod", "node_name": machine, **fields}
        update = pb.NodeStateUpdate(machine_id=machine, state=number, provider_id=provider_id, **fields)
        found = self.machines.heard(update)
        if found is not None:
            self.objects.heard(found)
            self._say(self.readiness.heard(found))

    def _say(self, frames: list[pb.OperatorMessage]) -> None:
        for each in frames:
            report = each.node_ready
            state = pb.NodeReadyReport.State.Name(report.state).removeprefix("STATE_")
            self.sent.append((report.machine_id, state, report.provider_id))

    def said(self) -> list[str]:
        return [state for _, state, _ in self.sent]


@asynccontextmanager
async def living(server: FakeServer) -> AsyncIterator[Life]:
    life = Life(server)
    server.sinks.clear()
    server.watch(NODES, life.nodes)
    task = asyncio.create_task(life.objects.run())
    try:
        yield life
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def renew(server: FakeServer, name: str = "m-1", ago: float = 0.0) -> None:
    when = (server.clock.wall() - timedelta(seconds=ago)).isoformat(timespec="microseconds")
    server.put(LEASES, {"metadata": {"name": name}, "spec": {"renewTime": when}}, "kube-node-lease")


# What is left over.


@pytest.mark.parametrize("state", ["IDLE", "DELETING", "SPECULATIVE"])
async def test_rule_22_a_node_left_over_goes_once_its_lease_is_old(
    server: FakeServer, clock: FakeClock, state: str
) -> None:
    server.node("m-1", provider_id="sim://h1")
    renew(server, ago=10)
    async with living(server) as life:
        life.heard(state, provider_id="" if state == "SPECULATIVE" else "sim://h1")
        await clock.advance(59)
        assert server.names(NODES) == ["m-1"]
        await clock.advance(2)
        assert server.names(NODES) == []


@pytest.mark.parametrize("state", ["CREATING", "CONFIGURING", "CONFIGURED", "DRAINING", "FAILED"])
async def test_a_node_in_use_stays_however_old_its_lease(server: FakeServer, clock: FakeClock, state: str) -> None:
    server.node("m-1", provider_id="sim://h1")
    renew(server, ago=9999)
    async with living(server) as life:
        life.heard(state)
        await clock.advance(600)
    assert server.names(NODES) == ["m-1"]


async def test_rule_22_a_lease_that_is_still_renewed_keeps_its_node(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1", provider_id="sim://h1")
    async with living(server) as life:
        for _ in range(30):
            renew(server)
            life.heard("IDLE")
            await clock.advance(10)
        assert server.names(NODES) == ["m-1"]
        await clock.advance(61)
        assert server.names(NODES) == []


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
async def test_a_kubelet_whose_clock_is_wrong_is_alive_all_the_same(
    server: FakeServer, clock: FakeClock, skew: float
) -> None:
    server.node("m-1", provider_id="sim://h1")
    async with living(server) as life:
        for _ in range(30):
            renew(server, ago=skew)
            life.heard("IDLE")
            await clock.advance(10)
        assert server.names(NODES) == ["m-1"]
        await clock.advance(61)
        assert server.names(NODES) == []


async def test_a_machine_that_is_bound_again_meanwhile_keeps_its_node(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1", provider_id="sim://h1")
    renew(server, ago=30)
    async with living(server) as life:
        life.heard("IDLE")
        await clock.advance(20)
        life.heard("CONFIGURING")
        await clock.advance(100)
    assert server.names(NODES) == ["m-1"]


async def test_a_machine_that_is_bound_again_while_its_lease_is_looked_at_keeps_its_node(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("m-1", provider_id="sim://h1")
    renew(server)
    async with living(server) as life:
        life.heard("IDLE")
        await clock.advance(55)
        server.refuse = lambda _verb, _name: life.heard("CONFIGURING")
        await clock.advance(10)
    assert server.names(NODES) == ["m-1"]


async def test_nothing_is_deleted_on_the_word_of_a_session_that_is_over(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1", provider_id="sim://h1")
    renew(server, ago=30)
    async with living(server) as life:
        life.heard("IDLE")
        await clock.advance(55)
        life.objects.closed()
        server.change(NODES, "m-1", {"metadata": {"labels": {"a": "b"}}})
        await clock.advance(100)
        assert server.names(NODES) == ["m-1"]
        life.reconnected()
        life.heard("CONFIGURED", "m-2", "sim://h2")
        server.change(NODES, "m-1", {"metadata": {"labels": {"a": "c"}}})
        await clock.advance(SETTLED_SECONDS - 1)
        life.heard("CONFIGURED")
        await clock.advance(100)
        assert server.names(NODES) == ["m-1"]
        life.heard("IDLE")
        await settle()
        assert server.names(NODES) == []


async def test_a_node_of_another_host_under_the_same_name_goes_too(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1", provider_id="sim://earlier")
    server.node("ip-7", provider_id="sim://h1")
    renew(server)
    renew(server, "ip-7")
    async with living(server) as life:
        life.heard("IDLE")
        await clock.advance(61)
    assert server.names(NODES) == []


async def test_a_node_without_a_lease_counts_from_the_first_look(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1")
    await clock.advance(100)
    async with living(server) as life:
        life.heard("IDLE")
        await clock.advance(58)
        assert server.names(NODES) == ["m-1"]
        await clock.advance(3)
        assert server.names(NODES) == []


async def test_a_node_made_anew_since_it_was_looked_at_is_not_deleted(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1")
    renew(server)
    async with living(server) as life:
        life.heard("IDLE")
        await clock.advance(55)
        server.sinks.clear()
        server.node("m-1")
        await clock.advance(10)
    assert ("delete", "m-1") in server.calls
    assert server.names(NODES) == ["m-1"]


async def test_a_node_made_anew_is_watched_anew(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1")
    async with living(server) as life:
        life.heard("IDLE")
        await clock.advance(55)
        server.node("m-1")
        await clock.advance(50)
        assert server.names(NODES) == ["m-1"]


async def test_a_node_that_comes_after_the_word_that_its_machine_is_idle_goes(
    server: FakeServer, clock: FakeClock
) -> None:
    async with living(server) as life:
        life.heard("IDLE")
        server.node("m-1")
        await clock.advance(70)
    assert server.names(NODES) == []


async def test_a_delete_that_fails_is_tried_again(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1")
    renew(server)
    server.refuse = lambda verb, name: UnreachableError(verb, name) if verb == "delete" else None
    async with living(server) as life:
        life.heard("IDLE")
        await clock.advance(85)
        assert server.calls.count(("delete", "m-1")) == 3
        assert server.names(NODES) == ["m-1"]
        server.refuse = lambda _verb, _name: None
        await clock.advance(11)
    assert server.names(NODES) == []


async def test_a_machine_that_left_unheard_can_be_named(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1")
    server.node("m-2")
    renew(server)
    async with living(server) as life:
        life.objects.left("m-1", "")
        await clock.advance(61)
    assert server.names(NODES) == ["m-2"]


@pytest.mark.parametrize("state", ["CONFIGURED", "IDLE"])
async def test_a_machine_that_is_named_after_all_has_not_left(server: FakeServer, clock: FakeClock, state: str) -> None:
    server.node("m-1", provider_id="sim://h1")
    renew(server)
    async with living(server) as life:
        life.objects.left("m-1", "")
        await clock.advance(30)
        life.heard(state)
        await clock.advance(100)
    assert server.names(NODES) == (["m-1"] if state == "CONFIGURED" else [])


async def test_a_machine_that_is_named_with_another_host_keeps_no_node_of_its_former_one(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("m-1", provider_id="sim://earlier")
    async with living(server) as life:
        life.objects.left("m-1", "")
        life.heard("CONFIGURED")
        await clock.advance(61)
    assert server.names(NODES) == []


async def test_a_kubelet_is_alive_once_it_was_seen_so_for_two_minutes_and_until_it_is_silent(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("m-1")
    async with living(server) as life:
        assert not life.objects.is_alive("m-1")
        life.objects.left("m-1", "")
        for _ in range(11):
            renew(server)
            await clock.advance(10)
            assert not life.objects.is_alive("m-1")
        renew(server)
        await clock.advance(10)
        assert life.objects.is_alive("m-1")
        life.objects.let_be("m-1")
        await clock.advance(60)
        assert not life.objects.is_alive("m-1")
        assert server.names(NODES) == ["m-1"]


async def test_renewals_before_a_long_silence_do_not_count(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1")
    renew(server)
    async with living(server) as life:
        life.objects.left("m-1", "")
        await clock.advance(10)
        life.objects.closed()
        await clock.advance(300)
        renew(server)
        life.objects.left("m-1", "")
        await clock.advance(5)
        assert not life.objects.is_alive("m-1")


async def test_a_machine_that_left_unheard_may_be_named_by_the_next_session_until_that_has_settled(
    server: FakeServer, clock: FakeClock
) -> None:
    server.node("m-1")
    renew(server, ago=10)
    async with living(server) as life:
        life.objects.left("m-1", "")
        await settle()
        life.reconnected()
        await clock.advance(SETTLED_SECONDS - 1)
        assert server.names(NODES) == ["m-1"]
        await clock.advance(20)
        assert server.names(NODES) == []


async def test_few_calls_are_made_for_a_node_that_stays(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1")
    async with living(server) as life:
        renew(server)
        life.heard("IDLE")
        for _ in range(60):
            renew(server)
            await clock.advance(10)
        assert len(server.calls) <= 61


# Before a machine joins.


async def test_rule_22_the_way_is_cleared_of_old_nodes_and_of_no_live_one(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1", provider_id="sim://earlier")
    renew(server, ago=9999)
    async with living(server) as life:
        for seconds in (0, 59):
            await clock.advance(seconds)
            with pytest.raises(NodeInTheWayError, match=rf"Node m-1 .* without renewal for {seconds} s"):
                await life.objects.clear("m-1", "sim://h1")
        renew(server)
        await clock.advance(1)
        with pytest.raises(NodeInTheWayError, match="without renewal for 0 s"):
            await life.objects.clear("m-1", "sim://h1")
        assert server.names(NODES) == ["m-1"]
        await clock.advance(60)
        await life.objects.clear("m-1", "sim://h1")
        assert server.names(NODES) == []
        await life.objects.clear("m-1", "sim://h1")
        await life.objects.clear("", "")


async def test_the_way_is_clear_at_once_where_the_node_has_been_watched(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1", provider_id="sim://h1")
    renew(server)
    server.refuse = lambda verb, name: UnreachableError(verb, name) if verb == "delete" else None
    async with living(server) as life:
        life.heard("IDLE")
        await clock.advance(65)
        server.refuse = lambda _verb, _name: None
        await life.objects.clear("m-1", "sim://h1")
    assert server.names(NODES) == []


async def test_a_node_made_anew_in_the_way_is_an_error(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1")
    renew(server)
    async with living(server) as life:
        with pytest.raises(NodeInTheWayError):
            await life.objects.clear("m-1", "")
        await clock.advance(60)
        server.sinks.clear()
        server.node("m-1")
        with pytest.raises(NodeInTheWayError, match="another Node"):
            await life.objects.clear("m-1", "")
    assert server.names(NODES) == ["m-1"]


# Readiness.


async def test_each_step_of_a_node_is_said_once(server: FakeServer) -> None:
    async with living(server) as life:
        life.heard("CONFIGURING")
        life.heard("CONFIGURED")
        server.node("m-1", provider_id="sim://h1", ready=False)
        server.change(NODES, "m-1", {"metadata": {"labels": {"a": "b"}}})
        server.change(NODES, "m-1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        assert life.sent == [
            ("m-1", "ABSENT", ""),
            ("m-1", "NOT_READY", "sim://h1"),
            ("m-1", "READY", "sim://h1"),
        ]
        assert life.ready == ["m-1"]


async def test_rule_16_ready_is_never_taken_back_within_a_binding(server: FakeServer) -> None:
    server.node("m-1", provider_id="sim://h1")
    async with living(server) as life:
        life.heard("CONFIGURED")
        server.change(NODES, "m-1", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
        life.heard("DRAINING")
        assert life.said() == ["READY"]
        life.reconnected()
        life.heard("DRAINING")
        assert life.said() == ["READY"]
        assert life.ready == ["m-1"]


@pytest.mark.parametrize("name", ["m-1", "ip-7"])
async def test_a_node_that_is_deleted_is_absent_however_ready_it_was(server: FakeServer, name: str) -> None:
    server.node(name, provider_id="sim://h1")
    async with living(server) as life:
        life.heard("CONFIGURED")
        server.remove(NODES, name)
        assert life.sent == [("m-1", "READY", "sim://h1"), ("m-1", "ABSENT", "")]
        server.node(name, provider_id="sim://h1", ready=False)
        server.change(NODES, name, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        assert life.said() == ["READY", "ABSENT", "NOT_READY", "READY"]


async def test_the_next_binding_starts_anew(server: FakeServer) -> None:
    server.node("m-1", provider_id="sim://h1")
    async with living(server) as life:
        life.heard("CONFIGURED")
        life.heard("IDLE")
        server.remove(NODES, "m-1")
        life.heard("CONFIGURING")
        assert life.said() == ["READY", "ABSENT"]
        life.readiness.asked("m-1")
        server.node("m-1", provider_id="sim://h1", ready=False)
        assert life.said() == ["READY", "ABSENT", "NOT_READY"]


async def test_rule_22_a_node_from_before_the_request_does_not_count(server: FakeServer, clock: FakeClock) -> None:
    server.node("m-1", provider_id="sim://h1")
    async with living(server) as life:
        life.asked["m-1"] = clock.wall() + timedelta(seconds=1)
        life.heard("CONFIGURED")
        assert life.said() == ["ABSENT"]
        await clock.advance(1)
        server.node("m-1", provider_id="sim://h1")
        assert life.said() == ["ABSENT", "READY"]


@pytest.mark.parametrize("provider_id", ["sim://other", ""])
async def test_a_node_is_its_machines_by_provider_id_and_where_it_has_none_by_name(
    server: FakeServer, provider_id: str
) -> None:
    server.node("m-1", provider_id=provider_id)
    async with living(server) as life:
        life.heard("CONFIGURED")
        assert life.said() == ["ABSENT" if provider_id else "READY"]


async def test_a_node_of_another_name_is_found_by_its_provider_id(server: FakeServer) -> None:
    async with living(server) as life:
        life.heard("CONFIGURED")
        server.node("ip-7", provider_id="sim://h1", ready=False)
        server.remove(NODES, "ip-7")
        assert life.said() == ["ABSENT", "NOT_READY", "ABSENT"]


async def test_only_machines_that_this_session_named_are_reported(server: FakeServer) -> None:
    async with living(server) as life:
        life.heard("CONFIGURED")
        life.reconnected()
        server.node("m-1", provider_id="sim://h1")
        assert life.sent == []
        life.heard("CONFIGURED")
        assert life.said() == ["READY"]


async def test_what_is_of_another_cluster_or_in_no_known_state_says_nothing(server: FakeServer) -> None:
    async with living(server) as life:
        life.heard("CONFIGURED", cluster_id="other")
        life.heard("UNSPECIFIED")
        life.heard("CREATING")
        assert life.sent == []
