"""Whole fleets from the catalogue: machines in racks and needs of clusters, of any size, the same for the same seed.

A settled fleet is bound as the engine's own credit would have it. Needs are served in their order; each takes what
earlier needs left on its cluster's machines, in binding order, and only then new machines. So deciding on a settled
fleet moves nothing. A need that is short stays short, because what it asks for is sold out or fits no rack.
"""

import random
from collections.abc import Iterator

from bigfleet.engine.records import ClusterRecord, MachineRecord, Stamp
from bigfleet.model.demand.need import Need
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.labels import RACK
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.sim import catalog
from bigfleet.sim.catalog import CapacityClass, Family, InstanceType
from bigfleet.sim.demand import FREE, Draw, FleetShape, Row, fitting, units_of

_FILLS = (1.08, 1.0, 0.85, 0.7, 0.5, 0.3)


class Rack:
    """Machines of one family, zone and capacity class. `bound` ones have the first slots, `free` ones the next."""

    __slots__ = ("bound", "family", "free", "klass", "labels", "name", "slots", "zone")

    def __init__(self, number: int, slots: int, family: Family, zone: str, klass: CapacityClass) -> None:
        self.name = f"r{number:06d}"
        self.slots, self.family, self.zone, self.klass = slots, family, zone, klass
        self.labels = {catalog.REGION: zone[:-1], RACK: self.name, catalog.FAMILY: str(family)}
        self.bound: list[tuple[InstanceType, str, Stamp]] = []
        self.free: list[InstanceType] = []


class Fleet:
    """Machines and needs. `machines` makes records one by one, so that millions of them need not exist at once."""

    def __init__(self, shape: FleetShape, racks: list[Rack], needs: dict[str, list[Need]], prices: "Prices") -> None:
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
        # Owned machines are Idle. Rented ones are Speculative, since the engine would release them if they were Idle.
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


def generate(shape: FleetShape, seed: int = 0) -> Fleet:
    """The fleet of this shape and seed: as full as its demand can be drawn without running out of machines."""
    for fill in _FILLS:
        try:
            return _generate(shape, seed, fill)
        except _OverfullError:
            continue
    raise ValueError(f"shape {shape.name!r}: {shape.machines} machines cannot hold such demand")


def _generate(shape: FleetShape, seed: int, fill: float) -> Fleet:
    rng = random.Random(f"{shape.name}-{seed}")  # noqa: S311 - a simulation must repeat, not surprise
    racks = _Racks(rng)
    draw = Draw(rng, shape, fill)
    needs: dict[str, list[Need]] = {}
    number = 0
    for c in range(shape.clusters):
        cluster = f"c{c:05d}"
        rows = sorted(draw.cluster(c), key=Row.place)
        number = _Binding(cluster, racks, rng, number).serve(rows)
        needs[cluster] = [row.need for row in rows]
        rng.shuffle(needs[cluster])
    return Fleet(shape, racks.close(shape.machines), needs, Prices(rng))


class _OverfullError(Exception):
    """The demand that was drawn takes more machines than the fleet has."""


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


class _BoundMachine:
    """A bound machine and what is free on it. `held` counts, by fingerprint, the units of rows with a machine limit."""

    __slots__ = ("cpu", "gpus", "held", "memory", "pods", "rack", "spot", "zone")

    def __init__(self, rack: Rack, kind: InstanceType) -> None:
        self.rack, self.zone = rack, rack.zone
        self.spot = rack.klass.capacity_type is CapacityType.SPOT
        self.cpu, self.memory, self.gpus, self.pods = FREE[kind.name]
        self.held: dict[str, int] = {}

    def units(self, row: Row) -> int:
        """How many more units of the row fit and are allowed on this machine."""
        if self.zone != row.zone and row.zone:
            return 0
        profile = row.need.profile
        if self.spot and profile.interruption is PenaltyBucket.PINNED:
            return 0
        units = fitting(row.size, self.cpu, self.memory, self.gpus, self.pods)
        if profile.max_per_machine:
            units = min(units, profile.max_per_machine - self.held.get(row.key.fingerprint, 0))
        return units

    def take(self, row: Row, units: int) -> None:
        """Put this many units of the row on the machine."""
        self.cpu -= units * row.size.cpu
        self.memory -= units * row.size.memory
        self.gpus -= units * row.size.gpus
        self.pods -= units
        if row.need.profile.max_per_machine:
            self.held[row.key.fingerprint] = self.held.get(row.key.fingerprint, 0) + units


class _Binding:
    """Binds one cluster's machines as the engine's credit would find them."""

    def __init__(self, cluster: str, racks: "_Racks", rng: random.Random, number: int) -> None:
        self._cluster, self._racks, self._rng, self._number = cluster, racks, rng, number
        self._open: dict[Family, list[_BoundMachine]] = {}

    def serve(self, rows: list[Row]) -> int:
        """Serve the rows in their order; returns the number of the last binding made."""
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

    def _plain(self, row: Row, machines: list[_BoundMachine]) -> None:
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
            machine = self._bind(row, self._racks.with_slot(row.family, zones[turn % len(zones)], row.capacity))
            units = min(machine.units(row), missing)
            machine.take(row, units)
            machines.append(machine)
            missing -= units
            turn += 1

    def _spread(self, row: Row, machines: list[_BoundMachine]) -> None:
        """Put each unit on the first machine whose zone may take one more, else on a new one in the emptiest zone."""
        counts = dict.fromkeys(catalog.ZONES, 0)
        skew = row.need.profile.spread[0].max_skew
        for _ in range(row.asked):
            floor = min(counts.values()) + skew
            fits = (m for m in machines if counts[m.zone] < floor and m.units(row) > 0)
            machine = next(fits, None)
            if machine is None:
                zone = min(counts, key=lambda z: (counts[z], z))
                machine = self._bind(row, self._racks.with_slot(row.family, zone, row.capacity))
                machines.append(machine)
            machine.take(row, 1)
            counts[machine.zone] += 1

    def _gang(self, row: Row, machines: list[_BoundMachine]) -> None:
        """Put the gang on the rack that covers it with the oldest bindings, else on new machines in one rack."""
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
        count = -(-row.asked // units_of(row.size, row.kind))
        rack = self._racks.with_slots(row.family, self._rng.choice(catalog.ZONES), row.capacity, count)
        bought = [self._bind(row, rack) for _ in range(count)]
        self._fill(row, bought)
        machines += bought

    def _fill(self, row: Row, machines: list[_BoundMachine]) -> None:
        missing = row.asked
        for machine in machines:
            units = min(machine.units(row), missing)
            if units > 0:
                machine.take(row, units)
                missing -= units

    def _bind(self, row: Row, rack: Rack) -> _BoundMachine:
        self._number += 1
        profile = row.need.profile
        stamp = Stamp(row.key, profile.priority, profile.interruption, profile.reclamation, self._number)
        rack.bound.append((row.kind, self._cluster, stamp))
        return _BoundMachine(rack, row.kind)


class _Racks:
    """All racks, while they fill up. Gangs take from the newest rack; single machines first take what gangs left."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._racks: list[Rack] = []
        self._newest: dict[tuple[Family, str, str], Rack] = {}
        self._scraps: dict[tuple[Family, str, str], list[Rack]] = {}

    def with_slot(self, family: Family, zone: str, capacity: str) -> Rack:
        """A rack with a slot left."""
        scraps = self._scraps.setdefault((family, zone, capacity), [])
        while scraps and len(scraps[-1].bound) >= scraps[-1].slots:
            scraps.pop()
        return scraps[-1] if scraps else self.with_slots(family, zone, capacity, 1)

    def with_slots(self, family: Family, zone: str, capacity: str, count: int) -> Rack:
        """A rack with at least `count` slots left."""
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
        """Add free machines, none of a scarce family, until there are `machines` in all; returns every rack."""
        left = machines - sum(len(rack.bound) for rack in self._racks)
        if left < 0:
            raise _OverfullError
        plenty = [rack for rack in self._racks if rack.family not in catalog.SCARCE]
        free = sum(rack.slots - len(rack.bound) for rack in plenty)
        share = min(1.0, left / free) if free else 0.0
        for rack in plenty:
            left -= self._add_free(rack, int((rack.slots - len(rack.bound)) * share))
        families = [family for family in Family if family not in catalog.SCARCE]
        while left:
            family = self._rng.choice(families)
            klass = self._rng.choice((catalog.owned(family), catalog.ON_DEMAND, catalog.SPOT))
            rack = self._add(family, self._rng.choice(catalog.ZONES), klass)
            left -= self._add_free(rack, min(left, rack.slots))
        return self._racks

    def _add_free(self, rack: Rack, count: int) -> int:
        rack.free = self._rng.choices(catalog.INSTANCE_TYPES[rack.family], k=count)
        return count

    def _add(self, family: Family, zone: str, klass: CapacityClass) -> Rack:
        rack = Rack(len(self._racks), self._rng.choice(catalog.RACK_SLOTS), family, zone, klass)
        self._racks.append(rack)
        return rack
