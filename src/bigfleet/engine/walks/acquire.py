"""Acquire: what a need buys from the free pool, machine after machine. Compiled; engine section 5.

`again` says that needs are being served again in phase 2, and may then buy what later needs have bought.
"""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, at
from bigfleet.engine.heap.values import BOOTSTRAP, NEVER, NONE, PROVISION
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.bind import bind, evict, must_be_created
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
    offer_at,
    offer_cohorts,
    release_offers,
    reserve_cohort_offers,
    resort_first,
)


@walk
def best_cohorts(w: Work, need: int, domain: int, again: bool) -> tuple[int, float, int, float, int]:
    """Where the need buys its next machine: (best cohort, its price, second best, its price, most units).

    With a domain only cohorts in that domain count. A cohort is NONE if there is none. The last number is the most
    units that a machine of any cohort looked at holds.
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
    """Bind the cohort's first machine to the need's cluster; NONE if there is no room for one acquisition more."""
    if w.h[c.ACTIONS] >= w.h[c.LEN_ACTIONS]:
        w.h[c.OVERFLOW] = c.LEN_ACTIONS
        return NONE
    machine = draw(w, cohort)
    if at(w, c.COHORT_BUYER, cohort) != NONE:
        evict(w, machine)
    bind(w, need, machine, PROVISION if must_be_created(w, machine) else BOOTSTRAP, 0, 0)
    return machine


@walk
def acquire(w: Work, need: int, domain: int, again: bool) -> None:
    """Buy machine after machine until the need lacks nothing or no cohort is open to it."""
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
            # While no machine holds more than is missing, no price changes. The same cohort stays the best then, unless
            # the id of its next machine loses a tie.
            more = in_bulk and at(w, c.N_MISSING, need) >= max(most, 1) and at(w, c.COHORT_LEFT, cohort) > 0
            more = more and (second == NONE or is_better(w, need, cohort, second, price, second_price))


@walk
def _acquire_evenly(w: Work, need: int, domain: int, again: bool) -> None:
    """Buy for a row whose spreads are wishes: of cohorts that cost the same, those in its emptiest domains first."""
    empty_levels(w)
    for e in range(at(w, c.N_FIRST_ENTRY, need), at(w, c.N_FIRST_ENTRY, need) + at(w, c.N_ENTRIES, need)):
        raise_levels(w, need, at(w, c.M_SHAPE, at(w, c.E_MACHINE, e)), at(w, c.E_UNITS, e))
    reserve_cohort_offers(w, need, domain, again)
    most = NEVER
    while at(w, c.N_MISSING, need) > 0 and not w.h[c.OVERFLOW]:
        # While no machine holds more than is missing, no price changes, and the offers stand as they are sorted.
        if at(w, c.N_MISSING, need) < most:
            most = offer_cohorts(w, need, domain, again)
        offer = first_offer(w, need)
        if offer == NONE:
            break
        machine = buy(w, need, offer_at(w, COHORT, offer))
        if machine == NONE:
            return
        resort_first(w, need)
        units = min(fitting_units(w, need, machine), at(w, c.N_MISSING, need))
        take(w, need, machine, units)
        raise_levels(w, need, at(w, c.M_SHAPE, machine), units)
    release_offers(w)
