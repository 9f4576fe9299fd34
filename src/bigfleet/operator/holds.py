"""A node held for an instruction, and how that stands on its Node, where it survives the operator (protocol.md 22)."""

from datetime import UTC, datetime
from enum import Enum, auto

import msgspec

from bigfleet.kube.objects import Node
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


class Phase(Enum):
    """How far a drain is."""

    CORDONING = auto()
    EVICTING = auto()
    DRAINED = auto()
    FAILED = auto()
    """Pods are left, and the node stays cordoned for what comes next."""
    UNCORDONING = auto()


class Try(msgspec.Struct, frozen=True):
    """What became of the last attempt to evict a pod, and when the next may be made."""

    again_at: float
    wait: float
    problem: str


class Hold:
    """A node held for an instruction. One object stands for one wording of it: a repeat makes a new one."""

    __slots__ = ("called", "deadline", "instruction", "kind", "node", "phase", "tries", "uid", "wall_deadline")

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
        self.phase = Phase.CORDONING
        self.tries: dict[str, Try] = {}

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
        hold.phase = Phase.EVICTING
    return hold
