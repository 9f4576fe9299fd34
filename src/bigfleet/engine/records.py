"""What goes into a decision and what comes out, as values with strings: the engine's edge.

Everything behind it is columns of integers. Times are whole seconds on whatever clock the caller keeps.
"""

import enum
from collections.abc import Mapping

import msgspec

from bigfleet.model.demand.need import Daemon, NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, Machine
from bigfleet.model.resources import MAX_UNITS, Resources

MAX_WEIGHT = 2.0
"""Above it the score of a victim 2**32 below its preemptor would not fit 64 bits."""

MAX_TIME = 2**62 - 1
"""Seconds on either side of 0: sums of two times fit 64 bits."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """What a binding was made for, and its place in the order of all bindings of this shard."""

    key: NeedKey
    priority: int
    interruption: PenaltyBucket
    reclamation: PenaltyBucket
    number: int


class Stakes(msgspec.Struct, frozen=True, gc=False):
    """The highest priority and penalties among pods that no request speaks for."""

    priority: int
    interruption: PenaltyBucket
    reclamation: PenaltyBucket


class MachineRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One machine as its provider shows it, and what the shard itself knows of it.

    From the decision to preempt or reclaim on, the shard shows a machine as Draining; `machine.cluster` is then the
    one it drains from and `committed_to` the one it drains for, empty for nobody.
    """

    machine: Machine
    committed_to: str = ""
    stamp: Stamp | None = None
    drain_seconds: int = 60
    not_before: int = 0
    idle_since: int = 0
    empty: bool = False
    unrequested: Stakes | None = None
    protected: bool = False
    not_ready: bool = False
    reclaim_hold_until: int = 0


def is_whole(value: object, least: int, most: int = MAX_TIME) -> bool:
    """Whether a value is a whole number within bounds."""
    return isinstance(value, int) and least <= value <= most


class ClusterError(ValueError):
    """What a session shows that cannot be taken; names the cluster and the field."""

    def __init__(self, cluster_id: str, field: str, problem: str) -> None:
        self.cluster_id, self.field = cluster_id, field
        super().__init__(f"cluster {cluster_id!r}: {field}: {problem}")


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One cluster as its session shows it. `held_out` maps fingerprints to the time before which they may not act."""

    id: str
    reported: bool = True
    live: bool = True
    partial: bool = False
    excess_since: int | None = None
    reclaimed_in_window: int = 0
    daemons: tuple[Daemon, ...] = ()
    held_out: Mapping[str, int] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what would give a cluster more than there is."""
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
    """A setting that cannot be taken; names it."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        super().__init__(f"{field}: {problem}")


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What the shard's configuration fixes. A capacity type without an idle hold is never released."""

    weight_priority: float = 1.0
    weight_drain: float = 0.1
    weight_interrupt: float = 0.1
    weight_reclaim: float = 0.1
    idle_hold: Mapping[CapacityType, int] = msgspec.field(
        default_factory=lambda: {CapacityType.ON_DEMAND: 300, CapacityType.SPOT: 60}
    )
    reclaim_after: int = 30
    reclaim_percent: int = 5
    draining_percent: int = 25
    held_out_shapes: Mapping[tuple[str, str, CapacityType], int] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what a score or a rail could not be worked out with."""
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
    """What an action asks for."""

    BOOTSTRAP = "Bootstrap"
    PROVISION = "Provision"
    PREEMPT = "Preempt"
    RECLAIM = "Reclaim"
    DELETE = "Delete"


class UnmetReason(enum.IntEnum):
    """Why a need is short. Values are the wire numbers."""

    NONE = 0
    PRIORITY_STARVED = 1
    NO_MATCHING_SUPPLY = 2
    TOPOLOGY_UNSATISFIABLE = 3
    PREEMPTION_EXHAUSTED = 4


class Action(msgspec.Struct, frozen=True, gc=False):
    """One decided action. A Reclaim or Delete is for no need, so it carries no stamp."""

    kind: Kind
    machine: str
    cluster: str
    reason: str
    grace_seconds: int = 0
    stamp: Stamp | None = None


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What became of one need this cycle."""

    cluster: str
    key: NeedKey
    satisfied: bool
    missing_units: int
    residual: Resources
    claimed_machines: int
    bootstraps: int
    provisions: int
    preempts: int
    domain: tuple[str, ...]
    same_satisfiable: bool
    unmet_reason: UnmetReason
