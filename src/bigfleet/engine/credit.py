"""Credit: what a need takes from the machines that count for its cluster. Compiled; sections 3, 5 and 6.

Spread is in `spread.py`, the choice of a gang's domain in `gangs.py`.
"""

from typing import cast

import numpy as np

from bigfleet.engine.compiled import step, walk
from bigfleet.engine.heap import at, cell, domain_at, put, put_cell, row
from bigfleet.engine.work import (
    C_ALL_HEAD,
    C_ALL_TAIL,
    C_DAEMONS,
    C_EPOCH,
    C_LIVE_HEAD,
    C_LIVE_TAIL,
    E_MACHINE,
    E_UNITS,
    E_VECTOR,
    ENTRIES,
    LEN_ENTRIES,
    LEN_T_VECTOR,
    M_ALL_NEXT,
    M_BOUND,
    M_FULL,
    M_LIVE_NEXT,
    M_OWN_NEXT,
    M_SHAPE,
    N_CLUSTER,
    N_COUNT,
    N_DIVISIBLE,
    N_FIRST,
    N_INTERRUPTION,
    N_LIMIT,
    N_MISSING,
    N_OWN_HEAD,
    N_REQUIREMENT,
    N_TOPOLOGY,
    N_TWIN,
    N_UNIT,
    N_WALK,
    OVERFLOW,
    S_MACHINE,
    SEEN,
    T_ALLOCATABLE,
    T_CLUSTER_LEAST,
    T_DAEMON_BASE,
    T_DAEMON_EXTRA,
    T_DAEMON_REQUIREMENT,
    T_DAEMON_START,
    T_FREE,
    T_NEED_AGGREGATE,
    T_UNIT,
    T_VECTOR,
    VECTORS,
    W_EPOCH,
    W_PAST,
    WIDTH,
    Work,
)

# A numpy number, not a Python one: for a literal argument numba would compile every function once more.
NONE = cast("int", np.int64(-1))
LARGE = cast("int", np.int64(1 << 62))


@walk
def clear(w: Work, machine: int, cluster: int) -> None:
    """Make all of the machine free, less the daemons that the cluster runs on such a node."""
    shape = at(w, M_SHAPE, machine)
    daemons = at(w, C_DAEMONS, cluster)
    free = row(w, T_FREE, machine)
    for d in range(free.shape[0]):
        free[d] = cell(w, T_ALLOCATABLE, shape, d) - cell(w, T_DAEMON_BASE, daemons, d)
    for e in range(at(w, T_DAEMON_START, daemons), at(w, T_DAEMON_START, daemons + 1)):
        if w.matches[at(w, T_DAEMON_REQUIREMENT, e), shape]:
            for d in range(free.shape[0]):
                free[d] -= cell(w, T_DAEMON_EXTRA, e, d)
    for d in range(free.shape[0]):
        free[d] = max(free[d], 0)
    put(w, M_FULL, machine, 0)


@walk
def fresh_units(w: Work, need: int, shape: int) -> int:
    """Units of the need that an untouched machine of this shape holds for the need's cluster."""
    unit = row(w, T_UNIT, at(w, N_UNIT, need))
    daemons = at(w, C_DAEMONS, at(w, N_CLUSTER, need))
    start, end = at(w, T_DAEMON_START, daemons), at(w, T_DAEMON_START, daemons + 1)
    k = LARGE
    for d in range(unit.shape[0]):
        if unit[d] > 0:
            room = cell(w, T_ALLOCATABLE, shape, d) - cell(w, T_DAEMON_BASE, daemons, d)
            for e in range(start, end):
                if w.matches[at(w, T_DAEMON_REQUIREMENT, e), shape]:
                    room -= cell(w, T_DAEMON_EXTRA, e, d)
            k = min(k, max(room, 0) // unit[d])
    if at(w, N_LIMIT, need) > 0:
        k = min(k, at(w, N_LIMIT, need))
    return k


@step
def admits(w: Work, need: int, shape: int) -> bool:
    """Whether machines of this shape may serve the need at all, room aside."""
    return w.matches[at(w, N_REQUIREMENT, need), shape] != 0


@step
def is_pinned(w: Work, need: int) -> bool:
    """Whether the need's interruption penalty is beyond every bound."""
    return at(w, N_INTERRUPTION, need) == 27


@walk
def is_eligible(w: Work, need: int, shape: int) -> bool:
    """Whether a machine of this shape matches and, untouched, holds one unit."""
    if not admits(w, need, shape):
        return False
    if at(w, N_DIVISIBLE, need):
        return divisible_fits(w, need, shape)
    return fresh_units(w, need, shape) > 0


@walk
def divisible_fits(w: Work, need: int, shape: int) -> bool:
    """Whether an untouched machine has a pod slot and something of what a divisible need asks for."""
    daemons = at(w, C_DAEMONS, at(w, N_CLUSTER, need))
    start, end = at(w, T_DAEMON_START, daemons), at(w, T_DAEMON_START, daemons + 1)
    some = False
    for d in range(w.h[WIDTH]):
        if d > 0 and cell(w, T_NEED_AGGREGATE, need, d) == 0:
            continue
        room = cell(w, T_ALLOCATABLE, shape, d) - cell(w, T_DAEMON_BASE, daemons, d)
        for e in range(start, end):
            if w.matches[at(w, T_DAEMON_REQUIREMENT, e), shape]:
                room -= cell(w, T_DAEMON_EXTRA, e, d)
        if d == 0 and room <= 0:
            return False
        if d > 0 and room > 0:
            some = True
    return some


@step
def fitting_units(w: Work, need: int, machine: int) -> int:
    """Units of the need that the machine still holds, within the machine limit."""
    unit = at(w, N_UNIT, need)
    k = LARGE
    for d in range(w.h[WIDTH]):
        size = cell(w, T_UNIT, unit, d)
        if size > 0:
            k = min(k, cell(w, T_FREE, machine, d) // size)
    k = max(k, 0)
    if k > 0 and at(w, N_LIMIT, need) > 0:
        k = min(k, below_limit(w, need, machine))
    return k


@walk
def below_limit(w: Work, need: int, machine: int) -> int:
    """Units of the need's profile that the machine limit still lets on to the machine."""
    there = units_on(w, need, machine)
    twin = at(w, N_TWIN, need)
    while twin != need:
        there += units_on(w, twin, machine)
        twin = at(w, N_TWIN, twin)
    return max(at(w, N_LIMIT, need) - there, 0)


@walk
def units_on(w: Work, need: int, machine: int) -> int:
    """Units that the need takes from the machine now."""
    first = at(w, N_FIRST, need)
    for e in range(first, first + at(w, N_COUNT, need)):
        if at(w, E_MACHINE, e) == machine:
            return at(w, E_UNITS, e)
    return 0


@step
def is_full(w: Work, machine: int, cluster: int) -> bool:
    """Whether not even the cluster's smallest units would fit."""
    full = False
    for d in range(w.h[WIDTH]):
        full = full or cell(w, T_FREE, machine, d) < cell(w, T_CLUSTER_LEAST, cluster, d)
    return full


@walk
def take(w: Work, need: int, machine: int, units: int) -> None:
    """So many units of the need on a machine that it takes nothing from yet.

    Only the need being served takes, so its entries are the last and stand together.
    """
    unit = row(w, T_UNIT, at(w, N_UNIT, need))
    for d in range(unit.shape[0]):
        put_cell(w, T_FREE, machine, d, cell(w, T_FREE, machine, d) - (units * unit[d]))
    put(w, N_MISSING, need, at(w, N_MISSING, need) - units)
    put(w, M_FULL, machine, is_full(w, machine, at(w, N_CLUSTER, need)))
    e = w.h[ENTRIES]
    if e >= w.h[LEN_ENTRIES]:
        w.h[OVERFLOW] = 1
        return
    if at(w, N_COUNT, need) == 0:
        put(w, N_FIRST, need, e)
    put(w, E_MACHINE, e, machine)
    put(w, E_UNITS, e, units)
    put(w, E_VECTOR, e, NONE)
    put(w, N_COUNT, need, at(w, N_COUNT, need) + 1)
    w.h[ENTRIES] = e + 1


@walk
def take_divisible(w: Work, need: int, machine: int) -> bool:
    """All that a divisible need can use of the machine, and one pod slot; False if that is nothing."""
    free, gap = row(w, T_FREE, machine), row(w, T_NEED_AGGREGATE, need)
    if free[0] < 1 or units_on(w, need, machine) > 0:
        return False
    v, e = w.h[VECTORS], w.h[ENTRIES]
    if v >= w.h[LEN_T_VECTOR] or e >= w.h[LEN_ENTRIES]:
        w.h[OVERFLOW] = 1
        return False
    taken = row(w, T_VECTOR, v)
    some = False
    for d in range(1, free.shape[0]):
        taken[d] = min(gap[d], free[d])
        some = some or taken[d] > 0
    if not some:
        return False
    taken[0] = 1
    for d in range(free.shape[0]):
        free[d] -= taken[d]
        if d > 0:
            gap[d] -= taken[d]
    put(w, M_FULL, machine, is_full(w, machine, at(w, N_CLUSTER, need)))
    if at(w, N_COUNT, need) == 0:
        put(w, N_FIRST, need, e)
    put(w, E_MACHINE, e, machine)
    put(w, E_UNITS, e, 1)
    put(w, E_VECTOR, e, v)
    put(w, N_COUNT, need, at(w, N_COUNT, need) + 1)
    w.h[ENTRIES] = e + 1
    w.h[VECTORS] = v + 1
    put(w, N_MISSING, need, 0)
    for d in range(1, gap.shape[0]):
        if gap[d] > 0:
            put(w, N_MISSING, need, 1)
    return True


@walk
def untake(w: Work, need: int) -> None:
    """The need takes nothing any more."""
    unit = row(w, T_UNIT, at(w, N_UNIT, need))
    first = at(w, N_FIRST, need)
    for e in range(first, first + at(w, N_COUNT, need)):
        machine = at(w, E_MACHINE, e)
        put(w, M_FULL, machine, 0)
        v = at(w, E_VECTOR, e)
        if v >= 0:
            for d in range(unit.shape[0]):
                put_cell(w, T_FREE, machine, d, cell(w, T_FREE, machine, d) + cell(w, T_VECTOR, v, d))
                if d > 0:
                    put_cell(w, T_NEED_AGGREGATE, need, d, cell(w, T_NEED_AGGREGATE, need, d) + cell(w, T_VECTOR, v, d))
            put(w, N_MISSING, need, 1)
        else:
            units = at(w, E_UNITS, e)
            for d in range(unit.shape[0]):
                put_cell(w, T_FREE, machine, d, cell(w, T_FREE, machine, d) + (units * unit[d]))
            put(w, N_MISSING, need, at(w, N_MISSING, need) + units)
    put(w, N_COUNT, need, 0)


@walk
def relink(w: Work, cluster: int) -> None:
    """Put every machine of the cluster back on the list of those with room."""
    put(w, C_LIVE_HEAD, cluster, at(w, C_ALL_HEAD, cluster))
    put(w, C_LIVE_TAIL, cluster, at(w, C_ALL_TAIL, cluster))
    put(w, C_EPOCH, cluster, at(w, C_EPOCH, cluster) + 1)
    machine = at(w, C_ALL_HEAD, cluster)
    while machine >= 0:
        put(w, M_LIVE_NEXT, machine, at(w, M_ALL_NEXT, machine))
        machine = at(w, M_ALL_NEXT, machine)


@step
def past(w: Work, need: int) -> int:
    """The machine up to which none on its cluster's list holds a unit of such a need; NONE before the first.

    Room only shrinks until a list is linked anew, so what was too full for one need is so for the next of its kind.
    """
    walk_of = at(w, N_WALK, need)
    if walk_of == NONE or at(w, W_EPOCH, walk_of) != at(w, C_EPOCH, at(w, N_CLUSTER, need)):
        return NONE
    return at(w, W_PAST, walk_of)


@step
def note_past(w: Work, need: int, machine: int) -> None:
    """Note that no machine up to this one holds a unit of such a need."""
    walk_of = at(w, N_WALK, need)
    if walk_of != NONE:
        put(w, W_PAST, walk_of, machine)
        put(w, W_EPOCH, walk_of, at(w, C_EPOCH, at(w, N_CLUSTER, need)))


@step
def after(w: Work, cluster: int, before: int) -> int:
    """The machine that follows on a cluster's list of those with room, leaving off those that have none; NONE at its end.

    The last stays on the list, so that what is bound next can be reached from every machine that ever was on it.
    """
    machine = at(w, C_LIVE_HEAD, cluster) if before == NONE else at(w, M_LIVE_NEXT, before)
    first = machine
    while machine != NONE and at(w, M_FULL, machine) and at(w, M_LIVE_NEXT, machine) != NONE:
        machine = at(w, M_LIVE_NEXT, machine)
    if machine != first:
        if before == NONE:
            put(w, C_LIVE_HEAD, cluster, machine)
        else:
            put(w, M_LIVE_NEXT, before, machine)
    return machine


@walk
def credit_plain(w: Work, need: int) -> None:
    """A plain need takes its cluster's machines in binding order."""
    cluster = at(w, N_CLUSTER, need)
    divisible = at(w, N_DIVISIBLE, need)
    before = past(w, need)
    leading = before
    machine = after(w, cluster, before)
    while machine >= 0 and at(w, N_MISSING, need) > 0:
        room = 0
        if at(w, M_BOUND, machine) == cluster and admits(w, need, at(w, M_SHAPE, machine)):
            if divisible:
                take_divisible(w, need, machine)
            else:
                room = fitting_units(w, need, machine)
                units = min(room, at(w, N_MISSING, need))
                if units > 0:
                    take(w, need, machine, units)
                    room -= units
        if room == 0 and leading == before:
            leading = machine
        before = machine
        machine = after(w, cluster, before)
    note_past(w, need, leading)


@walk
def credit_gang(w: Work, need: int, domain: int) -> None:
    """A gang takes its own machines in the domain first, then the cluster's others there, in binding order.

    The others are those that the choice of the domain has just seen to have room.
    """
    credit_own(w, need, domain)
    topology = at(w, N_TOPOLOGY, need)
    for i in range(w.h[SEEN]):
        if at(w, N_MISSING, need) <= 0:
            return
        machine = at(w, S_MACHINE, i)
        if domain_at(w, topology, at(w, M_SHAPE, machine)) == domain:
            take(w, need, machine, min(fitting_units(w, need, machine), at(w, N_MISSING, need)))


@walk
def credit_own(w: Work, need: int, domain: int) -> None:
    """A gang takes its own machines in the domain."""
    cluster, topology = at(w, N_CLUSTER, need), at(w, N_TOPOLOGY, need)
    machine = at(w, N_OWN_HEAD, need)
    while machine >= 0 and at(w, N_MISSING, need) > 0:
        shape = at(w, M_SHAPE, machine)
        if at(w, M_BOUND, machine) == cluster and domain_at(w, topology, shape) == domain and admits(w, need, shape):
            units = min(fitting_units(w, need, machine), at(w, N_MISSING, need))
            if units > 0:
                take(w, need, machine, units)
        machine = at(w, M_OWN_NEXT, machine)
