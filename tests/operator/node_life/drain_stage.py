"""One operator's drains on an API server in memory, life after life."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bigfleet.kube.objects import Node
from bigfleet.kube.resources import NODES, PODS
from bigfleet.operator.drain_work import DrainWork
from bigfleet.operator.drains import Drains
from bigfleet.operator.holds import CALLED, DEADLINE, INSTRUCTION, KIND, WAS_CORDONED
from bigfleet.operator.machines import Machines
from bigfleet.operator.nodes import Nodes
from bigfleet.operator.pods import Pods
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from node_life.fakes import FakeServer, settle

Kind = pb.ReclaimInstruction
OURS = {INSTRUCTION, DEADLINE, KIND, CALLED, WAS_CORDONED}


class Life:
    """One life of the operator, as far as drains go."""

    def __init__(self, server: FakeServer) -> None:
        self.server, self.sent = server, list[pb.OperatorMessage]()
        self.machines = Machines("prod")
        self.nodes, self.pods = Nodes(self._node_changed), Pods(lambda _uid: True, self._pods_changed)
        self.drains = Drains(self.machines, self.nodes, self.pods, self.sent.append)
        clock = server.clock
        self.work = DrainWork(server.client(), self.drains, self.nodes, clock.now, clock.wall, wait=clock.wait)

    def _node_changed(self, name: str) -> None:
        self.work.node_changed(name)

    def _pods_changed(self, name: str) -> None:
        self.work.pods_changed(name)

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
async def living(server: FakeServer) -> AsyncIterator[Life]:
    life = Life(server)
    server.sinks.clear()
    server.watch(NODES, life.nodes)
    server.watch(PODS, life.pods)
    life.work.resumed()
    task = asyncio.create_task(life.work.run())
    life.work.opened()
    try:
        await settle()
        yield life
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def node(server: FakeServer, name: str = "n1") -> Node:
    found = server.find(NODES, name)
    assert found is not None
    return found


def annotations(server: FakeServer, name: str = "n1") -> dict[str, str]:
    return {key: value for key, value in node(server, name).metadata.annotations.items() if key in OURS}
