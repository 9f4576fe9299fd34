"""The needs of all clusters as columns, and the one order in which they are served.

A roll-up replaces the rows of one cluster. That costs as much as has changed, and a row that stays keeps its arrival.
"""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bigfleet.engine.codes import NOBODY, PODS_DIM
from bigfleet.engine.tables.arrays import Column, Grid, Names, is_utf8, places
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import INT32_MAX, Operator, Profile, Requirement, WhenUnsatisfiable
from bigfleet.model.labels import CAPACITY_TYPE
from bigfleet.model.machine import CapacityType
from bigfleet.model.resources import MAX_TOTAL, MAX_UNITS, PODS, ResourceError, Resources, total

NO_TOPOLOGY = -1
"""The topology of a need that is no gang."""

MAX_ASKED = 2**44
"""The most units of one row: more than 5,000,000 machines have pods, and too few for a sum of units to overflow."""

MAX_ARRIVAL = 2**62
"""The latest arrival: numbers of arrivals count up from 0."""


class NeedError(ValueError):
    """A need that the table refuses; names the cluster, the profile and the field."""

    def __init__(self, cluster_id: str, fingerprint: str, field: str, problem: str) -> None:
        self.cluster_id, self.fingerprint, self.field = cluster_id, fingerprint, field
        super().__init__(f"cluster {cluster_id!r}: need {fingerprint!r}: {field}: {problem}")


def unit_size(unit: Resources) -> int:
    """How large a unit is for the order of needs: max(cores, GiB / 4), in 1/4,294,967,296,000 of a core."""
    amounts = dict(unit)
    return max(amounts.get("cpu", 0) * 2**22, amounts.get("memory", 0) * 1000)


class _Profile(NamedTuple):
    """The columns that a row has from its profile."""

    requirement: int
    limit: int
    fingerprint: int
    priority: int
    interruption: int
    reclamation: int
    topology: int
    spread: int


class NeedsTable:
    """Needs by slot; `order` lists the slots in use, first served first."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._shapes = inventory.shapes
        self._slots: dict[int, dict[NeedKey, int]] = {}
        self._vacant: list[int] = []
        self._arrivals = 0
        self.need: list[Need | None] = []
        self._place: list[bytes] = []
        self._units = Names()
        self._spreads = Names()
        self._fingerprints = Names()
        self._kinds = Names()
        self.unit_vectors = Grid(np.int64)
        self.cluster = Column(np.int32)
        self.requirement = Column(np.int32)
        self.unit = Column(np.int32)
        self.asked = Column(np.int64)
        self.key = Column(np.int32)
        self.limit = Column(np.int32)
        self.fingerprint = Column(np.int32)
        self.priority = Column(np.int32)
        self.interruption = Column(np.uint8)
        self.reclamation = Column(np.uint8)
        self.topology = Column(np.int32, NO_TOPOLOGY)
        self.spread = Column(np.int32)
        self.divisible = Column(np.uint8)
        self.kind = Column(np.int32)
        self._columns = (
            self.cluster, self.unit, self.asked, self.key, self.divisible, self.kind, self.requirement, self.limit,
            self.fingerprint, self.priority, self.interruption, self.reclamation, self.topology, self.spread,
        )  # fmt: skip
        self._profiles: dict[str, _Profile] = {}
        self._named = (
            (self._units, self.unit),
            (self._fingerprints, self.fingerprint),
            (self._kinds, self.kind),
            (inventory.keys, self.key),
        )
        inventory.key_columns.append(self.key)
        self.generation = 0
        """How often `compact` has changed the numbers of units, fingerprints and kinds; older numbers are void."""
        self.edits = 0
        """How often rows were changed."""
        self.spread_start = Column(np.int64)
        self.spread_start.append(0)
        self.spread_topology = Column(np.int32)
        self.spread_skew = Column(np.int64)
        self.spread_hard = Column(np.uint8)
        self._spread_set(())
        self._order = np.zeros(0, dtype=np.int64)
        self._moved: set[int] = set()
        self._changed: set[int] = set()

    def __len__(self) -> int:
        return len(self.need) - len(self._vacant)

    def replace(self, cluster_id: str, needs: Sequence[Need], arrivals: Mapping[NeedKey, int] | None = None) -> None:
        """Make these the cluster's needs. Needs with equal keys are summed. On NeedError nothing has changed.

        `arrivals` are the arrivals of rows that were known before a restart.
        """
        known = self._inventory.clusters.find(cluster_id)
        slots = self._slots.get(known, {})
        rows, gone = self._differences(cluster_id, slots, needs)
        if not rows and not gone:
            return
        arrivals = arrivals or {}
        for key, need in rows.items():
            _check(cluster_id, key, need, arrivals.get(key, 0))
        now = self._arrivals
        came = {key: arrivals.get(key, now) for key in rows if key not in slots}
        cluster = self._inventory.clusters.intern(cluster_id)
        slots = self._slots.setdefault(cluster, slots)
        for key in gone:
            self._free(slots.pop(key))
        for key, need in rows.items():
            if not key.unit:
                # Resources that only a divisible row names must have a dimension before the heap is laid out.
                self._shapes.dimensions.row(need.aggregate)
            if key not in came:
                slot = slots[key]
                self.need[slot] = need
                self.asked.view[slot] = need.units
        places = {_place(cluster_id, key, rows[key].profile, arrival): key for key, arrival in came.items()}
        # Rows that are served one after the other get slots side by side. Otherwise a third of a decision's time was
        # spent waiting for memory.
        for place, key in sorted(places.items()):
            slots[key] = self._add(cluster, place, key, rows[key])
            self._arrivals = max(self._arrivals, came[key] + 1)
        self._changed.add(cluster)
        self.edits += 1

    def _differences(
        self, cluster_id: str, slots: Mapping[NeedKey, int], needs: Sequence[Need]
    ) -> tuple[dict[NeedKey, Need], list[NeedKey]]:
        """(Rows that are new or have changed, keys that are gone.)"""
        given = set(map(id, needs))
        # The same object given twice must be summed, so then no need may be skipped as unchanged.
        held = {id(self.need[slot]): key for key, slot in slots.items()} if len(given) == len(needs) else {}
        rows: dict[NeedKey, Need] = {}
        for need in needs:
            if id(need) in held:
                continue
            key = need.key
            twin = rows.get(key)
            if twin is None and key in slots and id(self.need[slots[key]]) in given:
                twin = self.need[slots[key]] if held else None
            rows[key] = need if twin is None else _summed(cluster_id, twin, need)
        stale = (key for mark, key in held.items() if mark not in given) if held else slots
        gone = [key for key in stale if key not in rows]
        return {key: need for key, need in rows.items() if key not in slots or self.need[slots[key]] != need}, gone

    def changes(self) -> set[int]:
        """The numbers of clusters whose rows have changed since this was last asked."""
        changed, self._changed = self._changed, set()
        return changed

    @property
    def wants_compacting(self) -> bool:
        """Whether no row has most of the units, of the fingerprints or of the kinds."""
        return any(names.mostly_retired(column.view) for names, column in self._named[:-1])

    def compact(self) -> None:
        """Forget units, fingerprints and kinds that no row has. Their numbers change; rows and their order do not."""
        kept = self._units.compact(self.unit.view)
        self.unit_vectors.keep(kept)
        self._fingerprints.compact(self.fingerprint.view)
        self._profiles.clear()
        # Kinds are made of numbers that have just changed, so all kinds are made again.
        self._kinds.compact(self.kind.view[:0])
        slots = self.order()
        asks = (self.requirement, self.unit, self.limit, self.topology, self.spread)
        pinned = (self.interruption.view[slots] == PenaltyBucket.PINNED).tolist()
        kinds = zip(*(column.view[slots].tolist() for column in asks), pinned, strict=True)
        self.kind.view[slots] = self._kinds.intern_all(list(kinds))
        self.generation += 1

    def fingerprint_number(self, fingerprint: str) -> int:
        """The number of a fingerprint; a new one gets the next number."""
        return self._fingerprints.intern(fingerprint)

    def order(self) -> npt.NDArray[np.int64]:
        """The slots in use, in the order of section 4."""
        if self._moved:
            place = self._place.__getitem__
            moved = np.zeros(len(self.need), np.bool_)
            moved[list(self._moved)] = True
            old = self._order[~moved[self._order]]
            fresh = [slot for slot in self._moved if self.need[slot] is not None]
            if len(fresh) * 4 > len(old):
                self._order = np.array(sorted([*old.tolist(), *fresh], key=place), np.int64)
            else:
                fresh.sort(key=place)
                self._order = np.insert(old, places(old, fresh, place), fresh)
            self._moved.clear()
        return self._order

    def _add(self, cluster: int, place: bytes, key: NeedKey, need: Need) -> int:
        if self._vacant:
            slot = heappop(self._vacant)
            self.need[slot] = need
        else:
            slot = len(self.need)
            self.need.append(need)
            self._place.append(b"")
            for column in self._columns:
                column.resize(slot + 1)
        profile = self._profiles.get(key.fingerprint)
        if profile is None:
            profile = self._profiles[key.fingerprint] = self._profile(need.profile)
        unit = self._unit(key.unit)
        # A kind is everything that decides which machines could serve the row, apart from its cluster's daemons.
        pinned = profile.interruption == PenaltyBucket.PINNED
        kind = self._kinds.intern((profile.requirement, unit, profile.limit, profile.topology, profile.spread, pinned))
        self._place[slot] = place
        row = (cluster, unit, need.units, self._inventory.keys.intern(key), not key.unit, kind, *profile)
        for column, value in zip(self._columns, row, strict=True):
            column.put(slot, value)
        self._moved.add(slot)
        return slot

    def _profile(self, profile: Profile) -> _Profile:
        """The columns that all rows of a profile have in common."""
        topologies = self._shapes.topologies
        same = tuple(sorted({r.key for r in profile.same}))
        spread = tuple((topologies.intern((s.topology_key,)), s.max_skew, s.when_unsatisfiable) for s in profile.spread)
        return _Profile(
            self._shapes.requirement_list(_conditions(profile)),
            profile.max_per_machine,
            self._fingerprints.intern(profile.fingerprint),
            profile.priority,
            int(profile.interruption),
            int(profile.reclamation),
            topologies.intern(same) if same else NO_TOPOLOGY,
            self._spread_set(spread),
        )

    def _free(self, slot: int) -> None:
        self.need[slot] = None
        for names, column in self._named:
            column.put(slot, NOBODY)
            names.ended(1)
        heappush(self._vacant, slot)
        self._moved.add(slot)

    def _unit(self, unit: Resources) -> int:
        known = len(self._units)
        number = self._units.intern(unit)
        if number == known:
            entries = self._shapes.dimensions.row(unit)
            self.unit_vectors.resize(number + 1, len(self._shapes.dimensions))
            row = self.unit_vectors.view[number]
            for at, amount in entries:
                row[at] = amount
            if unit and PODS not in dict(unit):
                row[PODS_DIM] = 1
        return number

    def _spread_set(self, spread: tuple[tuple[int, int, WhenUnsatisfiable], ...]) -> int:
        known = len(self._spreads)
        number = self._spreads.intern(spread)
        if number == known:
            for topology, skew, mode in spread:
                self.spread_topology.append(topology)
                self.spread_skew.append(skew)
                self.spread_hard.append(mode is WhenUnsatisfiable.DO_NOT_SCHEDULE)
            self.spread_start.append(len(self.spread_topology))
        return number


def _conditions(profile: Profile) -> tuple[Requirement, ...]:
    """All requirements on a single machine: the profile's, no Spot for PINNED, and the label of every hard spread."""
    more = [
        Requirement(spread.topology_key, Operator.EXISTS)
        for spread in profile.spread
        if spread.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE
    ]
    if profile.interruption is PenaltyBucket.PINNED:
        more.append(Requirement(CAPACITY_TYPE, Operator.NOT_IN, (CapacityType.SPOT.label,)))
    return (*profile.requirements, *more)


def _summed(cluster_id: str, one: Need, other: Need) -> Need:
    try:
        aggregate = total([(one.aggregate, 1), (other.aggregate, 1)])
    except ResourceError as error:
        field = f"aggregate[{error.name!r}]"
        raise NeedError(cluster_id, one.profile.fingerprint, field, error.problem) from None
    return Need(one.profile, aggregate, one.unit, one.group)


def _check(cluster_id: str, key: NeedKey, need: Need, arrival: int) -> None:
    """Refuse what a profile does not check itself: values by which sums or places in the order could go wrong."""
    names = [name for name, _ in key.unit]
    if names != sorted(set(names)):
        raise NeedError(cluster_id, key.fingerprint, "unit", "must name each resource once, in order")
    for field, text in (("cluster", cluster_id), ("group", key.group), *(("unit", name) for name in names)):
        if "\0" in text or not is_utf8(text):
            raise NeedError(cluster_id, key.fingerprint, field, "must be text without NUL that UTF-8 can write")
    for field, vector, least, most in (
        ("unit", key.unit, 1, MAX_UNITS),
        ("aggregate", need.aggregate, 0, MAX_TOTAL),
    ):
        for name, amount in vector:
            if not isinstance(amount, int) or not least <= amount <= most:
                problem = f"is {amount}, but must lie between {least} and {most}"
                raise NeedError(cluster_id, key.fingerprint, f"{field}[{name!r}]", problem)
    for field, value, most in (("units", need.units, MAX_ASKED), ("arrival", arrival, MAX_ARRIVAL)):
        if not 0 <= value <= most:
            problem = f"is {value}, but must lie between 0 and {most}"
            raise NeedError(cluster_id, key.fingerprint, field, problem)


def _place(cluster_id: str, key: NeedKey, profile: Profile, arrival: int) -> bytes:
    """A row's place in the order of section 4, as bytes that compare as rows are served."""
    unit = ",".join(f"{name}={amount}" for name, amount in key.unit)
    return b"".join(
        (
            (INT32_MAX - profile.priority).to_bytes(4, "big"),
            bytes((PenaltyBucket.PINNED - profile.interruption, PenaltyBucket.PINNED - profile.reclamation)),
            arrival.to_bytes(8, "big"),
            cluster_id.encode() + b"\0",
            (2**79 - unit_size(key.unit)).to_bytes(10, "big"),
            key.fingerprint.encode() + b"\0",
            key.group.encode() + b"\0",
            unit.encode(),
        )
    )
