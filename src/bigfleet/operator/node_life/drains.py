"""Drains as a state machine without I/O: cordon, acknowledge, evict, report (protocol rules 14, 22).

What must survive the operator is written on the Node, in the same patch as the cordon. A drain is about one Node, known
by its UID, and ends when that Node does. `next` says what is to be done for a node now; `drain_work` does it and tells
how it went. Deadlines are monotonic times here and wall times on the Node.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import structlog

from bigfleet.kube.objects.kinds import Pod
from bigfleet.model.machine import MachineState
from bigfleet.operator.node_life.drain_acts import Confirm, Cordon, DrainAct, Evict, Recordon, Uncordon, Wait
from bigfleet.operator.node_life.holds import (
    INSTRUCTION,
    MAX_GRACE,
    EvictionAttempt,
    Hold,
    HoldPhase,
    from_node,
    grace,
    holds_node,
    why_left,
)
from bigfleet.operator.node_life.machines import KnownMachine, KnownMachines, belongs, find_node
from bigfleet.operator.node_life.views import Leftovers, NodesSeen, PodsOnNodes
from bigfleet.operator.waiting import SETTLED_SECONDS
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

# Nodes of one instruction that are looked at; no shard names as many.
_MAX_NODES = 10_000
_CORDONED_IN_A_FRAME = 10_000
# Seconds before a blocked eviction is asked for again, at first and at most.
_FIRST_RETRY, _LAST_RETRY = 1.0, 10.0
# How long an eviction that was granted may take to show before it is asked for again.
_SHOWS_SECONDS = 30.0
# How soon the API server is asked again when it shows pods that the watch does not.
_LOOK_AGAIN_SECONDS = 1.0
# How long a node must have been empty. A pod that was being bound when the cordon took effect shows by then.
_EMPTY_SECONDS = 2.0
# How often a Node whose machine nobody names is looked at for signs of a living kubelet.
_KUBELET_SECONDS = 10.0
_MAX_REASON = 400
# Nobody wants these drained; what the shard says of the machine decides what becomes of the Node.
_FREED = frozenset({HoldPhase.SUSPENDED, HoldPhase.LEAVING})
# The key in `Hold.tries` under which the next question to the API server is noted; no pod has an empty UID.
_CONFIRM = ""

_DRAINED, _FAILED = pb.NodeDrainedReport.OUTCOME_DRAINED, pb.NodeDrainedReport.OUTCOME_FAILED

_log = structlog.get_logger("bigfleet.operator")


class _Ack:
    """An instruction that is acknowledged once all its nodes are cordoned."""

    def __init__(self, waiting: set[str]) -> None:
        #: Nodes whose cordon has not taken effect yet.
        self.waiting = waiting
        #: Nodes that the acknowledgement counts.
        self.found = len(waiting)


class Drains:
    """The drains of one cluster. `next` is asked only once all Nodes and pods are known."""

    def __init__(
        self,
        machines: KnownMachines,
        nodes: NodesSeen,
        pods: PodsOnNodes,
        leftovers: Leftovers,
        send: Callable[[pb.OperatorMessage], None],
    ) -> None:
        self._machines, self._nodes, self._pods, self._leftovers, self._send = machines, nodes, pods, leftovers, send
        #: By the Node's name.
        self._holds: dict[str, Hold] = {}
        #: Instructions that this session has named; only about these are reports sent.
        self._named: set[str] = set()
        #: By instruction, what its acknowledgement waits for.
        self._acks: dict[str, _Ack] = {}
        #: When the session has named every machine of the cluster.
        self._settles = math.inf

    def __iter__(self) -> Iterator[str]:
        """The names of the Nodes that are held."""
        return iter(tuple(self._holds))

    def may_evict(self, hold: Hold, now: float) -> bool:
        """Whether pods may be evicted from the hold's Node now."""
        node = self._nodes.get(hold.node)
        if node is None or node.metadata.uid != hold.uid or not self._stands(hold):
            return False
        return hold.phase is HoldPhase.DRAINED or (hold.phase is HoldPhase.EVICTING and now < hold.deadline)

    # Sessions.

    def resumed(self, now: float, wall: datetime) -> None:
        """Go on with the drains that an earlier process of the operator wrote on Nodes."""
        for node in self._nodes:
            instruction = node.metadata.annotations.get(INSTRUCTION)
            if instruction and node.metadata.name not in self._holds:
                self._holds[node.metadata.name] = hold = from_node(node, instruction, now, wall)
                _log.info("drain_resumed", node=hold.node, instruction=instruction, seconds=hold.deadline - now)

    def opened(self, now: float) -> None:
        """A session begins. The shard is told which nodes are held, and names the instructions that still stand."""
        self._named.clear()
        self._acks.clear()
        self._settles = now + SETTLED_SECONDS
        for hold in self._holds.values():
            hold.disowned = False
        held = [pb.CordonedNode(instruction_id=each.instruction, node=each.called) for each in self._holds.values()]
        for first in range(0, len(held), _CORDONED_IN_A_FRAME):
            nodes = held[first : first + _CORDONED_IN_A_FRAME]
            self._send(pb.OperatorMessage(cordoned_nodes=pb.CordonedNodes(nodes=nodes)))

    def closed(self) -> None:
        """The session is over. Drains go on; nothing is reported of them until a shard names them again."""
        self._named.clear()
        self._acks.clear()
        self._settles = math.inf

    # Instructions.

    def instructed(self, instruction: pb.ReclaimInstruction, now: float, wall: datetime) -> list[str]:
        """Hold the nodes of an instruction; a repeat sets a new deadline. Returns the Nodes' names."""
        name, seconds = instruction.instruction_id, min(max(0, instruction.grace_period_seconds), MAX_GRACE)
        if not name:
            return []
        self._named.add(name)
        started, absent = [], []
        for called in dict.fromkeys(instruction.nodes[:_MAX_NODES]):
            node = find_node(self._nodes, called, self._machines.by_node_name(called))
            if node is None:
                absent.append(called)
                continue
            hold = Hold(node, called, name, instruction.kind, now + seconds, wall + timedelta(seconds=seconds))
            before = self._holds.get(hold.node)
            self._holds[hold.node] = hold
            if before is not None and before.instruction == name:
                hold.goes_on_from(before)
            elif before is not None:
                self._settle_ack(before, found=False)
            started.append(hold.node)
        _log.info("reclaim_heard", instruction=name, nodes=started, absent=absent, seconds=seconds)
        self._acks[name] = _Ack(set(started))
        self._acknowledge_if_done(name)
        for called in absent:
            # A Node that does not exist has no pods.
            self._report(name, called, _DRAINED)
        return started

    def withdrawn(self, withdrawn: pb.ReclaimWithdrawn) -> list[str]:
        """The instruction no longer stands, or not for these nodes. Returns the names of the Nodes that it held."""
        name, nodes = withdrawn.instruction_id, frozenset(withdrawn.nodes)
        if not nodes:
            self._named.discard(name)
            self._acks.pop(name, None)
        freed = [
            hold for hold in self._holds.values() if hold.instruction == name and (not nodes or hold.called in nodes)
        ]
        for hold in freed:
            hold.phase = self._freed(hold)
            self._settle_ack(hold, found=False)
            reason, then = withdrawn.reason[:_MAX_REASON], hold.phase.name.lower()
            _log.info("reclaim_withdrawn", instruction=name, node=hold.node, reason=reason, then=then)
        return [hold.node for hold in freed]

    def heard(self, machine: KnownMachine) -> list[str]:
        """The shard says which state a machine has. Returns the name of its Node where the hold waited for that."""
        node = find_node(self._nodes, machine.node_name, machine)
        hold = None if node is None else self._holds.get(node.metadata.name)
        return [] if hold is None or hold.phase not in _FREED else [hold.node]

    def _freed(self, hold: Hold) -> HoldPhase:
        """The next phase of a node that nobody wants drained, by what this session has said of its machine.

        Where the machine has left or is leaving, its kubelet is gone, which Kubernetes does not notice for most of a
        minute; no pod must be bound to it meanwhile. A machine that this session has not named may have left while
        there was no session.
        """
        machine, node = self._machines.by_node_name(hold.called), self._nodes.get(hold.node)
        if machine is None or node is None or not self._machines.is_named(machine.id):
            return HoldPhase.SUSPENDED
        if machine.state is not MachineState.CONFIGURED:
            return HoldPhase.LEAVING
        return HoldPhase.UNCORDONING if belongs(node, machine) else HoldPhase.SUSPENDED

    # What is to be done.

    def next(self, node: str, now: float) -> DrainAct | None:
        """The next act for a node; None when the node is held no longer."""
        hold = self._holds.get(node)
        if hold is None or self.node_changed(node):
            return None
        if hold.phase in _FREED:
            self._judge(hold, now)
        match hold.phase:
            case HoldPhase.CORDONING:
                return Cordon(hold)
            case HoldPhase.UNCORDONING:
                return Uncordon(hold)
        return self._put_back(hold) or self._go_on(hold, now)

    def _put_back(self, hold: Hold) -> DrainAct | None:
        """The act that restores a cordon which somebody took off; None where the Node is cordoned or no longer ours."""
        node = self._nodes.get(hold.node)
        if node is None or node.spec.unschedulable or node.metadata.annotations.get(INSTRUCTION) != hold.instruction:
            return None
        # Until the watch shows the restored cordon, the Node looks as before.
        version = node.metadata.resource_version
        return None if version == hold.recordoned else Recordon(hold, version)

    def _go_on(self, hold: Hold, now: float) -> DrainAct:
        match hold.phase:
            case HoldPhase.EVICTING:
                return self._evict(hold, now)
            case HoldPhase.DRAINED:
                return self._press(hold, self._left(hold, self._pods.on(hold.node)), now, math.inf)
            case HoldPhase.SUSPENDED:
                return Wait(self._settles if now < self._settles else now + _KUBELET_SECONDS)
        return Wait(math.inf)

    def _judge(self, hold: Hold, now: float) -> None:
        """Have a Node deleted whose machine nobody has named by now; uncordon it if its kubelet proves to live."""
        hold.phase = self._freed(hold)
        node = self._nodes.get(hold.node)
        if hold.phase is not HoldPhase.SUSPENDED or now < self._settles or node is None:
            return
        if not hold.disowned:
            hold.disowned = True
            _log.warning("held_node_unknown", node=hold.node, instruction=hold.instruction)
            self._leftovers.left(hold.node, node.spec.provider_id)
        elif self._leftovers.is_alive(hold.node):
            self._leftovers.let_be(hold.node)
            hold.phase = HoldPhase.UNCORDONING

    def _left(self, hold: Hold, pods: Iterable[Pod]) -> list[Pod]:
        """The pods that keep the node from being empty, without those whose workload puts them back each time."""
        left = []
        for pod in pods:
            if not holds_node(pod, hold.node):
                continue
            if not hold.returning.is_back(pod):
                left.append(pod)
            elif not hold.returning.told:
                hold.returning.told = True
                name = f"{pod.metadata.namespace}/{pod.metadata.name}"
                _log.warning("pod_returns_to_cordoned_node", node=hold.node, instruction=hold.instruction, pod=name)
        return left

    def _evict(self, hold: Hold, now: float) -> DrainAct:
        left = self._left(hold, self._pods.on(hold.node))
        if not left:
            again = hold.tries.get(_CONFIRM)
            return Confirm(hold) if again is None or again.again_at <= now else Wait(again.again_at)
        hold.tries.pop(_CONFIRM, None)
        if now >= hold.deadline:
            self._give_up(hold, left)
            return Wait(now)
        return self._press(hold, left, now, hold.deadline)

    def _press(self, hold: Hold, left: Sequence[Pod], now: float, until: float) -> DrainAct:
        """Evict the pods whose next attempt is due; without any, wait for the next."""
        due, soonest = [], until
        for pod in left:
            hold.empty_since = None
            tried = hold.tries.get(pod.metadata.uid)
            if pod.metadata.deletion_timestamp is not None:
                continue
            if tried is None or tried.again_at <= now:
                due.append((pod, grace(pod, hold, now)))
            else:
                soonest = min(soonest, tried.again_at)
        return Evict(hold, tuple(due)) if due else Wait(soonest)

    def _give_up(self, hold: Hold, left: Sequence[Pod]) -> None:
        """The deadline has passed. A node of a plain reclaim is freed; one that somebody else gets stays cordoned."""
        reason = why_left(hold, left)
        _log.warning("drain_failed", node=hold.node, instruction=hold.instruction, reason=reason)
        self._report(hold.instruction, hold.called, _FAILED, reason)
        if hold.kind == pb.ReclaimInstruction.KIND_RECLAIM:
            # A drain from an earlier process or session may be over for the shard, and the machine gone.
            hold.phase = self._freed(hold)
        else:
            hold.phase = HoldPhase.FAILED

    # How it went.

    def cordoned(self, hold: Hold) -> None:
        """The cordon has taken effect."""
        if hold.phase is HoldPhase.CORDONING:
            hold.phase = HoldPhase.EVICTING
            self._settle_ack(hold, found=True)

    def recordoned(self, hold: Hold, version: str) -> None:
        """The cordon that was missing from that version of the Node is restored, or no longer ours to restore."""
        hold.recordoned = version

    def uncordoned(self, hold: Hold) -> None:
        """The cordon has been taken off, or was no longer ours."""
        if self._stands(hold) and hold.phase is HoldPhase.UNCORDONING:
            del self._holds[hold.node]

    def evicted(self, hold: Hold, pod: Pod, now: float) -> None:
        """The eviction of the pod was granted, or the pod was gone."""
        hold.returning.evicted(pod)
        hold.tries[pod.metadata.uid] = EvictionAttempt(now + _SHOWS_SECONDS, 0.0, "")

    def blocked(self, hold: Hold, pod: Pod, problem: str, retry_after: float | None, now: float) -> None:
        """The eviction of the pod was refused for now."""
        before = hold.tries.get(pod.metadata.uid)
        wait = min(_LAST_RETRY, 2 * before.wait if before is not None and before.wait else _FIRST_RETRY)
        again = now + max(wait, min(retry_after or 0.0, _LAST_RETRY))
        hold.tries[pod.metadata.uid] = EvictionAttempt(again, wait, problem)

    def confirmed(self, hold: Hold, pods: Iterable[Pod], now: float) -> None:
        """The API server itself says that these pods are on the node."""
        if not self._stands(hold) or hold.phase is not HoldPhase.EVICTING:
            return
        if left := self._left(hold, pods):
            # The watch will show these pods, or has shown them meanwhile.
            hold.tries[_CONFIRM] = EvictionAttempt(now + _LOOK_AGAIN_SECONDS, 0.0, "")
            hold.empty_since = None
            if now >= hold.deadline:
                self._give_up(hold, left)
            return
        if hold.empty_since is None:
            hold.empty_since = now
        if now < hold.empty_since + _EMPTY_SECONDS <= hold.deadline:
            hold.tries[_CONFIRM] = EvictionAttempt(hold.empty_since + _EMPTY_SECONDS, 0.0, "")
            return
        hold.phase = HoldPhase.DRAINED
        _log.info("node_drained", node=hold.node, instruction=hold.instruction)
        self._report(hold.instruction, hold.called, _DRAINED)

    def node_changed(self, name: str) -> bool:
        """The Node of that name has come, gone or changed. Returns whether a hold has ended with it."""
        hold = self._holds.get(name)
        if hold is None:
            return False
        node = self._nodes.get(name)
        return False if node is not None and node.metadata.uid == hold.uid else self.ended(hold, gone=node is None)

    def ended(self, hold: Hold, *, gone: bool) -> bool:
        """The hold's Node is gone, or another Node has its name and is left alone. Returns whether the hold stood."""
        if not self._stands(hold):
            return False
        del self._holds[hold.node]
        self._settle_ack(hold, found=False)
        _log.info("drained_node_gone", node=hold.node, instruction=hold.instruction, uid=hold.uid)
        if hold.phase in (HoldPhase.CORDONING, HoldPhase.EVICTING):
            outcome, reason = (_DRAINED, "") if gone else (_FAILED, "the Node was deleted and has been made anew")
            self._report(hold.instruction, hold.called, outcome, reason)
        return True

    def _stands(self, hold: Hold) -> bool:
        return self._holds.get(hold.node) is hold

    # What is said.

    def _settle_ack(self, hold: Hold, *, found: bool) -> None:
        ack = self._acks.get(hold.instruction)
        if ack is not None and hold.node in ack.waiting:
            ack.waiting.discard(hold.node)
            ack.found -= not found
            self._acknowledge_if_done(hold.instruction)

    def _acknowledge_if_done(self, instruction: str) -> None:
        ack = self._acks[instruction]
        if not ack.waiting:
            del self._acks[instruction]
            reclaim_ack = pb.ReclaimAck(instruction_id=instruction, nodes_started=ack.found)
            self._send(pb.OperatorMessage(reclaim_ack=reclaim_ack))

    def _report(
        self, instruction: str, called: str, outcome: pb.NodeDrainedReport.Outcome.ValueType, reason: str = ""
    ) -> None:
        if instruction in self._named:
            report = pb.NodeDrainedReport(
                instruction_id=instruction, node_name=called, outcome=outcome, reason=reason[:_MAX_REASON]
            )
            self._send(pb.OperatorMessage(node_drained=report))
