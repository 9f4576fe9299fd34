"""Sections 2 to 4: which machine matches, what it is worth, in which order needs are served. All of it static."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tests.engine.oracle.world import (
    PINNED,
    Daemon,
    Machine,
    Need,
    NeedKey,
    Op,
    Requirement,
    Spread,
    State,
    World,
    unit_text,
)

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
CAPACITY_TYPE = "bigfleet.lucy.sh/capacity-type"
DEFAULT_PODS = 110

# Section 4, "one documented scalar": max(cores, GiB / 4) of section 10 law 8, over millicores and KiB.
SIZE_WEIGHTS = {"cpu": 2**22, "memory": 1000}

Vector = dict[str, int]


class BadNeedError(ValueError):
    """A row that section 5 rejects; the message names it."""


@dataclass(frozen=True)
class Row:
    """A need after equal rows were summed, with its place in the order."""

    index: int
    need: Need
    key: NeedKey
    unit: Mapping[str, int]
    asked: int  # units; 0 for a divisible row

    @property
    def divisible(self) -> bool:
        """Section 5: a row without min_unit."""
        return not self.unit

    @property
    def pinned(self) -> bool:
        """Section 5 speaks of the interruption penalty: it is about Spot and interruption_probability."""
        return self.need.interruption == PINNED

    @property
    def same_keys(self) -> tuple[str, ...]:
        """The keys of its SAME requirements; a row with one is a gang (section 6)."""
        return tuple(sorted({r.key for r in self.need.requirements if r.op is Op.SAME}))

    @property
    def hard_spread(self) -> tuple[Spread, ...]:
        """Section 6: DoNotSchedule constraints."""
        return tuple(s for s in self.need.spread if s.hard)


def labels_of(machine: Machine) -> dict[str, str]:
    """Section 2: the provider's labels plus three synthesised ones; an empty field synthesises nothing."""
    synthesised = {INSTANCE_TYPE: machine.instance_type, ZONE: machine.zone, CAPACITY_TYPE: machine.capacity_type}
    return {**machine.labels, **{key: value for key, value in synthesised.items() if value}}


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Section 2: NotIn and DoesNotExist hold for a missing label. Section 6: SAME needs the key, `values` as In."""
    value = labels.get(requirement.key)
    match requirement.op:
        case Op.IN:
            return value is not None and value in requirement.values
        case Op.NOT_IN:
            return value is None or value not in requirement.values
        case Op.EXISTS:
            return value is not None
        case Op.DOES_NOT_EXIST:
            return value is None
        case Op.SAME:
            return value is not None and (not requirement.values or value in requirement.values)


def matches(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Every requirement holds."""
    return all(holds(requirement, labels) for requirement in requirements)


def allocatable_less_daemons(machine: Machine, labels: Mapping[str, str], daemons: Iterable[Daemon]) -> Vector:
    """Section 3: "`free` starts as allocatable less the daemons"; pods are allocatable's, else 110."""
    free: Vector = {"pods": DEFAULT_PODS, **machine.allocatable}
    for daemon in daemons:
        if matches(daemon.requirements, labels):
            for name, amount in {"pods": 1, **daemon.vector}.items():
                free[name] = max(0, free.get(name, 0) - amount)
    return free


def whole_units(free: Mapping[str, int], unit: Mapping[str, int]) -> int:
    """Section 3: `k = min_d floor(free_d / unit_d)` over the dimensions of the unit; every unit takes one pod."""
    return min(free.get(name, 0) // amount for name, amount in with_pod(unit).items())


def with_pod(unit: Mapping[str, int]) -> Vector:
    """Section 3: "Every unit also takes one of the machine's pods"."""
    return {**{name: amount for name, amount in unit.items() if amount}, "pods": max(1, unit.get("pods", 1))}


def units_asked(need: Need) -> int:
    """Section 5: "A need asks for max_d ceil(aggregate_d / unit_d) units"."""
    return max((-(-need.aggregate.get(name, 0) // amount) for name, amount in need.unit.items() if amount), default=0)


def size(unit: Mapping[str, int]) -> int:
    """Section 4: unit size. A divisible row has none and comes last among its equals."""
    return max((unit.get(name, 0) * weight for name, weight in SIZE_WEIGHTS.items()), default=0)


def refuse_bad(need: Need) -> None:
    """Section 5: a divisible row "with SAME, spread or a machine limit [...] is rejected"."""
    gang = any(r.op is Op.SAME for r in need.requirements)
    if not any(need.unit.values()) and (gang or need.spread or need.max_per_machine):
        raise BadNeedError(f"{need.cluster}/{need.fingerprint}: a row without min_unit with SAME, spread or a limit")
    if any(spread.max_skew < 1 for spread in need.spread):
        raise BadNeedError(f"{need.cluster}/{need.fingerprint}: max_skew below 1")


def key_of(need: Need) -> NeedKey:
    """A row's name."""
    return NeedKey(need.cluster, need.fingerprint, need.group, unit_text(need.unit))


def summed(needs: Iterable[Need]) -> list[Need]:
    """Section 4: "Equal rows of one roll-up are summed"."""
    rows: dict[NeedKey, Need] = {}
    for need in needs:
        refuse_bad(need)
        key = key_of(need)
        if key in rows:
            old = rows[key]
            names = {*old.aggregate, *need.aggregate}
            total = {name: old.aggregate.get(name, 0) + need.aggregate.get(name, 0) for name in names}
            rows[key] = replace(old, aggregate=total, arrival=min(old.arrival, need.arrival))
        else:
            rows[key] = need
    return list(rows.values())


def in_order(needs: Iterable[Need]) -> list[Row]:
    """Section 4: "One order for credit and for acquisition"."""

    def place(need: Need) -> tuple[int, int, int, int, str, int, str, str, str]:
        return (
            -need.priority,
            -need.interruption,
            -need.reclamation,
            need.arrival,
            need.cluster,
            -size(need.unit),
            need.fingerprint,
            need.group,
            unit_text(need.unit),
        )

    rows = []
    for index, need in enumerate(sorted(summed(needs), key=place)):
        unit = {name: amount for name, amount in sorted(need.unit.items()) if amount}
        rows.append(Row(index, need, key_of(need), unit, units_asked(need)))
    return rows


class Facts:
    """What one decision looks up about its world and never changes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.policy = world.policy
        self.rows = in_order(world.needs)
        self.machines = {machine.id: machine for machine in sorted(world.machines, key=lambda m: m.id)}
        self.clusters = {cluster.id: cluster for cluster in world.clusters}
        self.labels = {machine.id: labels_of(machine) for machine in world.machines}
        self._free: dict[tuple[str, str], Vector] = {}
        self._eligible: dict[int, tuple[Machine, ...]] = {}

    def rows_of(self, cluster: str) -> list[Row]:
        """A cluster's rows in the order."""
        return [row for row in self.rows if row.need.cluster == cluster]

    def fresh(self, cluster: str, machine: Machine) -> Vector:
        """What the machine has for this cluster before any need takes from it."""
        key = (cluster, machine.id)
        if key not in self._free:
            known = self.clusters.get(cluster)
            self._free[key] = allocatable_less_daemons(machine, self.labels[machine.id], known.daemons if known else ())
        return self._free[key]

    def eligible(self, row: Row) -> tuple[Machine, ...]:
        """Section 3: "A machine is eligible when it matches and one unit fits", in any state but Failed.

        Judged on the fresh machine. PINNED and Spot never go together (section 5). A hard spread needs the key.
        """
        if row.index not in self._eligible:
            self._eligible[row.index] = tuple(m for m in self.machines.values() if self._is_eligible(row, m))
        return self._eligible[row.index]

    def _is_eligible(self, row: Row, machine: Machine) -> bool:
        labels = self.labels[machine.id]
        if machine.state is State.FAILED or not matches(row.need.requirements, labels):
            return False
        if row.pinned and machine.capacity_type == "Spot":
            return False
        if any(spread.key not in labels for spread in row.hard_spread):
            return False
        free = self.fresh(row.need.cluster, machine)
        if row.divisible:
            return free["pods"] > 0 and any(free.get(n, 0) and amount for n, amount in row.need.aggregate.items())
        return whole_units(free, row.unit) > 0

    def worth_fresh(self, row: Row, machine: Machine) -> int:
        """Units that the machine holds when nothing else is on it."""
        k = whole_units(self.fresh(row.need.cluster, machine), row.unit)
        return min(k, row.need.max_per_machine) if row.need.max_per_machine else k

    def domain(self, row: Row, machine: Machine) -> tuple[str, ...]:
        """Section 6: the machine's values of the row's SAME keys."""
        return tuple(self.labels[machine.id][key] for key in row.same_keys)

    def may_act(self, row: Row) -> bool:
        """Section 7: "demand that is not live neither acquires nor preempts", nor do held-out rows."""
        cluster = self.clusters.get(row.need.cluster)
        if cluster is None or not cluster.live:
            return False
        return cluster.held_out.get(row.need.fingerprint, 0) <= self.world.now

    def held_out(self, machine: Machine) -> bool:
        """Section 7: "Held-out machines, shapes and rows (8) are no candidates"."""
        shape = (machine.instance_type, machine.zone, machine.capacity_type)
        return max(machine.not_before, self.policy.held_out_shapes.get(shape, 0)) > self.world.now
