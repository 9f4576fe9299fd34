"""The machines that could still be had, as the last decision left them, in lots of one shape. Only reads."""

from typing import NamedTuple

import numpy as np

from bigfleet.engine.heap.columns import (
    C_PARTIAL,
    C_REPORTED,
    H_HELD,
    LEN_MACHINES,
    M_ACTION,
    M_BOUND,
    M_CLUSTER,
    M_FLAGS,
    M_LATER,
    M_PRICE,
    M_SHAPE,
    M_STAKES_INTERRUPTION,
    M_STAKES_PRIORITY,
    M_STAKES_RECLAMATION,
    M_STAMP_INTERRUPTION,
    M_STAMP_PRIORITY,
    M_STAMP_RECLAMATION,
    M_STATE,
    M_STOOD,
    M_STOOD_PINNED,
    N_PRIORITY,
    NONE,
    Array,
)
from bigfleet.engine.heap.heap import Tables
from bigfleet.engine.tables.validate import COMMITTED, EMPTY, NOBODY, PROTECTED, STAMPED, UNREQUESTED
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import INT32_MIN
from bigfleet.model.machine import CapacityType, MachineState

# How a free machine could be had, best first: it stands there, or it is a slot. A slot that does not say how it is paid
# for counts as owned, as it does for the release of idle machines.
IDLE, OWNED, ON_DEMAND, SPOT = range(4)
_SLOT = np.full(max(CapacityType) + 1, OWNED, np.int64)
_SLOT[[CapacityType.ON_DEMAND, CapacityType.SPOT]] = ON_DEMAND, SPOT

LOWEST = INT32_MIN - 1
"""How a machine stands that serves nothing: below every priority."""

_LEVEL_BITS = 33


class Lots(NamedTuple):
    """Machines of one shape and one level each: how many, and the price of the cheapest in millionths of a dollar.

    The level is how they could be had, or how high victims stand.
    """

    shape: Array
    level: Array
    machines: Array
    price: Array

    def only(self, some: Array) -> "Lots":
        """Some of the lots."""
        return Lots(*(column[some] for column in self))


class Victims(NamedTuple):
    """Configured machines that a need of another cluster may preempt if they stand below it, by cluster."""

    cluster: Array
    shape: Array
    level: Array
    price: Array


def free(t: Tables, capacity_type: Array) -> Lots:
    """Idle and Speculative machines that are nobody's and not held out; `capacity_type` is each shape's."""
    machines = int(t.work.h[LEN_MACHINES])
    state = t.column(M_STATE, machines)
    idle = state == MachineState.IDLE
    could = (idle | (state == MachineState.SPECULATIVE)) & (t.column(M_BOUND, machines) == NOBODY)
    rows = _not_held_out(t, np.flatnonzero(could))
    shape = t.column(M_SHAPE)[rows]
    return in_lots(shape, np.where(idle[rows], IDLE, _SLOT[capacity_type[shape]]), t.column(M_PRICE)[rows])


def victims(t: Tables) -> Victims:
    """The rules of section 7, in whole columns."""
    machines = int(t.work.h[LEN_MACHINES])
    could = (t.column(M_STATE, machines) == MachineState.CONFIGURED) & (t.column(M_BOUND, machines) != NOBODY)
    could &= (t.column(M_ACTION, machines) == NONE) & (t.column(M_FLAGS, machines) & (COMMITTED | PROTECTED) == 0)
    rows = _not_held_out(t, np.flatnonzero(could))
    partial = t.column(C_PARTIAL)[t.column(M_CLUSTER)[rows]] != 0
    rows = rows[~partial | (t.column(M_FLAGS)[rows] & (EMPTY | UNREQUESTED) != 0)]
    level, pinned = _standing(t, rows)
    rows, level = rows[~pinned], level[~pinned]
    order = np.argsort(t.column(M_BOUND)[rows], kind="stable")
    rows = rows[order]
    return Victims(t.column(M_BOUND)[rows], t.column(M_SHAPE)[rows], level[order], t.column(M_PRICE)[rows])


def in_lots(shape: Array, level: Array, price: Array) -> Lots:
    """Machines of equal shape and level together."""
    keys, lot = np.unique((shape.astype(np.int64) << _LEVEL_BITS) + (level - LOWEST), return_inverse=True)
    cheapest = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(cheapest, lot, price)
    of_level = (keys & ((1 << _LEVEL_BITS) - 1)) + LOWEST
    return Lots(keys >> _LEVEL_BITS, of_level, np.bincount(lot, minlength=len(keys)), cheapest)


def _not_held_out(t: Tables, rows: Array) -> Array:
    held = (t.column(M_LATER)[rows] != 0) | (t.column(H_HELD)[t.column(M_SHAPE)[rows]] != 0)
    kept: Array = rows[~held]
    return kept


def _standing(t: Tables, rows: Array) -> tuple[Array, Array]:
    """How high Configured machines stand, and which are PINNED: by what they serve, by their stamps if that is unknown,
    and at least by pods that no request speaks for."""
    flags, served = t.column(M_FLAGS)[rows], t.column(M_STOOD)[rows]
    serving = served != NONE
    level, pinned = np.full(len(rows), LOWEST, np.int64), serving & (t.column(M_STOOD_PINNED)[rows] == 1)
    level[serving] = t.column(N_PRIORITY)[served[serving]]
    silent = t.column(C_REPORTED)[t.column(M_CLUSTER)[rows]] == 0
    level[silent] = t.column(M_STAMP_PRIORITY)[rows[silent]]
    pinned[silent] = (flags[silent] & STAMPED == 0) | _pins(t, rows[silent], M_STAMP_INTERRUPTION, M_STAMP_RECLAMATION)
    named = np.flatnonzero(flags & UNREQUESTED)
    level[named] = np.maximum(level[named], t.column(M_STAKES_PRIORITY)[rows[named]])
    pinned[named] |= _pins(t, rows[named], M_STAKES_INTERRUPTION, M_STAKES_RECLAMATION)
    return level, pinned


def _pins(t: Tables, rows: Array, interruption: int, reclamation: int) -> Array:
    pinned: Array = t.column(interruption)[rows] == PenaltyBucket.PINNED
    return pinned | (t.column(reclamation)[rows] == PenaltyBucket.PINNED)
