"""Seats: the machines that a spread row looks at, and its units placed on them. Compiled; section 6."""

from bigfleet.engine.compiled import walk
from bigfleet.engine.heap import at, domain_at, level_at, put, put_level
from bigfleet.engine.levels import allows, raise_level
from bigfleet.engine.work import (
    C_ALL_HEAD,
    K_HEAD,
    LEN_SEATS,
    M_ALL_NEXT,
    M_BOUND,
    M_OWN,
    M_OWN_NEXT,
    M_SHAPE,
    N_ASKED,
    N_CLUSTER,
    N_OWN,
    N_OWN_HEAD,
    N_SPREAD,
    N_TOPOLOGY,
    NONE,
    OVERFLOW,
    P_HARD,
    P_TOPOLOGY,
    S_BEHIND,
    S_EXTRA_COHORT,
    S_HEAD,
    S_MACHINE,
    S_QUEUE,
    S_ROOM,
    S_TURN,
    S_UNITS,
    T_DOMAIN_COUNT,
    T_LEVEL_LEAST,
    T_SPREAD_START,
    Work,
)
from bigfleet.engine.worth import admits, fitting_units


@walk
def seat(w: Work, place: int, machine: int, room: int, cohort: int) -> int:
    """Seat a machine with room for so many units, drawn from a cohort if it is to be bought; the next place."""
    if place >= w.h[LEN_SEATS]:
        w.h[OVERFLOW] = LEN_SEATS
        return place
    put(w, S_MACHINE, place, machine)
    put(w, S_ROOM, place, room)
    put(w, S_UNITS, place, 0)
    put(w, S_EXTRA_COHORT, place, cohort)
    put(w, S_HEAD, place, at(w, K_HEAD, cohort) if cohort >= 0 else NONE)
    return place + 1


@walk
def seat_own(w: Work, need: int, domain: int) -> int:
    """Seat a gang's own machines in its domain."""
    cluster, topology, place = at(w, N_CLUSTER, need), at(w, N_TOPOLOGY, need), 0
    if topology < 0:
        return 0
    machine = at(w, N_OWN_HEAD, need)
    while machine >= 0:
        shape = at(w, M_SHAPE, machine)
        if at(w, M_BOUND, machine) == cluster and domain_at(w, topology, shape) == domain and admits(w, need, shape):
            place = seat(w, place, machine, fitting_units(w, need, machine), NONE)
        machine = at(w, M_OWN_NEXT, machine)
    return place


@walk
def seat_others(w: Work, need: int, domain: int, place: int) -> int:
    """Seat the cluster's other machines, in binding order."""
    cluster, topology = at(w, N_CLUSTER, need), at(w, N_TOPOLOGY, need)
    machine = at(w, C_ALL_HEAD, cluster)
    while machine >= 0:
        shape = at(w, M_SHAPE, machine)
        if (
            at(w, M_BOUND, machine) == cluster
            and admits(w, need, shape)
            and (
                topology < 0
                or (domain_at(w, topology, shape) == domain and at(w, M_OWN, machine) != at(w, N_OWN, need))
            )
        ):
            room = fitting_units(w, need, machine)
            if room > 0:
                place = seat(w, place, machine, room, NONE)
        machine = at(w, M_ALL_NEXT, machine)
    return place


@walk
def place_units(w: Work, need: int, own: int, bound: int, seats: int) -> int:
    """Place the row's units anew: each on the first machine in the order whose domains may take one more.

    The order is: a gang's own, what it buys, the others; a plain row's machines, then what it buys.
    """
    spread = at(w, N_SPREAD, need)
    start, end = at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)
    for s in range(start, end):
        if at(w, P_HARD, s):
            for d in range(at(w, T_DOMAIN_COUNT, at(w, P_TOPOLOGY, s))):
                put_level(w, s - start, d, min(level_at(w, s - start, d), 0))
            put(w, T_LEVEL_LEAST, s - start, 0)
    for i in range(seats):
        put(w, S_ROOM, i, at(w, S_ROOM, i) + at(w, S_UNITS, i))
        put(w, S_UNITS, i, 0)
    # Machines whose domains are the same form one queue; the first in the order of all open queues takes the next unit.
    queues = 0
    gang = at(w, N_TOPOLOGY, need) >= 0
    for n in range(seats - 1, -1, -1):
        i = n
        if gang and n >= own:
            i = bound + n - own if n < own + seats - bound else n - (seats - bound)
        put(w, S_TURN, i, n)
        q = 0
        while q < queues and not _is_alike(w, need, at(w, S_QUEUE, q), i):
            q += 1
        put(w, S_BEHIND, i, at(w, S_QUEUE, q) if q < queues else NONE)
        put(w, S_QUEUE, q, i)
        queues = max(queues, q + 1)
    placed, asked = 0, at(w, N_ASKED, need)
    while placed < asked:
        first = NONE
        for q in range(queues):
            i = at(w, S_QUEUE, q)
            while i != NONE and at(w, S_ROOM, i) == 0 and at(w, S_BEHIND, i) != NONE:
                i = at(w, S_BEHIND, i)
            put(w, S_QUEUE, q, i)
            if at(w, S_ROOM, i) > 0 and (first == NONE or at(w, S_TURN, i) < at(w, S_TURN, first)):
                if allows(w, need, at(w, M_SHAPE, at(w, S_MACHINE, i))):
                    first = i
        if first == NONE:
            break
        put(w, S_ROOM, first, at(w, S_ROOM, first) - 1)
        put(w, S_UNITS, first, at(w, S_UNITS, first) + 1)
        raise_level(w, need, at(w, M_SHAPE, at(w, S_MACHINE, first)))
        placed += 1
    return placed


@walk
def _is_alike(w: Work, need: int, one: int, other: int) -> bool:
    """Whether the machines of two seats lie in the same domains of every rule."""
    spread = at(w, N_SPREAD, need)
    one_shape, other_shape = at(w, M_SHAPE, at(w, S_MACHINE, one)), at(w, M_SHAPE, at(w, S_MACHINE, other))
    if one_shape == other_shape:
        return True
    for s in range(at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)):
        topology = at(w, P_TOPOLOGY, s)
        if at(w, P_HARD, s) and domain_at(w, topology, one_shape) != domain_at(w, topology, other_shape):
            return False
    return True
