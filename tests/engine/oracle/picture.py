"""Who is bound to whom and what each need takes, while one decision is being made. The only mutable state there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.engine.oracle.rows import Facts, Row, Vector, whole_units, with_pod
from tests.engine.oracle.world import Action, Kind, Machine, Stamp, State

OwnKey = tuple[str, str, str]


@dataclass(frozen=True)
class Take:
    """What one need takes from one machine; units is 0 for a divisible row."""

    units: int
    vector: Vector


@dataclass(frozen=True)
class Binding:
    """A machine counted for a cluster, what for, and when in the order of bindings."""

    cluster: str
    own: OwnKey | None
    number: int
    buyer: int | None = None  # index of the row that acquired it in this very decision

    @property
    def bought(self) -> bool:
        """Acquired in this decision."""
        return self.buyer is not None


def binding_of(machine: Machine) -> Binding | None:
    """Section 5: "Capacity counts for a cluster if and only if it is bound to it".

    Configured, Configuring, and what this shard has committed. A machine that never became Ready has stopped counting
    (protocol rule 16). A machine without a stamp counts as the oldest binding.
    """
    own = (machine.stamp.fingerprint, machine.stamp.unit, machine.stamp.group) if machine.stamp else None
    number = machine.stamp.number if machine.stamp else 0
    if machine.state is State.FAILED:
        return None
    if machine.committed_to:
        return Binding(machine.committed_to, own, number)
    if machine.state in (State.CONFIGURED, State.CONFIGURING) and machine.cluster and not machine.ready_failed:
        return Binding(machine.cluster, own, number)
    return None


class Picture:
    """The state of the fleet in mid-decision: bindings, takes, actions so far."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.bound: dict[str, Binding] = {}
        self.takes: dict[int, dict[str, Take]] = {row.index: {} for row in facts.rows}
        self.on: dict[str, dict[int, Take]] = {name: {} for name in facts.machines}
        self.served: dict[str, frozenset[int]] = dict.fromkeys(facts.machines, frozenset())
        self.domains: dict[int, tuple[str, ...]] = {}
        self.satisfiable: dict[int, bool] = {}
        self.actions: tuple[tuple[int, Action], ...] = ()
        self.given_back: frozenset[str] = frozenset()
        self.next_binding = facts.world.next_binding
        for machine in facts.machines.values():
            binding = binding_of(machine)
            if binding:
                self.bound[machine.id] = binding

    def copy(self) -> Picture:
        """A picture to try something in."""
        other = Picture.__new__(Picture)
        other.facts = self.facts
        other.bound = dict(self.bound)
        other.takes = {index: dict(takes) for index, takes in self.takes.items()}
        other.on = {name: dict(takes) for name, takes in self.on.items()}
        other.served = dict(self.served)
        other.domains = dict(self.domains)
        other.satisfiable = dict(self.satisfiable)
        other.actions = self.actions
        other.given_back = self.given_back
        other.next_binding = self.next_binding
        return other

    # What is free, what is missing

    def free(self, cluster: str, machine: Machine) -> Vector:
        """Section 3: allocatable less daemons less what needs took."""
        free = dict(self.facts.fresh(cluster, machine))
        for take in self.on[machine.id].values():
            for name, amount in take.vector.items():
                free[name] = free.get(name, 0) - amount
        return free

    def fits(self, row: Row, machine: Machine) -> int:
        """Section 3: the units of this row that the machine still holds, within the machine limit.

        Section 5: "The machine limit counts per (fingerprint, machine)".
        """
        k = max(0, whole_units(self.free(row.need.cluster, machine), row.unit))
        if not row.need.max_per_machine:
            return k
        rows = self.facts.rows
        there = sum(
            take.units
            for index, take in self.on[machine.id].items()
            if rows[index].need.fingerprint == row.need.fingerprint
        )
        return min(k, max(0, row.need.max_per_machine - there))

    def missing_units(self, row: Row) -> int:
        """Units that nothing covers yet."""
        return row.asked - sum(take.units for take in self.takes[row.index].values())

    def missing(self, row: Row) -> Vector:
        """What nothing covers yet, per dimension; empty when the row is covered.

        Section 5: a dimension that only the aggregate names is not asked for. A divisible row asks for its aggregate.
        """
        if not row.divisible:
            units = self.missing_units(row)
            return {name: units * amount for name, amount in row.unit.items()} if units > 0 else {}
        gap = {}
        for name, amount in row.need.aggregate.items():
            left = amount - sum(take.vector.get(name, 0) for take in self.takes[row.index].values())
            if left > 0 and name != "pods":
                gap[name] = left
        return gap

    def met(self, row: Row) -> bool:
        """Nothing is missing."""
        return not self.missing(row)

    def usable(self, row: Row, machine: Machine) -> Vector:
        """Section 5: what a divisible row can take: "worth what is free", as far as it is missing; needs a pod slot."""
        free = self.free(row.need.cluster, machine)
        if free["pods"] < 1:
            return {}
        gap = self.missing(row)
        return {name: min(gap[name], free.get(name, 0)) for name in gap if free.get(name, 0) > 0}

    # Taking and binding

    def take(self, row: Row, machine: Machine, units: int) -> None:
        """So many units more of this row on this machine."""
        old = self.takes[row.index].get(machine.id)
        total = units + (old.units if old else 0)
        self._put(row, machine, Take(total, {name: total * amount for name, amount in with_pod(row.unit).items()}))

    def take_divisible(self, row: Row, machine: Machine) -> None:
        """All of this machine that the row can use, and one pod slot."""
        usable = self.usable(row, machine)
        if usable and machine.id not in self.takes[row.index]:
            self._put(row, machine, Take(0, {**usable, "pods": 1}))

    def _put(self, row: Row, machine: Machine, take: Take) -> None:
        self.takes[row.index][machine.id] = take
        self.on[machine.id][row.index] = take

    def untake(self, row: Row) -> None:
        """The row takes nothing any more."""
        for name in self.takes[row.index]:
            del self.on[name][row.index]
        self.takes[row.index] = {}

    def evict(self, machine: Machine) -> None:
        """Nobody takes from this machine any more."""
        for index in self.on[machine.id]:
            del self.takes[index][machine.id]
        self.on[machine.id] = {}

    def unbind(self, machine: Machine) -> None:
        """An acquisition of this decision is taken back."""
        self.evict(machine)
        del self.bound[machine.id]
        self.actions = tuple((index, action) for index, action in self.actions if action.machine != machine.id)

    def remember(self) -> None:
        """Section 7: "the highest need it serves this cycle, phase 2 included": what serves now has served."""
        self.served = {name: rows.union(self.on[name]) for name, rows in self.served.items()}

    def give_back(self, machine: Machine) -> None:
        """As the next decision will see it: draining for nobody."""
        self.evict(machine)
        del self.bound[machine.id]
        self.given_back |= {machine.id}

    def bind(self, row: Row, machine: Machine, kind: Kind, grace: int, reason: str) -> None:
        """Section 5: "Every binding is stamped with the (fingerprint, unit, group) it was made for" and a number."""
        self.evict(machine)  # a victim's needs lose it; so does a later row that acquired it earlier in this decision
        self.actions = tuple((index, action) for index, action in self.actions if action.machine != machine.id)
        need, key = row.need, row.key
        number = self.next_binding
        stamp = Stamp(key.fingerprint, key.unit, key.group, need.priority, need.interruption, need.reclamation, number)
        own = (key.fingerprint, key.unit, key.group)
        self.bound[machine.id] = Binding(need.cluster, own, number, buyer=row.index)
        self.next_binding = number + 1
        action = Action(kind, machine.id, need.cluster, reason, *own, grace_seconds=grace, number=number, stamp=stamp)
        self.actions = (*self.actions, (row.index, action))

    # Orders

    def of_cluster(self, cluster: str) -> Iterator[Machine]:
        """The machines that count for a cluster."""
        for name, binding in self.bound.items():
            if binding.cluster == cluster:
                yield self.facts.machines[name]

    def binding_order(self, cluster: str) -> list[Machine]:
        """Section 5: "A plain need takes its cluster's machines in binding order"."""
        return sorted(self.of_cluster(cluster), key=lambda m: (self.bound[m.id].number, m.id))

    def is_own(self, row: Row, machine: Machine) -> bool:
        """Section 5: stamped for this (fingerprint, unit, group)."""
        return self.bound[machine.id].own == (row.key.fingerprint, row.key.unit, row.key.group)
