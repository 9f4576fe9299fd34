"""Worth: what a machine holds for a need, untouched or as full as it is now. Compiled; section 3."""

from typing import cast

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, at, cell, put, put_cell
from bigfleet.engine.heap.values import LARGE
from bigfleet.engine.jit import step, walk

FEW = cast("int", np.int64(1 << 16))
"""So many units of anything can be multiplied without overflow."""


@walk
def look(w: Work, need: int, what: int) -> None:
    """Note that the outcome of the need's cluster rests on which machines there are at all, or on how many."""
    cluster = at(w, c.N_CLUSTER, need)
    put(w, c.C_LOOKED, cluster, at(w, c.C_LOOKED, cluster) | what)


@walk
def clear(w: Work, machine: int, cluster: int) -> None:
    """Make all of the machine free, less the daemons that the cluster runs on such a node."""
    shape = at(w, c.M_SHAPE, machine)
    daemons = at(w, c.C_DAEMONS, cluster)
    start, end = at(w, c.T_DAEMON_START, daemons), at(w, c.T_DAEMON_START, daemons + 1)
    for d in range(w.h[c.WIDTH]):
        room = cell(w, c.T_ALLOCATABLE, shape, d) - cell(w, c.T_DAEMON_BASE, daemons, d)
        for e in range(start, end):
            if w.matches[at(w, c.T_DAEMON_REQUIREMENT, e), shape]:
                room -= cell(w, c.T_DAEMON_EXTRA, e, d)
        put_cell(w, c.T_FREE, machine, d, max(room, 0))
    put(w, c.M_FULL, machine, 0)


@walk
def fresh_units(w: Work, need: int, shape: int) -> int:
    """Units of the need that an untouched machine of this shape holds for the need's cluster."""
    unit = at(w, c.N_UNIT, need)
    daemons = at(w, c.C_DAEMONS, at(w, c.N_CLUSTER, need))
    start, end = at(w, c.T_DAEMON_START, daemons), at(w, c.T_DAEMON_START, daemons + 1)
    k = LARGE
    for d in range(w.h[c.WIDTH]):
        size = cell(w, c.T_UNIT, unit, d)
        if size > 0:
            room = cell(w, c.T_ALLOCATABLE, shape, d) - cell(w, c.T_DAEMON_BASE, daemons, d)
            for e in range(start, end):
                if w.matches[at(w, c.T_DAEMON_REQUIREMENT, e), shape]:
                    room -= cell(w, c.T_DAEMON_EXTRA, e, d)
            k = min(k, max(room, 0) // size)
    if at(w, c.N_LIMIT, need) > 0:
        k = min(k, at(w, c.N_LIMIT, need))
    return k


@step
def admits(w: Work, need: int, shape: int) -> bool:
    """Whether machines of this shape may serve the need at all, room aside."""
    return w.matches[at(w, c.N_REQUIREMENT, need), shape] != 0


@step
def is_pinned(w: Work, need: int) -> bool:
    """Whether the need's interruption penalty is beyond every bound."""
    return at(w, c.N_INTERRUPTION, need) == 27


@walk
def is_eligible(w: Work, need: int, shape: int) -> bool:
    """Whether a machine of this shape matches and, untouched, holds one unit."""
    if not admits(w, need, shape):
        return False
    if at(w, c.N_DIVISIBLE, need):
        return divisible_fits(w, need, shape)
    return fresh_units(w, need, shape) > 0


@walk
def divisible_fits(w: Work, need: int, shape: int) -> bool:
    """Whether an untouched machine has a pod slot and something of what a divisible need asks for."""
    daemons = at(w, c.C_DAEMONS, at(w, c.N_CLUSTER, need))
    start, end = at(w, c.T_DAEMON_START, daemons), at(w, c.T_DAEMON_START, daemons + 1)
    some = False
    for d in range(w.h[c.WIDTH]):
        if d > 0 and cell(w, c.T_NEED_AGGREGATE, need, d) == 0:
            continue
        room = cell(w, c.T_ALLOCATABLE, shape, d) - cell(w, c.T_DAEMON_BASE, daemons, d)
        for e in range(start, end):
            if w.matches[at(w, c.T_DAEMON_REQUIREMENT, e), shape]:
                room -= cell(w, c.T_DAEMON_EXTRA, e, d)
        if d == 0 and room <= 0:
            return False
        if d > 0 and room > 0:
            some = True
    return some


@step
def fitting_units(w: Work, need: int, machine: int) -> int:
    """Units of the need that the machine still holds, as far as it asks for them, within the machine limit."""
    unit = at(w, c.N_UNIT, need)
    k = at(w, c.N_ASKED, need)
    for d in range(w.h[c.WIDTH]):
        size = cell(w, c.T_UNIT, unit, d)
        if size > 0:
            free = cell(w, c.T_FREE, machine, d)
            if k >= FEW or free < k * size:
                k = min(k, free // size)
    k = max(k, 0)
    if k > 0 and at(w, c.N_LIMIT, need) > 0:
        k = min(k, below_limit(w, need, machine))
    return k


@walk
def below_limit(w: Work, need: int, machine: int) -> int:
    """Units of the need's profile that the machine limit still lets on to the machine."""
    there = units_on(w, need, machine)
    twin = at(w, c.N_TWIN, need)
    while twin != need:
        there += units_on(w, twin, machine)
        twin = at(w, c.N_TWIN, twin)
    return max(at(w, c.N_LIMIT, need) - there, 0)


@walk
def units_on(w: Work, need: int, machine: int) -> int:
    """Units that the need takes from the machine now."""
    first = at(w, c.N_FIRST, need)
    for e in range(first, first + at(w, c.N_COUNT, need)):
        if at(w, c.E_MACHINE, e) == machine:
            return at(w, c.E_UNITS, e)
    return 0
