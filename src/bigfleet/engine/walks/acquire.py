"""Acquire: what a need buys of the free pool, machine after machine. Compiled; section 5."""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, at
from bigfleet.engine.heap.values import BOOTSTRAP, NEVER, NONE, PROVISION
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.bind import DELETING, SPECULATIVE, bind, evict
from bigfleet.engine.walks.capacity import fitting_units, fresh_units
from bigfleet.engine.walks.cohorts import (
    closed_spares,
    cohort_at,
    cohort_range,
    draw,
    is_better,
    is_open,
    open_spares,
    price_for_gap,
)
from bigfleet.engine.walks.credit import take, take_divisible
from bigfleet.engine.walks.spread.levels import empty_levels, raise_levels
from bigfleet.engine.walks.spread.offers import (
    COHORT,
    first_offer,
    let_go,
    make_room_for_cohorts,
    offer_at,
    offer_cohorts,
    settle_first,
)


@walk
def best_cohorts(w: Work, need: int, domain: int, again: bool) -> tuple[int, float, int, float, int]:
    """The cohort that the need buys its next machine from, inside its domain if it has one, and the runner-up.

    Each with its price, NONE where there is none; and the most units that a machine of any of them holds.
    """
    best, best_price, second, second_price, most = NONE, 0.0, NONE, 0.0, 0
    start, end = cohort_range(w, need, domain)
    closed = closed_spares(w, need, again)
    for i in range(start, end + open_spares(w, again) - closed):
        cohort = cohort_at(w, need, domain, i if i < end else i + closed, end)
        if cohort == NONE or not is_open(w, need, cohort, again):
            continue
        price = price_for_gap(w, need, cohort)
        if price < 0:
            continue
        most = max(most, fresh_units(w, need, at(w, c.COHORT_SHAPE, cohort)))
        if best == NONE or is_better(w, need, cohort, best, price, best_price):
            second, second_price = best, best_price
            best, best_price = cohort, price
        elif second == NONE or is_better(w, need, cohort, second, price, second_price):
            second, second_price = cohort, price
    return best, best_price, second, second_price, most


@walk
def buy(w: Work, need: int, cohort: int) -> int:
    """Bind the cohort's first machine, NONE without room to note it; what is not there yet must be created first."""
    if w.h[c.ACTIONS] >= w.h[c.LEN_ACTIONS]:
        w.h[c.OVERFLOW] = c.LEN_ACTIONS
        return NONE
    machine = draw(w, cohort)
    if at(w, c.COHORT_BUYER, cohort) != NONE:
        evict(w, machine)
    state = at(w, c.M_STATE, machine)
    created = state == SPECULATIVE or state == DELETING
    bind(w, need, machine, PROVISION if created else BOOTSTRAP, 0, 0)
    return machine


@walk
def acquire(w: Work, need: int, domain: int, again: bool) -> None:
    """Buy machine after machine until nothing is missing or nothing is to be had."""
    if not at(w, c.N_ACTS, need):
        return
    spread = at(w, c.N_SPREAD, need)
    if at(w, c.T_SPREAD_START, spread) < at(w, c.T_SPREAD_START, spread + 1):
        _acquire_evenly(w, need, domain, again)
        return
    in_bulk = not at(w, c.N_DIVISIBLE, need)
    while at(w, c.N_MISSING, need) > 0:
        cohort, price, second, second_price, most = best_cohorts(w, need, domain, again)
        if cohort == NONE:
            return
        more = True
        while more:
            machine = buy(w, need, cohort)
            if machine == NONE:
                return
            if at(w, c.N_DIVISIBLE, need):
                if not take_divisible(w, need, machine):
                    return
            else:
                take(w, need, machine, min(fitting_units(w, need, machine), at(w, c.N_MISSING, need)))
            # As long as no machine holds more than is missing, no price moves, and the best stays so but for its id.
            more = in_bulk and at(w, c.N_MISSING, need) >= max(most, 1) and at(w, c.COHORT_LEFT, cohort) > 0
            more = more and (second == NONE or is_better(w, need, cohort, second, price, second_price))


@walk
def _acquire_evenly(w: Work, need: int, domain: int, again: bool) -> None:
    """The same for a row that would rather be spread: of offers that cost alike, those in its emptiest domains."""
    empty_levels(w)
    for e in range(at(w, c.N_FIRST, need), at(w, c.N_FIRST, need) + at(w, c.N_COUNT, need)):
        raise_levels(w, need, at(w, c.M_SHAPE, at(w, c.E_MACHINE, e)), at(w, c.E_UNITS, e))
    make_room_for_cohorts(w, need, domain, again)
    most = NEVER
    while at(w, c.N_MISSING, need) > 0 and not w.h[c.OVERFLOW]:
        # As long as no machine holds more than is missing, no price moves.
        if at(w, c.N_MISSING, need) < most:
            most = offer_cohorts(w, need, domain, again)
        offer = first_offer(w, need)
        if offer == NONE:
            break
        machine = buy(w, need, offer_at(w, COHORT, offer))
        if machine == NONE:
            return
        settle_first(w, need)
        units = min(fitting_units(w, need, machine), at(w, c.N_MISSING, need))
        take(w, need, machine, units)
        raise_levels(w, need, at(w, c.M_SHAPE, machine), units)
    let_go(w)
