"""Profiles: what a need asks of its machines, in one canonical form with one stable fingerprint.

Two profiles that mean the same compare equal and share a fingerprint, in whatever order their parts were
written. The fingerprint is part of stored state and of the wire; its recipe never changes.
"""

import enum
import hashlib
import json

import msgspec

from bigfleet.model.demand.penalty_buckets import PenaltyBucket

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

_RECIPE = "bigfleet-profile-1"


class ProfileError(ValueError):
    """A profile that cannot be; `field` says which part, relative to the profile."""

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"{field}: {problem}")


class Operator(enum.IntEnum):
    """How a requirement compares. Values are the wire numbers; SAME exists on the wire only, never on the CRD."""

    IN = 1
    NOT_IN = 2
    EXISTS = 3
    DOES_NOT_EXIST = 4
    SAME = 5

    @property
    def label(self) -> str:
        """The operator as Kubernetes writes it: `NotIn`."""
        return self.name.title().replace("_", "")


_NEED_VALUES = frozenset({Operator.IN, Operator.NOT_IN})
_TAKE_NO_VALUES = frozenset({Operator.EXISTS, Operator.DOES_NOT_EXIST})


class Requirement(msgspec.Struct, frozen=True, order=True, gc=False):
    """One condition on a machine's labels, or with SAME on the set of machines that serve a gang."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.key:
            raise ProfileError("key", "is empty")
        if self.operator in _NEED_VALUES and not self.values:
            raise ProfileError("values", f"{self.operator.label} on {self.key!r} needs at least one value")
        if self.operator in _TAKE_NO_VALUES and self.values:
            raise ProfileError("values", f"{self.operator.label} on {self.key!r} takes no values")
        msgspec.structs.force_setattr(self, "values", tuple(sorted(set(self.values))))


class WhenUnsatisfiable(enum.IntEnum):
    """Whether a spread is a condition or a preference. Values are the wire numbers."""

    DO_NOT_SCHEDULE = 1
    SCHEDULE_ANYWAY = 2

    @property
    def label(self) -> str:
        """The mode as Kubernetes writes it: `DoNotSchedule`."""
        return self.name.title().replace("_", "")


class Spread(msgspec.Struct, frozen=True, order=True, gc=False):
    """How far the domains of a topology key may differ in the number of units that they hold."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: WhenUnsatisfiable

    def __post_init__(self) -> None:
        if not self.topology_key:
            raise ProfileError("topology_key", "is empty")
        if not 1 <= self.max_skew <= INT32_MAX:
            raise ProfileError("max_skew", f"is {self.max_skew}, but must be at least 1")


class Profile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything two requests must agree in to be one kind of demand. Canonical from construction on."""

    requirements: tuple[Requirement, ...] = ()
    spread: tuple[Spread, ...] = ()
    priority: int = 0
    interruption: PenaltyBucket = PenaltyBucket.ZERO
    reclamation: PenaltyBucket = PenaltyBucket.ZERO
    max_per_machine: int = 0
    """How many units one machine may serve; 0 for no limit."""
    fingerprint: str = ""
    """A digest of all other fields. It is always worked out anew, so nobody passes it."""

    def __post_init__(self) -> None:
        if not INT32_MIN <= self.priority <= INT32_MAX:
            raise ProfileError("priority", f"{self.priority} does not fit 32 bits")
        if not 0 <= self.max_per_machine <= INT32_MAX:
            raise ProfileError("max_per_machine", f"is {self.max_per_machine}, but must be 0 (no limit) or more")
        msgspec.structs.force_setattr(self, "requirements", tuple(sorted(set(self.requirements))))
        msgspec.structs.force_setattr(self, "spread", tuple(sorted(set(self.spread))))
        msgspec.structs.force_setattr(self, "fingerprint", _fingerprint(self))

    @property
    def same(self) -> tuple[Requirement, ...]:
        """The requirements that bind a gang to one domain; empty for plain demand."""
        return tuple(r for r in self.requirements if r.operator is Operator.SAME)


def _fingerprint(profile: Profile) -> str:
    # JSON from the standard library with ASCII escapes: one text for one value, on every platform and release.
    canonical = [
        _RECIPE,
        [[r.key, r.operator.value, list(r.values)] for r in profile.requirements],
        [[s.topology_key, s.max_skew, s.when_unsatisfiable.value] for s in profile.spread],
        profile.priority,
        profile.interruption.value,
        profile.reclamation.value,
        profile.max_per_machine,
    ]
    text = json.dumps(canonical, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()
