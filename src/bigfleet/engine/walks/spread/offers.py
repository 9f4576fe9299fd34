"""Offers: cohorts that a spread row may buy from, or seats that it may use, best first.

Compiled; engine sections 5 and 6.

Offers stand in binary heaps, sorted by how full their domains are, then by what they cost. Domains only fill while a
row is served, so an offer is sorted again only when it comes to the top.

Offers in the same domain of the coarsest spread share a heap. That domain does not count inside the heap, since each
purchase would otherwise move all of its offers. The heaps themselves stand in a heap, sorted by their first offers.

An offer whose domains may take nothing more is put aside until the emptiest domains hold more.
"""

from typing import cast

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, at, domain_at, level_at, put, room_in_arena
from bigfleet.engine.heap.values import NONE, ONE, ZERO
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.capacity import fresh_units
from bigfleet.engine.walks.cohorts import (
    INFINITE,
    closed_spares,
    cohort_at,
    cohort_range,
    compare_cohorts,
    cost_of,
    is_open,
    open_spares,
    wins_tie,
)
from bigfleet.engine.walks.spread.levels import blocking_domain, raise_levels

# The columns of offers. They stand one behind the other in the arena from OFFERS_BEGIN on, each OFFERS_ROOM long.
# ORDER holds the heaps, PUT_ASIDE the offers put aside. The others are of each offer: COHORT or else SEAT, the UNITS
# that a machine of it holds, its SHAPE, and from LEVELS on, spread by spread, how full its domain was when last sorted.
ORDER, PUT_ASIDE, COHORT, SEAT, UNITS, SHAPE, LEVELS = (cast("int", np.int64(column)) for column in range(7))
# The columns of heaps, behind those of offers: where in ORDER a heap begins, its size, and the heap of heaps. A heap
# has the number of its domain; offers in no domain have one more, and one place more marks the end of the last.
BEGIN, SIZE, HEAP = (cast("int", np.int64(column)) for column in range(3))
_HEAP_COLUMNS, _MORE_HEAPS = 3, 2


@walk
def offer_at(w: Work, column: int, i: int) -> int:
    """One entry of a column of offers."""
    return at(w, c.T_ARENA, w.h[c.OFFERS_BEGIN] + column * w.h[c.OFFERS_ROOM] + i)


@walk
def put_offer(w: Work, column: int, i: int, value: int) -> None:
    """Set one entry of a column of offers."""
    put(w, c.T_ARENA, w.h[c.OFFERS_BEGIN] + column * w.h[c.OFFERS_ROOM] + i, value)


@walk
def _domain_place(w: Work, column: int, domain: int) -> int:
    """The place in the arena of one entry of a column of heaps."""
    rule = w.h[c.COARSEST_SPREAD]
    domains = at(w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, rule)) + _MORE_HEAPS
    return w.h[c.OFFERS_BEGIN] + (LEVELS + w.h[c.ROW_SPREADS]) * w.h[c.OFFERS_ROOM] + column * domains + domain


@walk
def _heap_at(w: Work, column: int, domain: int) -> int:
    """One entry of a column of heaps."""
    return at(w, c.T_ARENA, _domain_place(w, column, domain))


@walk
def _put_heap(w: Work, column: int, domain: int, value: int) -> None:
    """Set one entry of a column of heaps."""
    put(w, c.T_ARENA, _domain_place(w, column, domain), value)


@walk
def _heap_of(w: Work, i: int) -> int:
    """The heap of an offer: the number of its domain, or the one after the last domain if it stands in none."""
    topology = at(w, c.SPREAD_TOPOLOGY, w.h[c.COARSEST_SPREAD])
    domain = domain_at(w, topology, offer_at(w, SHAPE, i))
    return domain if domain != NONE else at(w, c.T_DOMAIN_COUNT, topology)


@walk
def reserve_offers(w: Work, need: int, most: int) -> None:
    """Take room for so many offers from the arena. Nobody else may take any before they are released."""
    spread = at(w, c.N_SPREAD, need)
    start, end = at(w, c.T_SPREAD_START, spread), at(w, c.T_SPREAD_START, spread + 1)
    coarsest, fewest = start, at(w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, start))
    for s in range(start + 1, end):
        count = at(w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, s))
        if count < fewest:
            coarsest, fewest = s, count
    w.h[c.OFFERS_ROOM], w.h[c.ROW_SPREADS], w.h[c.COARSEST_SPREAD] = most, end - start, coarsest
    domains = fewest + _MORE_HEAPS
    w.h[c.OFFERS_BEGIN] = room_in_arena(w, (LEVELS + end - start) * most + _HEAP_COLUMNS * domains)
    w.h[c.OFFER_COUNT] = w.h[c.OFFERS_ASIDE] = w.h[c.OFFER_HEAPS] = 0


@walk
def release_offers(w: Work) -> None:
    """Give the room of the offers back to the arena."""
    w.h[c.ARENA_END] = w.h[c.OFFERS_BEGIN]


@walk
def reserve_cohort_offers(w: Work, need: int, domain: int, again: bool) -> None:
    """Take room for as many offers as there are cohorts and spares that the need looks through."""
    start, end = cohort_range(w, need, domain)
    reserve_offers(w, need, end - start + open_spares(w, again) - closed_spares(w, need, again))


@walk
def add_offer(w: Work, need: int, cohort: int, seat: int, units: int, shape: int) -> None:
    """Add an offer, to be sorted later: of a cohort, or of a seat if the cohort is NONE."""
    i = w.h[c.OFFER_COUNT]
    put_offer(w, COHORT, i, cohort)
    put_offer(w, SEAT, i, seat)
    put_offer(w, UNITS, i, units)
    put_offer(w, SHAPE, i, shape)
    note_levels(w, need, i)
    w.h[c.OFFER_COUNT] = i + 1


@walk
def sort_offers(w: Work, need: int) -> None:
    """Sort the offers into their heaps, and the heaps into the heap of heaps."""
    heaps = at(w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, w.h[c.COARSEST_SPREAD])) + 1
    for h in range(heaps + 1):
        _put_heap(w, BEGIN, h, 0)
        _put_heap(w, SIZE, h, 0)
    for i in range(w.h[c.OFFER_COUNT]):
        h = _heap_of(w, i) + 1
        _put_heap(w, BEGIN, h, _heap_at(w, BEGIN, h) + 1)
    for h in range(heaps):
        _put_heap(w, BEGIN, h + 1, _heap_at(w, BEGIN, h) + _heap_at(w, BEGIN, h + 1))
    for i in range(w.h[c.OFFER_COUNT]):
        h = _heap_of(w, i)
        size = _heap_at(w, SIZE, h)
        put_offer(w, ORDER, _heap_at(w, BEGIN, h) + size, i)
        _put_heap(w, SIZE, h, size + 1)
    for h in range(heaps):
        for top in range(_heap_at(w, SIZE, h) // 2 - 1, -1, -1):
            _sink(w, need, h, top)
    _sort_heaps(w, need)


@walk
def _sort_heaps(w: Work, need: int) -> None:
    """Sort the heaps that are not empty into the heap of heaps."""
    count = 0
    for h in range(at(w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, w.h[c.COARSEST_SPREAD])) + 1):
        if _heap_at(w, SIZE, h) > 0:
            _put_heap(w, HEAP, count, h)
            count += 1
    w.h[c.OFFER_HEAPS] = count
    for top in range(count // 2 - 1, -1, -1):
        _sink_heap(w, need, top)


@walk
def offer_cohorts(w: Work, need: int, domain: int, again: bool) -> int:
    """Offer all cohorts that the need may buy from; the most units that a machine of any of them holds."""
    w.h[c.OFFER_COUNT] = w.h[c.OFFERS_ASIDE] = 0
    most = 0
    start, end = cohort_range(w, need, domain)
    closed = closed_spares(w, need, again)
    for i in range(start, end + open_spares(w, again) - closed):
        cohort = cohort_at(w, need, domain, i if i < end else i + closed, end)
        if cohort == NONE or not is_open(w, need, cohort, again):
            continue
        units = fresh_units(w, need, at(w, c.COHORT_SHAPE, cohort))
        if units > 0:
            most = max(most, units)
            add_offer(w, need, cohort, NONE, units, at(w, c.COHORT_SHAPE, cohort))
    sort_offers(w, need)
    return most


@walk
def note_levels(w: Work, need: int, i: int) -> tuple[bool, bool]:
    """Note how full an offer's domains are: (whether one has filled, whether its heap counts that domain)."""
    spread, shape = at(w, c.N_SPREAD, need), offer_at(w, SHAPE, i)
    start, fuller, counts = at(w, c.T_SPREAD_START, spread), False, False
    for s in range(start, at(w, c.T_SPREAD_START, spread + 1)):
        d = domain_at(w, at(w, c.SPREAD_TOPOLOGY, s), shape)
        # A machine outside every domain of a wish comes last.
        level = level_at(w, s - start, d) if d != NONE else at(w, c.N_ASKED, need) + 1
        if level != offer_at(w, LEVELS + s - start, i):
            put_offer(w, LEVELS + s - start, i, level)
            fuller = True
            counts = counts or s != w.h[c.COARSEST_SPREAD]
    return fuller, counts


@walk
def _comes_first(w: Work, need: int, one: int, other: int, but: int) -> bool:
    """Whether offer `one` comes before `other`. The spread `but` does not count.

    The order is: emptiest domains by the rules, then what the need prefers, then emptiest domains by the wishes, then
    how ties are broken between cohorts. Between seats the id of the machine decides right after the rules.
    """
    spread = at(w, c.N_SPREAD, need)
    start, end = at(w, c.T_SPREAD_START, spread), at(w, c.T_SPREAD_START, spread + 1)
    for s in range(start, end):
        a, b = offer_at(w, LEVELS + s - start, one), offer_at(w, LEVELS + s - start, other)
        if a != b and s != but and at(w, c.SPREAD_HARD, s):
            return a < b
    cohort, rival = offer_at(w, COHORT, one), offer_at(w, COHORT, other)
    if cohort == NONE:
        a, b = at(w, c.S_MACHINE, offer_at(w, SEAT, one)), at(w, c.S_MACHINE, offer_at(w, SEAT, other))
        return at(w, c.M_RANK, a) < at(w, c.M_RANK, b)
    preferred = compare_cohorts(w, need, cohort, rival, _price(w, need, one), _price(w, need, other))
    if preferred != 0:
        return preferred < 0
    for s in range(start, end):
        a, b = offer_at(w, LEVELS + s - start, one), offer_at(w, LEVELS + s - start, other)
        if a != b and s != but:
            return a < b
    return wins_tie(w, cohort, rival)


@walk
def _price(w: Work, need: int, i: int) -> float:
    """Effective cost divided by the units that one machine of the offer gives the need."""
    cohort = offer_at(w, COHORT, i)
    cost = cost_of(w, need, at(w, c.COHORT_PRICE, cohort), at(w, c.COHORT_PROBABILITY, cohort))
    return INFINITE if cost == INFINITE else cost / min(offer_at(w, UNITS, i), at(w, c.N_MISSING, need))


@walk
def _sink(w: Work, need: int, h: int, top: int) -> None:
    """Let the offer at place `top` of a heap sink until no offer below it comes first."""
    size, begin = _heap_at(w, SIZE, h), _heap_at(w, BEGIN, h)
    offer, but = offer_at(w, ORDER, begin + top), w.h[c.COARSEST_SPREAD]
    while 2 * top + 1 < size:
        below = 2 * top + 1
        first = offer_at(w, ORDER, begin + below)
        if below + 1 < size and _comes_first(w, need, offer_at(w, ORDER, begin + below + 1), first, but):
            below += 1
            first = offer_at(w, ORDER, begin + below)
        if not _comes_first(w, need, first, offer, but):
            break
        put_offer(w, ORDER, begin + top, first)
        top = below
    put_offer(w, ORDER, begin + top, offer)


@walk
def _first_of(w: Work, h: int) -> int:
    """The first offer of a heap."""
    return offer_at(w, ORDER, _heap_at(w, BEGIN, h))


@walk
def _sink_heap(w: Work, need: int, top: int) -> None:
    """Let the heap at place `top` of the heap of heaps sink until no heap below it comes first."""
    size, h = w.h[c.OFFER_HEAPS], _heap_at(w, HEAP, top)
    offer = _first_of(w, h)
    while 2 * top + 1 < size:
        below = 2 * top + 1
        first = _first_of(w, _heap_at(w, HEAP, below))
        if below + 1 < size:
            second = _first_of(w, _heap_at(w, HEAP, below + 1))
            if _comes_first(w, need, second, first, NONE):
                below, first = below + 1, second
        if not _comes_first(w, need, first, offer, NONE):
            break
        _put_heap(w, HEAP, top, _heap_at(w, HEAP, below))
        top = below
    _put_heap(w, HEAP, top, h)


@walk
def _sort_first(w: Work, need: int) -> None:
    """Sort the first offer again."""
    _sink(w, need, _heap_at(w, HEAP, ZERO), ZERO)
    _sink_heap(w, need, ZERO)


@walk
def drop_first(w: Work, need: int) -> None:
    """Take the first offer out of its heap."""
    h = _heap_at(w, HEAP, ZERO)
    size, begin = _heap_at(w, SIZE, h) - 1, _heap_at(w, BEGIN, h)
    _put_heap(w, SIZE, h, size)
    if size > 0:
        put_offer(w, ORDER, begin, offer_at(w, ORDER, begin + size))
        _sort_first(w, need)
        return
    heaps = w.h[c.OFFER_HEAPS] - 1
    w.h[c.OFFER_HEAPS] = heaps
    if heaps > 0:
        _put_heap(w, HEAP, ZERO, _heap_at(w, HEAP, heaps))
        _sink_heap(w, need, ZERO)


@walk
def first_offer(w: Work, need: int) -> int:
    """The best offer whose domains may take one unit more, brought to the top; NONE if there is none."""
    while w.h[c.OFFER_HEAPS] > 0:
        i = _first_of(w, _heap_at(w, HEAP, ZERO))
        fuller, counts = note_levels(w, need, i)
        if counts:
            _sort_first(w, need)
        elif fuller:
            _sink_heap(w, need, ZERO)
        elif blocking_domain(w, need, offer_at(w, SHAPE, i)) != NONE:
            put_offer(w, PUT_ASIDE, w.h[c.OFFERS_ASIDE], i)
            w.h[c.OFFERS_ASIDE] = w.h[c.OFFERS_ASIDE] + 1
            drop_first(w, need)
        else:
            return i
    return NONE


@walk
def resort_first(w: Work, need: int) -> None:
    """After a draw from the first offer's cohort: sort the offer by its next machine, or drop it if there is none."""
    if at(w, c.COHORT_LEFT, offer_at(w, COHORT, _first_of(w, _heap_at(w, HEAP, ZERO)))) > 0:
        _sort_first(w, need)
    else:
        drop_first(w, need)


@walk
def place_on_first(w: Work, need: int, seats: int) -> bool:
    """Place one unit on the seat of the first offer; False if no offer may take one.

    Behind a full seat the offer goes on with the next seat of its shape.
    """
    offer = first_offer(w, need)
    if offer == NONE:
        return False
    left, shape, seat = offer_at(w, UNITS, offer) - 1, offer_at(w, SHAPE, offer), offer_at(w, SEAT, offer)
    put_offer(w, UNITS, offer, left)
    rose = raise_levels(w, need, shape, ONE)
    if left == 0:
        if seat + 1 < seats and at(w, c.M_SHAPE, at(w, c.S_MACHINE, seat + 1)) == shape:
            put_offer(w, SEAT, offer, seat + 1)
            put_offer(w, UNITS, offer, fresh_units(w, need, shape))
            _sort_first(w, need)
        else:
            drop_first(w, need)
    if rose:
        restore_aside(w, need)
    return True


@walk
def restore_aside(w: Work, need: int) -> None:
    """Sort the offers that were put aside into their heaps again, now that the emptiest domains hold more."""
    if w.h[c.OFFERS_ASIDE] == 0:
        return
    but = w.h[c.COARSEST_SPREAD]
    for i in range(w.h[c.OFFERS_ASIDE]):
        offer = offer_at(w, PUT_ASIDE, i)
        h = _heap_of(w, offer)
        begin, place = _heap_at(w, BEGIN, h), _heap_at(w, SIZE, h)
        _put_heap(w, SIZE, h, place + 1)
        while place > 0:
            above = offer_at(w, ORDER, begin + (place - 1) // 2)
            if not _comes_first(w, need, offer, above, but):
                break
            put_offer(w, ORDER, begin + place, above)
            place = (place - 1) // 2
        put_offer(w, ORDER, begin + place, offer)
    w.h[c.OFFERS_ASIDE] = 0
    _sort_heaps(w, need)
