"""Emptying nodes on instruction, as a machine without I/O: cordon, acknowledge, evict, report (protocol.md 14, 22).

What must survive the operator stands on the Node, written in the same patch as the cordon. A drain works on one Node,
known by its UID, and ends with it. `next` says what is to be done for a node now; whoever does it tells how it went.
Deadlines run on the monotonic clock here and are wall times on the Node.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
import structlog

from bigfleet.kube.objects import Pod
from bigfleet.model.machine import MachineState
from bigfleet.operator.holds import INSTRUCTION, MAX_GRACE, Hold, Phase, Try, from_node
from bigfleet.operator.machines import Machines, NodesSeen, find_node
from bigfleet.operator.pods import is_daemon, is_mirror
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_MAX_NODES = 10_000
_CORDONED_IN_A_FRAME = 10_000
_FIRST_RETRY, _LAST_RETRY = 1.0, 10.0
# How long an eviction that was granted may take to show before it is asked for again.
_SHOWS_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 1.0
_DEFAULT_GRACE = 30
_MAX_REASON = 400

_DRAINED, _FAILED = pb.NodeDrainedReport.OUTCOME_DRAINED, pb.NodeDrainedReport.OUTCOME_FAILED
_NEVER_STOPS = frozenset({pb.ReclaimInstruction.KIND_PREEMPT, pb.ReclaimInstruction.KIND_PROVIDER_TAKES_BACK})

_log = structlog.get_logger("bigfleet.operator")


class PodsOnNodes(Protocol):
    """The cluster's pods as a watch shows them. Whoever feeds it says `pods_changed` with the node's name."""

    def on(self, node_name: str) -> Sequence[Pod]:
        """The pods that are bound to the node, in whatever phase."""
        ...


class Cordon(msgspec.Struct, frozen=True):
    """Cordon the Node and write the instruction on it, in one patch; then `cordoned`."""

    hold: Hold


class Uncordon(msgspec.Struct, frozen=True):
    """Take the cordon and our annotations off if they are this instruction's, in one patch; then `uncordoned`."""

    hold: Hold


class Evict(msgspec.Struct, frozen=True):
    """Evict these pods, each with its grace where that is cut; then `evicted` or `blocked` for each."""

    hold: Hold
    pods: tuple[tuple[Pod, int | None], ...]


class Confirm(msgspec.Struct, frozen=True):
    """Ask the API server itself whether the node is empty; then `confirmed`."""

    hold: Hold


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do before that time, unless something changes."""

    until: float


Act = Cordon | Uncordon | Evict | Confirm | Wait


class _Ack:
    """An instruction whose cordons are under way."""

    def __init__(self, waiting: set[str]) -> None:
        self.waiting, self.found = waiting, len(waiting)


class Drains:
    """The drains of one cluster. It is asked to act only once Nodes and pods have been seen whole."""

    def __init__(
        self, machines: Machines, nodes: NodesSeen, pods: PodsOnNodes, send: Callable[[pb.OperatorMessage], None]
    ) -> None:
        self._machines, self._nodes, self._pods, self._send = machines, nodes, pods, send
        self._holds: dict[str, Hold] = {}
        self._named: set[str] = set()
        self._acks: dict[str, _Ack] = {}

    def __iter__(self) -> Iterator[str]:
        """The names of the Nodes that are held."""
        return iter(tuple(self._holds))

    def may_evict(self, hold: Hold, now: float) -> bool:
        """Whether pods of that hold's Node may be evicted now."""
        node = self._nodes.get(hold.node)
        if node is None or node.metadata.uid != hold.uid or not self._stands(hold):
            return False
        return hold.phase is Phase.EVICTING and now < hold.deadline

    # Sessions.

    def resumed(self, now: float, wall: datetime) -> None:
        """Go on with what an earlier life of the operator began, by what stands on the Nodes."""
        for node in self._nodes:
            instruction = node.metadata.annotations.get(INSTRUCTION)
            if instruction and node.metadata.name not in self._holds:
                self._holds[node.metadata.name] = hold = from_node(node, instruction, now, wall)
                _log.info("drain_resumed", node=hold.node, instruction=instruction, seconds=hold.deadline - now)

    def opened(self) -> None:
        """A session begins. Says which nodes are held; the shard names those instructions that stand."""
        self._named.clear()
        self._acks.clear()
        held = [pb.CordonedNode(instruction_id=each.instruction, node=each.called) for each in self._holds.values()]
        for first in range(0, len(held), _CORDONED_IN_A_FRAME):
            nodes = held[first : first + _CORDONED_IN_A_FRAME]
            self._send(pb.OperatorMessage(cordoned_nodes=pb.CordonedNodes(nodes=nodes)))

    def closed(self) -> None:
        """The session is over; drains go on, and nobody hears of them until the shard names them again."""
        self._named.clear()
        self._acks.clear()

    # Instructions.

    def instructed(self, instruction: pb.ReclaimInstruction, now: float, wall: datetime) -> list[str]:
        """Hold these nodes; said again, acknowledged again and with the deadline set anew. Returns the Nodes' names."""
        name, grace = instruction.instruction_id, min(max(0, instruction.grace_period_seconds), MAX_GRACE)
        if not name:
            return []
        self._named.add(name)
        started, absent = [], []
        for called in dict.fromkeys(instruction.nodes[:_MAX_NODES]):
            node = find_node(self._nodes, called, self._machines.by_node_name(called))
            if node is None:
                absent.append(called)
                continue
            hold = Hold(node, called, name, instruction.kind, now + grace, wall + timedelta(seconds=grace))
            before = self._holds.get(hold.node)
            self._holds[hold.node] = hold
            if before is not None and before.instruction == name:
                hold.tries = before.tries
            elif before is not None:
                self._settle_ack(before, found=False)
            started.append(hold.node)
        _log.info("reclaim_heard", instruction=name, nodes=started, absent=absent, seconds=grace)
        self._acks[name] = _Ack(set(started))
        self._acknowledge_if_done(name)
        for called in absent:
            # A Node that is not there is as empty as can be.
            self._report(name, called, _DRAINED)
        return started

    def withdrawn(self, withdrawn: pb.ReclaimWithdrawn) -> list[str]:
        """The instruction stands no more, or not for these nodes; returns their Nodes, which may have to change."""
        name, nodes = withdrawn.instruction_id, frozenset(withdrawn.nodes)
        if not nodes:
            self._named.discard(name)
            self._acks.pop(name, None)
        freed = [
            hold for hold in self._holds.values() if hold.instruction == name and (not nodes or hold.called in nodes)
        ]
        for hold in freed:
            stays = self._is_leaving(hold)
            hold.phase = Phase.DRAINED if stays else Phase.UNCORDONING
            self._settle_ack(hold, found=False)
            reason = withdrawn.reason[:_MAX_REASON]
            _log.info("reclaim_withdrawn", instruction=name, node=hold.node, reason=reason, stays_cordoned=stays)
        return [hold.node for hold in freed]

    def _is_leaving(self, hold: Hold) -> bool:
        """Whether the machine has left, or is past keeping: its Node stays cordoned until it goes.

        Its kubelet is gone, but for most of a minute nobody knows, and pods must not be bound to it.
        """
        machine = self._machines.by_node_name(hold.called)
        return machine is not None and machine.state is not MachineState.CONFIGURED

    # What is to be done.

    def next(self, node: str, now: float) -> Act | None:
        """The next act for a node; None when it is held no more."""
        hold = self._holds.get(node)
        if hold is None or self.node_changed(node):
            return None
        match hold.phase:
            case Phase.CORDONING:
                return Cordon(hold)
            case Phase.UNCORDONING:
                return Uncordon(hold)
            case Phase.EVICTING:
                return self._evict(hold, now)
        return Wait(math.inf)

    def _evict(self, hold: Hold, now: float) -> Act:
        left = [pod for pod in self._pods.on(hold.node) if holds_node(pod, hold.node)]
        if not left:
            again = hold.tries.get("")
            return Confirm(hold) if again is None or again.again_at <= now else Wait(again.again_at)
        hold.tries.pop("", None)
        if now >= hold.deadline:
            return self._give_up(hold, left)
        due, soonest = [], hold.deadline
        for pod in left:
            tried = hold.tries.get(pod.metadata.uid)
            if pod.metadata.deletion_timestamp is not None:
                continue
            if tried is None or tried.again_at <= now:
                due.append((pod, _grace(pod, hold, now)))
            else:
                soonest = min(soonest, tried.again_at)
        return Evict(hold, tuple(due)) if due else Wait(soonest)

    def _give_up(self, hold: Hold, left: Sequence[Pod]) -> Act:
        """The deadline is there. What goes to nobody is uncordoned; what somebody else gets stays as it is."""
        reason = _why_left(hold, left)
        _log.warning("drain_failed", node=hold.node, instruction=hold.instruction, reason=reason)
        self._report(hold.instruction, hold.called, _FAILED, reason)
        if hold.kind == pb.ReclaimInstruction.KIND_RECLAIM:
            hold.phase = Phase.UNCORDONING
            return Uncordon(hold)
        hold.phase = Phase.FAILED
        return Wait(math.inf)

    # How it went.

    def cordoned(self, hold: Hold) -> None:
        """The cordon has taken effect."""
        if hold.phase is Phase.CORDONING:
            hold.phase = Phase.EVICTING
            self._settle_ack(hold, found=True)

    def uncordoned(self, hold: Hold) -> None:
        """The cordon is off, or was not ours any more."""
        if self._stands(hold) and hold.phase is Phase.UNCORDONING:
            del self._holds[hold.node]

    def evicted(self, hold: Hold, pod: Pod, now: float) -> None:
        """The pod is told to leave, or has left."""
        hold.tries[pod.metadata.uid] = Try(now + _SHOWS_SECONDS, 0.0, "")

    def blocked(self, hold: Hold, pod: Pod, problem: str, retry_after: float | None, now: float) -> None:
        """The pod may not be evicted now."""
        before = hold.tries.get(pod.metadata.uid)
        wait = min(_LAST_RETRY, 2 * before.wait if before is not None and before.wait else _FIRST_RETRY)
        again = now + max(wait, min(retry_after or 0.0, _LAST_RETRY))
        hold.tries[pod.metadata.uid] = Try(again, wait, problem)

    def confirmed(self, hold: Hold, pods: Iterable[Pod], now: float) -> None:
        """These pods are on the node by the API server's own word."""
        if not self._stands(hold) or hold.phase is not Phase.EVICTING:
            return
        if left := [pod for pod in pods if holds_node(pod, hold.node)]:
            # The watch will show them, or has shown them meanwhile.
            hold.tries[""] = Try(now + _LOOK_AGAIN_SECONDS, 0.0, "")
            if now >= hold.deadline:
                self._give_up(hold, left)
            return
        hold.phase = Phase.DRAINED
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
        """The hold's Node is gone, or another has its name now; that one is nobody's to touch."""
        if not self._stands(hold):
            return False
        del self._holds[hold.node]
        self._settle_ack(hold, found=False)
        _log.info("drained_node_gone", node=hold.node, instruction=hold.instruction, uid=hold.uid)
        if hold.phase in (Phase.CORDONING, Phase.EVICTING):
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


def holds_node(pod: Pod, node: str) -> bool:
    """Whether the node is not empty while this pod is there.

    Not so for pods that have ended, which hold nothing and may be wanted for their logs, and for those that come with
    the node and go with it: of DaemonSets, and static ones.
    """
    ended = pod.status.phase in ("Succeeded", "Failed")
    return pod.spec.node_name == node and not ended and not is_daemon(pod) and not is_mirror(pod)


def _grace(pod: Pod, hold: Hold, now: float) -> int | None:
    """The pod's own grace, but for a machine that goes whatever happens no more than is left; never none at all."""
    if hold.kind not in _NEVER_STOPS:
        return None
    own = pod.spec.termination_grace_period_seconds
    left = max(1, int(hold.deadline - now))
    return left if left < (_DEFAULT_GRACE if own is None else own) else None


def _why_left(hold: Hold, left: Sequence[Pod]) -> str:
    """Names one pod, rather one that was refused than one that is leaving."""
    refused = [pod for pod in left if (tried := hold.tries.get(pod.metadata.uid)) is not None and tried.problem]
    worst = refused[0] if refused else left[0]
    if refused:
        why = hold.tries[worst.metadata.uid].problem
    elif worst.metadata.deletion_timestamp is not None or worst.metadata.uid in hold.tries:
        why = "it was still terminating"
    else:
        why = "there was no time to evict it"
    others = f", and {len(left) - 1} more" if len(left) > 1 else ""
    return f"pod {worst.metadata.namespace}/{worst.metadata.name} is left{others}: {why}"
