"""Rows with hard spreads: a unit counts only while the domains stay within the skew of each other.

Compiled; engine section 6.

A row is first seated on trial: its cluster's machines in order, then candidates one by one, and its units are placed on
the seats. Only then are machines bound and units taken.
"""

from typing import cast

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Work, at, domain_at, put
from bigfleet.engine.heap.values import NEVER, NONE
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.acquire import buy
from bigfleet.engine.walks.capacity import admits, fitting_units, fresh_units
from bigfleet.engine.walks.cohorts import draw, head_of, put_back
from bigfleet.engine.walks.credit import take
from bigfleet.engine.walks.spread.levels import blocking_domain, compare_levels, count_domains
from bigfleet.engine.walks.spread.offers import (
    COHORT,
    UNITS,
    drop_first,
    first_offer,
    offer_at,
    offer_cohorts,
    release_offers,
    reserve_cohort_offers,
    resort_first,
    restore_aside,
)
from bigfleet.engine.walks.spread.seats import place_more, place_units, seat, seat_others, seat_own
from bigfleet.engine.walks.victims import counts_for, goes_before, may_preempt, take_victim

VICTIM = cast("int", np.int64(-2))
"""In S_COHORT: the seat is a victim."""


@walk
def _next_victim(w: Work, need: int, domain: int) -> int:
    """The best victim not tried yet: in the emptiest domains, then the one that goes first; NONE if there is none."""
    topology, best = at(w, c.N_TOPOLOGY, need), NONE
    for i in range(w.h[c.VICTIMS]):
        if at(w, c.T_STANDING, i) >= at(w, c.N_PRIORITY, need):
            break
        machine = at(w, c.T_VICTIM, i)
        shape = at(w, c.M_SHAPE, machine)
        if (topology >= 0 and domain_at(w, topology, shape) != domain) or not admits(w, need, shape):
            continue
        if (
            not may_preempt(w, need, machine)
            or not counts_for(w, need, machine)
            or blocking_domain(w, need, shape) != NONE
        ):
            continue
        if best == NONE:
            best = machine
            continue
        emptier = compare_levels(w, need, shape, at(w, c.M_SHAPE, best))
        if emptier < 0 or (emptier == 0 and goes_before(w, need, machine, best)):
            best = machine
    return best


@walk
def _seat_candidates(w: Work, need: int, domain: int, own: int, bound: int, placed: int, victims: bool) -> int:
    """Seat candidates while each lets one unit more be placed; the number of seats in the end.

    The machines are drawn from their cohorts, and victims are marked M_VICTIM_TRIED. The caller puts all of them back.
    """
    seats = bound
    reserve_cohort_offers(w, need, domain, victims)
    if w.h[c.OVERFLOW]:
        return seats
    # A gang's purchases have earlier turns than its cluster's others. All units are then placed from the beginning and
    # may end elsewhere, so the offers are made again.
    gang, most = at(w, c.N_TOPOLOGY, need) >= 0, NEVER
    while placed < at(w, c.N_ASKED, need):
        missing = at(w, c.N_ASKED, need) - placed
        put(w, c.N_MISSING, need, missing)
        if gang or missing < most:
            most = offer_cohorts(w, need, domain, victims)
        before, rises = placed, w.h[c.LEVEL_RISES]
        offer = first_offer(w, need)
        while offer != NONE and placed == before:
            cohort = offer_at(w, COHORT, offer)
            more = seat(w, seats, head_of(w, cohort), offer_at(w, UNITS, offer), cohort)
            now = _place_last(w, need, own, bound, more, placed)
            if w.h[c.OVERFLOW]:
                return seats
            if now > placed:
                draw(w, cohort)
                resort_first(w, need)
                seats, placed = more, now
            else:
                place_units(w, need, own, bound, seats)
                drop_first(w, need)
                offer = first_offer(w, need)
        if placed == before and victims:
            seats, placed = _seat_victim(w, need, domain, own, bound, seats, placed)
        if placed == before:
            break
        if w.h[c.LEVEL_RISES] != rises:
            restore_aside(w, need)
    release_offers(w)
    return seats


@walk
def _place_last(w: Work, need: int, own: int, bound: int, seats: int, placed: int) -> int:
    """Place units now that one seat more, the last, was added; how many are placed then."""
    if at(w, c.N_TOPOLOGY, need) >= 0 or w.h[c.OVERFLOW]:
        return place_units(w, need, own, bound, seats)
    put(w, c.S_BY_TURN, seats - 1, seats - 1)
    put(w, c.S_TURN, seats - 1, seats - 1)
    return place_more(w, need, seats - 1, seats, placed)


@walk
def _seat_victim(w: Work, need: int, domain: int, own: int, bound: int, seats: int, placed: int) -> tuple[int, int]:
    """Seat the best victim that lets one unit more be placed: (seats, units placed), unchanged if none does."""
    tried = 0
    machine = _next_victim(w, need, domain)
    while machine != NONE:
        more = seat(w, seats, machine, fresh_units(w, need, at(w, c.M_SHAPE, machine)), VICTIM)
        now = _place_last(w, need, own, bound, more, placed)
        put(w, c.M_VICTIM_TRIED, machine, 1)
        if now > placed or w.h[c.OVERFLOW]:
            seats, placed = more, now
            break
        place_units(w, need, own, bound, seats)
        tried = _refuse(w, tried, machine)
        machine = _next_victim(w, need, domain)
    for i in range(tried):
        put(w, c.M_VICTIM_TRIED, at(w, c.S_REFUSED, i), 0)
    return seats, placed


@walk
def _refuse(w: Work, tried: int, candidate: int) -> int:
    """Note a victim that was tried in vain; how many were."""
    if tried >= w.h[c.LEN_SEATS]:
        w.h[c.OVERFLOW] = c.LEN_SEATS
        return tried
    put(w, c.S_REFUSED, tried, candidate)
    return tried + 1


@walk
def _put_back(w: Work, bound: int, seats: int) -> None:
    """Give the candidates among the seats back to where they came from, last seated first."""
    for i in range(seats - 1, bound - 1, -1):
        if at(w, c.S_COHORT, i) == VICTIM:
            put(w, c.M_VICTIM_TRIED, at(w, c.S_MACHINE, i), 0)
        else:
            put_back(w, at(w, c.S_COHORT, i), at(w, c.S_MACHINE, i), at(w, c.S_COHORT_HEAD, i))


@walk
def serve_spread(w: Work, need: int, domain: int, buys: bool, victims: bool, own_only: bool) -> None:
    """Serve a spread row that takes nothing now: credit it and, with `buys`, acquire.

    With `own_only` a gang is credited with its own machines only.
    """
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
        if at(w, c.S_COHORT, i) == VICTIM:
            take_victim(w, need, at(w, c.S_MACHINE, i))
        else:
            buy(w, need, at(w, c.S_COHORT, i))
        if w.h[c.OVERFLOW]:
            return
    for i in range(seats):
        if at(w, c.S_UNITS, i) > 0:
            take(w, need, at(w, c.S_MACHINE, i), at(w, c.S_UNITS, i))


@walk
def spread_prospect(w: Work, need: int, domain: int, victims: bool) -> tuple[bool, int, int, int]:
    """What a spread gang would get in a domain: (whether all, units on bound machines, newest binding, own units)."""
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
                newest = max(newest, at(w, c.M_BINDING, at(w, c.S_MACHINE, i)))
    if placed < at(w, c.N_ASKED, need) and at(w, c.N_ACTS, need):
        seats = _seat_candidates(w, need, domain, own, bound, placed, victims)
        placed = place_units(w, need, own, bound, seats)
        if seats > bound:
            newest = NEVER
        _put_back(w, bound, seats)
    put(w, c.N_MISSING, need, at(w, c.N_ASKED, need))
    return placed >= at(w, c.N_ASKED, need), covered, newest, own_units


@walk
def credit_spread_in(w: Work, need: int, domain: int, order: Array) -> None:
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
def units_on_own_seats(w: Work, need: int, domain: int) -> int:
    """Units of a spread gang that its own machines in a domain hold within the skew."""
    count_domains(w, need, domain)
    own = seat_own(w, need, domain)
    return place_units(w, need, own, own, own)
