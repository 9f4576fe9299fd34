"""Needs: rows of equal units that a cluster asks for, and the roll-up that carries all of them."""

import msgspec

from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Profile, ProfileError, Requirement
from bigfleet.model.resources import Resources


class NeedKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """What makes a row the same row from one roll-up to the next."""

    fingerprint: str
    group: str
    unit: Resources


class Need(msgspec.Struct, frozen=True, gc=False):
    """One row of demand: a sum of requests that all have one profile, and the size of the units it is made of."""

    profile: Profile
    aggregate: Resources
    """The sum of all requests in the row."""
    unit: Resources
    """The largest request in the row, per dimension. Empty in a row of somebody else's operator: such a row is
    divisible, which means that it may be cut anywhere."""
    group: str = ""
    """The name of the gang that the row is (a profile with SAME); empty for plain demand."""

    def __post_init__(self) -> None:
        if self.unit:
            return
        profile = self.profile
        whole = "SAME" if profile.same else "spread" if profile.spread else "max_per_machine"
        if profile.same or profile.spread or profile.max_per_machine:
            raise ProfileError("min_unit", f"is missing, but a need with {whole} cannot be cut anywhere")

    @property
    def key(self) -> NeedKey:
        """The row's identity within its cluster."""
        return NeedKey(self.profile.fingerprint, self.group, self.unit)

    @property
    def units(self) -> int:
        """How many units the row asks for; a divisible row counts as one."""
        unit = dict(self.unit)
        if not unit:
            return 1
        return max((-(-amount // unit[name]) for name, amount in self.aggregate if name in unit), default=0)


class Daemon(msgspec.Struct, frozen=True, gc=False):
    """What a DaemonSet takes from every node that it runs on."""

    requirements: tuple[Requirement, ...]
    """Which nodes the DaemonSet runs on; without any, on all of them."""
    resources: Resources
    """What one of its pods takes."""


class UnrequestedNode(msgspec.Struct, frozen=True, gc=False):
    """A node that runs pods for which no request exists, with the highest priority and penalties among those pods."""

    node: str
    priority: int
    interruption: PenaltyBucket
    reclamation: PenaltyBucket


class Rollup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cluster's whole demand at one moment. It replaces whatever the cluster said before."""

    cluster_id: str
    timestamp_unix_nanos: int
    """When the operator took the roll-up, by the operator's clock; the shard only echoes it."""
    needs: tuple[Need, ...]
    daemons: tuple[Daemon, ...] = ()
    empty_nodes: tuple[str, ...] = ()
    """The nodes on which nothing but daemons runs."""
    partial_demand: bool = False
    """Whether pods may run in the cluster that no need counts."""
    unrequested_nodes: tuple[UnrequestedNode, ...] = ()
    """Every node that runs a pod without a request, daemons aside."""
    owners: tuple[tuple[str, ...], ...] = ()
    """Some of those who ask, need by need; shorter than `needs` where they are not known. Nothing is decided by it."""
