"""Seats: the machines that a spread row looks at, and its units placed on them. Compiled; engine section 6.

Seats take units in turn. A seat whose domain may take no more waits for that domain; when the emptiest domains come to
hold more, the first that waits for each domain is queued again.
"""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, at, domain_at, put
from bigfleet.engine.heap.values import NONE, ONE
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.capacity import admits, fitting_units
from bigfleet.engine.walks.spread.levels import blocking_domain, empty_levels, may_take, raise_levels


@walk
def seat(w: Work, place: int, machine: int, room: int, cohort: int) -> int:
    """Seat a machine with room for so many units; the next place. `cohort` is where it would be bought, or NONE."""
    if place >= w.h[c.LEN_SEATS]:
        w.h[c.OVERFLOW] = c.LEN_SEATS
        return place
    put(w, c.S_MACHINE, place, machine)
    put(w, c.S_ROOM, place, room)
    put(w, c.S_UNITS, place, 0)
    put(w, c.S_COHORT, place, cohort)
    put(w, c.S_COHORT_HEAD, place, at(w, c.COHORT_HEAD, cohort) if cohort >= 0 else NONE)
    return place + 1


@walk
def seat_own(w: Work, need: int, domain: int) -> int:
    """Seat a gang's own machines in its domain."""
    cluster, topology, place = at(w, c.N_CLUSTER, need), at(w, c.N_TOPOLOGY, need), 0
    if topology < 0:
        return 0
    machine = at(w, c.N_OWN_HEAD, need)
    while machine >= 0:
        shape = at(w, c.M_SHAPE, machine)
        if at(w, c.M_BOUND, machine) == cluster and domain_at(w, topology, shape) == domain and admits(w, need, shape):
            place = seat(w, place, machine, fitting_units(w, need, machine), NONE)
        machine = at(w, c.M_OWN_NEXT, machine)
    return place


@walk
def seat_others(w: Work, need: int, domain: int, place: int) -> int:
    """Seat the cluster's other machines, in binding order."""
    cluster, topology = at(w, c.N_CLUSTER, need), at(w, c.N_TOPOLOGY, need)
    machine = at(w, c.C_ALL_HEAD, cluster)
    while machine >= 0:
        shape = at(w, c.M_SHAPE, machine)
        if (
            at(w, c.M_BOUND, machine) == cluster
            and admits(w, need, shape)
            and (
                topology < 0
                or (domain_at(w, topology, shape) == domain and at(w, c.M_STAMPED_FOR, machine) != at(w, c.N_KEY, need))
            )
        ):
            room = fitting_units(w, need, machine)
            if room > 0:
                place = seat(w, place, machine, room, NONE)
        machine = at(w, c.M_ALL_NEXT, machine)
    return place


@walk
def place_units(w: Work, need: int, own: int, bound: int, seats: int) -> int:
    """Place the row's units from the beginning: each on the first seat in turn whose domains may take one more.

    A gang's turns are its own machines, then what it buys, then its cluster's others. The turns of a row that is no
    gang are its cluster's machines, then what it buys.
    """
    empty_levels(w)
    for i in range(seats):
        add(w, c.S_ROOM, i, at(w, c.S_UNITS, i))
        put(w, c.S_UNITS, i, 0)
    gang = at(w, c.N_TOPOLOGY, need) >= 0
    for n in range(seats):
        i = n
        if gang and n >= own:
            i = bound + n - own if n < own + seats - bound else n - (seats - bound)
        put(w, c.S_BY_TURN, n, i)
        put(w, c.S_TURN, i, n)
    return place_more(w, need, 0, seats, 0)


@walk
def place_more(w: Work, need: int, turn: int, seats: int, placed: int) -> int:
    """Place more units, given that no seat before this turn may take one; how many are placed then.

    A seat in its turn is given nothing before all earlier ones are stuck. So a row that has just bought the seat with
    the last turn can go on from there, and ends as if all units were placed from the beginning.
    """
    asked, size = at(w, c.N_ASKED, need), 0
    while placed < asked:
        if size > 0 and (turn >= seats or at(w, c.S_TURN, at(w, c.S_QUEUE, 0)) < turn):
            i = at(w, c.S_QUEUE, 0)
            size = _unqueue(w, size)
        elif turn < seats:
            i = at(w, c.S_BY_TURN, turn)
            put(w, c.S_WAITED_FOR, i, NONE)
            turn += 1
        else:
            break
        shape, came, blocked, rose = at(w, c.M_SHAPE, at(w, c.S_MACHINE, i)), at(w, c.S_WAITED_FOR, i), NONE, False
        while placed < asked and at(w, c.S_ROOM, i) > 0 and not rose:
            blocked = blocking_domain(w, need, shape)
            if blocked != NONE:
                break
            add(w, c.S_ROOM, i, -1)
            add(w, c.S_UNITS, i, 1)
            placed += 1
            rose = raise_levels(w, need, shape, ONE)
        if blocked != NONE:
            _wait(w, blocked, i)
        elif at(w, c.S_ROOM, i) > 0:
            # The emptiest domains hold more now, so a seat with an earlier turn may take the next unit.
            size = _queue(w, size, i)
            came = NONE
        if came != NONE and came != blocked:
            size = _let_next_in(w, need, came, size)
        if rose:
            size = _let_in(w, need, size)
    return placed


@walk
def _wait(w: Work, place: int, i: int) -> None:
    """Let a seat wait for a domain, sorted by turn; most come first or last of those that wait."""
    before, after = NONE, at(w, c.T_WAITING, place) - 1
    last = at(w, c.T_WAITING_LAST, place)
    if after != NONE and at(w, c.S_TURN, last) < at(w, c.S_TURN, i):
        before, after = last, NONE
    while after != NONE and at(w, c.S_TURN, after) < at(w, c.S_TURN, i):
        before, after = after, at(w, c.S_WAITING_NEXT, after)
    put(w, c.S_WAITING_NEXT, i, after)
    if before == NONE:
        put(w, c.T_WAITING, place, i + 1)
    else:
        put(w, c.S_WAITING_NEXT, before, i)
    if after == NONE:
        put(w, c.T_WAITING_LAST, place, i)


@walk
def _let_next_in(w: Work, need: int, place: int, size: int) -> int:
    """Queue the first seat that waits for a domain, if the domain may take a unit; how many are queued then."""
    i = at(w, c.T_WAITING, place) - 1
    if i == NONE:
        return size
    j, domain = place // w.h[c.MOST_DOMAINS], place % w.h[c.MOST_DOMAINS]
    if not may_take(w, j, at(w, c.SPREAD_SKEW, at(w, c.T_SPREAD_START, at(w, c.N_SPREAD, need)) + j), domain):
        return size
    put(w, c.T_WAITING, place, at(w, c.S_WAITING_NEXT, i) + 1)
    put(w, c.S_WAITED_FOR, i, place)
    return _queue(w, size, i)


@walk
def _let_in(w: Work, need: int, size: int) -> int:
    """Queue the first seat that waits for each domain that may take a unit; how many are queued then."""
    for j in range(w.h[c.MOST_SPREADS]):
        first = j * w.h[c.MOST_DOMAINS]
        for i in range(at(w, c.T_LEVEL_USED_COUNT, j)):
            place = first + at(w, c.T_LEVEL_USED, first + i)
            if at(w, c.T_WAITING, place) > 0:
                size = _let_next_in(w, need, place, size)
    return size


@walk
def _queue(w: Work, size: int, i: int) -> int:
    """Put a seat into the queue, sorted by turn; how many are queued then."""
    place = size
    while place > 0 and at(w, c.S_TURN, at(w, c.S_QUEUE, (place - 1) // 2)) > at(w, c.S_TURN, i):
        put(w, c.S_QUEUE, place, at(w, c.S_QUEUE, (place - 1) // 2))
        place = (place - 1) // 2
    put(w, c.S_QUEUE, place, i)
    return size + 1


@walk
def _unqueue(w: Work, size: int) -> int:
    """Take the first seat off the queue; how many are queued then."""
    size -= 1
    i, place = at(w, c.S_QUEUE, size), 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and at(w, c.S_TURN, at(w, c.S_QUEUE, below + 1)) < at(w, c.S_TURN, at(w, c.S_QUEUE, below)):
            below += 1
        if at(w, c.S_TURN, at(w, c.S_QUEUE, below)) >= at(w, c.S_TURN, i):
            break
        put(w, c.S_QUEUE, place, at(w, c.S_QUEUE, below))
        place = below
    put(w, c.S_QUEUE, place, i)
    return size
