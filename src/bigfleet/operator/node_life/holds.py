"""A node held for an instruction: how that stands on its Node, where it survives the operator (protocol.md 22), and
which of its pods hold it."""

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
"""What the shard calls the Node, where that is not its name."""
WAS_CORDONED = "bigfleet.lucy.sh/reclaim-was-cordoned"
"""Somebody else had cordoned the Node before; it stays so when the reclaim is over."""

MAX_GRACE = 7 * 86_400.0
"""The longest time that a node is held for; no shard asks for as much."""

_KIND = pb.ReclaimInstruction.Kind
_NEVER_STOPS = frozenset({pb.ReclaimInstruction.KIND_PREEMPT, pb.ReclaimInstruction.KIND_PROVIDER_TAKES_BACK})
_DEFAULT_GRACE = 30
_CORDON_TAINT = "node.kubernetes.io/unschedulable"


class HoldPhase(Enum):
    """How far a drain is."""

    CORDONING = auto()
    EVICTING = auto()
    DRAINED = auto()
    """It was empty; whatever still comes is evicted too, for its machine goes."""
    FAILED = auto()
    """Pods are left, and the node stays cordoned for what comes next."""
    SUSPENDED = auto()
    """Nobody wants it drained any more, but whether its machine is still there is not known: it stays cordoned."""
    LEAVING = auto()
    """Nobody wants it drained any more, for its machine leaves: it stays cordoned unless that is said to be well."""
    UNCORDONING = auto()


class EvictionAttempt(msgspec.Struct, frozen=True):
    """What became of the last attempt to evict a pod, and when the next may be made."""

    again_at: float
    wait: float
    problem: str


class Returning:
    """Pods that a cordon does not keep away. Each is evicted once; what its workload puts there again is let be."""

    def __init__(self) -> None:
        self._first: set[str] = set()
        self._evicted: set[str] = set()
        self.told = False

    def evicted(self, pod: Pod) -> None:
        """It was told to leave."""
        if bears_cordon(pod):
            self._evicted.update(_workload(pod))

    def is_back(self, pod: Pod) -> bool:
        """Whether it stands for one that was evicted. To be asked of every pod before any of them is evicted."""
        if not bears_cordon(pod) or pod.metadata.uid in self._first:
            return False
        if self._evicted.isdisjoint(_workload(pod)):
            self._first.add(pod.metadata.uid)
            return False
        return True


class Hold:
    """A node held for an instruction. One object stands for one wording of it: a repeat makes a new one."""

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
        self.tries: dict[str, EvictionAttempt] = {}
        self.returning = Returning()
        self.empty_since: float | None = None
        # The version of the Node whose missing cordon has been put back.
        self.recordoned = ""
        # This session has been asked to have the Node deleted.
        self.disowned = False

    def goes_on_from(self, before: "Hold") -> None:
        """A repeat forgets nothing of what was tried."""
        self.tries, self.returning, self.empty_since = before.tries, before.returning, before.empty_since

    def annotations(self) -> dict[str, str | None]:
        """What is written on the Node beside the cordon."""
        kind = self.kind if self.kind in _KIND.values() else pb.ReclaimInstruction.KIND_UNSPECIFIED
        return {
            INSTRUCTION: self.instruction,
            DEADLINE: self.wall_deadline.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            KIND: _KIND.Name(kind),
            CALLED: None if self.called == self.node else self.called,
        }


def from_node(node: Node, instruction: str, now: float, wall: datetime) -> Hold:
    """The hold as an earlier life of the operator wrote it; what cannot be read counts as over."""
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
    """Whether the node is not empty while this pod is there.

    Not so for pods that have ended, which hold nothing and may be wanted for their logs, and for those that come with
    the node and go with it: of DaemonSets, and static ones.
    """
    return pod.spec.node_name == node and not has_ended(pod) and not is_daemon(pod) and not is_mirror(pod)


def bears_cordon(pod: Pod) -> bool:
    """Whether the scheduler may put it on a cordoned node."""
    return any(_bears_cordon(each) for each in pod.spec.tolerations)


def _bears_cordon(toleration: Toleration) -> bool:
    if toleration.effect not in ("", "NoSchedule"):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", _CORDON_TAINT)
    return toleration.key == _CORDON_TAINT and not toleration.value


def _workload(pod: Pod) -> frozenset[str]:
    """What puts another in its place; of a pod that nothing controls, its name."""
    owners = frozenset(owner.uid for owner in pod.metadata.owner_references if owner.controller)
    return owners or frozenset({f"{pod.metadata.namespace}/{pod.metadata.name}"})


def grace(pod: Pod, hold: Hold, now: float) -> int | None:
    """The pod's own grace, but for a machine that goes whatever happens no more than is left; never none at all."""
    if hold.kind not in _NEVER_STOPS:
        return None
    own = pod.spec.termination_grace_period_seconds
    left = max(1, int(hold.deadline - now))
    return left if left < (_DEFAULT_GRACE if own is None else own) else None


def why_left(hold: Hold, left: Sequence[Pod]) -> str:
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
