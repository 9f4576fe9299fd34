"""The needs of all clusters as columns, in the one order in which they are served.

A roll-up replaces one cluster's rows at the cost of what changed; a row that stays keeps its arrival.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bigfleet.engine.arrays import Column, Grid
from bigfleet.engine.inventory import Inventory, Names
from bigfleet.engine.shapes import CAPACITY_TYPE, PODS_DIM
from bigfleet.model.buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType
from bigfleet.model.need import Need, NeedKey
from bigfleet.model.profile import Operator, Profile, Requirement, WhenUnsatisfiable
from bigfleet.model.resources import PODS, Resources, total

NO_TOPOLOGY = -1


def unit_size(unit: Resources) -> int:
    """How large a unit is for the order of needs: max(cores, GiB / 4), in 1/4,294,967,296,000 of a core."""
    amounts = dict(unit)
    return max(amounts.get("cpu", 0) * 2**22, amounts.get("memory", 0) * 1000)


class NeedsTable:
    """Rows of demand by slot; `order` lists the live slots, first served first."""

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
        self.own = Column(np.int32)
        self.limit = Column(np.int32)
        self.fingerprint = Column(np.int32)
        self.priority = Column(np.int32)
        self.interruption = Column(np.uint8)
        self.reclamation = Column(np.uint8)
        self.topology = Column(np.int32, NO_TOPOLOGY)
        self.spread = Column(np.int32)
        self.divisible = Column(np.uint8)
        self.kind = Column(np.int32)
        self._columns = [
            self.cluster, self.requirement, self.unit, self.asked, self.own, self.limit, self.fingerprint,
            self.priority, self.interruption, self.reclamation, self.topology, self.spread, self.divisible, self.kind,
        ]  # fmt: skip
        self.spread_start = Column(np.int64)
        self.spread_start.append(0)
        self.spread_topology = Column(np.int32)
        self.spread_skew = Column(np.int64)
        self.spread_hard = Column(np.uint8)
        self._spread_set(())
        self._order = np.zeros(0, dtype=np.int64)
        self._sorted = True

    def __len__(self) -> int:
        return len(self.need) - len(self._vacant)

    def replace(self, cluster_id: str, needs: Sequence[Need], arrivals: Mapping[NeedKey, int] | None = None) -> None:
        """Make these the cluster's demand. Equal rows are summed; `arrivals` are those known from before a restart."""
        cluster = self._inventory.clusters.intern(cluster_id)
        rows: dict[NeedKey, Need] = {}
        for need in needs:
            key = need.key
            twin = rows.get(key)
            rows[key] = need if twin is None else _summed(twin, need)
        slots = self._slots.setdefault(cluster, {})
        gone = [key for key in slots if key not in rows]
        for key in gone:
            self._free(slots.pop(key))
        now = self._arrivals
        for key, need in rows.items():
            slot = slots.get(key)
            if slot is None:
                arrival = now if arrivals is None else arrivals.get(key, now)
                slots[key] = self._add(cluster, cluster_id, key, need, arrival)
                self._arrivals = max(self._arrivals, arrival + 1)
            elif self.need[slot] != need:
                self.need[slot] = need
                self.asked.view[slot] = need.units

    @property
    def kinds(self) -> int:
        """How many kinds of rows there are."""
        return len(self._kinds)

    def fingerprint_number(self, fingerprint: str) -> int:
        """The number of a fingerprint, made on first sight."""
        return self._fingerprints.intern(fingerprint)

    def order(self) -> npt.NDArray[np.int64]:
        """The live slots in the order of section 4."""
        if not self._sorted:
            live = (slot for slot, need in enumerate(self.need) if need is not None)
            self._order = np.array(sorted(live, key=self._place.__getitem__), dtype=np.int64)
            self._sorted = True
        return self._order

    def _add(self, cluster: int, cluster_id: str, key: NeedKey, need: Need, arrival: int) -> int:
        if self._vacant:
            slot = self._vacant.pop()
            self.need[slot] = need
        else:
            slot = len(self.need)
            self.need.append(need)
            self._place.append(b"")
            for column in self._columns:
                column.resize(slot + 1)
        profile = need.profile
        self._place[slot] = _place(cluster_id, key, need, arrival)
        self.cluster.view[slot] = cluster
        self.requirement.view[slot] = self._shapes.requirement_list(_conditions(profile))
        self.unit.view[slot] = self._unit(need.unit)
        self.asked.view[slot] = need.units
        self.own.view[slot] = self._inventory.keys.intern(key)
        self.limit.view[slot] = profile.max_per_machine
        self.fingerprint.view[slot] = self._fingerprints.intern(profile.fingerprint)
        self.priority.view[slot] = profile.priority
        self.interruption.view[slot] = profile.interruption
        self.reclamation.view[slot] = profile.reclamation
        same = tuple(sorted({r.key for r in profile.same}))
        self.topology.view[slot] = self._shapes.topologies.intern(same) if same else NO_TOPOLOGY
        spread = tuple(
            (self._shapes.topologies.intern((s.topology_key,)), s.max_skew, s.when_unsatisfiable)
            for s in profile.spread
        )
        self.spread.view[slot] = self._spread_set(spread)
        self.divisible.view[slot] = not need.unit
        # What decides which machines could serve the row, apart from its cluster's daemons.
        asks = (self.requirement, self.unit, self.limit, self.topology, self.spread)
        pinned = profile.interruption is PenaltyBucket.PINNED
        self.kind.view[slot] = self._kinds.intern((*(int(column.view[slot]) for column in asks), pinned))
        self._sorted = False
        return slot

    def _free(self, slot: int) -> None:
        self.need[slot] = None
        self._vacant.append(slot)
        self._sorted = False

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
    """All that a single machine must satisfy: the requirements, no Spot for PINNED, and the labels of a hard spread."""
    more = [
        Requirement(spread.topology_key, Operator.EXISTS)
        for spread in profile.spread
        if spread.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE
    ]
    if profile.interruption is PenaltyBucket.PINNED:
        more.append(Requirement(CAPACITY_TYPE, Operator.NOT_IN, (CapacityType.SPOT.label,)))
    return (*profile.requirements, *more)


def _summed(one: Need, other: Need) -> Need:
    aggregate = total([(one.aggregate, 1), (other.aggregate, 1)])
    return Need(one.profile, aggregate, one.unit, one.group)


def _place(cluster_id: str, key: NeedKey, need: Need, arrival: int) -> bytes:
    """A row's place in the order of section 4, as bytes that compare as the rows do."""
    profile = need.profile
    unit = ",".join(f"{name}={amount}" for name, amount in key.unit)
    return b"".join(
        (
            (2**31 - 1 - profile.priority).to_bytes(4, "big"),
            bytes((PenaltyBucket.PINNED - profile.interruption, PenaltyBucket.PINNED - profile.reclamation)),
            arrival.to_bytes(8, "big"),
            cluster_id.encode() + b"\0",
            (2**79 - unit_size(key.unit)).to_bytes(10, "big"),
            key.fingerprint.encode() + b"\0",
            key.group.encode() + b"\0",
            unit.encode(),
        )
    )
