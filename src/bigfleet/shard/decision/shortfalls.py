"""The needs that decisions leave short: which, for how many cycles, and a report of them. Events in, a report out.

A need is known by its cluster and key. It ages by one each cycle while it is short, and begins anew once it was met.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest

import msgspec

from bigfleet.model.demand.need import NeedKey
from bigfleet.model.resources import Resources

TOP = 100
"""How many profiles a report names, the highest priority first."""

ESCALATED_AFTER = 5
"""For how many cycles a profile may be short before machines of other shards should be thought of."""

PRIORITY_CLASSES = ("batch", "service", "critical", "other")
"""The classes of priority by which metrics count short needs."""

AGE_BUCKETS = ("1-9", "10-59", "60-299", "300+")
"""The ages in cycles by which metrics count short needs."""

_BATCH_PRIORITY, _SERVICE_PRIORITY, _CRITICAL_PRIORITY = 100, 1_000, 1_000_000
"""The highest priority of batch and of service, and the lowest of critical."""

_BUCKET_ENDS = (9, 59, 299)
"""The last age of each bucket but the last."""

_OLDEST = 3
"""How many of the oldest fingerprints a report names."""


class ShortNeed(msgspec.Struct, frozen=True, gc=False):
    """One need that the last decision left short, and what it lacks."""

    cluster: str
    key: NeedKey
    priority: int
    deficit: Resources


class ShortProfile(msgspec.Struct, frozen=True, gc=False):
    """One profile, over all clusters in which needs of it are short."""

    fingerprint: str
    priority: int
    #: What all of its needs lack together.
    deficit: Resources
    #: The age of the oldest of its needs.
    age: int
    #: How many of its needs are short.
    needs: int

    @property
    def escalated(self) -> bool:
        """Whether the profile has been short for so long that machines of other shards should be thought of."""
        return self.age > ESCALATED_AFTER


class ShortfallReport(msgspec.Struct, frozen=True):
    """What one decision left short."""

    #: How many needs are short.
    count: int
    #: The fingerprints that have been short for longest.
    oldest: tuple[str, ...]
    #: The profiles of the highest priorities.
    entries: tuple[ShortProfile, ...]
    #: Short needs by class of priority; the counts sum to `count`.
    by_priority: Mapping[str, int]
    #: Short needs by bucket of age; the counts sum to `count`.
    by_age: Mapping[str, int]


class Shortfalls:
    """The needs that the last decision left short, and for how many cycles each has been short."""

    def __init__(self) -> None:
        self._ages: dict[tuple[str, NeedKey], int] = {}
        self._by_cluster: dict[str, list[NeedKey]] = {}

    def cycle(self, short: Iterable[ShortNeed], *, early: bool = False) -> ShortfallReport:
        """These needs are short, first served first. None ages in an `early` cycle, which a roll-up brought."""
        needs, before = list(short), self._ages
        ids = [(need.cluster, need.key) for need in needs]
        ages = [before.get(need, 1) if early else before.get(need, 0) + 1 for need in ids]
        self._ages = dict(zip(ids, ages, strict=True))
        self._by_cluster = {}
        for need in needs:
            self._by_cluster.setdefault(need.cluster, []).append(need.key)
        profiles: dict[str, list[ShortNeed]] = {}
        oldest: dict[str, int] = {}
        for need, age in zip(needs, ages, strict=True):
            fingerprint = need.key.fingerprint
            profiles.setdefault(fingerprint, []).append(need)
            if age > oldest.get(fingerprint, 0):
                oldest[fingerprint] = age
        top = nsmallest(TOP, ((-rows[0].priority, -oldest[name], name) for name, rows in profiles.items()))
        return ShortfallReport(
            len(needs),
            tuple(name for _, name in nsmallest(_OLDEST, ((-age, name) for name, age in oldest.items()))),
            tuple(_entry(name, profiles[name], oldest[name]) for _, _, name in top),
            _tallied(PRIORITY_CLASSES, Counter(need.priority for need in needs), _priority_class),
            _tallied(AGE_BUCKETS, Counter(ages), _age_bucket),
        )

    def age(self, cluster: str, key: NeedKey) -> int:
        """For how many cycles in a row the need has been short; 0 where it is met."""
        return self._ages.get((cluster, key), 0)

    def of(self, cluster: str) -> Sequence[NeedKey]:
        """The needs of the cluster that are short, first served first."""
        return self._by_cluster.get(cluster, ())


def _entry(fingerprint: str, needs: list[ShortNeed], age: int) -> ShortProfile:
    deficit: dict[str, int] = {}
    for need in needs:
        for name, amount in need.deficit:
            deficit[name] = deficit.get(name, 0) + amount
    return ShortProfile(fingerprint, needs[0].priority, tuple(sorted(deficit.items())), age, len(needs))


def _tallied(names: tuple[str, ...], counts: Counter[int], name_of: Callable[[int], str]) -> dict[str, int]:
    """Counts by name, with 0 where there is none."""
    tally = dict.fromkeys(names, 0)
    for value, count in counts.items():
        tally[name_of(value)] += count
    return tally


def _priority_class(priority: int) -> str:
    if priority >= _CRITICAL_PRIORITY:
        return "critical"
    if priority <= _BATCH_PRIORITY:
        return "batch"
    return "service" if priority <= _SERVICE_PRIORITY else "other"


def _age_bucket(age: int) -> str:
    return next((name for most, name in zip(_BUCKET_ENDS, AGE_BUCKETS, strict=False) if age <= most), AGE_BUCKETS[-1])
