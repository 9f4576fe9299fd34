"""What is to be done for a node that is held. `drains` decides it, `drain_work` does it and tells how it went."""

import msgspec

from bigfleet.kube.objects.kinds import Pod
from bigfleet.operator.node_life.holds import Hold


class Cordon(msgspec.Struct, frozen=True):
    """Cordon the Node and write the instruction on it, in one patch; then `cordoned`."""

    hold: Hold


class Recordon(msgspec.Struct, frozen=True):
    """Put the cordon back that somebody took off the Node, if it still bears the instruction; then `recordoned`."""

    hold: Hold
    version: str


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


DrainAct = Cordon | Recordon | Uncordon | Evict | Confirm | Wait
