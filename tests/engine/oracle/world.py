"""The engine's input and output as plain values: machines, needs, clusters, policy, decision. Nothing here decides.

Quantities are whole numbers: cpu in millicores, memory in KiB, the rest in whole units. Money is whole micro-dollars an
hour, probabilities are parts per million, times are whole seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator, Profile, WhenUnsatisfiable
from bigfleet.model.demand.profile import Requirement as ModelRequirement
from bigfleet.model.demand.profile import Spread as ModelSpread

PINNED = 26
"""Bucket numbers: 0 = $0, 1 = $0.50, 2 = $1, 3 = $2 ... 25 = $8,388,608, 26 = PINNED."""


class State(Enum):
    """Where a machine is in its life, in the provider's words."""

    SPECULATIVE = "Speculative"
    CREATING = "Creating"
    IDLE = "Idle"
    CONFIGURING = "Configuring"
    CONFIGURED = "Configured"
    DRAINING = "Draining"
    DELETING = "Deleting"
    FAILED = "Failed"


class Op(Enum):
    """Requirement operators; SAME constrains the set of machines, not one of them."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    SAME = "Same"


class Kind(Enum):
    """What an action asks for."""

    BOOTSTRAP = "Bootstrap"
    PROVISION = "Provision"
    PREEMPT = "Preempt"
    RECLAIM = "Reclaim"
    DELETE = "Delete"


ACQUIRING = frozenset({Kind.BOOTSTRAP, Kind.PROVISION, Kind.PREEMPT})


@dataclass(frozen=True)
class Requirement:
    """One node selector requirement."""

    key: str
    op: Op
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spread:
    """One topology spread constraint; hard is DoNotSchedule, otherwise ScheduleAnyway."""

    key: str
    max_skew: int = 1
    hard: bool = True


@dataclass(frozen=True)
class Stamp:
    """What a binding was made for. On an unbound machine: the last binding's, if anybody still knows it."""

    fingerprint: str
    unit: str
    group: str
    priority: int
    interruption: int
    reclamation: int
    number: int


@dataclass(frozen=True)
class Unrequested:
    """Highest priority and penalties among the pods without requests on a node (protocol rule 13)."""

    priority: int
    interruption: int = 0
    reclamation: int = 0


@dataclass(frozen=True)
class Machine:
    """One machine as the shard knows it, its own commitments included.

    From the decision to preempt or reclaim on, the shard shows the machine as Draining, also while the operator still
    evicts; `cluster` is then the one it drains from and `committed_to` the one it drains for, "" for nobody.
    """

    id: str
    state: State
    allocatable: Mapping[str, int]
    cluster: str = ""
    committed_to: str = ""
    stamp: Stamp | None = None
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = "OnDemand"  # BareMetal, Reserved, OnDemand, Spot, or "" for unspecified
    labels: Mapping[str, str] = field(default_factory=dict)
    price: int = 0
    interruption_probability: int = 0
    drain_seconds: int = 60
    not_before: int = 0
    idle_since: int = 0
    empty: bool = False
    unrequested: Unrequested | None = None
    protected: bool = False
    ready_failed: bool = False
    reclaim_hold_until: int = 0


@dataclass(frozen=True)
class Need:
    """One row of a roll-up: so much in all, made of equal units. An empty unit is a stranger's divisible row."""

    cluster: str
    fingerprint: str
    aggregate: Mapping[str, int]
    unit: Mapping[str, int] = field(default_factory=dict)
    requirements: tuple[Requirement, ...] = ()
    spread: tuple[Spread, ...] = ()
    priority: int = 0
    interruption: int = 0
    reclamation: int = 0
    max_per_machine: int = 0
    group: str = ""
    arrival: int = 0


@dataclass(frozen=True)
class Daemon:
    """What a DaemonSet takes of every node that it matches; one pod unless its vector says otherwise."""

    vector: Mapping[str, int]
    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True)
class Cluster:
    """One cluster as its session shows it."""

    id: str
    reported: bool = True
    live: bool = True
    partial: bool = False
    excess_since: int | None = None
    daemons: tuple[Daemon, ...] = ()
    held_out: Mapping[str, int] = field(default_factory=dict)  # fingerprint -> not before (protocol rule 8)
    reclaimed_in_window: int = 0  # reclaims sent in the present 10 s of the rail's clock (protocol rule 17)


@dataclass(frozen=True)
class Policy:
    """What the shard's configuration fixes. Weights of the victim score are in billionths, so that it stays whole."""

    weight_priority: int = 1_000_000_000
    weight_drain: int = 100_000_000
    weight_interrupt: int = 100_000_000
    weight_reclaim: int = 100_000_000
    idle_hold: Mapping[str, int] = field(default_factory=lambda: {"OnDemand": 300, "Spot": 60})  # others: never
    reclaim_after: int = 30
    reclaim_percent: int = 5
    draining_percent: int = 25
    held_out_shapes: Mapping[tuple[str, str, str], int] = field(default_factory=dict)  # (type, zone, class)


@dataclass(frozen=True)
class World:
    """Everything that a decision is a function of. `next_binding` is the shard's counter of binding numbers."""

    machines: tuple[Machine, ...]
    needs: tuple[Need, ...]
    clusters: tuple[Cluster, ...]
    policy: Policy = field(default_factory=Policy)
    now: int = 0
    next_binding: int = 1


@dataclass(frozen=True, order=True)
class NeedKey:
    """A row's name after equal rows were summed; `unit` is the canonical text of `unit_text`."""

    cluster: str
    fingerprint: str
    group: str
    unit: str


@dataclass(frozen=True)
class Action:
    """One decided action. For Reclaim and Delete there is no need, so fingerprint, unit, group are empty."""

    kind: Kind
    machine: str
    cluster: str
    reason: str
    fingerprint: str = ""
    unit: str = ""
    group: str = ""
    grace_seconds: int = 0
    number: int = 0
    stamp: Stamp | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of one need this cycle."""

    key: NeedKey
    satisfied: bool
    missing_units: int
    residual: Mapping[str, int]
    claimed_machines: int
    bootstrap_count: int
    provision_count: int
    preempt_count: int
    domain: tuple[str, ...]
    same_satisfiable: bool
    unmet_reason: str
    takes: Mapping[str, Mapping[str, int]]  # machine -> what the need takes from it, pods included


@dataclass(frozen=True)
class Decision:
    """The answer: actions in the order they were decided, and why."""

    actions: tuple[Action, ...]
    verdicts: tuple[Verdict, ...]
    excess: frozenset[str]  # clusters with a Configured machine that no need took
    dropped: tuple[str, ...]  # machines whose commitment ends (section 7)
    capped: frozenset[str] = frozenset()  # clusters whose rail held reclaims back

    @property
    def shortfalls(self) -> tuple[Verdict, ...]:
        """The needs left short."""
        return tuple(v for v in self.verdicts if not v.satisfied)


def unit_text(unit: Mapping[str, int]) -> str:
    """Canonical text of a unit, compared bytewise; zero entries say nothing and are left out."""
    return ",".join(f"{name}={unit[name]}" for name in sorted(unit) if unit[name])


def requirements_of(requirements: Iterable[Requirement]) -> tuple[ModelRequirement, ...]:
    """The requirements as the model has them."""
    return tuple(ModelRequirement(r.key, Operator[r.op.name], tuple(r.values)) for r in requirements)


def profile_of(need: Need) -> Profile:
    """The need's profile as the model has it; the oracle takes nothing from it but the fingerprint."""
    modes = {True: WhenUnsatisfiable.DO_NOT_SCHEDULE, False: WhenUnsatisfiable.SCHEDULE_ANYWAY}
    return Profile(
        requirements=requirements_of(need.requirements),
        spread=tuple(ModelSpread(s.key, s.max_skew, modes[s.hard]) for s in need.spread),
        priority=need.priority,
        interruption=PenaltyBucket(need.interruption + 1),
        reclamation=PenaltyBucket(need.reclamation + 1),
        max_per_machine=need.max_per_machine,
    )


def fingerprint_of(need: Need) -> str:
    """The stable digest of the canonical profile (section 4), equal for equal profiles in any field order."""
    return profile_of(need).fingerprint
