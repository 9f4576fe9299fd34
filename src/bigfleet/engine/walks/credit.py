"""Credit: what a need takes from the machines that count for its cluster. Compiled; engine sections 3, 5 and 6.

Rows with hard spreads are credited in `spread`; the domain of a gang is chosen in `gang`.
"""

from bigfleet.engine.codes import PODS_DIM
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, add_cell, at, cell, domain_at, put, put_cell
from bigfleet.engine.heap.values import NONE, ZERO
from bigfleet.engine.jit import step, walk
from bigfleet.engine.walks.capacity import admits, fitting_units, units_on
from bigfleet.engine.walks.machine_lists import (
    machines_with_room,
    next_set_bit,
    next_with_room,
    relist_if_long,
    strike_off,
)


@step
def is_full(w: Work, machine: int, cluster: int) -> bool:
    """Whether some dimension has less left than any unit of the cluster asks of it."""
    full = False
    for d in range(w.h[c.WIDTH]):
        full = full or cell(w, c.T_FREE, machine, d) < cell(w, c.T_CLUSTER_LEAST, cluster, d)
    return full


@walk
def take(w: Work, need: int, machine: int, units: int) -> None:
    """Let the need take so many units from a machine that it takes nothing from yet.

    Only the need being served takes anything, so its entries are the last ones and stand side by side.
    """
    unit, cluster, full = at(w, c.N_UNIT, need), at(w, c.N_CLUSTER, need), False
    for d in range(w.h[c.WIDTH]):
        free = cell(w, c.T_FREE, machine, d) - units * cell(w, c.T_UNIT, unit, d)
        put_cell(w, c.T_FREE, machine, d, free)
        full = full or free < cell(w, c.T_CLUSTER_LEAST, cluster, d)
    add(w, c.N_MISSING, need, -units)
    put(w, c.M_FULL, machine, full)
    e = w.h[c.ENTRIES]
    if e >= w.h[c.LEN_ENTRIES]:
        w.h[c.OVERFLOW] = c.LEN_ENTRIES
        return
    if at(w, c.N_ENTRIES, need) == 0:
        put(w, c.N_FIRST_ENTRY, need, e)
    put(w, c.E_MACHINE, e, machine)
    put(w, c.E_UNITS, e, units)
    put(w, c.E_VECTOR, e, NONE)
    add(w, c.N_ENTRIES, need, 1)
    w.h[c.ENTRIES] = e + 1


@walk
def take_divisible(w: Work, need: int, machine: int) -> bool:
    """Let a divisible need take all that it can use of the machine, and one pod slot; False if that is nothing."""
    if cell(w, c.T_FREE, machine, PODS_DIM) < 1 or units_on(w, need, machine) > 0:
        return False
    v, e = w.h[c.VECTORS], w.h[c.ENTRIES]
    if v >= w.h[c.LEN_VECTORS] or e >= w.h[c.LEN_ENTRIES]:
        w.h[c.OVERFLOW] = c.LEN_VECTORS if v >= w.h[c.LEN_VECTORS] else c.LEN_ENTRIES
        return False
    some = False
    put_cell(w, c.T_VECTOR, v, PODS_DIM, 1)
    for d in range(PODS_DIM + 1, w.h[c.WIDTH]):
        taken = min(cell(w, c.T_GAP, need, d), cell(w, c.T_FREE, machine, d))
        put_cell(w, c.T_VECTOR, v, d, taken)
        some = some or taken > 0
    if not some:
        return False
    missing = 0
    for d in range(w.h[c.WIDTH]):
        taken = cell(w, c.T_VECTOR, v, d)
        add_cell(w, c.T_FREE, machine, d, -taken)
        if d != PODS_DIM:
            gap = cell(w, c.T_GAP, need, d) - taken
            put_cell(w, c.T_GAP, need, d, gap)
            if gap > 0:
                missing = 1
    put(w, c.M_FULL, machine, is_full(w, machine, at(w, c.N_CLUSTER, need)))
    if at(w, c.N_ENTRIES, need) == 0:
        put(w, c.N_FIRST_ENTRY, need, e)
    put(w, c.E_MACHINE, e, machine)
    put(w, c.E_UNITS, e, 1)
    put(w, c.E_VECTOR, e, v)
    add(w, c.N_ENTRIES, need, 1)
    w.h[c.ENTRIES] = e + 1
    w.h[c.VECTORS] = v + 1
    put(w, c.N_MISSING, need, missing)
    return True


@walk
def untake(w: Work, need: int) -> None:
    """Let the need take nothing: what it took is free again, and missing."""
    unit = at(w, c.N_UNIT, need)
    first = at(w, c.N_FIRST_ENTRY, need)
    for e in range(first, first + at(w, c.N_ENTRIES, need)):
        machine = at(w, c.E_MACHINE, e)
        put(w, c.M_FULL, machine, 0)
        v = at(w, c.E_VECTOR, e)
        if v >= 0:
            for d in range(w.h[c.WIDTH]):
                add_cell(w, c.T_FREE, machine, d, cell(w, c.T_VECTOR, v, d))
                if d != PODS_DIM:
                    add_cell(w, c.T_GAP, need, d, cell(w, c.T_VECTOR, v, d))
            put(w, c.N_MISSING, need, 1)
        else:
            units = at(w, c.E_UNITS, e)
            for d in range(w.h[c.WIDTH]):
                add_cell(w, c.T_FREE, machine, d, units * cell(w, c.T_UNIT, unit, d))
            add(w, c.N_MISSING, need, units)
    put(w, c.N_ENTRIES, need, 0)


@walk
def credit_plain(w: Work, need: int) -> None:
    """Let a need that is neither gang nor spread take from its cluster's machines, in binding order."""
    cluster = at(w, c.N_CLUSTER, need)
    start, count, bits, before = machines_with_room(w, need)
    i = next_set_bit(w, bits, ZERO, count)
    while i < count:
        gave = _take_from(w, need, at(w, c.T_ARENA, start + i))
        if at(w, c.N_MISSING, need) <= 0:
            return
        if not gave:
            strike_off(w, need, i)
        i = next_set_bit(w, bits, i + 1, count)
    passed = 0
    machine = next_with_room(w, cluster, before)
    while machine >= 0 and at(w, c.N_MISSING, need) > 0:
        if at(w, c.M_BOUND, machine) == cluster and admits(w, need, at(w, c.M_SHAPE, machine)):
            _take_from(w, need, machine)
        passed += 1
        machine = next_with_room(w, cluster, machine)
    relist_if_long(w, need, passed)


@walk
def _take_from(w: Work, need: int, machine: int) -> bool:
    """Let the need take what it lacks from one machine; whether that is anything."""
    if at(w, c.N_DIVISIBLE, need):
        return take_divisible(w, need, machine)
    units = min(fitting_units(w, need, machine), at(w, c.N_MISSING, need))
    if units > 0:
        take(w, need, machine, units)
    return units > 0


@walk
def credit_gang(w: Work, need: int, domain: int) -> None:
    """Let a gang take its own machines in the domain first, then its cluster's others there, in binding order.

    The others are the seats that the choice of the domain has just filled.
    """
    credit_own(w, need, domain)
    for i in range(w.h[c.SEATS_SEEN]):
        if at(w, c.N_MISSING, need) <= 0:
            return
        if at(w, c.S_DOMAIN, i) == domain:
            take(w, need, at(w, c.S_MACHINE, i), min(at(w, c.S_ROOM, i), at(w, c.N_MISSING, need)))


@walk
def credit_own(w: Work, need: int, domain: int) -> None:
    """Let a gang take from its own machines in the domain."""
    cluster, topology = at(w, c.N_CLUSTER, need), at(w, c.N_TOPOLOGY, need)
    machine = at(w, c.N_OWN_HEAD, need)
    while machine >= 0 and at(w, c.N_MISSING, need) > 0:
        shape = at(w, c.M_SHAPE, machine)
        if at(w, c.M_BOUND, machine) == cluster and domain_at(w, topology, shape) == domain and admits(w, need, shape):
            units = min(fitting_units(w, need, machine), at(w, c.N_MISSING, need))
            if units > 0:
                take(w, need, machine, units)
        machine = at(w, c.M_OWN_NEXT, machine)
