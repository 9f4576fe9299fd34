"""Drawing demand: the rows of each cluster of a fleet, from the catalogue's archetypes."""

import random
from typing import TypeVar

import msgspec

from bigfleet.engine.tables.needs import unit_size
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.demand.profile import Operator, Profile, Requirement, WhenUnsatisfiable
from bigfleet.model.labels import RACK, ZONE
from bigfleet.sim import catalog
from bigfleet.sim.catalog import Archetype, Family, InstanceType, Size

T = TypeVar("T")

_REDRAWS = 50
_PLAIN = (*catalog.PLAIN, catalog.EARLY)
_GANG_UNITS = 0.6  # the share of all units that gangs ask for, in a fleet that is measured in units
_UNMET_GANGS = 0.6  # the share of gangs among the rows that stay unmet


class FleetShape(msgspec.Struct, frozen=True, kw_only=True):
    """How large a fleet is. Its demand is given either in rows that share machines, or in units of one machine each."""

    name: str
    machines: int
    clusters: int
    rows: int = 0
    """How many rows there are; 0 where `units` is given."""
    units: int = 0
    """How many units the rows come to, each of which takes a machine; 0 where `rows` is given."""
    gangs: float = 0.93
    """The share of rows that are gangs."""
    unmet: float = 0.02
    """The share of rows that are never covered."""


SHAPES: dict[str, FleetShape] = {
    shape.name: shape
    for shape in (
        FleetShape(name="5k", machines=5_000, clusters=20, rows=7_700),
        FleetShape(name="50k", machines=50_000, clusters=200, rows=77_000),
        # 1:1 is one unit of demand for each machine, which the unit nearly fills. An operator makes rows of the units.
        FleetShape(name="500k", machines=500_000, clusters=2_000, units=500_000),
        # 1:10 is one unit for ten machines: most of the fleet is free, as a region's whole stock would be.
        FleetShape(name="5m", machines=5_000_000, clusters=2_000, units=500_000),
    )
}


def _free_of(kind: InstanceType) -> tuple[int, int, int, int]:
    """The millicores, memory, accelerators and pods of a machine that daemons leave free."""
    left = dict(kind.allocatable)
    for daemon in catalog.DAEMONS:
        if all(str(kind.family) in r.values for r in daemon.requirements):
            left["pods"] -= 1
            for name, amount in daemon.resources:
                left[name] -= amount
    return left["cpu"], left["memory"], left.get(catalog.GPU, 0), left["pods"]


FREE = {kind.name: _free_of(kind) for types in catalog.INSTANCE_TYPES.values() for kind in types}
"""What daemons leave free on a machine of each instance type, by the type's name."""


class Row:
    """A need and what the generator knows about it. A `short` one takes what is left over and gets no new machine."""

    __slots__ = ("asked", "capacity", "family", "gang", "key", "kind", "need", "short", "size", "spread", "zone")

    def __init__(
        self, need: Need, asked: int, size: Size, kind: InstanceType, capacity: str, zone: str, short: bool
    ) -> None:
        self.need, self.size, self.kind, self.capacity = need, size, kind, capacity
        self.zone, self.short, self.family = zone, short, kind.family
        self.key, self.asked, self.gang = need.key, asked, bool(need.group)
        hard = WhenUnsatisfiable.DO_NOT_SCHEDULE
        self.spread = any(s.when_unsatisfiable is hard for s in need.profile.spread)

    def place(self) -> tuple[int, int, int, int, str, str, str]:
        """The sort key of the row among those of its cluster (engine section 4)."""
        profile = self.need.profile
        text = ",".join(f"{name}={amount}" for name, amount in self.key.unit)
        ranks = (-profile.priority, -profile.interruption, -profile.reclamation, -unit_size(self.key.unit))
        return (*ranks, self.key.fingerprint, self.key.group, text)


class Draw:
    """Draws the rows of each cluster, and carries fractions over to the next so that the fleet's totals come out right.

    `fill` scales what plain demand asks for. How many machines that takes depends on how rows share them.
    """

    def __init__(self, rng: random.Random, shape: FleetShape, fill: float) -> None:
        self._rng, self._shape, self._fill = rng, shape, fill
        self._whole: dict[Family, InstanceType] = {}
        self._profiles: dict[tuple[object, ...], Profile] = {}
        self._owed = {"gang": 0.0, "plain": 0.0, "unmet": 0.0}
        self._jobs = 0
        self._unmet_kinds = 0

    def cluster(self, number: int) -> list[Row]:
        """All rows of the next cluster."""
        rows: dict[NeedKey, Row] = {}
        # Where demand is measured in units, all machines of a cluster and family have one size: a unit fills one.
        self._whole = {f: self._rng.choice(types) for f, types in catalog.INSTANCE_TYPES.items()}
        left = self._gangs(rows, number)
        shape = self._shape
        total = shape.rows / shape.clusters if shape.rows else len(rows) / (shape.gangs - shape.unmet * _UNMET_GANGS)
        self._unmet(rows, self._count("unmet", total * shape.unmet))
        plain = 1 - shape.gangs - shape.unmet * (1 - _UNMET_GANGS)
        self._plain(rows, self._count("plain", total * plain), left)
        return list(rows.values())

    def _gangs(self, rows: dict[NeedKey, Row], number: int) -> float:
        """Add the gangs; returns how many machines are left for plain demand."""
        shape = self._shape
        machines = 0.0
        if shape.units:
            units = (number + 1) * shape.units // shape.clusters - number * shape.units // shape.clusters
            # A row that is never met asks for about as much as nine other rows.
            budget = units * (1 - 9 * shape.unmet) * self._fill
            while machines < _GANG_UNITS * budget:
                machines += self._add(rows, self._pick(catalog.GANGS), 0).asked
            return budget - machines
        expected = shape.rows * (shape.gangs - shape.unmet * _UNMET_GANGS) / shape.clusters
        for _ in range(self._count("gang", expected)):
            row = self._add(rows, self._pick(catalog.GANGS), 0)
            machines += row.asked / units_of(row.size, row.kind)
        return self._fill * shape.machines / shape.clusters - machines

    def _plain(self, rows: dict[NeedKey, Row], count: int, machines: float) -> None:
        chosen = [self._pick(_PLAIN) for _ in range(count)]
        shares = [a.share * self._rng.uniform(0.3, 1.7) for a in chosen if not a.replicas]
        whole = sum(shares) or 1.0
        for archetype in chosen:
            part = 0.0 if archetype.replicas else max(machines, 0.0) * shares.pop() / whole
            self._add(rows, archetype, part)

    def _unmet(self, rows: dict[NeedKey, Row], count: int) -> None:
        for _ in range(count):
            self._unmet_kinds += 1
            match self._unmet_kinds % 5:
                case 0 | 1:
                    self._add(rows, catalog.EARLY, 20, short=True)
                case 2 | 3:
                    self._add(rows, catalog.GANGS[-1], 0, short=True)
                case _:
                    self._oversized(rows)

    def _count(self, what: str, expected: float) -> int:
        self._owed[what] += expected
        count = int(self._owed[what] + 1e-6)
        self._owed[what] -= count
        return count

    def _pick(self, archetypes: tuple[Archetype, ...]) -> Archetype:
        return self._rng.choices(archetypes, [a.share for a in archetypes])[0]

    def _weighted(self, pairs: tuple[tuple[T, float], ...]) -> T:
        return self._rng.choices([value for value, _ in pairs], [weight for _, weight in pairs])[0]

    def _oversized(self, rows: dict[NeedKey, Row]) -> None:
        """A gang of whole machines that would need a rack larger than any, at the default priority."""
        kind = catalog.INSTANCE_TYPES[Family.GENERAL][-1]
        profile = self._profile(catalog.GANGS[0], Family.GENERAL, catalog.DEFAULT, "")
        self._put(
            rows, profile, _most_of(kind, 0.9), catalog.OVERSIZED_GANG, kind, "on-demand", "", gang=True, short=True
        )

    def _add(self, rows: dict[NeedKey, Row], a: Archetype, machines: float, *, short: bool = False) -> Row:
        """Add one row of an archetype. A plain row asks for about as much as `machines` machines hold."""
        rng = self._rng
        for _ in range(_REDRAWS):
            family = a.families[-1] if short else rng.choice(a.families)
            if self._shape.units:
                kind = self._whole[family]
                size = _most_of(kind, rng.choice((0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)))
            else:
                size = rng.choice(a.sizes)
                kind = rng.choice([k for k in catalog.INSTANCE_TYPES[family] if units_of(size, k)])
            priority = catalog.SPARE_TIME if short else self._weighted(a.priorities)
            zone = rng.choice(catalog.ZONES) if rng.random() < a.zonal else ""
            profile = self._profile(a, family, priority, zone)
            key = NeedKey(profile.fingerprint, "", size.unit)
            if a.gang or key not in rows:
                break
        if a.gang:
            asked = rng.choice(a.gang)
        else:
            asked = rng.choice(a.replicas) if a.replicas else max(1, round(machines * units_of(size, kind)))
        return self._put(
            rows, profile, size, asked, kind, self._weighted(a.capacity), zone, gang=bool(a.gang), short=short
        )

    def _put(
        self,
        rows: dict[NeedKey, Row],
        profile: Profile,
        size: Size,
        asked: int,
        kind: InstanceType,
        capacity: str,
        zone: str,
        *,
        gang: bool,
        short: bool,
    ) -> Row:
        group = ""
        if gang:
            self._jobs += 1
            group = f"job-{self._jobs}"
        unit = size.unit
        need = Need(profile, tuple((name, amount * asked) for name, amount in unit), unit, group)
        row = Row(need, asked, size, kind, capacity, zone, short)
        # A key that is still taken after so many draws keeps the row that it has.
        return rows.setdefault(row.key, row)

    def _profile(self, a: Archetype, family: Family, priority: int, zone: str) -> Profile:
        interruption, reclamation = self._rng.choice(a.interruption), self._rng.choice(a.reclamation)
        key = (a.name, family, priority, zone, interruption, reclamation)
        profile = self._profiles.get(key)
        if profile is None:
            wanted = [Requirement(catalog.FAMILY, Operator.IN, (str(family),))]
            if zone:
                wanted.append(Requirement(ZONE, Operator.IN, (zone,)))
            if a.gang:
                wanted.append(Requirement(RACK, Operator.SAME))
            profile = self._profiles[key] = Profile(
                requirements=tuple(wanted),
                spread=a.spread,
                priority=priority,
                interruption=interruption,
                reclamation=reclamation,
                max_per_machine=a.max_per_machine,
            )
        return profile


def _most_of(kind: InstanceType, share: float) -> Size:
    cpu, memory, gpus, _ = FREE[kind.name]
    return Size(int(cpu * share), int(memory * share), gpus)


def units_of(size: Size, kind: InstanceType) -> int:
    """How many units a machine holds on which nothing but daemons runs."""
    return fitting(size, *FREE[kind.name])


def fitting(size: Size, cpu: int, memory: int, gpus: int, pods: int) -> int:
    """How many units fit into these amounts."""
    units = min(cpu // size.cpu, memory // size.memory, pods)
    return min(units, gpus // size.gpus) if size.gpus else units
