"""Whole fleets from the catalogue: machines in racks and needs of clusters, alike for a seed, of any size.

A settled fleet is bound as the engine's own credit would have it: needs are served in their order, each takes what
earlier ones left on its cluster's machines, in binding order, and only then new machines. So deciding on it again
moves nothing, and what is short stays short because what it asks for is sold out or fits no rack.
"""

import random
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from bigfleet.engine.needs import unit_size
from bigfleet.engine.records import ClusterRecord, MachineRecord, Stamp
from bigfleet.model.buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.model.need import Need, NeedKey
from bigfleet.model.profile import Operator, Profile, Requirement, WhenUnsatisfiable
from bigfleet.sim import catalog
from bigfleet.sim.catalog import Archetype, CapacityClass, Family, InstanceType, Size

T = TypeVar("T")

_REDRAWS = 50
_PLAIN = (*catalog.PLAIN, catalog.EARLY)
_GANG_MACHINES = 0.6  # of a fleet measured in units, what gangs ask for


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A size of fleet: so many machines and either so many rows that share machines, or so many units of one each."""

    name: str
    machines: int
    clusters: int
    rows: int = 0
    units: int = 0
    gangs: float = 0.93
    unmet: float = 0.02
    bound: float = 0.85


SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape(name="5k", machines=5_000, clusters=20, rows=7_700),
        Shape(name="50k", machines=50_000, clusters=200, rows=77_000),
        # 1:1 is one unit of demand for each machine, as large as most of one; rows are what an operator makes of them.
        Shape(name="500k", machines=500_000, clusters=2_000, units=500_000),
        # 1:10 is one unit for ten machines: most of the fleet is free, as a region's whole stock would be.
        Shape(name="5m", machines=5_000_000, clusters=2_000, units=500_000),
    )
}


class Rack:
    """One row of machines of a family, a zone and a capacity class; `bound` come first, `free` after them."""

    __slots__ = ("bound", "family", "free", "klass", "labels", "name", "slots", "zone")

    def __init__(self, number: int, slots: int, family: Family, zone: str, klass: CapacityClass) -> None:
        self.name = f"r{number:06d}"
        self.slots, self.family, self.zone, self.klass = slots, family, zone, klass
        self.labels = {catalog.REGION: zone[:-1], catalog.RACK: self.name, catalog.FAMILY: str(family)}
        self.bound: list[tuple[InstanceType, str, Stamp]] = []
        self.free: list[InstanceType] = []


class Fleet:
    """Machines and needs. `machines` makes records as they are asked for: millions of them need not exist at once."""

    def __init__(self, shape: Shape, racks: list[Rack], needs: dict[str, list[Need]], prices: "Prices") -> None:
        self.shape, self.racks, self.needs = shape, racks, needs
        self._prices = prices
        self.clusters = [ClusterRecord(id=name, daemons=catalog.DAEMONS) for name in needs]
        self.next_binding = 1 + sum(len(rack.bound) for rack in racks)

    @property
    def rows(self) -> int:
        """How many rows of demand there are."""
        return sum(len(rows) for rows in self.needs.values())

    @property
    def units(self) -> int:
        """How many units those rows ask for."""
        return sum(need.units for rows in self.needs.values() for need in rows)

    def machines(self, *, settled: bool = True) -> Iterator[MachineRecord]:
        """Every machine; with `settled` off, the same machines with nothing bound."""
        for rack in self.racks:
            owned = rack.klass.capacity_type in (CapacityType.RESERVED, CapacityType.BARE_METAL)
            for slot, (kind, cluster, stamp) in enumerate(rack.bound):
                if settled:
                    yield self._record(rack, slot, kind, MachineState.CONFIGURED, cluster, stamp)
                else:
                    yield self._free(rack, slot, kind, owned)
            for slot, kind in enumerate(rack.free, len(rack.bound)):
                yield self._free(rack, slot, kind, owned)

    def _free(self, rack: Rack, slot: int, kind: InstanceType, owned: bool) -> MachineRecord:
        # Idle where nobody would give it back: rented machines that stay idle would be released.
        state = MachineState.IDLE if owned else MachineState.SPECULATIVE
        return self._record(rack, slot, kind, state, "", None)

    def _record(
        self, rack: Rack, slot: int, kind: InstanceType, state: MachineState, cluster: str, stamp: Stamp | None
    ) -> MachineRecord:
        name = f"{rack.name}-{slot:02d}"
        price, interruption = self._prices.of(kind, rack.zone, rack.klass)
        machine = Machine(
            id=name,
            state=state,
            instance_type=kind.name,
            capacity_type=rack.klass.capacity_type,
            host=None if state is MachineState.SPECULATIVE else Host("sim", name),
            zone=rack.zone,
            price_per_hour=price,
            interruption_probability=interruption,
            resources=kind.resources,
            allocatable=kind.allocatable,
            labels=rack.labels,
            cluster=cluster,
        )
        return MachineRecord(machine=machine, stamp=stamp)


def generate(shape: Shape, seed: int = 0) -> Fleet:
    """The fleet of this shape and seed."""
    rng = random.Random(f"{shape.name}-{seed}")  # noqa: S311 - a simulation must repeat, not surprise
    hall = _Hall(rng)
    draw = _Draw(rng, shape)
    needs: dict[str, list[Need]] = {}
    number = 0
    for c in range(shape.clusters):
        cluster = f"c{c:05d}"
        rows = sorted(draw.cluster(c), key=_Row.place)
        number = _Binding(cluster, hall, rng, number).serve(rows)
        needs[cluster] = [row.need for row in rows]
        rng.shuffle(needs[cluster])
    return Fleet(shape, hall.close(shape.machines), needs, Prices(rng))


class Prices:
    """What a type costs in a zone and class: drawn once, so that equal machines have equal prices."""

    def __init__(self, rng: random.Random) -> None:
        self._table = {}
        for types in catalog.INSTANCE_TYPES.values():
            for kind in types:
                for zone in catalog.ZONES:
                    for klass in (catalog.owned(kind.family), catalog.ON_DEMAND, catalog.SPOT):
                        price = round(kind.price * rng.uniform(*klass.price), 4)
                        self._table[kind.name, zone, klass.name] = price, round(rng.uniform(*klass.interruption), 3)

    def of(self, kind: InstanceType, zone: str, klass: CapacityClass) -> tuple[float, float]:
        """Dollars an hour, and the probability of interruption."""
        return self._table[kind.name, zone, klass.name]


def _free_of(kind: InstanceType) -> tuple[int, int, int, int]:
    """Millicores, memory, accelerators and pods that the daemons leave of a machine."""
    left = dict(kind.allocatable)
    for daemon in catalog.DAEMONS:
        if all(str(kind.family) in r.values for r in daemon.requirements):
            left["pods"] -= 1
            for name, amount in daemon.resources:
                left[name] -= amount
    return left["cpu"], left["memory"], left.get(catalog.GPU, 0), left["pods"]


_FREE = {kind.name: _free_of(kind) for types in catalog.INSTANCE_TYPES.values() for kind in types}


class _Row:
    """A need with what the generator knows beyond it; `short` ones take what is left over and get nothing new."""

    __slots__ = ("asked", "capacity", "family", "gang", "key", "kind", "need", "short", "size", "spread", "zone")

    def __init__(self, need: Need, size: Size, kind: InstanceType, capacity: str, zone: str, short: bool) -> None:
        self.need, self.size, self.kind, self.capacity = need, size, kind, capacity
        self.zone, self.short, self.family = zone, short, kind.family
        self.key, self.asked, self.gang = need.key, need.units, bool(need.group)
        hard = WhenUnsatisfiable.DO_NOT_SCHEDULE
        self.spread = any(s.when_unsatisfiable is hard for s in need.profile.spread)

    def place(self) -> tuple[int, int, int, int, str, str, str]:
        """The row's place in its cluster's order (engine.md section 4)."""
        profile = self.need.profile
        text = ",".join(f"{name}={amount}" for name, amount in self.key.unit)
        ranks = (-profile.priority, -profile.interruption, -profile.reclamation, -unit_size(self.key.unit))
        return (*ranks, self.key.fingerprint, self.key.group, text)


class _Draw:
    """Draws the rows of each cluster, carrying fractions over so that the whole fleet comes out right."""

    def __init__(self, rng: random.Random, shape: Shape) -> None:
        self._rng, self._shape = rng, shape
        self._profiles: dict[tuple[object, ...], Profile] = {}
        self._owed = {"gang": 0.0, "plain": 0.0, "unmet": 0.0}
        self._jobs = 0
        self._unmet_kinds = 0

    def cluster(self, number: int) -> list[_Row]:
        """All rows of the next cluster."""
        rows: dict[NeedKey, _Row] = {}
        # Demand measured in units comes in machines of one size a cluster and family, so that a unit takes a machine.
        self._whole = {f: self._rng.choice(types) for f, types in catalog.INSTANCE_TYPES.items()}
        left = self._gangs(rows, number)
        total = len(rows) / self._shape.gangs
        self._unmet(rows, self._count("unmet", total * self._shape.unmet))
        self._plain(rows, self._count("plain", total * (1 - self._shape.gangs - self._shape.unmet)), left)
        return list(rows.values())

    def _gangs(self, rows: dict[NeedKey, _Row], number: int) -> float:
        """Add the gangs, and say how many machines are left for plain demand."""
        shape = self._shape
        machines = 0.0
        if shape.units:
            budget = (number + 1) * shape.units // shape.clusters - number * shape.units // shape.clusters
            # The large ones that are never met count among the units too.
            budget -= round(shape.unmet * budget * 3)
            while machines < _GANG_MACHINES * budget:
                machines += self._add(rows, self._pick(catalog.GANGS), 0).asked
            return budget - machines
        for _ in range(self._count("gang", shape.rows * (shape.gangs - shape.unmet * 0.6) / shape.clusters)):
            row = self._add(rows, self._pick(catalog.GANGS), 0)
            machines += row.asked / _units(row.size, row.kind)
        return shape.bound * shape.machines / shape.clusters - machines

    def _plain(self, rows: dict[NeedKey, _Row], count: int, machines: float) -> None:
        chosen = [self._pick(_PLAIN) for _ in range(count)]
        shares = [a.share * self._rng.uniform(0.3, 1.7) for a in chosen if not a.replicas]
        whole = sum(shares) or 1.0
        for archetype in chosen:
            part = 0.0 if archetype.replicas else max(machines, 0.0) * shares.pop() / whole
            self._add(rows, archetype, part)

    def _unmet(self, rows: dict[NeedKey, _Row], count: int) -> None:
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
        count = int(self._owed[what])
        self._owed[what] -= count
        return count

    def _pick(self, archetypes: tuple[Archetype, ...]) -> Archetype:
        return self._rng.choices(archetypes, [a.share for a in archetypes])[0]

    def _weighted(self, pairs: tuple[tuple[T, float], ...]) -> T:
        return self._rng.choices([value for value, _ in pairs], [weight for _, weight in pairs])[0]

    def _oversized(self, rows: dict[NeedKey, _Row]) -> None:
        """A gang of whole machines that would need a rack larger than any, at the default priority."""
        kind = catalog.INSTANCE_TYPES[Family.GENERAL][-1]
        profile = self._profile(catalog.GANGS[0], Family.GENERAL, catalog.DEFAULT, "")
        self._put(rows, profile, _most_of(kind, 0.9), catalog.OVERSIZED_GANG, kind, "on-demand", "", gang=True, short=True)

    def _add(self, rows: dict[NeedKey, _Row], a: Archetype, machines: float, *, short: bool = False) -> _Row:
        """One row of an archetype; plain ones for so many machines."""
        rng = self._rng
        for _ in range(_REDRAWS):
            family = a.families[-1] if short else rng.choice(a.families)
            if self._shape.units:
                kind = self._whole[family]
                size = _most_of(kind, rng.choice((0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)))
            else:
                size = rng.choice(a.sizes)
                kind = rng.choice([k for k in catalog.INSTANCE_TYPES[family] if _units(size, k)])
            priority = catalog.SPARE_TIME if short else self._weighted(a.priorities)
            zone = rng.choice(catalog.ZONES) if rng.random() < a.zonal else ""
            profile = self._profile(a, family, priority, zone)
            key = NeedKey(profile.fingerprint, "", size.unit)
            if a.gang or key not in rows:
                break
        if a.gang:
            asked = rng.choice(a.gang)
        else:
            asked = rng.choice(a.replicas) if a.replicas else max(1, round(machines * _units(size, kind)))
        return self._put(rows, profile, size, asked, kind, self._weighted(a.capacity), zone, gang=bool(a.gang), short=short)

    def _put(
        self,
        rows: dict[NeedKey, _Row],
        profile: Profile,
        size: Size,
        asked: int,
        kind: InstanceType,
        capacity: str,
        zone: str,
        *,
        gang: bool,
        short: bool,
    ) -> _Row:
        group = ""
        if gang:
            self._jobs += 1
            group = f"job-{self._jobs}"
        unit = size.unit
        need = Need(profile, tuple((name, amount * asked) for name, amount in unit), unit, group)
        row = _Row(need, size, kind, capacity, zone, short)
        # Where so many draws met only known keys, the row is left as it was: one of a kind.
        return rows.setdefault(row.key, row)

    def _profile(self, a: Archetype, family: Family, priority: int, zone: str) -> Profile:
        interruption, reclamation = self._rng.choice(a.interruption), self._rng.choice(a.reclamation)
        key = (a.name, family, priority, zone, interruption, reclamation)
        profile = self._profiles.get(key)
        if profile is None:
            wanted = [Requirement(catalog.FAMILY, Operator.IN, (str(family),))]
            if zone:
                wanted.append(Requirement(catalog.ZONE, Operator.IN, (zone,)))
            if a.gang:
                wanted.append(Requirement(catalog.RACK, Operator.SAME))
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
    cpu, memory, gpus, _ = _FREE[kind.name]
    return Size(int(cpu * share), int(memory * share), gpus)


def _units(size: Size, kind: InstanceType) -> int:
    return _fitting(size, *_FREE[kind.name])


def _fitting(size: Size, cpu: int, memory: int, gpus: int, pods: int) -> int:
    units = min(cpu // size.cpu, memory // size.memory, pods)
    return min(units, gpus // size.gpus) if size.gpus else units


class _Open:
    """A bound machine with room; `held` counts units of rows with a machine limit."""

    __slots__ = ("cpu", "gpus", "held", "memory", "pods", "rack", "spot", "zone")

    def __init__(self, rack: Rack, kind: InstanceType) -> None:
        self.rack, self.zone = rack, rack.zone
        self.spot = rack.klass.capacity_type is CapacityType.SPOT
        self.cpu, self.memory, self.gpus, self.pods = _FREE[kind.name]
        self.held: dict[str, int] = {}

    def units(self, row: _Row) -> int:
        """Units of the row that still fit and may be here."""
        if self.zone != row.zone and row.zone:
            return 0
        profile = row.need.profile
        if self.spot and profile.interruption is PenaltyBucket.PINNED:
            return 0
        units = _fitting(row.size, self.cpu, self.memory, self.gpus, self.pods)
        if profile.max_per_machine:
            units = min(units, profile.max_per_machine - self.held.get(row.key.fingerprint, 0))
        return units

    def take(self, row: _Row, units: int) -> None:
        """So many units of the row are here now."""
        self.cpu -= units * row.size.cpu
        self.memory -= units * row.size.memory
        self.gpus -= units * row.size.gpus
        self.pods -= units
        if row.need.profile.max_per_machine:
            self.held[row.key.fingerprint] = self.held.get(row.key.fingerprint, 0) + units


class _Binding:
    """Binds one cluster's machines as the engine's credit would find them."""

    def __init__(self, cluster: str, hall: "_Hall", rng: random.Random, number: int) -> None:
        self._cluster, self._hall, self._rng, self._number = cluster, hall, rng, number
        self._open: dict[Family, list[_Open]] = {}

    def serve(self, rows: list[_Row]) -> int:
        """Serve the rows in their order; the number of the last binding made."""
        least: dict[Family, tuple[int, int]] = {}
        for row in rows:
            cpu, memory = least.get(row.family, (row.size.cpu, row.size.memory))
            least[row.family] = min(cpu, row.size.cpu), min(memory, row.size.memory)
        for row in rows:
            machines = self._open.setdefault(row.family, [])
            if row.gang:
                self._gang(row, machines)
            elif row.spread:
                self._spread(row, machines)
            else:
                self._plain(row, machines)
            cpu, memory = least[row.family]
            machines[:] = [m for m in machines if m.cpu >= cpu and m.memory >= memory and m.pods]
        return self._number

    def _plain(self, row: _Row, machines: list[_Open]) -> None:
        missing = row.asked
        for machine in machines:
            if not missing:
                return
            units = min(machine.units(row), missing)
            if units > 0:
                machine.take(row, units)
                missing -= units
        zones = [row.zone] if row.zone else self._rng.sample(catalog.ZONES, len(catalog.ZONES))
        turn = 0
        while missing and not row.short:
            machine = self._bind(row, self._hall.one(row.family, zones[turn % len(zones)], row.capacity))
            units = min(machine.units(row), missing)
            machine.take(row, units)
            machines.append(machine)
            missing -= units
            turn += 1

    def _spread(self, row: _Row, machines: list[_Open]) -> None:
        """Unit by unit, the first machine whose zone may take one more; else a new one in the emptiest zone."""
        counts = dict.fromkeys(catalog.ZONES, 0)
        skew = row.need.profile.spread[0].max_skew
        for _ in range(row.asked):
            floor = min(counts.values()) + skew
            fits = (m for m in machines if counts[m.zone] < floor and m.units(row) > 0)
            machine = next(fits, None)
            if machine is None:
                zone = min(counts, key=lambda z: (counts[z], z))
                machine = self._bind(row, self._hall.one(row.family, zone, row.capacity))
                machines.append(machine)
            machine.take(row, 1)
            counts[machine.zone] += 1

    def _gang(self, row: _Row, machines: list[_Open]) -> None:
        """The rack that covers the gang with the oldest bindings, else new machines in one rack."""
        found: dict[str, int] = {}
        for machine in machines:
            units = machine.units(row)
            if units > 0:
                name = machine.rack.name
                found[name] = found.get(name, 0) + units
                if found[name] >= row.asked:
                    self._fill(row, [m for m in machines if m.rack is machine.rack])
                    return
        if row.short:
            return
        count = -(-row.asked // _units(row.size, row.kind))
        rack = self._hall.together(row.family, self._rng.choice(catalog.ZONES), row.capacity, count)
        bought = [self._bind(row, rack) for _ in range(count)]
        self._fill(row, bought)
        machines += bought

    def _fill(self, row: _Row, machines: list[_Open]) -> None:
        missing = row.asked
        for machine in machines:
            units = min(machine.units(row), missing)
            if units > 0:
                machine.take(row, units)
                missing -= units

    def _bind(self, row: _Row, rack: Rack) -> _Open:
        self._number += 1
        profile = row.need.profile
        stamp = Stamp(row.key, profile.priority, profile.interruption, profile.reclamation, self._number)
        rack.bound.append((row.kind, self._cluster, stamp))
        return _Open(rack, row.kind)


class _Hall:
    """Racks as they fill up. Gangs take from the newest rack, single machines from what gangs left first."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._racks: list[Rack] = []
        self._newest: dict[tuple[Family, str, str], Rack] = {}
        self._scraps: dict[tuple[Family, str, str], list[Rack]] = {}

    def one(self, family: Family, zone: str, capacity: str) -> Rack:
        """A rack with a slot left."""
        scraps = self._scraps.setdefault((family, zone, capacity), [])
        while scraps and len(scraps[-1].bound) >= scraps[-1].slots:
            scraps.pop()
        return scraps[-1] if scraps else self.together(family, zone, capacity, 1)

    def together(self, family: Family, zone: str, capacity: str, count: int) -> Rack:
        """A rack with so many slots left."""
        key = (family, zone, capacity)
        rack = self._newest.get(key)
        if rack is not None and rack.slots - len(rack.bound) >= count:
            return rack
        if rack is not None and len(rack.bound) < rack.slots:
            self._scraps.setdefault(key, []).append(rack)
        classes = {"owned": catalog.owned(family), "on-demand": catalog.ON_DEMAND, "spot": catalog.SPOT}
        rack = self._newest[key] = self._add(family, zone, classes[capacity])
        return rack

    def close(self, machines: int) -> list[Rack]:
        """Fill up with free machines to so many in all: none of a scarce family, the rest where there is a slot."""
        left = machines - sum(len(rack.bound) for rack in self._racks)
        if left < 0:
            raise ValueError(f"the demand takes {machines - left} machines, but the fleet has {machines}")
        plenty = [rack for rack in self._racks if rack.family not in catalog.SCARCE]
        free = sum(rack.slots - len(rack.bound) for rack in plenty)
        share = min(1.0, left / free) if free else 0.0
        for rack in plenty:
            left -= self._furnish(rack, int((rack.slots - len(rack.bound)) * share))
        families = [family for family in Family if family not in catalog.SCARCE]
        while left:
            family = self._rng.choice(families)
            klass = self._rng.choice((catalog.owned(family), catalog.ON_DEMAND, catalog.SPOT))
            rack = self._add(family, self._rng.choice(catalog.ZONES), klass)
            left -= self._furnish(rack, min(left, rack.slots))
        return self._racks

    def _furnish(self, rack: Rack, count: int) -> int:
        rack.free = self._rng.choices(catalog.INSTANCE_TYPES[rack.family], k=count)
        return count

    def _add(self, family: Family, zone: str, klass: CapacityClass) -> Rack:
        rack = Rack(len(self._racks), self._rng.choice(catalog.RACK_SLOTS), family, zone, klass)
        self._racks.append(rack)
        return rack
