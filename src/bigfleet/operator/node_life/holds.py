"""A node that is held for an instruction: what is written on the Node, and which pods keep the node from being empty.

What is written on the Node survives the operator (protocol rule 22).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum, auto

import msgspec

from bigfleet.kube.objects.kinds import Node, Pod, Toleration
from bigfleet.kube.objects.pod_facts import has_ended, is_daemon, is_mirror
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

INSTRUCTION = "bigfleet.lucy.sh/reclaim-instruction"
DEADLINE = "bigfleet.lucy.sh/reclaim-deadline"
KIND = "bigfleet.lucy.sh/reclaim-kind"
CALLED = "bigfleet.lucy.sh/reclaim-node"
"""What the shard calls the Node, where that is not the Node's name."""
WAS_CORDONED = "bigfleet.lucy.sh/reclaim-was-cordoned"
"""Somebody else had cordoned the Node before us; it stays cordoned when the reclaim is over."""

MAX_GRACE = 7 * 86_400.0
"""Seconds that a drain may take at most; no shard asks for as much."""

_KIND = pb.ReclaimInstruction.Kind
# Kinds of instructions whose machine leaves the cluster, drained or not.
_NEVER_STOPS = frozenset({pb.ReclaimInstruction.KIND_PREEMPT, pb.ReclaimInstruction.KIND_PROVIDER_TAKES_BACK})
# Seconds that Kubernetes gives a pod which states no grace of its own.
_DEFAULT_GRACE = 30
_CORDON_TAINT = "node.kubernetes.io/unschedulable"


class HoldPhase(Enum):
    """How far a drain is."""

    CORDONING = auto()
    """The cordon has not taken effect yet."""
    EVICTING = auto()
    """The Node is cordoned, and its pods are evicted."""
    DRAINED = auto()
    """The node was empty. Its machine goes, so pods that still come are evicted too."""
    FAILED = auto()
    """The deadline has passed with pods left. The node stays cordoned: its machine goes to somebody else."""
    SUSPENDED = auto()
    """Nobody wants the node drained. It stays cordoned while it is not known whether its machine is still there."""
    LEAVING = auto()
    """Nobody wants the node drained, because its machine leaves. It stays cordoned unless the machine is kept."""
    UNCORDONING = auto()
    """The cordon is being taken off."""


class EvictionAttempt(msgspec.Struct, frozen=True):
    """How the last attempt to evict a pod went, and when the next may be made."""

    again_at: float
    wait: float
    problem: str


class Returning:
    """Pods that tolerate a cordon. Each is evicted once; a pod that its workload puts there again is left alone."""

    def __init__(self) -> None:
        #: UIDs of pods that were the first of their workload on the node.
        self._first: set[str] = set()
        #: Workloads of which a pod was evicted.
        self._evicted: set[str] = set()
        #: Whether it has been logged that pods come back.
        self.told = False

    def evicted(self, pod: Pod) -> None:
        """The eviction of this pod was granted."""
        if bears_cordon(pod):
            self._evicted.update(_workload(pod))

    def is_back(self, pod: Pod) -> bool:
        """Whether the pod replaces one that was evicted. To be asked of every pod before any pod is evicted."""
        if not bears_cordon(pod) or pod.metadata.uid in self._first:
            return False
        if self._evicted.isdisjoint(_workload(pod)):
            self._first.add(pod.metadata.uid)
            return False
        return True


class Hold:
    """A node that is held for an instruction. A repeat of the instruction makes a new object."""

    __slots__ = (
        "called",
        "deadline",
        "disowned",
        "empty_since",
        "instruction",
        "kind",
        "node",
        "phase",
        "recordoned",
        "returning",
        "tries",
        "uid",
        "wall_deadline",
    )

    def __init__(
        self,
        node: Node,
        called: str,
        instruction: str,
        kind: pb.ReclaimInstruction.Kind.ValueType,
        deadline: float,
        wall_deadline: datetime,
    ) -> None:
        self.node, self.uid, self.called = node.metadata.name, node.metadata.uid, called
        self.instruction, self.kind, self.deadline, self.wall_deadline = instruction, kind, deadline, wall_deadline
        self.phase = HoldPhase.CORDONING
        #: By a pod's UID, the last attempt to evict it.
        self.tries: dict[str, EvictionAttempt] = {}
        self.returning = Returning()
        #: Since when the API server has shown the node empty.
        self.empty_since: float | None = None
        #: The version of the Node whose missing cordon has been restored.
        self.recordoned = ""
        #: Whether the Node has been left to be deleted in this session.
        self.disowned = False

    def goes_on_from(self, before: "Hold") -> None:
        """Take over from the hold before a repeat what was tried so far."""
        self.tries, self.returning, self.empty_since = before.tries, before.returning, before.empty_since

    def annotations(self) -> dict[str, str | None]:
        """The annotations that are written on the Node together with the cordon; None removes one."""
        kind = self.kind if self.kind in _KIND.values() else pb.ReclaimInstruction.KIND_UNSPECIFIED
        return {
            INSTRUCTION: self.instruction,
            DEADLINE: self.wall_deadline.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            KIND: _KIND.Name(kind),
            CALLED: None if self.called == self.node else self.called,
        }


def from_node(node: Node, instruction: str, now: float, wall: datetime) -> Hold:
    """The hold that an earlier process of the operator wrote on the Node. A deadline that cannot be read has passed."""
    annotations = node.metadata.annotations
    try:
        deadline = datetime.fromisoformat(annotations.get(DEADLINE, ""))
        left = (deadline - wall).total_seconds()
    except (ValueError, TypeError):
        deadline, left = wall, 0.0
    kind = annotations.get(KIND, "")
    number = _KIND.Value(kind) if kind in _KIND.keys() else pb.ReclaimInstruction.KIND_UNSPECIFIED  # noqa: SIM118
    called = annotations.get(CALLED, node.metadata.name)
    hold = Hold(node, called, instruction, number, now + min(max(left, 0.0), MAX_GRACE), deadline)
    if node.spec.unschedulable:
        hold.phase = HoldPhase.EVICTING
    return hold


def holds_node(pod: Pod, node: str) -> bool:
    """Whether this pod keeps the node from being empty.

    A pod that has ended does not: it uses nothing, and somebody may want its logs. Pods of DaemonSets and static pods
    do not: they come and go with the node.
    """
    return pod.spec.node_name == node and not has_ended(pod) and not is_daemon(pod) and not is_mirror(pod)


def bears_cordon(pod: Pod) -> bool:
    """Whether the scheduler may put the pod on a cordoned node."""
    return any(_bears_cordon(each) for each in pod.spec.tolerations)


def _bears_cordon(toleration: Toleration) -> bool:
    if toleration.effect not in ("", "NoSchedule"):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", _CORDON_TAINT)
    return toleration.key == _CORDON_TAINT and not toleration.value


def _workload(pod: Pod) -> frozenset[str]:
    """The controllers that replace the pod when it goes; without any, the pod's own name."""
    owners = frozenset(owner.uid for owner in pod.metadata.owner_references if owner.controller)
    return owners or frozenset({f"{pod.metadata.namespace}/{pod.metadata.name}"})


def grace(pod: Pod, hold: Hold, now: float) -> int | None:
    """The grace that an eviction states; None leaves the pod its own.

    Where the machine leaves in any case, the grace is cut to the time that is left, and to 1 s at least.
    """
    if hold.kind not in _NEVER_STOPS:
        return None
    own = pod.spec.termination_grace_period_seconds
    left = max(1, int(hold.deadline - now))
    return left if left < (_DEFAULT_GRACE if own is None else own) else None


def why_left(hold: Hold, left: Sequence[Pod]) -> str:
    """Why the node is not empty: one pod is named, if possible one whose eviction was refused."""
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
