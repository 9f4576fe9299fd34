"""Emptying nodes on instruction: cordon, acknowledge, evict, report (protocol rules 14, 22). No I/O, no clock.

The cordon is written on the node with its instruction and deadline, and survives the operator. A drain is reported only
to a session that named its instruction.
"""

from bigfleet.sim.clusters.events import EventKind, Log
from bigfleet.sim.clusters.timers import Timers
from bigfleet.sim.clusters.world import Cordon, World
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

Frames = list[pb.OperatorMessage]

_DRAINED, _FAILED = pb.NodeDrainedReport.OUTCOME_DRAINED, pb.NodeDrainedReport.OUTCOME_FAILED


class Drains:
    """The drains of one cluster. Only where `reports` is set is the shard told how they end."""

    def __init__(self, world: World, log: Log, timers: Timers[Frames]) -> None:
        self._world, self._log, self._timers = world, log, timers
        self._named: set[str] = set()
        self._is_new = True
        self.reports = True

    def resumed(self, now: float) -> list[pb.CordonedNode]:
        """A session begins. Returns all cordons held; the first session also goes on with the drains of an earlier
        operator.
        """
        self._named.clear()
        held = [(node.name, node.cordon) for node in self._world.nodes.values() if node.cordon is not None]
        for name, cordon in held if self._is_new else ():
            self._begin(name, cordon, now)
        self._is_new = False
        return [pb.CordonedNode(instruction_id=cordon.instruction, node=name) for name, cordon in held]

    def instructed(self, instruction: pb.ReclaimInstruction, now: float) -> Frames:
        """Cordon, acknowledge, begin to evict. A repeated instruction is acknowledged again and gets a new deadline."""
        grace = max(0, instruction.grace_period_seconds)
        cordon = Cordon(instruction.instruction_id, now + grace, instruction.kind)
        self._log.note(now, EventKind.RECLAIM_HEARD, cordon.instruction)
        self._named.add(cordon.instruction)
        found = [name for name in instruction.nodes if name in self._world.nodes]
        ack = pb.ReclaimAck(instruction_id=cordon.instruction, nodes_started=len(found))
        frames = [pb.OperatorMessage(reclaim_ack=ack)]
        for name in found:
            before = self._cordon(name, cordon.instruction)
            self._world.cordon(name, cordon)
            if before is None:
                self._log.note(now, EventKind.CORDONED, name, cordon.instruction)
                self._begin(name, cordon, now)
            elif before != cordon:
                self._timers.at(cordon.deadline, self._stop, name, cordon)
        for name in instruction.nodes:
            frames += self._report_if_empty(name, cordon.instruction, now)
        return frames

    def withdrawn(self, withdrawn: pb.ReclaimWithdrawn, now: float) -> None:
        """Uncordon the nodes of an instruction that the shard has withdrawn, or those of them that it names."""
        for name in list(withdrawn.nodes or self._world.nodes):
            if self._cordon(name, withdrawn.instruction_id) is not None:
                self._uncordon(name, withdrawn.instruction_id, now)
        if not withdrawn.nodes:
            self._named.discard(withdrawn.instruction_id)

    def _begin(self, name: str, cordon: Cordon, now: float) -> None:
        self._timers.at(cordon.deadline, self._stop, name, cordon)
        for workload in self._world.workloads_on(name):
            if workload.leave_seconds is not None:
                when = now + workload.leave_seconds
                self._timers.at(when, self._evict, name, cordon.instruction, workload.name)

    def _evict(self, now: float, name: str, instruction: str, workload: str) -> Frames:
        cordon = self._cordon(name, instruction)
        if cordon is None or cordon.deadline < now:
            return []
        # If the workload was scaled down meanwhile, its pods are gone already.
        if workload in self._world.nodes[name].pods:
            self._world.evict(name, workload)
        return self._report_if_empty(name, instruction, now)

    def _stop(self, now: float, name: str, cordon: Cordon) -> Frames:
        """The deadline has come and pods are left. A reclaimed node is uncordoned; any other stays cordoned."""
        if self._cordon(name, cordon.instruction) != cordon or not self._world.nodes[name].pods:
            return []
        reason = f"{self._world.nodes[name].pods.total()} pods are left and may not be evicted"
        self._log.note(now, EventKind.DRAIN_FAILED, name, reason)
        if cordon.kind == pb.ReclaimInstruction.KIND_RECLAIM:
            self._uncordon(name, cordon.instruction, now)
        return self._report(name, cordon.instruction, _FAILED, reason)

    def _report_if_empty(self, name: str, instruction: str, now: float) -> Frames:
        """Report a node as drained if it is empty or not there."""
        if name in self._world.nodes and self._world.nodes[name].pods:
            return []
        self._log.note(now, EventKind.DRAINED, name, instruction)
        return self._report(name, instruction, _DRAINED)

    def _report(
        self, name: str, instruction: str, outcome: pb.NodeDrainedReport.Outcome.ValueType, reason: str = ""
    ) -> Frames:
        if not self.reports or instruction not in self._named:
            return []
        report = pb.NodeDrainedReport(instruction_id=instruction, node_name=name, outcome=outcome, reason=reason)
        return [pb.OperatorMessage(node_drained=report)]

    def _cordon(self, name: str, instruction: str) -> Cordon | None:
        """The node's cordon, if it is this instruction's."""
        node = self._world.nodes.get(name)
        return None if node is None or node.cordon is None or node.cordon.instruction != instruction else node.cordon

    def _uncordon(self, name: str, instruction: str, now: float) -> None:
        self._world.uncordon(name)
        self._log.note(now, EventKind.UNCORDONED, name, instruction)
