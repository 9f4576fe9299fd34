"""Spread: capacity counts only as far as the domains stay within the skew of each other. Compiled; section 6.

A row is first seated without touching anything: its cluster's machines in order, then candidates one by one, all units
placed anew after each. Only then are machines bound and units taken.
"""

from typing import cast

import numpy as np

from bigfleet.engine.acquire import (
    buy,
    cohort_at,
    cohort_range,
    draw,
    head_of,
    is_better,
    is_open,
    open_spares,
    price_for_gap,
    put_back,
)
from bigfleet.engine.compiled import entry, walk
from bigfleet.engine.credit import (
    NONE,
    admits,
    fitting_units,
    fresh_units,
    is_eligible,
    look,
    take,
)
from bigfleet.engine.heap import (
    at,
    domain_at,
    fill,
    level_at,
    put,
    put_level,
    room_in_arena,
)
from bigfleet.engine.victims import counts_for, goes_before, may_preempt, take_victim
from bigfleet.engine.work import (
    C_ALL_HEAD,
    D_POOL,
    H_COUNT,
    K_HEAD,
    K_SHAPE,
    K_TRIED,
    KIND_LEVELS,
    LEN_SEATS,
    LEN_SHAPES,
    M_ALL_NEXT,
    M_BOUND,
    M_GONE,
    M_NUMBER,
    M_OWN,
    M_OWN_NEXT,
    M_SHAPE,
    N_ACTS,
    N_ASKED,
    N_CLUSTER,
    N_KIND,
    N_MISSING,
    N_OWN,
    N_OWN_HEAD,
    N_PRIORITY,
    N_SPREAD,
    N_TOPOLOGY,
    OVERFLOW,
    P_HARD,
    P_SKEW,
    P_TOPOLOGY,
    PRESENCE,
    S_BEHIND,
    S_EXTRA_COHORT,
    S_HEAD,
    S_MACHINE,
    S_QUEUE,
    S_REFUSED,
    S_ROOM,
    S_TURN,
    S_UNITS,
    SEATS,
    T_ARENA,
    T_DOMAIN_COUNT,
    T_LEVEL_LEAST,
    T_SPREAD_START,
    T_STANDING,
    T_VICTIM,
    VICTIMS,
    Array,
    Work,
)

NEVER = cast("int", np.int64(1 << 62))
VICTIM = cast("int", np.int64(-2))


@walk
def has_hard_spread(w: Work, need: int) -> bool:
    """Whether a spread of the row is a rule and not a wish."""
    spread = at(w, N_SPREAD, need)
    for s in range(at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)):
        if at(w, P_HARD, s):
            return True
    return False


@walk
def _seat(w: Work, place: int, machine: int, room: int, cohort: int) -> int:
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
def _seat_own(w: Work, need: int, domain: int) -> int:
    """Seat a gang's own machines in its domain."""
    cluster, topology, place = at(w, N_CLUSTER, need), at(w, N_TOPOLOGY, need), 0
    if topology < 0:
        return 0
    machine = at(w, N_OWN_HEAD, need)
    while machine >= 0:
        shape = at(w, M_SHAPE, machine)
        if at(w, M_BOUND, machine) == cluster and domain_at(w, topology, shape) == domain and admits(w, need, shape):
            place = _seat(w, place, machine, fitting_units(w, need, machine), NONE)
        machine = at(w, M_OWN_NEXT, machine)
    return place


@walk
def _seat_others(w: Work, need: int, domain: int, place: int) -> int:
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
                place = _seat(w, place, machine, room, NONE)
        machine = at(w, M_ALL_NEXT, machine)
    return place


@walk
def _level_all(w: Work, need: int, domain: int) -> None:
    """Start every domain with an eligible machine in any state but Failed at nothing, all others at NONE."""
    spread, topology, kind = at(w, N_SPREAD, need), at(w, N_TOPOLOGY, need), at(w, N_KIND, need)
    start, end = at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)
    look(w, need, PRESENCE)
    known = topology < 0 and at(w, KIND_LEVELS, kind) != NONE
    place = at(w, KIND_LEVELS, kind)
    for s in range(start, end):
        for d in range(at(w, T_DOMAIN_COUNT, at(w, P_TOPOLOGY, s))):
            put_level(w, s - start, d, NONE)
            if known:
                put_level(w, s - start, d, at(w, T_ARENA, place))
                place += 1
    if known:
        return
    for shape in range(w.h[LEN_SHAPES]):
        if at(w, H_COUNT, shape) == 0 or not is_eligible(w, need, shape):
            continue
        if topology >= 0 and domain_at(w, topology, shape) != domain:
            continue
        for s in range(start, end):
            if at(w, P_HARD, s):
                put_level(w, s - start, domain_at(w, at(w, P_TOPOLOGY, s), shape), 0)
    if topology < 0:
        size = 0
        for s in range(start, end):
            size += at(w, T_DOMAIN_COUNT, at(w, P_TOPOLOGY, s))
        place = room_in_arena(w, size)
        put(w, KIND_LEVELS, kind, place)
        for s in range(start, end):
            for d in range(at(w, T_DOMAIN_COUNT, at(w, P_TOPOLOGY, s))):
                put(w, T_ARENA, place, level_at(w, s - start, d))
                place += 1


@walk
def _least(w: Work, topology: int, j: int) -> int:
    """The level of the emptiest domain of one constraint."""
    least = NEVER
    for d in range(at(w, T_DOMAIN_COUNT, topology)):
        if level_at(w, j, d) >= 0:
            least = min(least, level_at(w, j, d))
    return least


@walk
def _allows(w: Work, need: int, shape: int) -> bool:
    """Whether the domains of a machine of this shape may take one unit more."""
    spread = at(w, N_SPREAD, need)
    start, end = at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)
    for s in range(start, end):
        if at(w, P_HARD, s):
            d = domain_at(w, at(w, P_TOPOLOGY, s), shape)
            if level_at(w, s - start, d) + 1 - at(w, T_LEVEL_LEAST, s - start) > at(w, P_SKEW, s):
                return False
    return True


@walk
def _raise_level(w: Work, need: int, shape: int) -> None:
    spread = at(w, N_SPREAD, need)
    start, end = at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)
    for s in range(start, end):
        if at(w, P_HARD, s):
            topology = at(w, P_TOPOLOGY, s)
            d = domain_at(w, topology, shape)
            put_level(w, s - start, d, level_at(w, s - start, d) + 1)
            if level_at(w, s - start, d) == at(w, T_LEVEL_LEAST, s - start) + 1:
                put(w, T_LEVEL_LEAST, s - start, _least(w, topology, s - start))


@walk
def _place(w: Work, need: int, own: int, bound: int, seats: int) -> int:
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
                if _allows(w, need, at(w, M_SHAPE, at(w, S_MACHINE, i))):
                    first = i
        if first == NONE:
            break
        put(w, S_ROOM, first, at(w, S_ROOM, first) - 1)
        put(w, S_UNITS, first, at(w, S_UNITS, first) + 1)
        _raise_level(w, need, at(w, M_SHAPE, at(w, S_MACHINE, first)))
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


@walk
def _is_emptier(w: Work, need: int, one: int, other: int) -> int:
    """-1 if the domains of shape `one` are less full, 1 if fuller, 0 if alike, constraint by constraint."""
    spread = at(w, N_SPREAD, need)
    start, end = at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)
    for s in range(start, end):
        if at(w, P_HARD, s):
            a = level_at(w, s - start, domain_at(w, at(w, P_TOPOLOGY, s), one))
            b = level_at(w, s - start, domain_at(w, at(w, P_TOPOLOGY, s), other))
            if a != b:
                return -1 if a < b else 1
    return 0


@walk
def _next_cohort(w: Work, need: int, domain: int, again: bool) -> int:
    """The best cohort not tried yet: smallest domain first, then as any need would choose."""
    best, best_price = NONE, 0.0
    start, end = cohort_range(w, need, domain)
    for i in range(start, end + open_spares(w, again)):
        cohort = cohort_at(w, need, domain, i, end)
        if cohort == NONE or at(w, K_TRIED, cohort) or not is_open(w, need, cohort, again):
            continue
        shape = at(w, K_SHAPE, cohort)
        if fresh_units(w, need, shape) <= 0 or not _allows(w, need, shape):
            continue
        price = price_for_gap(w, need, cohort)
        if best == NONE:
            best, best_price = cohort, price
            continue
        emptier = _is_emptier(w, need, shape, at(w, K_SHAPE, best))
        if emptier < 0 or (emptier == 0 and is_better(w, need, cohort, best, price, best_price)):
            best, best_price = cohort, price
    return best


@walk
def _next_victim(w: Work, need: int, domain: int) -> int:
    """The best victim not tried yet: smallest domain first, then first to go."""
    topology, best = at(w, N_TOPOLOGY, need), NONE
    for i in range(w.h[VICTIMS]):
        if at(w, T_STANDING, i) >= at(w, N_PRIORITY, need):
            break
        machine = at(w, T_VICTIM, i)
        shape = at(w, M_SHAPE, machine)
        if (topology >= 0 and domain_at(w, topology, shape) != domain) or not admits(w, need, shape):
            continue
        if not may_preempt(w, need, machine) or not counts_for(w, need, machine) or not _allows(w, need, shape):
            continue
        if best == NONE:
            best = machine
            continue
        emptier = _is_emptier(w, need, shape, at(w, M_SHAPE, best))
        if emptier < 0 or (emptier == 0 and goes_before(w, need, machine, best)):
            best = machine
    return best


@walk
def _seat_candidates(w: Work, need: int, domain: int, own: int, bound: int, placed: int, victims: bool) -> int:
    """Seat candidates as long as each makes one unit more count; the number of seats in the end.

    Cohorts are drawn from and victims marked as gone; the caller commits or puts back.
    """
    seats = bound
    while placed < at(w, N_ASKED, need):
        put(w, N_MISSING, need, at(w, N_ASKED, need) - placed)
        w.h[SEATS] = seats
        found, tried = False, 0
        cohort = _next_cohort(w, need, domain, victims)
        while cohort != NONE and not found:
            machine = head_of(w, cohort)
            more = _seat(w, seats, machine, fresh_units(w, need, at(w, K_SHAPE, cohort)), cohort)
            now = _place(w, need, own, bound, more)
            if now > placed and w.h[OVERFLOW] == 0:
                draw(w, cohort)
                seats, placed, found = more, now, True
            else:
                put(w, K_TRIED, cohort, 1)
                tried = _refuse(w, tried, cohort)
                _place(w, need, own, bound, seats)
                cohort = _next_cohort(w, need, domain, victims)
        for i in range(tried):
            put(w, K_TRIED, at(w, S_REFUSED, i), 0)
        if not found and victims:
            tried = seats
            machine = _next_victim(w, need, domain)
            while machine != NONE and not found:
                more = _seat(w, seats, machine, fresh_units(w, need, at(w, M_SHAPE, machine)), VICTIM)
                now = _place(w, need, own, bound, more)
                put(w, M_GONE, machine, 1)
                if now > placed and w.h[OVERFLOW] == 0:
                    seats, placed, found = more, now, True
                else:
                    _place(w, need, own, bound, seats)
                    tried = _refuse(w, tried, machine)
                    machine = _next_victim(w, need, domain)
            for i in range(seats if not found else seats - 1, tried):
                put(w, M_GONE, at(w, S_REFUSED, i), 0)
        if not found:
            break
    w.h[SEATS] = 0
    return seats


@walk
def _refuse(w: Work, tried: int, candidate: int) -> int:
    """Note a candidate that was tried in vain."""
    if tried >= w.h[LEN_SEATS]:
        w.h[OVERFLOW] = LEN_SEATS
        return tried
    put(w, S_REFUSED, tried, candidate)
    return tried + 1


@walk
def _put_back(w: Work, bound: int, seats: int) -> None:
    for i in range(seats - 1, bound - 1, -1):
        if at(w, S_EXTRA_COHORT, i) == VICTIM:
            put(w, M_GONE, at(w, S_MACHINE, i), 0)
        else:
            put_back(w, at(w, S_EXTRA_COHORT, i), at(w, S_MACHINE, i), at(w, S_HEAD, i))


@walk
def fill_spread(w: Work, need: int, domain: int, buys: bool, victims: bool, own_only: bool) -> None:
    """Credit and, with `buys`, acquire for a spread row that takes nothing now."""
    _level_all(w, need, domain)
    own = _seat_own(w, need, domain)
    bound = own if own_only else _seat_others(w, need, domain, own)
    placed = _place(w, need, own, bound, bound)
    seats = bound
    if buys and placed < at(w, N_ASKED, need):
        seats = _seat_candidates(w, need, domain, own, bound, placed, victims)
    put(w, N_MISSING, need, at(w, N_ASKED, need))
    _put_back(w, bound, seats)
    for i in range(bound, seats):
        if at(w, S_EXTRA_COHORT, i) == VICTIM:
            take_victim(w, need, at(w, S_MACHINE, i))
        else:
            buy(w, need, at(w, S_EXTRA_COHORT, i))
    for i in range(seats):
        if at(w, S_UNITS, i) > 0:
            take(w, need, at(w, S_MACHINE, i), at(w, S_UNITS, i))


@walk
def spread_prospect(w: Work, need: int, domain: int, victims: bool) -> tuple[bool, int, int, int]:
    """What a spread gang would get in a domain: (covers, bound units, newest binding, own units)."""
    _level_all(w, need, domain)
    own = _seat_own(w, need, domain)
    bound = _seat_others(w, need, domain, own)
    placed = _place(w, need, own, bound, bound)
    covered, own_units, newest = placed, 0, 0
    for i in range(bound):
        if at(w, S_UNITS, i) > 0:
            if i < own:
                own_units += at(w, S_UNITS, i)
            else:
                newest = max(newest, at(w, M_NUMBER, at(w, S_MACHINE, i)))
    if placed < at(w, N_ASKED, need) and at(w, N_ACTS, need):
        seats = _seat_candidates(w, need, domain, own, bound, placed, victims)
        placed = _place(w, need, own, bound, seats)
        if seats > bound:
            newest = NEVER
        _put_back(w, bound, seats)
    put(w, N_MISSING, need, at(w, N_ASKED, need))
    return placed >= at(w, N_ASKED, need), covered, newest, own_units


@walk
def fill_spread_in(w: Work, need: int, domain: int, order: Array) -> None:
    """Credit a spread row that takes nothing now with these machines, in this order."""
    cluster, topology, bound = at(w, N_CLUSTER, need), at(w, N_TOPOLOGY, need), 0
    _level_all(w, need, domain)
    for i in range(order.shape[0]):
        machine = order[i]
        shape = at(w, M_SHAPE, machine)
        if at(w, M_BOUND, machine) == cluster and admits(w, need, shape):
            if topology < 0 or domain_at(w, topology, shape) == domain:
                bound = _seat(w, bound, machine, fitting_units(w, need, machine), NONE)
    _place(w, need, 0, bound, bound)
    for i in range(bound):
        if at(w, S_UNITS, i) > 0:
            take(w, need, at(w, S_MACHINE, i), at(w, S_UNITS, i))


@walk
def own_spread_units(w: Work, need: int, domain: int) -> int:
    """Units of a spread gang that its own machines in a domain hold within the skew."""
    _level_all(w, need, domain)
    own = _seat_own(w, need, domain)
    return _place(w, need, own, own, own)


@entry
def could_hold_in_one(w: Work, need: int) -> bool:
    """Whether some domain of the whole fleet, empty and all this gang's, would hold it."""
    topology, most = at(w, N_TOPOLOGY, need), 0
    for shape in range(w.h[LEN_SHAPES]):
        domain = domain_at(w, topology, shape)
        if domain != NONE and at(w, H_COUNT, shape) and admits(w, need, shape):
            units = at(w, D_POOL, domain) + at(w, H_COUNT, shape) * fresh_units(w, need, shape)
            put(w, D_POOL, domain, units)
            most = max(most, units)
    fill(w, D_POOL, at(w, T_DOMAIN_COUNT, topology), 0)
    return most >= at(w, N_ASKED, need)


@entry
def could_hold(w: Work, need: int, machines: Array) -> bool:
    """Whether the whole fleet (its machines by id), empty and all this spread row's, would hold it within the skew."""
    topology = at(w, N_TOPOLOGY, need)
    if topology < 0:
        return _domain_could_hold(w, need, NONE, machines)
    for domain in range(at(w, T_DOMAIN_COUNT, topology)):
        if _domain_could_hold(w, need, domain, machines):
            return True
    return False


@walk
def _domain_could_hold(w: Work, need: int, domain: int, machines: Array) -> bool:
    """The same inside one domain: unit by unit, to the first machine of the emptiest part that has room."""
    topology, asked, seats, total = at(w, N_TOPOLOGY, need), at(w, N_ASKED, need), 0, 0
    for i in range(machines.shape[0]):
        shape = at(w, M_SHAPE, machines[i])
        if is_eligible(w, need, shape) and (topology < 0 or domain_at(w, topology, shape) == domain):
            units = fresh_units(w, need, shape)
            seats = _seat(w, seats, machines[i], units, NONE)
            total += units
    if total < asked:
        return False
    _level_all(w, need, domain)
    spread = at(w, N_SPREAD, need)
    for s in range(at(w, T_SPREAD_START, spread + 1) - at(w, T_SPREAD_START, spread)):
        put(w, T_LEVEL_LEAST, s, 0)
    for _ in range(asked):
        best = NONE
        for i in range(seats):
            shape = at(w, M_SHAPE, at(w, S_MACHINE, i))
            if at(w, S_ROOM, i) > 0 and _allows(w, need, shape):
                if best == NONE or _is_emptier(w, need, shape, at(w, M_SHAPE, at(w, S_MACHINE, best))) < 0:
                    best = i
        if best == NONE:
            return False
        put(w, S_ROOM, best, at(w, S_ROOM, best) - 1)
        _raise_level(w, need, at(w, M_SHAPE, at(w, S_MACHINE, best)))
    return True
