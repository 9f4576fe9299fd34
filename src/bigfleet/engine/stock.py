"""The machines that could still be had, as the last decision left them, in lots of one shape. Only reads."""

from typing import NamedTuple

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Tables
from bigfleet.engine.heap.values import NONE
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
    machines = int(t.work.h[c.LEN_MACHINES])
    state = t.column(c.M_STATE, machines)
    idle = state == MachineState.IDLE
    could = (idle | (state == MachineState.SPECULATIVE)) & (t.column(c.M_BOUND, machines) == NOBODY)
    rows = _not_held_out(t, np.flatnonzero(could))
    shape = t.column(c.M_SHAPE)[rows]
    return in_lots(shape, np.where(idle[rows], IDLE, _SLOT[capacity_type[shape]]), t.column(c.M_PRICE)[rows])


def victims(t: Tables) -> Victims:
    """The rules of section 7, in whole columns."""
    machines = int(t.work.h[c.LEN_MACHINES])
    could = (t.column(c.M_STATE, machines) == MachineState.CONFIGURED) & (t.column(c.M_BOUND, machines) != NOBODY)
    could &= (t.column(c.M_ACTION, machines) == NONE) & (t.column(c.M_FLAGS, machines) & (COMMITTED | PROTECTED) == 0)
    rows = _not_held_out(t, np.flatnonzero(could))
    partial = t.column(c.C_PARTIAL)[t.column(c.M_CLUSTER)[rows]] != 0
    rows = rows[~partial | (t.column(c.M_FLAGS)[rows] & (EMPTY | UNREQUESTED) != 0)]
    level, pinned = _standing(t, rows)
    rows, level = rows[~pinned], level[~pinned]
    order = np.argsort(t.column(c.M_BOUND)[rows], kind="stable")
    rows = rows[order]
    return Victims(t.column(c.M_BOUND)[rows], t.column(c.M_SHAPE)[rows], level[order], t.column(c.M_PRICE)[rows])


def in_lots(shape: Array, level: Array, price: Array) -> Lots:
    """Machines of equal shape and level together."""
    keys, lot = np.unique((shape.astype(np.int64) << _LEVEL_BITS) + (level - LOWEST), return_inverse=True)
    cheapest = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(cheapest, lot, price)
    of_level = (keys & ((1 << _LEVEL_BITS) - 1)) + LOWEST
    return Lots(keys >> _LEVEL_BITS, of_level, np.bincount(lot, minlength=len(keys)), cheapest)


def _not_held_out(t: Tables, rows: Array) -> Array:
    held = (t.column(c.M_LATER)[rows] != 0) | (t.column(c.SHAPE_HELD)[t.column(c.M_SHAPE)[rows]] != 0)
    kept: Array = rows[~held]
    return kept


def _standing(t: Tables, rows: Array) -> tuple[Array, Array]:
    """How high Configured machines stand, and which are PINNED: by what they serve, by their stamps if that is unknown,
    and at least by pods that no request speaks for."""
    flags, served = t.column(c.M_FLAGS)[rows], t.column(c.M_STOOD)[rows]
    serving = served != NONE
    level, pinned = np.full(len(rows), LOWEST, np.int64), serving & (t.column(c.M_STOOD_PINNED)[rows] == 1)
    level[serving] = t.column(c.N_PRIORITY)[served[serving]]
    silent = t.column(c.C_REPORTED)[t.column(c.M_CLUSTER)[rows]] == 0
    level[silent] = t.column(c.M_STAMP_PRIORITY)[rows[silent]]
    pinned[silent] = (flags[silent] & STAMPED == 0) | _pins(
        t, rows[silent], c.M_STAMP_INTERRUPTION, c.M_STAMP_RECLAMATION
    )
    named = np.flatnonzero(flags & UNREQUESTED)
    level[named] = np.maximum(level[named], t.column(c.M_STAKES_PRIORITY)[rows[named]])
    pinned[named] |= _pins(t, rows[named], c.M_STAKES_INTERRUPTION, c.M_STAKES_RECLAMATION)
    return level, pinned


def _pins(t: Tables, rows: Array, interruption: int, reclamation: int) -> Array:
    pinned: Array = t.column(interruption)[rows] == PenaltyBucket.PINNED
    return pinned | (t.column(reclamation)[rows] == PenaltyBucket.PINNED)
