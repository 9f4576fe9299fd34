"""Capacity: what a machine holds for a need, untouched or as full as it is now. Compiled; engine section 3.

"Untouched" means that only the daemons of the need's cluster run on the machine.
"""

from typing import cast

import numpy as np

from bigfleet.engine.codes import PINNED, PODS_DIM
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, at, cell, put, put_cell
from bigfleet.engine.heap.values import LARGE
from bigfleet.engine.jit import step, walk

_SAFE_FACTOR = cast("int", np.int64(1 << 16))
"""Up to so many units, their number times the size of one cannot overflow."""


@walk
def note_reliance(w: Work, need: int, what: int) -> None:
    """Note that the outcome of the need's cluster rests on PRESENCE or TOTALS of machines that are not its own."""
    cluster = at(w, c.N_CLUSTER, need)
    put(w, c.C_RESTS_ON, cluster, at(w, c.C_RESTS_ON, cluster) | what)


@walk
def room_for_pods(w: Work, daemons: int, shape: int, d: int) -> int:
    """What a machine of the shape has of one resource, less what these daemons take there; below 0 if they take more.

    Daemons without requirements run on every node; the others only where their requirements are met.
    """
    room = cell(w, c.T_ALLOCATABLE, shape, d) - cell(w, c.T_DAEMON_BASE, daemons, d)
    for e in range(at(w, c.T_DAEMON_START, daemons), at(w, c.T_DAEMON_START, daemons + 1)):
        if w.matches[at(w, c.T_DAEMON_REQUIREMENT, e), shape]:
            room -= cell(w, c.T_DAEMON_EXTRA, e, d)
    return room


@walk
def empty_machine(w: Work, machine: int, cluster: int) -> None:
    """Let no need take from the machine: all that the cluster's daemons leave is free."""
    shape, daemons = at(w, c.M_SHAPE, machine), at(w, c.C_DAEMONS, cluster)
    for d in range(w.h[c.WIDTH]):
        put_cell(w, c.T_FREE, machine, d, max(room_for_pods(w, daemons, shape, d), 0))
    put(w, c.M_FULL, machine, 0)


@walk
def fresh_units(w: Work, need: int, shape: int) -> int:
    """Units of the need that an untouched machine of this shape holds for the need's cluster."""
    unit = at(w, c.N_UNIT, need)
    daemons = at(w, c.C_DAEMONS, at(w, c.N_CLUSTER, need))
    k = LARGE
    for d in range(w.h[c.WIDTH]):
        size = cell(w, c.T_UNIT, unit, d)
        if size > 0:
            k = min(k, max(room_for_pods(w, daemons, shape, d), 0) // size)
    if at(w, c.N_LIMIT, need) > 0:
        k = min(k, at(w, c.N_LIMIT, need))
    return k


@step
def admits(w: Work, need: int, shape: int) -> bool:
    """Whether machines of this shape may serve the need at all, room aside."""
    return w.matches[at(w, c.N_REQUIREMENT, need), shape] != 0


@step
def is_pinned(w: Work, need: int) -> bool:
    """Whether the need's interruption penalty is PINNED: no price makes up for an interruption."""
    return at(w, c.N_INTERRUPTION, need) == PINNED


@walk
def is_eligible(w: Work, need: int, shape: int) -> bool:
    """Whether the need's requirements admit the shape and an untouched machine of it holds one unit."""
    if not admits(w, need, shape):
        return False
    if at(w, c.N_DIVISIBLE, need):
        return divisible_fits(w, need, shape)
    return fresh_units(w, need, shape) > 0


@walk
def divisible_fits(w: Work, need: int, shape: int) -> bool:
    """Whether an untouched machine has a pod slot and something of what a divisible need asks for."""
    daemons = at(w, c.C_DAEMONS, at(w, c.N_CLUSTER, need))
    if room_for_pods(w, daemons, shape, PODS_DIM) <= 0:
        return False
    for d in range(PODS_DIM + 1, w.h[c.WIDTH]):
        if cell(w, c.T_GAP, need, d) != 0 and room_for_pods(w, daemons, shape, d) > 0:
            return True
    return False


@step
def fitting_units(w: Work, need: int, machine: int) -> int:
    """Units of the need that still fit on the machine: no more than the need asks for, and within its machine limit."""
    unit = at(w, c.N_UNIT, need)
    k = at(w, c.N_ASKED, need)
    for d in range(w.h[c.WIDTH]):
        size = cell(w, c.T_UNIT, unit, d)
        if size > 0:
            free = cell(w, c.T_FREE, machine, d)
            if k >= _SAFE_FACTOR or free < k * size:
                k = min(k, free // size)
    k = max(k, 0)
    if k > 0 and at(w, c.N_LIMIT, need) > 0:
        k = min(k, below_limit(w, need, machine))
    return k


@walk
def below_limit(w: Work, need: int, machine: int) -> int:
    """Units of the need's profile that may still be put on the machine under the profile's machine limit."""
    there = units_on(w, need, machine)
    twin = at(w, c.N_TWIN, need)
    while twin != need:
        there += units_on(w, twin, machine)
        twin = at(w, c.N_TWIN, twin)
    return max(at(w, c.N_LIMIT, need) - there, 0)


@walk
def units_on(w: Work, need: int, machine: int) -> int:
    """Units that the need takes from the machine now."""
    first = at(w, c.N_FIRST_ENTRY, need)
    for e in range(first, first + at(w, c.N_ENTRIES, need)):
        if at(w, c.E_MACHINE, e) == machine:
            return at(w, c.E_UNITS, e)
    return 0
