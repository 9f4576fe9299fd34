"""Aggregation: a cluster's requests become rows, at the cost of what changed.

One row per profile and unit size, at most 64 sizes a profile and then neighbours together; one row per gang and
profile. The sums are exact; a row's unit is the largest of its members, per dimension.
"""

from collections.abc import Iterable

from bigfleet.model.crd import CapacityRequest
from bigfleet.model.need import Need
from bigfleet.model.profile import Profile
from bigfleet.model.request import Reader, Unit
from bigfleet.model.resources import Resources, largest, total
from bigfleet.model.sizes import neighbours

MAX_SIZES = 64
"""Rows that one profile may take, gangs aside."""


class Aggregator:
    """A cluster's requests and the rows they make, kept up to date request by request."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._units: dict[tuple[str, str], Unit] = {}
        self._pools: dict[tuple[str, str], _Pool] = {}

    def __len__(self) -> int:
        return len(self._units)

    def put(self, request: CapacityRequest) -> None:
        """Add a request or replace its former version. On RequestError nothing has changed."""
        metadata = request.metadata
        namespace, name = metadata.namespace, metadata.name
        unit = self._reader.unit(request.spec, namespace, f"{namespace}/{name}")
        key = (namespace, name)
        former = self._units.get(key)
        if former is unit:
            return
        if former is not None:
            self._withdraw(former)
        self._units[key] = unit
        place = (unit.profile.fingerprint, unit.group)
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = _Pool(unit.profile, unit.group)
        pool.add(unit.size)

    def remove(self, namespace: str, name: str) -> None:
        """Forget a request; one that was never put is no error."""
        former = self._units.pop((namespace, name), None)
        if former is not None:
            self._withdraw(former)

    def needs(self) -> tuple[Need, ...]:
        """The rows, ordered by fingerprint, group and unit: the same for the same requests."""
        return tuple(row for place in sorted(self._pools) for row in self._pools[place].rows())

    def _withdraw(self, unit: Unit) -> None:
        place = (unit.profile.fingerprint, unit.group)
        if self._pools[place].discard(unit.size):
            del self._pools[place]


class _Pool:
    """The units of one profile and group, counted by size, and the rows they last made."""

    __slots__ = ("_group", "_profile", "_rows", "_sizes")

    def __init__(self, profile: Profile, group: str) -> None:
        self._profile, self._group = profile, group
        self._sizes: dict[Resources, int] = {}
        self._rows: tuple[Need, ...] | None = None

    def add(self, size: Resources) -> None:
        self._sizes[size] = self._sizes.get(size, 0) + 1
        self._rows = None

    def discard(self, size: Resources) -> bool:
        """Take one unit away; True if it was the last."""
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]
        self._rows = None
        return not self._sizes

    def rows(self) -> tuple[Need, ...]:
        if self._rows is None:
            members: dict[Resources, list[Resources]] = {}
            for sizes in neighbours(self._sizes, 1 if self._group else MAX_SIZES):
                members.setdefault(largest(sizes), []).extend(sizes)
            self._rows = tuple(self._row(unit, members[unit]) for unit in sorted(members))
        return self._rows

    def _row(self, unit: Resources, sizes: list[Resources]) -> Need:
        aggregate = total((size, self._sizes[size]) for size in sizes)
        return Need(self._profile, aggregate, unit, self._group)


def aggregate(requests: Iterable[CapacityRequest]) -> tuple[Need, ...]:
    """The rows of so many requests, from scratch."""
    aggregator = Aggregator()
    for request in requests:
        aggregator.put(request)
    return aggregator.needs()
