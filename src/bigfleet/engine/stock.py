"""Machines that a cluster could still get after the last decision, counted in lots of one shape. Changes nothing."""

from typing import NamedTuple

import numpy as np

from bigfleet.engine.codes import COMMITTED, EMPTY, NOBODY, PROTECTED, STAMPED, UNREQUESTED
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Heap
from bigfleet.engine.heap.values import NONE
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import INT32_MIN
from bigfleet.model.machine import CapacityType, MachineState

# The level of a free machine, best first: Idle, or a slot by how it is paid for. A slot that does not say so counts as
# owned, as it does when idle machines are deleted.
IDLE, OWNED, ON_DEMAND, SPOT = range(4)
_SLOT = np.full(max(CapacityType) + 1, OWNED, np.int64)
_SLOT[[CapacityType.ON_DEMAND, CapacityType.SPOT]] = ON_DEMAND, SPOT

LOWEST = INT32_MIN - 1
"""The level of a victim that serves nothing: below every priority."""

_LEVEL_BITS = 33
"""Bits that a level less LOWEST may take: one more than a priority."""


class Lots(NamedTuple):
    """Lots of machines, in columns. The machines of a lot have one shape and one level."""

    shape: Array
    level: Array
    """IDLE, OWNED, ON_DEMAND or SPOT of free machines; of victims the priority that they stand at."""
    machines: Array
    """How many there are."""
    price: Array
    """The price of the cheapest, in millionths of a dollar."""

    def only(self, some: Array) -> "Lots":
        """These lots only."""
        return Lots(*(column[some] for column in self))


class Victims(NamedTuple):
    """Configured machines that a need above their level may preempt, in columns, sorted by cluster."""

    cluster: Array
    shape: Array
    level: Array
    price: Array


def free_machines(heap: Heap, capacity_type: Array) -> Lots:
    """Idle and Speculative machines that no cluster has and that are not held out; `capacity_type` is by shape."""
    machines = int(heap.work.h[c.LEN_MACHINES])
    state = heap.column(c.M_STATE, machines)
    idle = state == MachineState.IDLE
    could = (idle | (state == MachineState.SPECULATIVE)) & (heap.column(c.M_BOUND, machines) == NOBODY)
    rows = _not_held_out(heap, np.flatnonzero(could))
    shape = heap.column(c.M_SHAPE)[rows]
    return in_lots(shape, np.where(idle[rows], IDLE, _SLOT[capacity_type[shape]]), heap.column(c.M_PRICE)[rows])


def preemptible_machines(heap: Heap) -> Victims:
    """Machines that section 7 lets a higher need preempt."""
    machines = int(heap.work.h[c.LEN_MACHINES])
    could = (heap.column(c.M_STATE, machines) == MachineState.CONFIGURED) & (heap.column(c.M_BOUND, machines) != NOBODY)
    could &= (heap.column(c.M_ACTION, machines) == NONE) & (
        heap.column(c.M_FLAGS, machines) & (COMMITTED | PROTECTED) == 0
    )
    rows = _not_held_out(heap, np.flatnonzero(could))
    partial = heap.column(c.C_PARTIAL)[heap.column(c.M_CLUSTER)[rows]] != 0
    rows = rows[~partial | (heap.column(c.M_FLAGS)[rows] & (EMPTY | UNREQUESTED) != 0)]
    level, pinned = _standing(heap, rows)
    rows, level = rows[~pinned], level[~pinned]
    order = np.argsort(heap.column(c.M_BOUND)[rows], kind="stable")
    rows = rows[order]
    return Victims(
        heap.column(c.M_BOUND)[rows], heap.column(c.M_SHAPE)[rows], level[order], heap.column(c.M_PRICE)[rows]
    )


def in_lots(shape: Array, level: Array, price: Array) -> Lots:
    """Put machines of equal shape and level into one lot."""
    keys, lot = np.unique((shape.astype(np.int64) << _LEVEL_BITS) + (level - LOWEST), return_inverse=True)
    cheapest = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(cheapest, lot, price)
    of_level = (keys & ((1 << _LEVEL_BITS) - 1)) + LOWEST
    return Lots(keys >> _LEVEL_BITS, of_level, np.bincount(lot, minlength=len(keys)), cheapest)


def _not_held_out(heap: Heap, rows: Array) -> Array:
    held = (heap.column(c.M_NOT_YET)[rows] != 0) | (heap.column(c.SHAPE_HELD)[heap.column(c.M_SHAPE)[rows]] != 0)
    kept: Array = rows[~held]
    return kept


def _standing(heap: Heap, rows: Array) -> tuple[Array, Array]:
    """(The level of each Configured machine, whether it is PINNED.)

    A machine stands by what it serves, or by its stamp if its cluster has sent no roll-up. Pods that no request speaks
    for may raise both.
    """
    flags, served = heap.column(c.M_FLAGS)[rows], heap.column(c.M_STANDS_BY)[rows]
    serving = served != NONE
    level, pinned = np.full(len(rows), LOWEST, np.int64), serving & (heap.column(c.M_SERVED_PINNED)[rows] == 1)
    level[serving] = heap.column(c.N_PRIORITY)[served[serving]]
    silent = heap.column(c.C_REPORTED)[heap.column(c.M_CLUSTER)[rows]] == 0
    level[silent] = heap.column(c.M_STAMP_PRIORITY)[rows[silent]]
    pinned[silent] = (flags[silent] & STAMPED == 0) | _pins(
        heap, rows[silent], c.M_STAMP_INTERRUPTION, c.M_STAMP_RECLAMATION
    )
    named = np.flatnonzero(flags & UNREQUESTED)
    level[named] = np.maximum(level[named], heap.column(c.M_STAKES_PRIORITY)[rows[named]])
    pinned[named] |= _pins(heap, rows[named], c.M_STAKES_INTERRUPTION, c.M_STAKES_RECLAMATION)
    return level, pinned


def _pins(heap: Heap, rows: Array, interruption: int, reclamation: int) -> Array:
    pinned: Array = heap.column(interruption)[rows] == PenaltyBucket.PINNED
    return pinned | (heap.column(reclamation)[rows] == PenaltyBucket.PINNED)
