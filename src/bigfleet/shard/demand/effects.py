"""What demand wants done: values that the core carries out, in order."""

from collections.abc import Mapping

import msgspec

from bigfleet.model.demand.need import Need, NeedKey


class Replace(msgspec.Struct, frozen=True):
    """Give the engine these rows in the place of all that the cluster had."""

    cluster: str
    needs: tuple[Need, ...]
    #: In which order the rows were first seen.
    arrivals: Mapping[NeedKey, int]


class Acknowledge(msgspec.Struct, frozen=True):
    """Tell the operator what became of its roll-up."""

    cluster: str
    #: The roll-up's timestamp, if the roll-up is the demand now.
    echo: str
    #: Why the roll-up is not the demand now.
    reason: str = ""
    #: Whether the reason is news: not that of the roll-up before, and a late roll-up only once a session.
    is_news: bool = False


class ClusterChanged(msgspec.Struct, frozen=True):
    """Set the engine's record of the cluster anew."""

    cluster: str


class NodesChanged(msgspec.Struct, frozen=True):
    """These nodes became empty or not, or run other pods without a request: set their machines' records anew."""

    cluster: str
    nodes: frozenset[str]


class MachinesChanged(msgspec.Struct, frozen=True):
    """Which of the cluster's machines are protected has changed: set the records of all of them anew."""

    cluster: str


class QuarantineChanged(msgspec.Struct, frozen=True):
    """A roll-up of the cluster waits (or no longer waits) for confirmation."""

    cluster: str
    quarantined: bool


class EarlyCycle(msgspec.Struct, frozen=True):
    """Demand has changed: decide before the next cycle is due, if cycles are not too close together."""


Effect = Replace | Acknowledge | ClusterChanged | NodesChanged | MachinesChanged | QuarantineChanged | EarlyCycle
