"""One operator's drains on an API server in memory, life after life."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bigfleet.kube.objects.kinds import Node
from bigfleet.kube.objects.resources import LEASES, NODES, PODS
from bigfleet.operator.node_life.drain_work import DrainWork
from bigfleet.operator.node_life.drains import Drains
from bigfleet.operator.node_life.holds import CALLED, DEADLINE, INSTRUCTION, KIND, WAS_CORDONED
from bigfleet.operator.node_life.left_nodes import LeftNodes
from bigfleet.operator.node_life.machines import KnownMachines
from bigfleet.operator.rollup.nodes import Nodes
from bigfleet.operator.rollup.pods import Pods
from bigfleet.wire.v1alpha1 import provider_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.operator.fakes import FakeServer, settle

Kind = pb.ReclaimInstruction
OURS = {INSTRUCTION, DEADLINE, KIND, CALLED, WAS_CORDONED}


class Life:
    """One life of the operator, as far as drains go."""

    def __init__(self, server: FakeServer) -> None:
        self.server, self.sent = server, list[pb.OperatorMessage]()
        self.machines = KnownMachines("prod")
        self.nodes, self.pods = Nodes(self._node_changed), Pods(lambda _uid: True, self._pods_changed)
        clock = server.clock
        self.objects = LeftNodes(server.client(), self.machines, self.nodes, clock.now, wait=clock.wait)
        self.drains = Drains(self.machines, self.nodes, self.pods, self.objects, self.sent.append)
        self.work = DrainWork(server.client(), self.drains, self.nodes, clock.now, clock.wall, wait=clock.wait)

    def _node_changed(self, name: str) -> None:
        self.objects.node_changed(name)
        self.work.node_changed(name)

    def _pods_changed(self, name: str) -> None:
        self.work.pods_changed(name)

    def hear(self, name: str, state: str = "CONFIGURED", provider_id: str = "") -> None:
        number = provider_pb2.MachineState.Value(f"MACHINE_STATE_{state}")
        update = pb.NodeStateUpdate(machine_id=name, cluster_id="prod", state=number, provider_id=provider_id)
        machine = self.machines.heard(update)
        assert machine is not None
        self.objects.heard(machine)
        self.work.heard(machine)

    def reconnect(self) -> None:
        self.work.closed()
        self.objects.closed()
        self.machines.opened()
        self.work.opened()
        self.objects.opened()

    def reclaim(self, *nodes: str, name: str = "i-1", grace: int = 300, kind: Any = Kind.KIND_RECLAIM) -> None:
        self.work.instructed(
            pb.ReclaimInstruction(instruction_id=name, nodes=nodes, grace_period_seconds=grace, kind=kind)
        )

    def withdraw(self, *nodes: str, name: str = "i-1") -> None:
        self.work.withdrawn(pb.ReclaimWithdrawn(instruction_id=name, nodes=nodes))

    def acks(self) -> list[tuple[str, int]]:
        acks = [each.reclaim_ack for each in self.sent if each.WhichOneof("payload") == "reclaim_ack"]
        return [(each.instruction_id, each.nodes_started) for each in acks]

    def reports(self) -> list[tuple[str, str]]:
        reports = [each.node_drained for each in self.sent if each.WhichOneof("payload") == "node_drained"]
        outcome = pb.NodeDrainedReport.Outcome
        return [(each.node_name, outcome.Name(each.outcome).removeprefix("OUTCOME_")) for each in reports]

    def reason(self) -> str:
        return next(each.node_drained.reason for each in reversed(self.sent) if each.HasField("node_drained"))


@asynccontextmanager
async def living(server: FakeServer, *, named: bool = True) -> AsyncIterator[Life]:
    """A life with a session, in which the shard has named every Node's machine unless that is to come."""
    life = Life(server)
    server.sinks.clear()
    server.watch(NODES, life.nodes)
    server.watch(PODS, life.pods)
    life.work.resumed()
    tasks = asyncio.create_task(life.work.run()), asyncio.create_task(life.objects.run())
    life.work.opened()
    life.objects.opened()
    for each in life.nodes if named else ():
        life.hear(each.metadata.name)
    try:
        await settle()
        yield life
        assert not any(task.done() for task in tasks), tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def renew(server: FakeServer, name: str = "n1") -> None:
    """The Node's kubelet is alive."""
    when = server.clock.wall().isoformat(timespec="microseconds")
    server.put(LEASES, {"metadata": {"name": name}, "spec": {"renewTime": when}}, "kube-node-lease")


def node(server: FakeServer, name: str = "n1") -> Node:
    found = server.find(NODES, name)
    assert found is not None
    return found


def annotations(server: FakeServer, name: str = "n1") -> dict[str, str]:
    return {key: value for key, value in node(server, name).metadata.annotations.items() if key in OURS}
