"""Aggregation: a cluster's requests become rows, at the cost of what changed.

There is one row per profile and unit size, and one row per gang and profile. Past 64 sizes of one profile, neighbouring
sizes share a row. The sums are exact; a row's unit is the largest of its members, per dimension.
"""

from collections.abc import Hashable, Iterable

from bigfleet.model.crd import CapacityRequest
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.demand.profile import Profile
from bigfleet.model.demand.request import Reader, RequestError, Unit
from bigfleet.model.demand.row_sizes import neighbours
from bigfleet.model.resources import Resources, largest, total

MAX_SIZES = 64
"""How many rows one profile may take; its gangs are not counted."""


class Aggregator:
    """A cluster's requests and the rows they make, kept up to date request by request."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._units: dict[tuple[str, str], Unit] = {}
        self._pools: dict[tuple[str, str], _Pool] = {}

    def __len__(self) -> int:
        return len(self._units)

    def __contains__(self, key: object) -> bool:
        return key in self._units

    def keys(self) -> list[tuple[str, str]]:
        """Namespace and name of every request."""
        return list(self._units)

    def put(self, request: CapacityRequest) -> None:
        """Add a request or replace its former version. On RequestError nothing has changed."""
        metadata = request.metadata
        namespace, name = metadata.namespace, metadata.name
        if not name:
            raise RequestError(f"{namespace}/", "metadata.name", "is empty, so it cannot be told from others")
        unit = self._reader.unit(request.spec, namespace, name)
        key = (namespace, name)
        former = self._units.get(key)
        if former is unit:
            return
        if former is not None:
            self._withdraw(former)
        self._units[key] = unit
        pool = self._pools.get(unit.place)
        if pool is None:
            pool = self._pools[unit.place] = _Pool(unit.profile, unit.group)
        pool.add(unit.size)

    def remove(self, namespace: str, name: str) -> None:
        """Forget a request; one that was never put is no error."""
        former = self._units.pop((namespace, name), None)
        if former is not None:
            self._withdraw(former)

    def needs(self) -> tuple[Need, ...]:
        """The rows, ordered by fingerprint, group and unit, so that the same requests always give the same rows."""
        return tuple(row for place in sorted(self._pools) for row in self._pools[place].rows())

    def row(self, namespace: str, name: str) -> NeedKey | None:
        """The key of the row that counts a request; None for a request that was never put."""
        unit = self._units.get((namespace, name))
        if unit is None:
            return None
        return NeedKey(unit.profile.fingerprint, unit.group, self._pools[unit.place].row_unit(unit.size))

    def kind(self, namespace: str, name: str) -> Hashable:
        """What requests that are always counted in one row have in common; None for a request that was never put."""
        unit = self._units.get((namespace, name))
        return None if unit is None else (unit.place, unit.size)

    def _withdraw(self, unit: Unit) -> None:
        if self._pools[unit.place].discard(unit.size):
            del self._pools[unit.place]


class _Pool:
    """The units of one profile and group, counted by size, and the rows they last made.

    Which sizes share a row depends on which sizes there are, not on how common each is. So rows keep their identity
    while pods come and go, and most changes touch a sum only.
    """

    __slots__ = ("_cut", "_group", "_profile", "_rows", "_sizes", "_stale")

    def __init__(self, profile: Profile, group: str) -> None:
        self._profile, self._group = profile, group
        self._sizes: dict[Resources, int] = {}
        self._cut: dict[Resources, _Row] | None = None
        """The row of each size; None while the sizes have changed and are not yet cut into rows again."""
        self._rows: tuple[Need, ...] = ()
        self._stale = True
        """Whether a count has changed since `_rows` was made."""

    def add(self, size: Resources) -> None:
        self._count(size, self._sizes.get(size, 0) + 1)

    def discard(self, size: Resources) -> bool:
        """Take one unit away; True if it was the last."""
        self._count(size, self._sizes[size] - 1)
        return not self._sizes

    def _count(self, size: Resources, count: int) -> None:
        former = self._sizes.get(size, 0)
        if count:
            self._sizes[size] = count
        else:
            del self._sizes[size]
        self._stale = True
        if self._cut is not None:
            if count and former:
                self._cut[size].need = None
            else:
                self._cut = None

    def row_unit(self, size: Resources) -> Resources:
        """The unit of the row that counts this size."""
        return self._rows_by_size()[size].unit

    def rows(self) -> tuple[Need, ...]:
        by_size = self._rows_by_size()
        if self._stale:
            rows = {id(row): row for row in by_size.values()}.values()
            self._rows = tuple(sorted((self._need(row) for row in rows), key=lambda need: need.unit))
            self._stale = False
        return self._rows

    def _rows_by_size(self) -> "dict[Resources, _Row]":
        if self._cut is None:
            self._cut = self._cut_rows()
        return self._cut

    def _cut_rows(self) -> "dict[Resources, _Row]":
        rows: dict[Resources, _Row] = {}
        for sizes in neighbours(self._sizes, 1 if self._group else MAX_SIZES):
            unit = largest(sizes)
            # Two groups may have the same largest unit; then they are one row.
            row = rows.setdefault(unit, _Row(unit))
            row.sizes.extend(sizes)
        return {size: row for row in rows.values() for size in row.sizes}

    def _need(self, row: "_Row") -> Need:
        if row.need is None:
            aggregate = total((size, self._sizes[size]) for size in row.sizes)
            row.need = Need(self._profile, aggregate, row.unit, self._group)
        return row.need


class _Row:
    """Sizes that share a row, the largest of them per dimension, and the Need that they last made."""

    __slots__ = ("need", "sizes", "unit")

    def __init__(self, unit: Resources) -> None:
        self.unit = unit
        self.sizes: list[Resources] = []
        self.need: Need | None = None


def aggregate(requests: Iterable[CapacityRequest]) -> tuple[Need, ...]:
    """The rows that these requests make, worked out from scratch."""
    aggregator = Aggregator()
    for request in requests:
        aggregator.put(request)
    return aggregator.needs()
