"""Credit: what a need takes from the machines that count for its cluster. Compiled; sections 3, 5 and 6.

Spread is in `spread.py`, the choice of a gang's domain in `gangs.py`.
"""

from typing import cast

import numpy as np

from bigfleet.engine.compiled import step, walk
from bigfleet.engine.heap import (
    at,
    cell,
    domain_at,
    put,
    put_cell,
)
from bigfleet.engine.work import (
    ARENA,
    C_ALL_HEAD,
    C_ALL_TAIL,
    C_DAEMONS,
    C_EPOCH,
    C_LIVE_HEAD,
    C_LIVE_TAIL,
    C_LOOKED,
    E_MACHINE,
    E_UNITS,
    E_VECTOR,
    ENTRIES,
    LEN_ARENA,
    LEN_ENTRIES,
    LEN_VECTORS,
    LISTING,
    M_ALL_NEXT,
    M_BOUND,
    M_FULL,
    M_LIVE_NEXT,
    M_OWN_NEXT,
    M_SHAPE,
    N_ASKED,
    N_CLUSTER,
    N_COUNT,
    N_DESK,
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
    R_EPOCH,
    R_FROM,
    R_LAST,
    R_TO,
    S_MACHINE,
    S_ROOM,
    SEEN,
    T_ALLOCATABLE,
    T_ARENA,
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
    W_FROM,
    W_LAST,
    W_TIMES,
    W_TO,
    WIDTH,
    Work,
)

# A numpy number, not a Python one: for a literal argument numba would compile every function once more.
NONE = cast("int", np.int64(-1))
LARGE = cast("int", np.int64(1 << 62))
FEW = cast("int", np.int64(1 << 16))
"""So many units of anything can be multiplied without overflow."""


@walk
def look(w: Work, need: int, what: int) -> None:
    """Note that the outcome of the need's cluster rests on which machines there are at all, or on how many."""
    cluster = at(w, N_CLUSTER, need)
    put(w, C_LOOKED, cluster, at(w, C_LOOKED, cluster) | what)


@walk
def clear(w: Work, machine: int, cluster: int) -> None:
    """Make all of the machine free, less the daemons that the cluster runs on such a node."""
    shape = at(w, M_SHAPE, machine)
    daemons = at(w, C_DAEMONS, cluster)
    start, end = at(w, T_DAEMON_START, daemons), at(w, T_DAEMON_START, daemons + 1)
    for d in range(w.h[WIDTH]):
        room = cell(w, T_ALLOCATABLE, shape, d) - cell(w, T_DAEMON_BASE, daemons, d)
        for e in range(start, end):
            if w.matches[at(w, T_DAEMON_REQUIREMENT, e), shape]:
                room -= cell(w, T_DAEMON_EXTRA, e, d)
        put_cell(w, T_FREE, machine, d, max(room, 0))
    put(w, M_FULL, machine, 0)


@walk
def fresh_units(w: Work, need: int, shape: int) -> int:
    """Units of the need that an untouched machine of this shape holds for the need's cluster."""
    unit = at(w, N_UNIT, need)
    daemons = at(w, C_DAEMONS, at(w, N_CLUSTER, need))
    start, end = at(w, T_DAEMON_START, daemons), at(w, T_DAEMON_START, daemons + 1)
    k = LARGE
    for d in range(w.h[WIDTH]):
        size = cell(w, T_UNIT, unit, d)
        if size > 0:
            room = cell(w, T_ALLOCATABLE, shape, d) - cell(w, T_DAEMON_BASE, daemons, d)
            for e in range(start, end):
                if w.matches[at(w, T_DAEMON_REQUIREMENT, e), shape]:
                    room -= cell(w, T_DAEMON_EXTRA, e, d)
            k = min(k, max(room, 0) // size)
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
    """Units of the need that the machine still holds, as far as it asks for them, within the machine limit."""
    unit = at(w, N_UNIT, need)
    k = at(w, N_ASKED, need)
    for d in range(w.h[WIDTH]):
        size = cell(w, T_UNIT, unit, d)
        if size > 0:
            free = cell(w, T_FREE, machine, d)
            if k >= FEW or free < k * size:
                k = min(k, free // size)
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
    unit, cluster, full = at(w, N_UNIT, need), at(w, N_CLUSTER, need), False
    for d in range(w.h[WIDTH]):
        free = cell(w, T_FREE, machine, d) - units * cell(w, T_UNIT, unit, d)
        put_cell(w, T_FREE, machine, d, free)
        full = full or free < cell(w, T_CLUSTER_LEAST, cluster, d)
    put(w, N_MISSING, need, at(w, N_MISSING, need) - units)
    put(w, M_FULL, machine, full)
    e = w.h[ENTRIES]
    if e >= w.h[LEN_ENTRIES]:
        w.h[OVERFLOW] = LEN_ENTRIES
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
    if cell(w, T_FREE, machine, 0) < 1 or units_on(w, need, machine) > 0:
        return False
    v, e = w.h[VECTORS], w.h[ENTRIES]
    if v >= w.h[LEN_VECTORS] or e >= w.h[LEN_ENTRIES]:
        w.h[OVERFLOW] = LEN_VECTORS if v >= w.h[LEN_VECTORS] else LEN_ENTRIES
        return False
    some = False
    put_cell(w, T_VECTOR, v, 0, 1)
    for d in range(1, w.h[WIDTH]):
        taken = min(cell(w, T_NEED_AGGREGATE, need, d), cell(w, T_FREE, machine, d))
        put_cell(w, T_VECTOR, v, d, taken)
        some = some or taken > 0
    if not some:
        return False
    missing = 0
    for d in range(w.h[WIDTH]):
        taken = cell(w, T_VECTOR, v, d)
        put_cell(w, T_FREE, machine, d, cell(w, T_FREE, machine, d) - taken)
        if d > 0:
            gap = cell(w, T_NEED_AGGREGATE, need, d) - taken
            put_cell(w, T_NEED_AGGREGATE, need, d, gap)
            if gap > 0:
                missing = 1
    put(w, M_FULL, machine, is_full(w, machine, at(w, N_CLUSTER, need)))
    if at(w, N_COUNT, need) == 0:
        put(w, N_FIRST, need, e)
    put(w, E_MACHINE, e, machine)
    put(w, E_UNITS, e, 1)
    put(w, E_VECTOR, e, v)
    put(w, N_COUNT, need, at(w, N_COUNT, need) + 1)
    w.h[ENTRIES] = e + 1
    w.h[VECTORS] = v + 1
    put(w, N_MISSING, need, missing)
    return True


@walk
def untake(w: Work, need: int) -> None:
    """The need takes nothing any more."""
    unit = at(w, N_UNIT, need)
    first = at(w, N_FIRST, need)
    for e in range(first, first + at(w, N_COUNT, need)):
        machine = at(w, E_MACHINE, e)
        put(w, M_FULL, machine, 0)
        v = at(w, E_VECTOR, e)
        if v >= 0:
            for d in range(w.h[WIDTH]):
                put_cell(w, T_FREE, machine, d, cell(w, T_FREE, machine, d) + cell(w, T_VECTOR, v, d))
                if d > 0:
                    put_cell(w, T_NEED_AGGREGATE, need, d, cell(w, T_NEED_AGGREGATE, need, d) + cell(w, T_VECTOR, v, d))
            put(w, N_MISSING, need, 1)
        else:
            units = at(w, E_UNITS, e)
            for d in range(w.h[WIDTH]):
                put_cell(w, T_FREE, machine, d, cell(w, T_FREE, machine, d) + units * cell(w, T_UNIT, unit, d))
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
def after(w: Work, cluster: int, before: int) -> int:
    """The machine that follows on a cluster's list of those with room, leaving off those without; NONE at its end.

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
def listed(w: Work, need: int) -> tuple[int, int, int, bool]:
    """Where in the arena the machines that may have room stand: (from, to, last looked at, whether its kind's own).

    Room only shrinks until a list is linked anew, so what is too full for one need is so for the next of its kind. What
    was bound later follows the last one looked at. After phase 1 nothing is listed: lists are linked anew all the time.
    """
    if not w.h[LISTING]:
        return 0, 0, NONE, False
    walk_of, epoch = at(w, N_WALK, need), at(w, C_EPOCH, at(w, N_CLUSTER, need))
    if walk_of != NONE and at(w, W_EPOCH, walk_of) == epoch:
        if at(w, W_TIMES, walk_of) == 1:
            put(w, W_TIMES, walk_of, 2)
            _list_with_room(w, need, at(w, N_DESK, need), walk_of)
        return at(w, W_FROM, walk_of), at(w, W_TO, walk_of), at(w, W_LAST, walk_of), True
    if walk_of != NONE:
        put(w, W_EPOCH, walk_of, epoch)
        put(w, W_TIMES, walk_of, 1)
    desk = at(w, N_DESK, need)
    if at(w, R_EPOCH, desk) != epoch:
        put(w, R_EPOCH, desk, epoch)
        _list_admitted(w, need, desk)
    return at(w, R_FROM, desk), at(w, R_TO, desk), at(w, R_LAST, desk), False


@walk
def _list(w: Work, to: int, machine: int) -> int:
    if to >= w.h[LEN_ARENA]:
        w.h[OVERFLOW] = LEN_ARENA
        return to
    put(w, T_ARENA, to, machine)
    return to + 1


@walk
def _list_admitted(w: Work, need: int, desk: int) -> None:
    """List the machines of the need's cluster that its requirements admit."""
    cluster, to, last = at(w, N_CLUSTER, need), w.h[ARENA], NONE
    put(w, R_FROM, desk, to)
    machine = after(w, cluster, last)
    while machine != NONE:
        if at(w, M_BOUND, machine) == cluster and admits(w, need, at(w, M_SHAPE, machine)):
            to = _list(w, to, machine)
        last = machine
        machine = after(w, cluster, last)
    w.h[ARENA] = to
    put(w, R_TO, desk, to)
    put(w, R_LAST, desk, last)


@walk
def _list_with_room(w: Work, need: int, desk: int, walk_of: int) -> None:
    """List those of them that have room for a unit."""
    cluster, to, last = at(w, N_CLUSTER, need), w.h[ARENA], at(w, R_LAST, desk)
    put(w, W_FROM, walk_of, to)
    for i in range(at(w, R_FROM, desk), at(w, R_TO, desk)):
        if fitting_units(w, need, at(w, T_ARENA, i)) > 0:
            to = _list(w, to, at(w, T_ARENA, i))
    machine = after(w, cluster, last)
    while machine != NONE:
        if admits(w, need, at(w, M_SHAPE, machine)) and fitting_units(w, need, machine) > 0:
            to = _list(w, to, machine)
        last = machine
        machine = after(w, cluster, last)
    w.h[ARENA] = to
    put(w, W_TO, walk_of, to)
    put(w, W_LAST, walk_of, last)


@walk
def strike(w: Work, need: int, i: int) -> None:
    """Leave a machine that has no room any more off its kind's own list."""
    walk_of = at(w, N_WALK, need)
    put(w, T_ARENA, i, NONE)
    if i == at(w, W_FROM, walk_of):
        put(w, W_FROM, walk_of, i + 1)


@walk
def credit_plain(w: Work, need: int) -> None:
    """A plain need takes its cluster's machines in binding order."""
    cluster = at(w, N_CLUSTER, need)
    start, to, before, own = listed(w, need)
    for i in range(start, to):
        machine = at(w, T_ARENA, i)
        if machine != NONE:
            gave = _take_from(w, need, machine)
            if at(w, N_MISSING, need) <= 0:
                return
            if own and not gave:
                strike(w, need, i)
    machine = after(w, cluster, before)
    while machine >= 0 and at(w, N_MISSING, need) > 0:
        if at(w, M_BOUND, machine) == cluster and admits(w, need, at(w, M_SHAPE, machine)):
            _take_from(w, need, machine)
        machine = after(w, cluster, machine)


@walk
def _take_from(w: Work, need: int, machine: int) -> bool:
    """What a plain need takes from one machine; whether that is anything."""
    if at(w, N_DIVISIBLE, need):
        return take_divisible(w, need, machine)
    units = min(fitting_units(w, need, machine), at(w, N_MISSING, need))
    if units > 0:
        take(w, need, machine, units)
    return units > 0


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
            take(w, need, machine, min(at(w, S_ROOM, i), at(w, N_MISSING, need)))


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
