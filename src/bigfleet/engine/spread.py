"""Spread: capacity counts only as far as the domains stay within the skew of each other. Compiled; section 6.

A row is first seated without touching anything: its cluster's machines in order, then candidates one by one, all units
placed anew after each. Only then are machines bound and units taken.
"""

from typing import cast

import numpy as np

from bigfleet.engine.acquire import buy
from bigfleet.engine.compiled import entry, walk
from bigfleet.engine.credit import take
from bigfleet.engine.heap import at, domain_at, fill, put
from bigfleet.engine.levels import allows, is_emptier, level_all, raise_level
from bigfleet.engine.market import (
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
from bigfleet.engine.seats import place_units, seat, seat_others, seat_own
from bigfleet.engine.victims import counts_for, goes_before, may_preempt, take_victim
from bigfleet.engine.work import (
    D_POOL,
    H_COUNT,
    K_SHAPE,
    K_TRIED,
    LEN_SEATS,
    LEN_SHAPES,
    M_BOUND,
    M_GONE,
    M_NUMBER,
    M_SHAPE,
    N_ACTS,
    N_ASKED,
    N_CLUSTER,
    N_MISSING,
    N_PRIORITY,
    N_SPREAD,
    N_TOPOLOGY,
    NEVER,
    NONE,
    OVERFLOW,
    S_EXTRA_COHORT,
    S_HEAD,
    S_MACHINE,
    S_REFUSED,
    S_ROOM,
    S_UNITS,
    SEATS,
    T_DOMAIN_COUNT,
    T_LEVEL_LEAST,
    T_SPREAD_START,
    T_STANDING,
    T_VICTIM,
    VICTIMS,
    Array,
    Work,
)
from bigfleet.engine.worth import admits, fitting_units, fresh_units, is_eligible

VICTIM = cast("int", np.int64(-2))


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
        if fresh_units(w, need, shape) <= 0 or not allows(w, need, shape):
            continue
        price = price_for_gap(w, need, cohort)
        if best == NONE:
            best, best_price = cohort, price
            continue
        emptier = is_emptier(w, need, shape, at(w, K_SHAPE, best))
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
        if not may_preempt(w, need, machine) or not counts_for(w, need, machine) or not allows(w, need, shape):
            continue
        if best == NONE:
            best = machine
            continue
        emptier = is_emptier(w, need, shape, at(w, M_SHAPE, best))
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
            more = seat(w, seats, machine, fresh_units(w, need, at(w, K_SHAPE, cohort)), cohort)
            now = place_units(w, need, own, bound, more)
            if now > placed and w.h[OVERFLOW] == 0:
                draw(w, cohort)
                seats, placed, found = more, now, True
            else:
                put(w, K_TRIED, cohort, 1)
                tried = _refuse(w, tried, cohort)
                place_units(w, need, own, bound, seats)
                cohort = _next_cohort(w, need, domain, victims)
        for i in range(tried):
            put(w, K_TRIED, at(w, S_REFUSED, i), 0)
        if not found and victims:
            tried = seats
            machine = _next_victim(w, need, domain)
            while machine != NONE and not found:
                more = seat(w, seats, machine, fresh_units(w, need, at(w, M_SHAPE, machine)), VICTIM)
                now = place_units(w, need, own, bound, more)
                put(w, M_GONE, machine, 1)
                if now > placed and w.h[OVERFLOW] == 0:
                    seats, placed, found = more, now, True
                else:
                    place_units(w, need, own, bound, seats)
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
    level_all(w, need, domain)
    own = seat_own(w, need, domain)
    bound = own if own_only else seat_others(w, need, domain, own)
    placed = place_units(w, need, own, bound, bound)
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
        if w.h[OVERFLOW]:
            return
    for i in range(seats):
        if at(w, S_UNITS, i) > 0:
            take(w, need, at(w, S_MACHINE, i), at(w, S_UNITS, i))


@walk
def spread_prospect(w: Work, need: int, domain: int, victims: bool) -> tuple[bool, int, int, int]:
    """What a spread gang would get in a domain: (covers, bound units, newest binding, own units)."""
    level_all(w, need, domain)
    own = seat_own(w, need, domain)
    bound = seat_others(w, need, domain, own)
    placed = place_units(w, need, own, bound, bound)
    covered, own_units, newest = placed, 0, 0
    for i in range(bound):
        if at(w, S_UNITS, i) > 0:
            if i < own:
                own_units += at(w, S_UNITS, i)
            else:
                newest = max(newest, at(w, M_NUMBER, at(w, S_MACHINE, i)))
    if placed < at(w, N_ASKED, need) and at(w, N_ACTS, need):
        seats = _seat_candidates(w, need, domain, own, bound, placed, victims)
        placed = place_units(w, need, own, bound, seats)
        if seats > bound:
            newest = NEVER
        _put_back(w, bound, seats)
    put(w, N_MISSING, need, at(w, N_ASKED, need))
    return placed >= at(w, N_ASKED, need), covered, newest, own_units


@walk
def fill_spread_in(w: Work, need: int, domain: int, order: Array) -> None:
    """Credit a spread row that takes nothing now with these machines, in this order."""
    cluster, topology, bound = at(w, N_CLUSTER, need), at(w, N_TOPOLOGY, need), 0
    level_all(w, need, domain)
    for i in range(order.shape[0]):
        machine = order[i]
        shape = at(w, M_SHAPE, machine)
        if at(w, M_BOUND, machine) == cluster and admits(w, need, shape):
            if topology < 0 or domain_at(w, topology, shape) == domain:
                bound = seat(w, bound, machine, fitting_units(w, need, machine), NONE)
    place_units(w, need, 0, bound, bound)
    for i in range(bound):
        if at(w, S_UNITS, i) > 0:
            take(w, need, at(w, S_MACHINE, i), at(w, S_UNITS, i))


@walk
def own_spread_units(w: Work, need: int, domain: int) -> int:
    """Units of a spread gang that its own machines in a domain hold within the skew."""
    level_all(w, need, domain)
    own = seat_own(w, need, domain)
    return place_units(w, need, own, own, own)


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
            seats = seat(w, seats, machines[i], units, NONE)
            total += units
    if total < asked:
        return False
    level_all(w, need, domain)
    spread = at(w, N_SPREAD, need)
    for s in range(at(w, T_SPREAD_START, spread + 1) - at(w, T_SPREAD_START, spread)):
        put(w, T_LEVEL_LEAST, s, 0)
    for _ in range(asked):
        best = NONE
        for i in range(seats):
            shape = at(w, M_SHAPE, at(w, S_MACHINE, i))
            if at(w, S_ROOM, i) > 0 and allows(w, need, shape):
                if best == NONE or is_emptier(w, need, shape, at(w, M_SHAPE, at(w, S_MACHINE, best))) < 0:
                    best = i
        if best == NONE:
            return False
        put(w, S_ROOM, best, at(w, S_ROOM, best) - 1)
        raise_level(w, need, at(w, M_SHAPE, at(w, S_MACHINE, best)))
    return True
