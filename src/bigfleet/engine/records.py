"""What goes into a decision and what comes out of it, as values with strings.

Inside the engine everything is columns of integers. Times are whole seconds on whatever clock the caller keeps.
"""

import enum
from collections.abc import Mapping

import msgspec

from bigfleet.model.demand.need import Daemon, NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, Machine
from bigfleet.model.resources import MAX_UNITS, Resources

MAX_WEIGHT = 2.0
"""The highest weight: with more, the score of a victim 2**32 below its preemptor would not fit 64 bits."""

MAX_TIME = 2**62 - 1
"""The latest time, and negated the earliest: the sum of two times fits 64 bits."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """What a binding was made for, and its place in the order of all bindings of this shard."""

    key: NeedKey
    priority: int
    interruption: PenaltyBucket
    reclamation: PenaltyBucket
    number: int
    """The binding's number: later bindings of the shard have higher ones."""


class Stakes(msgspec.Struct, frozen=True, gc=False):
    """The highest priority and penalties among pods that no request speaks for."""

    priority: int
    interruption: PenaltyBucket
    reclamation: PenaltyBucket


class MachineRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One machine as its provider shows it, and what the shard itself knows about it.

    Once the shard has decided to preempt or reclaim a machine, its record says Draining. `machine.cluster` is then the
    cluster that the machine drains from, and `committed_to` the cluster that it drains for.
    """

    machine: Machine
    committed_to: str = ""
    """The cluster that the shard is giving the machine to; empty for none."""
    stamp: Stamp | None = None
    drain_seconds: int = 60
    """How long a drain of the machine is expected to take."""
    not_before: int = 0
    """The time before which the machine may be neither acquired nor preempted."""
    idle_since: int = 0
    empty: bool = False
    """No pod runs on the machine that would have to move."""
    unrequested: Stakes | None = None
    """What is at stake if pods run on the machine that no request speaks for."""
    protected: bool = False
    """The machine may be neither preempted nor given back."""
    not_ready: bool = False
    """The machine's node has not come up in time, so the machine counts for no cluster."""
    reclaim_hold_until: int = 0
    """The time before which the machine may not be given back."""


def is_whole(value: object, least: int, most: int = MAX_TIME) -> bool:
    """Whether a value is a whole number within bounds."""
    return isinstance(value, int) and least <= value <= most


class ClusterError(ValueError):
    """A cluster record that is refused; names the cluster and the field."""

    def __init__(self, cluster_id: str, field: str, problem: str) -> None:
        self.cluster_id, self.field = cluster_id, field
        super().__init__(f"cluster {cluster_id!r}: {field}: {problem}")


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One cluster as its session shows it."""

    id: str
    reported: bool = True
    """The cluster has sent a roll-up."""
    live: bool = True
    """The cluster may acquire: its session is there."""
    partial: bool = False
    """The cluster's roll-up leaves out pods, so only empty machines may be taken from it."""
    excess_since: int | None = None
    """The time since which the cluster has had a machine that no need takes; None if it has none."""
    reclaimed_in_window: int = 0
    """How many machines the cluster has given back within the window of the rail."""
    daemons: tuple[Daemon, ...] = ()
    held_out: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By fingerprint of a profile: the time before which its needs may not acquire."""

    def __post_init__(self) -> None:
        """Refuse values that would overflow or give a cluster more than there is."""
        if not self.id:
            raise ClusterError(self.id, "id", "must not be empty")
        if not is_whole(self.reclaimed_in_window, 0):
            raise ClusterError(self.id, "reclaimed_in_window", "must be a whole number and not negative")
        times = {f"held_out[{fingerprint!r}]": until for fingerprint, until in self.held_out.items()}
        if self.excess_since is not None:
            times["excess_since"] = self.excess_since
        for field, seconds in times.items():
            if not is_whole(seconds, -MAX_TIME):
                raise ClusterError(self.id, field, f"is {seconds}, but must be whole seconds within 2**62 of 0")
        for daemon in self.daemons:
            for name, amount in daemon.resources:
                if not isinstance(amount, int) or not 0 <= amount <= MAX_UNITS:
                    problem = f"is {amount}, but must lie between 0 and {MAX_UNITS}"
                    raise ClusterError(self.id, f"daemons[{name!r}]", problem)


class PolicyError(ValueError):
    """A setting that is refused; names it."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        super().__init__(f"{field}: {problem}")


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of decisions that the shard's configuration fixes."""

    weight_priority: float = 1.0
    weight_drain: float = 0.1
    weight_interrupt: float = 0.1
    weight_reclaim: float = 0.1
    idle_hold: Mapping[CapacityType, int] = msgspec.field(
        default_factory=lambda: {CapacityType.ON_DEMAND: 300, CapacityType.SPOT: 60}
    )
    """Seconds after which an Idle machine is deleted. One of a capacity type that is not named stays."""
    reclaim_after: int = 30
    """Seconds that a cluster must have had excess before it gives machines back."""
    reclaim_percent: int = 5
    """The share of its Configured machines that a cluster gives back within a window at most, but at least one."""
    draining_percent: int = 25
    """The share of its machines that may be draining at once, but at least one."""
    held_out_shapes: Mapping[tuple[str, str, CapacityType], int] = msgspec.field(default_factory=dict)
    """By instance type, zone and capacity type: the time before which nobody may acquire such machines."""

    def __post_init__(self) -> None:
        """Refuse settings with which a score or a rail could not be worked out."""
        for field in ("weight_priority", "weight_drain", "weight_interrupt", "weight_reclaim"):
            if not 0 <= getattr(self, field) <= MAX_WEIGHT:
                raise PolicyError(field, f"must lie between 0 and {MAX_WEIGHT:g}; only how weights compare matters")
        for field in ("reclaim_percent", "draining_percent"):
            if not is_whole(getattr(self, field), 0, 100):
                raise PolicyError(field, "must be a whole number between 0 and 100")
        for field, seconds in (("reclaim_after", self.reclaim_after), *self._holds()):
            if not is_whole(seconds, 0):
                raise PolicyError(field, f"is {seconds}, but must be whole seconds from 0 to 2**62")
        for shape, until in self.held_out_shapes.items():
            if not is_whole(until, -MAX_TIME):
                raise PolicyError(
                    f"held_out_shapes[{shape}]", f"is {until}, but must be whole seconds within 2**62 of 0"
                )

    def _holds(self) -> list[tuple[str, int]]:
        return [(f"idle_hold[{capacity_type.label}]", hold) for capacity_type, hold in self.idle_hold.items()]


class Kind(enum.Enum):
    """What an action does."""

    BOOTSTRAP = "Bootstrap"
    PROVISION = "Provision"
    PREEMPT = "Preempt"
    RECLAIM = "Reclaim"
    DELETE = "Delete"


class UnmetReason(enum.IntEnum):
    """Why a need lacks something. Values are the numbers on the wire."""

    NONE = 0
    PRIORITY_STARVED = 1
    NO_MATCHING_SUPPLY = 2
    TOPOLOGY_UNSATISFIABLE = 3
    PREEMPTION_EXHAUSTED = 4


class Action(msgspec.Struct, frozen=True, gc=False):
    """One action that was decided. A Reclaim or Delete is for no need, so it has no stamp."""

    kind: Kind
    machine: str
    cluster: str
    reason: str
    grace_seconds: int = 0
    stamp: Stamp | None = None


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What became of one need in a decision."""

    cluster: str
    key: NeedKey
    satisfied: bool
    """Whether the need lacks nothing."""
    missing_units: int
    """Units that the need lacks; 0 for a divisible need."""
    residual: Resources
    """What the need lacks, by resource."""
    claimed_machines: int
    """Machines that the need takes from."""
    bootstraps: int
    provisions: int
    preempts: int
    domain: tuple[str, ...]
    """The domain that a gang stands in, a value for each label; empty if it has none."""
    same_satisfiable: bool
    """False if no domain could hold the gang."""
    unmet_reason: UnmetReason
