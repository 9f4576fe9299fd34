"""Spread: capacity counts only as far as the domains stay within the skew of each other. Compiled; section 6.

A row is first seated without touching anything: its cluster's machines in order, then candidates one by one, all units
placed anew after each. Only then are machines bound and units taken.
"""

from typing import cast

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Work, at, domain_at, fill, put
from bigfleet.engine.heap.values import NEVER, NONE
from bigfleet.engine.jit import entry, walk
from bigfleet.engine.walks.acquire import buy
from bigfleet.engine.walks.capacity import admits, fitting_units, fresh_units, is_eligible
from bigfleet.engine.walks.cohorts import draw, head_of, put_back
from bigfleet.engine.walks.credit import take
from bigfleet.engine.walks.spread.levels import blocking, count_domains, empty_levels, is_emptier
from bigfleet.engine.walks.spread.offers import (
    COHORT,
    UNITS,
    add_offer,
    drop_first,
    first_offer,
    let_go,
    make_room,
    make_room_for_cohorts,
    offer_at,
    offer_cohorts,
    settle_first,
    sort_offers,
    stand_on_first,
    take_up_again,
)
from bigfleet.engine.walks.spread.seats import place_more, place_units, seat, seat_others, seat_own
from bigfleet.engine.walks.victims import counts_for, goes_before, may_preempt, take_victim

VICTIM = cast("int", np.int64(-2))


@walk
def _next_victim(w: Work, need: int, domain: int) -> int:
    """The best victim not tried yet: smallest domain first, then first to go."""
    topology, best = at(w, c.N_TOPOLOGY, need), NONE
    for i in range(w.h[c.VICTIMS]):
        if at(w, c.T_STANDING, i) >= at(w, c.N_PRIORITY, need):
            break
        machine = at(w, c.T_VICTIM, i)
        shape = at(w, c.M_SHAPE, machine)
        if (topology >= 0 and domain_at(w, topology, shape) != domain) or not admits(w, need, shape):
            continue
        if not may_preempt(w, need, machine) or not counts_for(w, need, machine) or blocking(w, need, shape) != NONE:
            continue
        if best == NONE:
            best = machine
            continue
        emptier = is_emptier(w, need, shape, at(w, c.M_SHAPE, best))
        if emptier < 0 or (emptier == 0 and goes_before(w, need, machine, best)):
            best = machine
    return best


@walk
def _seat_candidates(w: Work, need: int, domain: int, own: int, bound: int, placed: int, victims: bool) -> int:
    """Seat candidates as long as each makes one unit more count; the number of seats in the end.

    Cohorts are drawn from and victims marked as gone; the caller commits or puts back.
    """
    seats = bound
    make_room_for_cohorts(w, need, domain, victims)
    if w.h[c.OVERFLOW]:
        return seats
    # What a gang buys comes before what else its cluster has, so all is placed anew and may end elsewhere.
    gang, most = at(w, c.N_TOPOLOGY, need) >= 0, NEVER
    while placed < at(w, c.N_ASKED, need):
        missing = at(w, c.N_ASKED, need) - placed
        put(w, c.N_MISSING, need, missing)
        if gang or missing < most:
            most = offer_cohorts(w, need, domain, victims)
        before, rises = placed, w.h[c.RISES]
        offer = first_offer(w, need)
        while offer != NONE and placed == before:
            cohort = offer_at(w, COHORT, offer)
            more = seat(w, seats, head_of(w, cohort), offer_at(w, UNITS, offer), cohort)
            now = _place_last(w, need, own, bound, more, placed)
            if w.h[c.OVERFLOW]:
                return seats
            if now > placed:
                draw(w, cohort)
                settle_first(w, need)
                seats, placed = more, now
            else:
                place_units(w, need, own, bound, seats)
                drop_first(w, need)
                offer = first_offer(w, need)
        if placed == before and victims:
            seats, placed = _seat_victim(w, need, domain, own, bound, seats, placed)
        if placed == before:
            break
        if w.h[c.RISES] != rises:
            take_up_again(w, need)
    let_go(w)
    return seats


@walk
def _place_last(w: Work, need: int, own: int, bound: int, seats: int, placed: int) -> int:
    """Place units with one seat more than before, the last; how many are placed then."""
    if at(w, c.N_TOPOLOGY, need) >= 0 or w.h[c.OVERFLOW]:
        return place_units(w, need, own, bound, seats)
    put(w, c.S_IN_TURN, seats - 1, seats - 1)
    put(w, c.S_TURN, seats - 1, seats - 1)
    return place_more(w, need, seats - 1, seats, placed)


@walk
def _seat_victim(w: Work, need: int, domain: int, own: int, bound: int, seats: int, placed: int) -> tuple[int, int]:
    """Seat the best victim that makes one unit more count: (seats, units placed), as they were if none does."""
    tried = 0
    machine = _next_victim(w, need, domain)
    while machine != NONE:
        more = seat(w, seats, machine, fresh_units(w, need, at(w, c.M_SHAPE, machine)), VICTIM)
        now = _place_last(w, need, own, bound, more, placed)
        put(w, c.M_GONE, machine, 1)
        if now > placed or w.h[c.OVERFLOW]:
            seats, placed = more, now
            break
        place_units(w, need, own, bound, seats)
        tried = _refuse(w, tried, machine)
        machine = _next_victim(w, need, domain)
    for i in range(tried):
        put(w, c.M_GONE, at(w, c.S_REFUSED, i), 0)
    return seats, placed


@walk
def _refuse(w: Work, tried: int, candidate: int) -> int:
    """Note a candidate that was tried in vain."""
    if tried >= w.h[c.LEN_SEATS]:
        w.h[c.OVERFLOW] = c.LEN_SEATS
        return tried
    put(w, c.S_REFUSED, tried, candidate)
    return tried + 1


@walk
def _put_back(w: Work, bound: int, seats: int) -> None:
    for i in range(seats - 1, bound - 1, -1):
        if at(w, c.S_EXTRA_COHORT, i) == VICTIM:
            put(w, c.M_GONE, at(w, c.S_MACHINE, i), 0)
        else:
            put_back(w, at(w, c.S_EXTRA_COHORT, i), at(w, c.S_MACHINE, i), at(w, c.S_HEAD, i))


@walk
def fill_spread(w: Work, need: int, domain: int, buys: bool, victims: bool, own_only: bool) -> None:
    """Credit and, with `buys`, acquire for a spread row that takes nothing now."""
    count_domains(w, need, domain)
    own = seat_own(w, need, domain)
    bound = own if own_only else seat_others(w, need, domain, own)
    placed = place_units(w, need, own, bound, bound)
    seats = bound
    if buys and placed < at(w, c.N_ASKED, need):
        seats = _seat_candidates(w, need, domain, own, bound, placed, victims)
    put(w, c.N_MISSING, need, at(w, c.N_ASKED, need))
    _put_back(w, bound, seats)
    for i in range(bound, seats):
        if at(w, c.S_EXTRA_COHORT, i) == VICTIM:
            take_victim(w, need, at(w, c.S_MACHINE, i))
        else:
            buy(w, need, at(w, c.S_EXTRA_COHORT, i))
        if w.h[c.OVERFLOW]:
            return
    for i in range(seats):
        if at(w, c.S_UNITS, i) > 0:
            take(w, need, at(w, c.S_MACHINE, i), at(w, c.S_UNITS, i))


@walk
def spread_prospect(w: Work, need: int, domain: int, victims: bool) -> tuple[bool, int, int, int]:
    """What a spread gang would get in a domain: (covers, bound units, newest binding, own units)."""
    count_domains(w, need, domain)
    own = seat_own(w, need, domain)
    bound = seat_others(w, need, domain, own)
    placed = place_units(w, need, own, bound, bound)
    covered, own_units, newest = placed, 0, 0
    for i in range(bound):
        if at(w, c.S_UNITS, i) > 0:
            if i < own:
                own_units += at(w, c.S_UNITS, i)
            else:
                newest = max(newest, at(w, c.M_NUMBER, at(w, c.S_MACHINE, i)))
    if placed < at(w, c.N_ASKED, need) and at(w, c.N_ACTS, need):
        seats = _seat_candidates(w, need, domain, own, bound, placed, victims)
        placed = place_units(w, need, own, bound, seats)
        if seats > bound:
            newest = NEVER
        _put_back(w, bound, seats)
    put(w, c.N_MISSING, need, at(w, c.N_ASKED, need))
    return placed >= at(w, c.N_ASKED, need), covered, newest, own_units


@walk
def fill_spread_in(w: Work, need: int, domain: int, order: Array) -> None:
    """Credit a spread row that takes nothing now with these machines, in this order."""
    cluster, topology, bound = at(w, c.N_CLUSTER, need), at(w, c.N_TOPOLOGY, need), 0
    count_domains(w, need, domain)
    for i in range(order.shape[0]):
        machine = order[i]
        shape = at(w, c.M_SHAPE, machine)
        if at(w, c.M_BOUND, machine) == cluster and admits(w, need, shape):
            if topology < 0 or domain_at(w, topology, shape) == domain:
                bound = seat(w, bound, machine, fitting_units(w, need, machine), NONE)
    place_units(w, need, 0, bound, bound)
    for i in range(bound):
        if at(w, c.S_UNITS, i) > 0:
            take(w, need, at(w, c.S_MACHINE, i), at(w, c.S_UNITS, i))


@walk
def own_spread_units(w: Work, need: int, domain: int) -> int:
    """Units of a spread gang that its own machines in a domain hold within the skew."""
    count_domains(w, need, domain)
    own = seat_own(w, need, domain)
    return place_units(w, need, own, own, own)


@entry
def could_hold_in_one(w: Work, need: int) -> bool:
    """Whether some domain of the whole fleet, empty and all this gang's, would hold it."""
    topology, most = at(w, c.N_TOPOLOGY, need), 0
    for shape in range(w.h[c.LEN_SHAPES]):
        domain = domain_at(w, topology, shape)
        if domain != NONE and at(w, c.SHAPE_COUNT, shape) and admits(w, need, shape):
            units = at(w, c.D_POOL, domain) + at(w, c.SHAPE_COUNT, shape) * fresh_units(w, need, shape)
            put(w, c.D_POOL, domain, units)
            most = max(most, units)
    fill(w, c.D_POOL, at(w, c.T_DOMAIN_COUNT, topology), 0)
    return most >= at(w, c.N_ASKED, need)


@entry
def could_hold(w: Work, need: int, machines: Array) -> bool:
    """Whether the whole fleet, empty and all this spread row's, would hold it within the skew.

    Its machines are given by shape, then by id.
    """
    topology = at(w, c.N_TOPOLOGY, need)
    if topology < 0:
        return _domain_could_hold(w, need, NONE, machines)
    for domain in range(at(w, c.T_DOMAIN_COUNT, topology)):
        if _domain_could_hold(w, need, domain, machines):
            return True
    return False


@walk
def _domain_could_hold(w: Work, need: int, domain: int, machines: Array) -> bool:
    """The same inside one domain: unit by unit, to the first machine of the emptiest part that has room."""
    topology, asked, seats, total = at(w, c.N_TOPOLOGY, need), at(w, c.N_ASKED, need), 0, 0
    count_domains(w, need, domain)
    empty_levels(w)
    make_room(w, need, w.h[c.LEN_SHAPES])
    last, units = NONE, 0
    for i in range(machines.shape[0]):
        shape = at(w, c.M_SHAPE, machines[i])
        if shape != last:
            last, units = shape, 0
            if is_eligible(w, need, shape) and (topology < 0 or domain_at(w, topology, shape) == domain):
                units = fresh_units(w, need, shape)
                add_offer(w, need, NONE, seats, units, shape)
        if units > 0:
            seats = seat(w, seats, machines[i], units, NONE)
            total += units
    sort_offers(w, need)
    placed = 0
    while total >= asked and placed < asked and stand_on_first(w, need, seats):
        placed += 1
    let_go(w)
    return placed == asked
