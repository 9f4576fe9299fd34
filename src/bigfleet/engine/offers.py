"""Offers: what a row with spreads may buy from or stand on, best first. Compiled; sections 5 and 6.

They stand in a binary heap by how full their domains are, then by what they cost. While a row is served domains only
fill, so an offer is looked at again only when it comes to the top. Those whose domains may take nothing more are put
aside until the emptiest domains hold more.
"""

from typing import cast

import numpy as np

from bigfleet.engine.compiled import walk
from bigfleet.engine.heap import at, domain_at, level_at, put, room_in_arena
from bigfleet.engine.levels import blocking, raise_levels
from bigfleet.engine.market import (
    INFINITE,
    cohort_at,
    cohort_range,
    cost_of,
    is_open,
    open_spares,
    prefers,
    wins_tie,
)
from bigfleet.engine.work import (
    ARENA,
    ASIDE,
    IN_ORDER,
    K_LEFT,
    K_PRICE,
    K_PROBABILITY,
    K_SHAPE,
    M_RANK,
    M_SHAPE,
    N_ASKED,
    N_MISSING,
    N_SPREAD,
    NONE,
    OFFERED,
    OFFERS,
    P_HARD,
    P_TOPOLOGY,
    S_MACHINE,
    T_ARENA,
    T_SPREAD_START,
    Work,
)
from bigfleet.engine.worth import fresh_units

ZERO, ONE = cast("int", np.int64(0)), cast("int", np.int64(1))

# The columns of offers, each OFFERED entries long from OFFERS on: the heap of them, those put aside, and of each its
# cohort or else the seat to stand on, how many units a machine there holds, its shape, and from LEVELS on how full its
# domains were when it was last sorted.
ORDER, PUT_ASIDE, COHORT, SEAT, UNITS, SHAPE, LEVELS = (cast("int", np.int64(column)) for column in range(7))


@walk
def offer_at(w: Work, column: int, i: int) -> int:
    """One entry of a column of offers."""
    return at(w, T_ARENA, w.h[OFFERS] + column * w.h[OFFERED] + i)


@walk
def put_offer(w: Work, column: int, i: int, value: int) -> None:
    """Set one entry of a column of offers."""
    put(w, T_ARENA, w.h[OFFERS] + column * w.h[OFFERED] + i, value)


@walk
def make_room(w: Work, need: int, most: int) -> None:
    """Make room for so many offers. What the arena is given next must come after they are let go."""
    spread = at(w, N_SPREAD, need)
    rules = at(w, T_SPREAD_START, spread + 1) - at(w, T_SPREAD_START, spread)
    w.h[OFFERED] = most
    w.h[OFFERS] = room_in_arena(w, (LEVELS + rules) * most)
    w.h[IN_ORDER] = w.h[ASIDE] = 0


@walk
def let_go(w: Work) -> None:
    """Give the arena back what the offers took of it."""
    w.h[ARENA] = w.h[OFFERS]


@walk
def make_room_for_cohorts(w: Work, need: int, domain: int, again: bool) -> None:
    """Make room for as many offers as the need could have in a domain."""
    start, end = cohort_range(w, need, domain)
    make_room(w, need, end - start + open_spares(w, again))


@walk
def add_offer(w: Work, need: int, cohort: int, seat: int, units: int, shape: int) -> None:
    """One offer more, to be sorted later."""
    i = w.h[IN_ORDER]
    put_offer(w, ORDER, i, i)
    put_offer(w, COHORT, i, cohort)
    put_offer(w, SEAT, i, seat)
    put_offer(w, UNITS, i, units)
    put_offer(w, SHAPE, i, shape)
    note_levels(w, need, i)
    w.h[IN_ORDER] = i + 1


@walk
def sort_offers(w: Work, need: int) -> None:
    """Bring the offers into the order of a heap."""
    for top in range(w.h[IN_ORDER] // 2 - 1, -1, -1):
        _sink(w, need, top)


@walk
def offer_cohorts(w: Work, need: int, domain: int, again: bool) -> int:
    """Offer all cohorts that the need may buy from; the most units that a machine of any of them holds."""
    w.h[IN_ORDER] = w.h[ASIDE] = 0
    most = 0
    start, end = cohort_range(w, need, domain)
    for i in range(start, end + open_spares(w, again)):
        cohort = cohort_at(w, need, domain, i, end)
        if cohort == NONE or not is_open(w, need, cohort, again):
            continue
        units = fresh_units(w, need, at(w, K_SHAPE, cohort))
        if units > 0:
            most = max(most, units)
            add_offer(w, need, cohort, NONE, units, at(w, K_SHAPE, cohort))
    sort_offers(w, need)
    return most


@walk
def note_levels(w: Work, need: int, i: int) -> bool:
    """Note how full the domains of an offer are now; whether that is more than it was sorted by."""
    spread, shape = at(w, N_SPREAD, need), offer_at(w, SHAPE, i)
    start, fuller = at(w, T_SPREAD_START, spread), False
    for s in range(start, at(w, T_SPREAD_START, spread + 1)):
        d = domain_at(w, at(w, P_TOPOLOGY, s), shape)
        # Machines outside every domain of a preference come last.
        level = level_at(w, s - start, d) if d != NONE else at(w, N_ASKED, need) + 1
        if level != offer_at(w, LEVELS + s - start, i):
            put_offer(w, LEVELS + s - start, i, level)
            fuller = True
    return fuller


@walk
def _comes_first(w: Work, need: int, one: int, other: int) -> bool:
    """Whether offer `one` comes before `other`: emptiest domains by the rules, preference, emptiest by wishes, ties.

    Between seats to stand on only ids decide.
    """
    spread = at(w, N_SPREAD, need)
    start, end = at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)
    for s in range(start, end):
        a, b = offer_at(w, LEVELS + s - start, one), offer_at(w, LEVELS + s - start, other)
        if a != b and at(w, P_HARD, s):
            return a < b
    cohort, rival = offer_at(w, COHORT, one), offer_at(w, COHORT, other)
    if cohort == NONE:
        a, b = at(w, S_MACHINE, offer_at(w, SEAT, one)), at(w, S_MACHINE, offer_at(w, SEAT, other))
        return at(w, M_RANK, a) < at(w, M_RANK, b)
    preferred = prefers(w, need, cohort, rival, _price(w, need, one), _price(w, need, other))
    if preferred != 0:
        return preferred < 0
    for s in range(start, end):
        a, b = offer_at(w, LEVELS + s - start, one), offer_at(w, LEVELS + s - start, other)
        if a != b:
            return a < b
    return wins_tie(w, cohort, rival)


@walk
def _price(w: Work, need: int, i: int) -> float:
    """Effective cost over the share of the gap that one machine of the offer closes."""
    cohort = offer_at(w, COHORT, i)
    cost = cost_of(w, need, at(w, K_PRICE, cohort), at(w, K_PROBABILITY, cohort))
    return INFINITE if cost == INFINITE else cost / min(offer_at(w, UNITS, i), at(w, N_MISSING, need))


@walk
def _sink(w: Work, need: int, top: int) -> None:
    """Let the offer at one place of the heap sink to where none below it comes first."""
    size, offer = w.h[IN_ORDER], offer_at(w, ORDER, top)
    while 2 * top + 1 < size:
        below = 2 * top + 1
        if below + 1 < size and _comes_first(w, need, offer_at(w, ORDER, below + 1), offer_at(w, ORDER, below)):
            below += 1
        if not _comes_first(w, need, offer_at(w, ORDER, below), offer):
            break
        put_offer(w, ORDER, top, offer_at(w, ORDER, below))
        top = below
    put_offer(w, ORDER, top, offer)


@walk
def drop_first(w: Work, need: int) -> None:
    """Take the first offer out of the order."""
    size = w.h[IN_ORDER] - 1
    w.h[IN_ORDER] = size
    if size > 0:
        put_offer(w, ORDER, 0, offer_at(w, ORDER, size))
        _sink(w, need, ZERO)


@walk
def first_offer(w: Work, need: int) -> int:
    """The best offer whose domains may take one unit more, at the top of the order; NONE if there is none."""
    while w.h[IN_ORDER] > 0:
        i = offer_at(w, ORDER, 0)
        if note_levels(w, need, i):
            _sink(w, need, ZERO)
        elif blocking(w, need, offer_at(w, SHAPE, i)) != NONE:
            put_offer(w, PUT_ASIDE, w.h[ASIDE], i)
            w.h[ASIDE] = w.h[ASIDE] + 1
            drop_first(w, need)
        else:
            return i
    return NONE


@walk
def settle_first(w: Work, need: int) -> None:
    """After a draw from the first offer's cohort: its next machine may come later by id, or there is none."""
    if at(w, K_LEFT, offer_at(w, COHORT, offer_at(w, ORDER, 0))) > 0:
        _sink(w, need, ZERO)
    else:
        drop_first(w, need)


@walk
def stand_on_first(w: Work, need: int, seats: int) -> bool:
    """Place one unit on the first offer's seat; when that is full, its next seat is the next one, if of its shape."""
    offer = first_offer(w, need)
    if offer == NONE:
        return False
    left, shape, seat = offer_at(w, UNITS, offer) - 1, offer_at(w, SHAPE, offer), offer_at(w, SEAT, offer)
    put_offer(w, UNITS, offer, left)
    rose = raise_levels(w, need, shape, ONE)
    if left == 0:
        if seat + 1 < seats and at(w, M_SHAPE, at(w, S_MACHINE, seat + 1)) == shape:
            put_offer(w, SEAT, offer, seat + 1)
            put_offer(w, UNITS, offer, fresh_units(w, need, shape))
            _sink(w, need, ZERO)
        else:
            drop_first(w, need)
    if rose:
        take_up_again(w, need)
    return True


@walk
def take_up_again(w: Work, need: int) -> None:
    """Put those aside back into the order: the emptiest domains hold more now."""
    for i in range(w.h[ASIDE]):
        place = w.h[IN_ORDER]
        w.h[IN_ORDER] = place + 1
        offer = offer_at(w, PUT_ASIDE, i)
        while place > 0 and _comes_first(w, need, offer, offer_at(w, ORDER, (place - 1) // 2)):
            put_offer(w, ORDER, place, offer_at(w, ORDER, (place - 1) // 2))
            place = (place - 1) // 2
        put_offer(w, ORDER, place, offer)
    w.h[ASIDE] = 0
