"""Nodes whose machines have left go, though sessions are cut meanwhile; all that judges them together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry

from bigfleet.kube.objects.kinds import Node, NodeSpec
from bigfleet.kube.objects.resources import LEASES, NODES, UPCOMING_NODES
from bigfleet.model.crd import NodePhase, ObjectMeta, UpcomingNode
from bigfleet.operator.bootstrap.answers import BootstrapAnswers
from bigfleet.operator.core import Clocks, Core, Parts
from bigfleet.operator.mirrors.available_capacity import AvailableCapacities
from bigfleet.operator.mirrors.mirror import Mirror
from bigfleet.operator.mirrors.upcoming_nodes import UpcomingNodes
from bigfleet.operator.node_life.drain_work import DrainWork
from bigfleet.operator.node_life.left_nodes import LeftNodes
from bigfleet.operator.node_life.machines import KnownMachines
from bigfleet.operator.node_life.ready_reports import NodeReadyReports
from bigfleet.operator.rollup.acknowledge import Acknowledger
from bigfleet.operator.rollup.nodes import Nodes
from bigfleet.telemetry.metrics import OperatorMetrics
from bigfleet.wire.parting import GONE
from bigfleet.wire.v1alpha1 import provider_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.operator.fakes import FakeClock, FakeServer, settle


class Life:
    """One life of the operator, with all that looks after Nodes."""

    def __init__(self, server: FakeServer) -> None:
        clock, client, self.server = server.clock, server.client(), server
        clocks = Clocks(clock.now, clock.wall, lambda: int(clock.now() * 1e9))
        metrics = OperatorMetrics(CollectorRegistry())
        self.core = Core("prod", 1e9, clocks, metrics, lambda _event: None, lambda: None)
        machines, nodes = KnownMachines("prod"), self.core.view.nodes
        self.objects = LeftNodes(client, machines, nodes, clock.now, wait=clock.wait)
        self.mirror: Mirror[UpcomingNode] = Mirror(client, UPCOMING_NODES, lambda *_: None)
        available = MagicMock(AvailableCapacities)
        available.due.return_value = float("inf")
        self.core.complete(
            Parts(
                machines,
                NodeReadyReports(machines, nodes, lambda _machine: None, lambda _machine: None),
                self.objects,
                cast("BootstrapAnswers", MagicMock(BootstrapAnswers)),
                cast("DrainWork", MagicMock(DrainWork)),
                UpcomingNodes(self.mirror, self.core.is_ready, clock.wall),
                cast("AvailableCapacities", available),
                cast("Acknowledger", MagicMock(Acknowledger)),
            )
        )

    def open(self) -> None:
        self.core.opened(lambda _frame: None)

    def hear(self, state: str, machine: str = "m-1", last_error: str = "") -> None:
        number = provider_pb2.MachineState.Value(f"MACHINE_STATE_{state}")
        update = pb.NodeStateUpdate(
            machine_id=machine, cluster_id="prod", state=number, provider_id=f"sim://{machine}", last_error=last_error
        )
        self.core.received(pb.ShardMessage(node_state_update=update))

    async def passes(self, seconds: float) -> None:
        """So much time, with every tick that falls due."""
        clock = self.server.clock
        end = clock.now() + seconds
        while (due := self.core.due()) <= end:
            await clock.advance(max(0.0, due - clock.now()))
            self.core.tick()
            await settle()
        await clock.advance(end - clock.now())

    async def cut(self) -> None:
        """The session is cut, and the next names no machine but m-2."""
        self.core.closed("cut")
        await self.passes(5)
        self.open()
        self.hear("CONFIGURED", "m-2")

    def phase(self) -> NodePhase | None:
        found = self.server.find(UPCOMING_NODES, "m-1")
        return None if found is None or found.status is None else found.status.phase


@asynccontextmanager
async def living(server: FakeServer) -> AsyncIterator[Life]:
    """A life with a session that has named two machines, whose Nodes are seen."""
    life = Life(server)
    server.sinks.clear()
    server.watch(NODES, life.core.view.nodes)
    server.watch(UPCOMING_NODES, life.mirror)
    life.core.synced()
    tasks = [asyncio.create_task(each.run()) for each in (life.objects, life.mirror)]
    life.open()
    life.hear("CONFIGURED")
    life.hear("CONFIGURED", "m-2")
    await life.passes(1)
    try:
        yield life
        assert not any(task.done() for task in tasks), tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def joined(name: str = "m-1") -> FakeServer:
    """The Node of m-1, whose kubelet has just gone silent, and that of m-2."""
    server = FakeServer(FakeClock())
    server.node(name, provider_id="sim://m-1")
    server.node("m-2", provider_id="sim://m-2")
    renewed = server.clock.wall().isoformat(timespec="microseconds")
    server.put(LEASES, {"metadata": {"name": name}, "spec": {"renewTime": renewed}}, "kube-node-lease")
    return server


@pytest.mark.parametrize("states", [("FAILED",), ("DRAINING", "IDLE")])
@pytest.mark.parametrize("cut", [False, True])
async def test_the_node_of_a_machine_that_left_goes_though_the_session_is_cut_before_its_minute(
    states: tuple[str, ...], cut: bool
) -> None:
    server = joined()
    async with living(server) as life:
        for state in states:
            life.hear(state, last_error=GONE if state == "FAILED" else "")
        await life.passes(30)
        if cut:
            await life.cut()
        await life.passes(200)
        assert server.names(NODES) == ["m-2"]


@pytest.mark.parametrize("last_renewal", [0, 60])
async def test_when_the_upcoming_node_of_a_machine_is_gone_its_node_is_too(last_renewal: int) -> None:
    """So whoever uninstalls waits for UpcomingNodes, and then no Node is left."""
    server = joined()
    async with living(server) as life:
        life.hear("DRAINING")
        life.hear("IDLE")
        await life.passes(1)
        for _ in range(last_renewal // 10):
            await life.passes(10)
            renewed = server.clock.wall().isoformat(timespec="microseconds")
            server.change(LEASES, "m-1", {"spec": {"renewTime": renewed}}, "kube-node-lease")
        while server.names(NODES) == ["m-1", "m-2"]:
            assert life.phase() == "Drained"
            await life.passes(1)
        while life.phase() is not None:
            await life.passes(1)
        assert server.names(NODES) == ["m-2"]


async def test_the_node_of_a_machine_that_left_stays_if_the_next_session_has_it_after_all() -> None:
    server = joined()
    async with living(server) as life:
        life.hear("DRAINING")
        life.hear("IDLE")
        await life.passes(30)
        await life.cut()
        life.hear("CONFIGURED")
        await life.passes(3600)
        assert server.names(NODES) == ["m-1", "m-2"]


async def test_a_session_that_ends_before_it_has_settled_takes_no_node() -> None:
    server = joined()
    async with living(server) as life:
        life.hear("FAILED", last_error=GONE)
        await life.passes(30)
        await life.cut()
        await life.passes(50)
        life.core.closed("cut")
        await life.passes(3600)
        assert server.names(NODES) == ["m-1", "m-2"]


@pytest.mark.parametrize(("status", "phase"), [("True", "Ready"), ("Unknown", "Registered")])
async def test_the_node_of_a_machine_that_left_while_nobody_listened_goes_ready_or_not(
    status: str, phase: NodePhase
) -> None:
    server = joined()
    async with living(server) as life:
        server.change(NODES, "m-1", {"status": {"conditions": [{"type": "Ready", "status": status}]}})
        await life.passes(1)
        assert life.phase() == phase
        await life.cut()
        await life.passes(200)
        assert life.phase() is None
        assert server.names(NODES) == ["m-2"]


async def test_a_machine_whose_node_has_another_name_is_ready_no_more_once_that_is_gone() -> None:
    server = joined("ip-10-0-0-1")
    async with living(server) as life:
        assert life.phase() == "Ready"
        server.remove(NODES, "ip-10-0-0-1")
        await settle()
        assert life.phase() == "Registered"


def test_a_node_is_found_by_its_host_once_an_older_one_of_that_host_is_gone() -> None:
    def node(name: str, provider_id: str = "sim://m-1") -> Node:
        return Node(metadata=ObjectMeta(name=name, uid=name), spec=NodeSpec(provider_id=provider_id))

    def found(provider_id: str) -> str | None:
        there = nodes.by_provider_id(provider_id)
        return None if there is None else there.metadata.name

    nodes = Nodes(lambda _name: None)
    for name in ("old", "new", "old"):
        nodes.put(node(name))
    assert found("sim://m-1") == "old"
    nodes.removed(node("old"))
    assert found("sim://m-1") == "new"
    nodes.put(node("new", "sim://m-2"))
    assert (found("sim://m-1"), found("sim://m-2")) == (None, "new")
