"""Candidates: the machines that could serve a need, and what keeps each kind of them from it.

Nothing here takes part in a decision. It tells people why a decision left a need short, and is worked out when asked.
"""

from typing import NamedTuple

import numpy as np

from bigfleet.engine.codes import PODS_DIM
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Heap
from bigfleet.engine.tables.inventory import VACANT, Inventory
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.resources import Resources

SAMPLE = 100
"""How many machines are named one by one."""

_FREE_STATES = np.zeros(256, np.bool_)
_FREE_STATES[
    [
        MachineState.IDLE,
        MachineState.DRAINING,
        MachineState.CREATING,
        MachineState.SPECULATIVE,
        MachineState.DELETING,
    ]
] = True
"""By state: whether a machine that is bound to no cluster is in the free pool, or would be were it not held out."""


class Size(NamedTuple):
    """How large a machine is for pods of one cluster."""

    instance_type: str
    #: What the cluster's daemons leave of the resources that were asked for.
    room: Resources


class HeldShape(NamedTuple):
    """A shape that is held out, and what it would hold of a need."""

    instance_type: str
    zone: str
    capacity_type: CapacityType
    #: Free machines of the shape.
    machines: int
    #: Units that these would hold; 0 of a divisible need.
    units: int


class Candidates(NamedTuple):
    """What a need could be served by."""

    #: Machines with the labels that the need requires, in any state but Failed.
    matching: int
    #: The machine among these that comes closest to holding one unit, or holds most; None where nothing matches.
    largest: Size | None
    #: Of these, machines that hold a unit if they are empty.
    fitting: int
    #: Units that the fitting ones would hold together; 0 of a divisible need.
    units: int
    #: Fitting machines that are free and open to everybody.
    open: int
    #: Shapes that are held out, of which fitting machines are free. No machine counts here and in `not_yet`.
    held_shapes: tuple[HeldShape, ...]
    #: Some fitting machines that are free and may not be used yet, whatever their shape.
    not_yet: tuple[str, ...]
    #: How many such machines there are.
    not_yet_machines: int
    #: Units that these would hold; 0 of a divisible need.
    not_yet_units: int
    #: Some machines that are Failed and would fit.
    failed: tuple[str, ...]
    #: How many such machines there are.
    failed_machines: int
    #: Units that these would hold; 0 of a divisible need.
    failed_units: int


class CandidateTable:
    """All machines by shape and by what keeps them from serving, as one decision left them."""

    def __init__(self, heap: Heap, inventory: Inventory) -> None:
        self._heap, self._inventory, self._shapes = heap, inventory, len(inventory.shapes)
        machines = int(heap.work.h[c.LEN_MACHINES])
        state, self._shape = heap.column(c.M_STATE, machines), heap.column(c.M_SHAPE, machines)
        is_failed = state == MachineState.FAILED
        free = (heap.column(c.M_BOUND, machines) < 0) & _FREE_STATES[state]
        not_yet = free & (heap.column(c.M_NOT_YET, machines) != 0)
        self._alive = self._count(np.flatnonzero((state != VACANT) & ~is_failed))
        self._free = self._count(np.flatnonzero(free & ~not_yet))
        self._not_yet, self._failed = np.flatnonzero(not_yet), np.flatnonzero(is_failed)
        self._held = heap.column(c.SHAPE_HELD, self._shapes) != 0
        self._rooms: dict[int, Array] = {}

    def of(self, slot: int) -> Candidates:
        """What the need in a slot could be served by."""
        heap, divisible = self._heap, bool(self._heap.column(c.N_DIVISIBLE)[slot])
        matches = heap.work.matches[heap.column(c.N_REQUIREMENT)[slot], : self._shapes] != 0
        room = self._room(int(heap.column(c.C_DAEMONS)[heap.column(c.N_CLUSTER)[slot]]))
        units = np.where(matches, self._units(slot, room, divisible=divisible), 0)
        fits, counted = units > 0, np.zeros_like(units) if divisible else units
        open_shapes = fits & ~self._held
        held = np.flatnonzero(fits & self._held & (self._free > 0)).tolist()
        not_yet = self._not_yet[fits[self._shape[self._not_yet]]]
        failed = self._failed[fits[self._shape[self._failed]]]
        return Candidates(
            matching=int(self._alive[matches].sum()),
            largest=self._largest(slot, room, matches & (self._alive > 0)),
            fitting=int(self._alive[fits].sum()),
            units=int((self._alive * counted).sum()),
            open=int(self._free[open_shapes].sum()),
            held_shapes=tuple(
                HeldShape(
                    *self._inventory.shapes.class_of(shape),
                    int(self._free[shape]),
                    int(self._free[shape] * counted[shape]),
                )
                for shape in held
            ),
            not_yet=self._names(not_yet),
            not_yet_machines=len(not_yet),
            not_yet_units=int(counted[self._shape[not_yet]].sum()),
            failed=self._names(failed),
            failed_machines=len(failed),
            failed_units=int(counted[self._shape[failed]].sum()),
        )

    def _count(self, machines: Array) -> Array:
        """How many of these machines there are of each shape."""
        return np.bincount(self._shape[machines], minlength=self._shapes)

    def _names(self, machines: Array) -> tuple[str, ...]:
        return tuple(str(self._inventory.ids[machine]) for machine in machines[:SAMPLE].tolist())

    def _room(self, daemons: int) -> Array:
        """By shape: what a set of daemons leaves of an untouched machine."""
        room = self._rooms.get(daemons)
        if room is None:
            heap = self._heap
            room = heap.vectors(c.T_ALLOCATABLE, self._shapes) - heap.vectors(c.T_DAEMON_BASE, daemons + 1)[daemons]
            first, last = heap.column(c.T_DAEMON_START)[daemons : daemons + 2].tolist()
            for extra in range(first, last):
                runs = heap.work.matches[heap.column(c.T_DAEMON_REQUIREMENT)[extra], : self._shapes] != 0
                room[runs] -= heap.vectors(c.T_DAEMON_EXTRA, extra + 1)[extra]
            self._rooms[daemons] = np.maximum(room, 0)
        return self._rooms[daemons]

    def _asked(self, slot: int, *, divisible: bool) -> Array:
        """One unit of the need in a slot; of a divisible need what it lacks."""
        heap = self._heap
        if divisible:
            return heap.vectors(c.T_GAP, slot + 1)[slot]
        unit = int(heap.column(c.N_UNIT)[slot])
        return heap.vectors(c.T_UNIT, unit + 1)[unit]

    def _units(self, slot: int, room: Array, *, divisible: bool) -> Array:
        """By shape: units that an untouched machine holds; 1 or 0 of a divisible need, as the machine helps or not."""
        asked = self._asked(slot, divisible=divisible)
        if divisible:
            proper = room[:, PODS_DIM + 1 :][:, asked[PODS_DIM + 1 :] != 0]
            return ((room[:, PODS_DIM] > 0) & (proper > 0).any(axis=1)).astype(np.int64)
        wanted = asked > 0
        units = (room[:, wanted] // asked[wanted]).min(axis=1)
        limit = int(self._heap.column(c.N_LIMIT)[slot])
        return np.minimum(units, limit) if limit > 0 else units

    def _largest(self, slot: int, room: Array, among: Array) -> Size | None:
        shapes = np.flatnonzero(among)
        if not shapes.size:
            return None
        asked = self._asked(slot, divisible=bool(self._heap.column(c.N_DIVISIBLE)[slot]))
        wanted = np.flatnonzero(asked > 0)
        wanted = wanted[wanted != PODS_DIM]
        share = (room[shapes][:, wanted] / asked[wanted]).min(axis=1) if wanted.size else np.zeros(len(shapes))
        shape, names = int(shapes[share.argmax()]), self._inventory.shapes.dimensions.names
        instance_type, _, _ = self._inventory.shapes.class_of(shape)
        return Size(instance_type, tuple(sorted((names[d], int(room[shape, d])) for d in wanted.tolist())))
