"""What can be done for a node that is held. `drains` chooses an act; `drain_work` does it and tells how it went."""

import msgspec

from bigfleet.kube.objects.kinds import Pod
from bigfleet.operator.node_life.holds import Hold


class Cordon(msgspec.Struct, frozen=True):
    """Cordon the Node and write the instruction on it, in one patch. Reported by `cordoned`."""

    hold: Hold


class Recordon(msgspec.Struct, frozen=True):
    """Put the cordon back that somebody took off, if the Node still bears the instruction. Reported by `recordoned`."""

    hold: Hold
    version: str


class Uncordon(msgspec.Struct, frozen=True):
    """Take off the cordon and our annotations if they are this instruction's. Reported by `uncordoned`."""

    hold: Hold


class Evict(msgspec.Struct, frozen=True):
    """Evict these pods, each with its grace in seconds where that is cut. Reported one by one."""

    hold: Hold
    pods: tuple[tuple[Pod, int | None], ...]


class Confirm(msgspec.Struct, frozen=True):
    """Ask the API server itself which pods are on the node. Reported by `confirmed`."""

    hold: Hold


class Wait(msgspec.Struct, frozen=True):
    """Do nothing before that time, unless something changes."""

    until: float


DrainAct = Cordon | Recordon | Uncordon | Evict | Confirm | Wait
