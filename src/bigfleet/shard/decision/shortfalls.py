"""The needs that decisions leave short: how old each is, and what stands at the top. Events in, a report out.

A need is known by its cluster and key; it ages by one a cycle while it is short, and is young again once it was met.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest

import msgspec

from bigfleet.model.demand.need import NeedKey
from bigfleet.model.resources import Resources

TOP = 100
"""Entries that are kept, by priority."""

ESCALATED_AFTER = 5
"""Cycles after which an entry is for somebody else to solve."""

PRIORITY_CLASSES = ("batch", "service", "critical", "other")
AGE_BUCKETS = ("1-9", "10-59", "60-299", "300+")
"""How metrics tell short needs apart."""

_OLDEST = 3


class Short(msgspec.Struct, frozen=True, gc=False):
    """One need that the last decision left short, and what it lacks."""

    cluster: str
    key: NeedKey
    priority: int
    deficit: Resources


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One profile, over all clusters that lack something of it. Its age is that of the oldest of them."""

    fingerprint: str
    priority: int
    deficit: Resources
    age: int
    needs: int

    @property
    def escalated(self) -> bool:
        """Whether it has been short for so long that machines of other shards should be thought of."""
        return self.age > ESCALATED_AFTER


class Report(msgspec.Struct, frozen=True):
    """What one decision left short: how many needs, the oldest fingerprints, and the top of all profiles.

    The counts by class of priority and by bucket of age each sum to the number of needs.
    """

    count: int
    oldest: tuple[str, ...]
    entries: tuple[Entry, ...]
    by_priority: Mapping[str, int]
    by_age: Mapping[str, int]


class Ledger:
    """For how many cycles in a row needs have been short."""

    def __init__(self) -> None:
        self._ages: dict[tuple[str, NeedKey], int] = {}

    def cycle(self, short: Iterable[Short], *, early: bool = False) -> Report:
        """A decision left these short, and no others. In an early cycle, which a roll-up brought, nothing ages."""
        needs, before = list(short), self._ages
        ids = [(need.cluster, need.key) for need in needs]
        ages = [before.get(need, 1) if early else before.get(need, 0) + 1 for need in ids]
        self._ages = dict(zip(ids, ages, strict=True))
        profiles: dict[str, list[Short]] = {}
        oldest: dict[str, int] = {}
        for need, age in zip(needs, ages, strict=True):
            fingerprint = need.key.fingerprint
            profiles.setdefault(fingerprint, []).append(need)
            if age > oldest.get(fingerprint, 0):
                oldest[fingerprint] = age
        top = nsmallest(TOP, ((-rows[0].priority, -oldest[name], name) for name, rows in profiles.items()))
        return Report(
            len(needs),
            tuple(name for _, name in nsmallest(_OLDEST, ((-age, name) for name, age in oldest.items()))),
            tuple(_entry(name, profiles[name], oldest[name]) for _, _, name in top),
            _tallied(PRIORITY_CLASSES, Counter(need.priority for need in needs), _priority_class),
            _tallied(AGE_BUCKETS, Counter(ages), _age_bucket),
        )

    def age(self, cluster: str, key: NeedKey) -> int:
        """For how many cycles in a row the need has been short; 0 where it is met."""
        return self._ages.get((cluster, key), 0)


def _entry(fingerprint: str, needs: list[Short], age: int) -> Entry:
    deficit: dict[str, int] = {}
    for need in needs:
        for name, amount in need.deficit:
            deficit[name] = deficit.get(name, 0) + amount
    return Entry(fingerprint, needs[0].priority, tuple(sorted(deficit.items())), age, len(needs))


def _tallied(names: tuple[str, ...], counts: Counter[int], name_of: Callable[[int], str]) -> dict[str, int]:
    """Counts by name, with 0 where there is none."""
    tally = dict.fromkeys(names, 0)
    for value, count in counts.items():
        tally[name_of(value)] += count
    return tally


def _priority_class(priority: int) -> str:
    if priority >= 1_000_000:
        return "critical"
    return "batch" if priority <= 100 else "service" if priority <= 1_000 else "other"


def _age_bucket(age: int) -> str:
    return next((name for most, name in zip((9, 59, 299), AGE_BUCKETS, strict=False) if age <= most), AGE_BUCKETS[-1])
