"""Shapes: machines that agree in everything that matching looks at.

Requirement lists, topologies and sets of daemons have numbers. Each is worked out once for a shape, not once for a
machine.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bigfleet.engine.codes import PODS_DIM
from bigfleet.engine.tables.arrays import Array, Column, Grid
from bigfleet.model.demand.need import Daemon
from bigfleet.model.demand.profile import Operator, Requirement
from bigfleet.model.labels import of_fields
from bigfleet.model.machine import CapacityType, Machine
from bigfleet.model.resources import MAX_UNITS, PODS, Resources

DEFAULT_PODS = 110
"""Pods on a machine whose record does not say how many it takes."""
MISSING = -1
"""No shape, no value of a label, no domain."""


class Dimensions:
    """Names of resources and their dimensions; pods, cpu and memory always come first."""

    def __init__(self) -> None:
        self.names: list[str] = [PODS, "cpu", "memory"]
        self._index = {name: i for i, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """The dimension of a resource; a new resource gets the next one."""
        at = self._index.get(name)
        if at is None:
            at = self._index[name] = len(self.names)
            self.names.append(name)
        return at

    def row(self, vector: Resources) -> list[tuple[int, int]]:
        """A vector as (dimension, amount) pairs; new resources get dimensions."""
        return [(self.index(name), amount) for name, amount in vector]

    def known(self, vector: Resources) -> list[tuple[int, int]]:
        """A vector as (dimension, amount) pairs, without resources that have no dimension. Changes nothing."""
        return [(self._index[name], amount) for name, amount in vector if name in self._index]


class Shapes:
    """The shapes seen so far, their labels by key, and which requirement lists they meet.

    A shape has only labels whose keys somebody looks at, since no two machines share a label such as a host name. A key
    that somebody looks at later splits shapes; `Inventory.reshape` does that.
    """

    def __init__(self, dimensions: Dimensions) -> None:
        self.dimensions = dimensions
        self._ids: dict[tuple[object, ...], int] = {}
        self._keys: list[tuple[object, ...]] = []
        self._terms: list[tuple[object, ...]] = []
        self._seen_with: list[Mapping[str, str]] = []
        self._looked_at: dict[str, int] = {}
        self._split = 0
        self.allocatable = Grid(np.int64)
        self.capacity_type = Column(np.int8)
        self._labels: dict[str, Column] = {}
        self._values: dict[str, dict[str, int]] = {}
        self._requirements: dict[tuple[Requirement, ...], int] = {}
        self._requirement_lists: list[tuple[Requirement, ...]] = []
        self.matches = Grid(np.uint8)
        self._matched = 0
        self.topologies = Topologies(self)

    def __len__(self) -> int:
        return len(self._keys)

    def look_at(self, label: str) -> None:
        """From now on machines that differ in this label are of different shapes."""
        self._looked_at.setdefault(label, len(self._looked_at))

    def new_labels(self) -> list[str]:
        """The labels that somebody looks at since this was last asked."""
        new = list(self._looked_at)[self._split :]
        self._split = len(self._looked_at)
        return new

    def guess(
        self, machines: Sequence[Machine], guesses: Sequence[int], labels: Sequence[Mapping[str, str] | None]
    ) -> list[int]:
        """The guessed shape of each machine where shape and labels are as guessed, else MISSING.

        Most machines keep their shape, so most guesses are right.
        """
        if not self._keys:
            return [MISSING] * len(machines)
        # `Machine.usable` is written out here: calling it for every machine would cost as much as everything else.
        known = self._terms
        return [
            shape
            if (m.labels is kept or m.labels == kept)
            and (m.instance_type, m.capacity_type, m.zone, m.resources if (u := m.allocatable) is None else u)
            == known[shape]
            else MISSING
            for m, shape, kept in zip(machines, guesses, labels, strict=True)
        ]

    def find(self, machine: Machine) -> int:
        """The machine's shape, MISSING if the shape is new."""
        return self._ids.get(self._key(machine), MISSING)

    def intern(self, machine: Machine) -> int:
        """The machine's shape; a new shape gets the next number."""
        key = self._key(machine)
        shape = self._ids.get(key)
        return self._add(key, dict(machine.labels)) if shape is None else shape

    def relabelled(self, shape: int, labels: Mapping[str, str]) -> int:
        """The shape that a machine of this shape has with these labels, by all keys that are looked at now."""
        key = (*self._terms[shape], *self._looked(labels))
        found = self._ids.get(key)
        return self._add(key, labels) if found is None else found

    def shared(self, shape: int, labels: Mapping[str, str]) -> Mapping[str, str]:
        """The labels of the first machine of a shape if they equal these, else these: equal labels share a mapping."""
        first = self._seen_with[shape]
        return first if first == labels else labels

    def _key(self, machine: Machine) -> tuple[object, ...]:
        terms = (machine.instance_type, machine.capacity_type, machine.zone, machine.usable)
        return (*terms, *self._looked(machine.labels))

    def _looked(self, labels: Mapping[str, str]) -> tuple[str | None, ...]:
        """The values of the labels looked at, without missing ones at the end.

        So a key that is looked at later changes nothing for machines that lack it.
        """
        values = [labels.get(name) for name in self._looked_at]
        while values and values[-1] is None:
            values.pop()
        return tuple(values)

    def _add(self, key: tuple[Any, ...], given: Mapping[str, str]) -> int:
        shape = len(self._keys)
        self._ids[key] = shape
        self._keys.append(key)
        self._terms.append(key[:4])
        self._seen_with.append(given)
        instance_type, capacity_type, zone, usable, *values = key
        entries = self.dimensions.row(usable)
        self.allocatable.resize(shape + 1, len(self.dimensions))
        row = self.allocatable.view[shape]
        row[PODS_DIM] = DEFAULT_PODS
        for at, amount in entries:
            row[at] = amount
        self.capacity_type.append(capacity_type)
        labels = {name: value for name, value in zip(self._looked_at, values, strict=False) if value is not None}
        labels |= of_fields(instance_type, zone, capacity_type)
        for name, value in labels.items():
            numbers = self.value_ids(name)
            self._label(name).resize(shape + 1)
            self._labels[name].put(shape, numbers.setdefault(value, len(numbers)))
        return shape

    def of_class(self, instance_type: str, zone: str, capacity_type: CapacityType) -> list[int]:
        """The shapes of one instance type, zone and capacity type."""
        wanted = (instance_type, capacity_type, zone)
        return [shape for shape, key in enumerate(self._keys) if key[:3] == wanted]

    def class_of(self, shape: int) -> tuple[str, str, CapacityType]:
        """The instance type, zone and capacity type of a shape."""
        instance_type, _, zone = self._keys[shape][:3]
        return str(instance_type), str(zone), CapacityType(int(self.capacity_type.view[shape]))

    def values(self, key: str) -> npt.NDArray[np.int32]:
        """The numbers of one label's values over all shapes, MISSING where there is none. Makes room for new shapes."""
        column = self._label(key)
        column.resize(len(self))
        return column.view

    def _label(self, key: str) -> Column:
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = Column(np.int32, MISSING)
        return column

    def value_ids(self, key: str) -> dict[str, int]:
        """The numbers of one label's values, in the order of the numbers."""
        return self._values.setdefault(key, {})

    def label(self, key: str) -> tuple[npt.NDArray[np.int32], list[str]]:
        """One label of all shapes: (the number of its value, MISSING for none; the values). Changes nothing."""
        numbers = np.full(len(self), MISSING, np.int32)
        column = self._labels.get(key)
        if column is not None:
            numbers[: len(column)] = column.view
        return numbers, list(self._values.get(key, ()))

    def requirement_list(self, requirements: tuple[Requirement, ...]) -> int:
        """The number of a requirement list; a new one gets the next number. `update` extends it to new shapes."""
        number = self._requirements.get(requirements)
        if number is None:
            for requirement in requirements:
                self.look_at(requirement.key)
            number = self._requirements[requirements] = len(self._requirement_lists)
            self._requirement_lists.append(requirements)
            self.matches.resize(number + 1, self._matched)
            self.matches.view[number] = self._evaluate(requirements, 0, self._matched)
        return number

    def update(self) -> None:
        """Work out every requirement list and topology for shapes that are new since this was last called."""
        known, now = self._matched, len(self)
        if now == known:
            return
        self._matched = now
        self.matches.resize(len(self._requirement_lists), now)
        for number, requirements in enumerate(self._requirement_lists):
            self.matches.view[number, known:] = self._evaluate(requirements, known, now)
        self.topologies.update()

    def _evaluate(self, requirements: tuple[Requirement, ...], start: int, end: int) -> npt.NDArray[np.uint8]:
        held = np.ones(end - start, dtype=np.uint8)
        for requirement in requirements:
            held &= self._holds(requirement, start, end)
        return held

    def _holds(self, requirement: Requirement, start: int, end: int) -> npt.NDArray[np.bool_]:
        column = self.values(requirement.key)[start:end]
        there = column != MISSING
        ids = self.value_ids(requirement.key)
        listed = np.isin(column, [ids[value] for value in requirement.values if value in ids])
        match requirement.operator:
            case Operator.IN:
                return there & listed
            case Operator.NOT_IN:
                return ~(there & listed)
            case Operator.EXISTS:
                return there
            case Operator.DOES_NOT_EXIST:
                return ~there
            case Operator.SAME:
                return there & listed if requirement.values else there


class Topologies:
    """Topologies and their domains. A topology is a set of labels; a domain is a value for each of them."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._ids: dict[tuple[str, ...], int] = {}
        self._keys: list[tuple[str, ...]] = []
        self._domains: list[dict[tuple[str, ...], int]] = []
        self.domain = Grid(np.int64, MISSING)
        self.rank = Grid(np.int64)
        self._known = 0

    def __len__(self) -> int:
        return len(self._keys)

    def intern(self, keys: tuple[str, ...]) -> int:
        """The number of a topology; a new one gets the next number."""
        number = self._ids.get(keys)
        if number is None:
            for key in keys:
                self._shapes.look_at(key)
            number = self._ids[keys] = len(self._keys)
            self._keys.append(keys)
            self._domains.append({})
            self.domain.resize(number + 1, self._known)
            self._fill(number, 0, self._known)
        return number

    def update(self) -> None:
        """Name the domains of new shapes."""
        start, end = self._known, len(self._shapes)
        self._known = end
        self.domain.resize(len(self._keys), end)
        for number in range(len(self._keys)):
            self._fill(number, start, end)

    def count(self, number: int) -> int:
        """How many domains a topology has."""
        return len(self._domains[number])

    def names(self, number: int) -> list[tuple[str, ...]]:
        """The domains of a topology by number."""
        return list(self._domains[number])

    def _fill(self, number: int, start: int, end: int) -> None:
        columns = [self._shapes.values(key)[start:end] for key in self._keys[number]]
        texts = [list(self._shapes.value_ids(key)) for key in self._keys[number]]
        domains = self._domains[number]
        before = len(domains)
        target = self.domain.view[number]
        for offset, ids in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            if MISSING not in ids:
                name = tuple(text[i] for text, i in zip(texts, ids, strict=True))
                target[start + offset] = domains.setdefault(name, len(domains))
        if len(domains) != before or self.rank.shape[0] <= number:
            self.rank.resize(number + 1, len(domains))
            ordered = sorted(domains, key=lambda name: tuple(value.encode() for value in name))
            for place, name in enumerate(ordered):
                self.rank.view[number, domains[name]] = place


class DaemonSets:
    """Sets of daemons: what each takes on every node (`base`), and what more where requirements are met (`extra`)."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._ids: dict[tuple[Daemon, ...], int] = {}
        self.base = Grid(np.int64)
        self.extra_start = Column(np.int64)
        self.extra_requirement = Column(np.int64)
        self.extra = Grid(np.int64)
        self.extra_start.append(0)
        self.intern(())

    def __len__(self) -> int:
        return len(self._ids)

    def intern(self, daemons: Iterable[Daemon]) -> int:
        """The number of a set of daemons; a new set gets the next number."""
        key = tuple(daemons)
        number = self._ids.get(key)
        if number is not None:
            return number
        number = self._ids[key] = len(self._ids)
        rows = [(d.requirements, self._shapes.dimensions.row(d.resources), dict(d.resources)) for d in key]
        width = len(self._shapes.dimensions)
        self.base.resize(number + 1, width)
        for requirements, entries, vector in rows:
            if requirements:
                at = self.extra_requirement.append(self._shapes.requirement_list(requirements))
                self.extra.resize(at + 1, width)
                target = self.extra.view[at]
            else:
                target = self.base.view[number]
            for column, amount in entries:
                # No machine has more than MAX_UNITS, so a larger sum would change nothing.
                target[column] = min(MAX_UNITS, int(target[column]) + amount)
            if PODS not in vector:
                target[PODS_DIM] += 1
        self.extra_start.append(len(self.extra_requirement))
        return number

    def find(self, daemons: Iterable[Daemon]) -> int:
        """The number of a set of daemons that has one. Changes nothing."""
        return self._ids[tuple(daemons)]

    def room(self, number: int, allocatable: Array, matches: Array, width: int) -> Array:
        """What machines have for pods beside these daemons, one row a machine. Changes nothing.

        Of each machine its allocatable vector and the requirement lists that it meets are given. The compiled
        counterpart on the heap is `walks.capacity.room_for_pods`.
        """
        base, extra = self.base.view, self.extra.view
        room = np.zeros((len(allocatable), width), np.int64)
        room[:, : allocatable.shape[1]] = allocatable
        room[:, : base.shape[1]] -= base[number]
        for e in range(*self.extra_start.view[number : number + 2].tolist()):
            room[:, : extra.shape[1]] -= extra[e] * matches[self.extra_requirement.view[e], :, None]
        return np.maximum(room, 0)

    def widen(self) -> None:
        """Give every vector an entry for each dimension that is known by now."""
        width = len(self._shapes.dimensions)
        self.base.resize(0, width)
        self.extra.resize(0, width)
