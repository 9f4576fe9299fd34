"""Offers: what a row with spreads may buy from or stand on, best first. Compiled; sections 5 and 6.

They stand in binary heaps by how full their domains are, then by what they cost. While a row is served domains only
fill, so an offer is looked at again only when it comes to the top. Offers in one domain of the coarsest spread share a
heap, in which that domain does not count, for otherwise each purchase would move all of them; and the heaps stand in a
heap by their first offers. Offers whose domains may take nothing more are put aside until the emptiest hold more.
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
    cost_of,
    is_open,
    open_spares,
    prefers,
    wins_tie,
)
from bigfleet.engine.walks.spread.levels import blocking, raise_levels

# The columns of offers, each OFFERED entries long from OFFERS on: the heap of them, those put aside, and of each its
# cohort or else the seat to stand on, how many units a machine there holds, its shape, and from LEVELS on how full its
# domains were when it was last sorted. Behind them, for each domain of the coarsest spread, where its heap begins, how
# many are in it, and the heap of heaps.
ORDER, PUT_ASIDE, COHORT, SEAT, UNITS, SHAPE, LEVELS = (cast("int", np.int64(column)) for column in range(7))
BEGIN, SIZE, HEAP = (cast("int", np.int64(column)) for column in range(3))


@walk
def offer_at(w: Work, column: int, i: int) -> int:
    """One entry of a column of offers."""
    return at(w, c.T_ARENA, w.h[c.OFFERS] + column * w.h[c.OFFERED] + i)


@walk
def put_offer(w: Work, column: int, i: int, value: int) -> None:
    """Set one entry of a column of offers."""
    put(w, c.T_ARENA, w.h[c.OFFERS] + column * w.h[c.OFFERED] + i, value)


@walk
def _domain_place(w: Work, column: int, domain: int) -> int:
    """The place in the arena of one entry of a column of heaps."""
    rule = w.h[c.BY_RULE]
    domains = at(w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, rule)) + 2
    return w.h[c.OFFERS] + (LEVELS + w.h[c.RULES]) * w.h[c.OFFERED] + column * domains + domain


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
    """The heap that an offer belongs in: its domain, or the one after the last where it has none."""
    topology = at(w, c.SPREAD_TOPOLOGY, w.h[c.BY_RULE])
    domain = domain_at(w, topology, offer_at(w, SHAPE, i))
    return domain if domain != NONE else at(w, c.T_DOMAIN_COUNT, topology)


@walk
def make_room(w: Work, need: int, most: int) -> None:
    """Make room for so many offers. What the arena is given next must come after they are let go."""
    spread = at(w, c.N_SPREAD, need)
    start, end = at(w, c.T_SPREAD_START, spread), at(w, c.T_SPREAD_START, spread + 1)
    coarsest = start
    for s in range(start + 1, end):
        if at(w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, s)) < at(
            w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, coarsest)
        ):
            coarsest = s
    w.h[c.OFFERED], w.h[c.RULES], w.h[c.BY_RULE] = most, end - start, coarsest
    domains = at(w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, coarsest)) + 2
    w.h[c.OFFERS] = room_in_arena(w, (LEVELS + end - start) * most + 3 * domains)
    w.h[c.IN_ORDER] = w.h[c.ASIDE] = w.h[c.HEAPS] = 0


@walk
def let_go(w: Work) -> None:
    """Give the arena back what the offers took of it."""
    w.h[c.ARENA] = w.h[c.OFFERS]


@walk
def make_room_for_cohorts(w: Work, need: int, domain: int, again: bool) -> None:
    """Make room for as many offers as the need could have in a domain."""
    start, end = cohort_range(w, need, domain)
    make_room(w, need, end - start + open_spares(w, again) - closed_spares(w, need, again))


@walk
def add_offer(w: Work, need: int, cohort: int, seat: int, units: int, shape: int) -> None:
    """One offer more, to be sorted later."""
    i = w.h[c.IN_ORDER]
    put_offer(w, COHORT, i, cohort)
    put_offer(w, SEAT, i, seat)
    put_offer(w, UNITS, i, units)
    put_offer(w, SHAPE, i, shape)
    note_levels(w, need, i)
    w.h[c.IN_ORDER] = i + 1


@walk
def sort_offers(w: Work, need: int) -> None:
    """Bring the offers into their heaps, and those into theirs."""
    heaps = at(w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, w.h[c.BY_RULE])) + 1
    for h in range(heaps + 1):
        _put_heap(w, BEGIN, h, 0)
        _put_heap(w, SIZE, h, 0)
    for i in range(w.h[c.IN_ORDER]):
        h = _heap_of(w, i) + 1
        _put_heap(w, BEGIN, h, _heap_at(w, BEGIN, h) + 1)
    for h in range(heaps):
        _put_heap(w, BEGIN, h + 1, _heap_at(w, BEGIN, h) + _heap_at(w, BEGIN, h + 1))
    for i in range(w.h[c.IN_ORDER]):
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
    """Bring the heaps that are not empty into the order of a heap."""
    count = 0
    for h in range(at(w, c.T_DOMAIN_COUNT, at(w, c.SPREAD_TOPOLOGY, w.h[c.BY_RULE])) + 1):
        if _heap_at(w, SIZE, h) > 0:
            _put_heap(w, HEAP, count, h)
            count += 1
    w.h[c.HEAPS] = count
    for top in range(count // 2 - 1, -1, -1):
        _sink_heap(w, need, top)


@walk
def offer_cohorts(w: Work, need: int, domain: int, again: bool) -> int:
    """Offer all cohorts that the need may buy from; the most units that a machine of any of them holds."""
    w.h[c.IN_ORDER] = w.h[c.ASIDE] = 0
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
    """Note how full the domains of an offer are: (one is fuller than it was sorted by, its heap counts that one)."""
    spread, shape = at(w, c.N_SPREAD, need), offer_at(w, SHAPE, i)
    start, fuller, counts = at(w, c.T_SPREAD_START, spread), False, False
    for s in range(start, at(w, c.T_SPREAD_START, spread + 1)):
        d = domain_at(w, at(w, c.SPREAD_TOPOLOGY, s), shape)
        # Machines outside every domain of a preference come last.
        level = level_at(w, s - start, d) if d != NONE else at(w, c.N_ASKED, need) + 1
        if level != offer_at(w, LEVELS + s - start, i):
            put_offer(w, LEVELS + s - start, i, level)
            fuller = True
            counts = counts or s != w.h[c.BY_RULE]
    return fuller, counts


@walk
def _comes_first(w: Work, need: int, one: int, other: int, but: int) -> bool:
    """Whether offer `one` comes before `other`: emptiest domains by the rules, preference, emptiest by wishes, ties.

    One spread does not count. Between seats to stand on only ids decide.
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
    preferred = prefers(w, need, cohort, rival, _price(w, need, one), _price(w, need, other))
    if preferred != 0:
        return preferred < 0
    for s in range(start, end):
        a, b = offer_at(w, LEVELS + s - start, one), offer_at(w, LEVELS + s - start, other)
        if a != b and s != but:
            return a < b
    return wins_tie(w, cohort, rival)


@walk
def _price(w: Work, need: int, i: int) -> float:
    """Effective cost over the share of the gap that one machine of the offer closes."""
    cohort = offer_at(w, COHORT, i)
    cost = cost_of(w, need, at(w, c.COHORT_PRICE, cohort), at(w, c.COHORT_PROBABILITY, cohort))
    return INFINITE if cost == INFINITE else cost / min(offer_at(w, UNITS, i), at(w, c.N_MISSING, need))


@walk
def _sink(w: Work, need: int, h: int, top: int) -> None:
    """Let the offer at one place of a heap sink to where none below it comes first."""
    size, begin = _heap_at(w, SIZE, h), _heap_at(w, BEGIN, h)
    offer, but = offer_at(w, ORDER, begin + top), w.h[c.BY_RULE]
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
    """Let the heap at one place of the heap of heaps sink to where none below it comes first."""
    size, h = w.h[c.HEAPS], _heap_at(w, HEAP, top)
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
    """Bring the first offer where it belongs by now."""
    _sink(w, need, _heap_at(w, HEAP, ZERO), ZERO)
    _sink_heap(w, need, ZERO)


@walk
def drop_first(w: Work, need: int) -> None:
    """Take the first offer out of the order."""
    h = _heap_at(w, HEAP, ZERO)
    size, begin = _heap_at(w, SIZE, h) - 1, _heap_at(w, BEGIN, h)
    _put_heap(w, SIZE, h, size)
    if size > 0:
        put_offer(w, ORDER, begin, offer_at(w, ORDER, begin + size))
        _sort_first(w, need)
        return
    heaps = w.h[c.HEAPS] - 1
    w.h[c.HEAPS] = heaps
    if heaps > 0:
        _put_heap(w, HEAP, ZERO, _heap_at(w, HEAP, heaps))
        _sink_heap(w, need, ZERO)


@walk
def first_offer(w: Work, need: int) -> int:
    """The best offer whose domains may take one unit more, at the top of the order; NONE if there is none."""
    while w.h[c.HEAPS] > 0:
        i = _first_of(w, _heap_at(w, HEAP, ZERO))
        fuller, counts = note_levels(w, need, i)
        if counts:
            _sort_first(w, need)
        elif fuller:
            _sink_heap(w, need, ZERO)
        elif blocking(w, need, offer_at(w, SHAPE, i)) != NONE:
            put_offer(w, PUT_ASIDE, w.h[c.ASIDE], i)
            w.h[c.ASIDE] = w.h[c.ASIDE] + 1
            drop_first(w, need)
        else:
            return i
    return NONE


@walk
def settle_first(w: Work, need: int) -> None:
    """After a draw from the first offer's cohort: its next machine may come later by id, or there is none."""
    if at(w, c.COHORT_LEFT, offer_at(w, COHORT, _first_of(w, _heap_at(w, HEAP, ZERO)))) > 0:
        _sort_first(w, need)
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
        if seat + 1 < seats and at(w, c.M_SHAPE, at(w, c.S_MACHINE, seat + 1)) == shape:
            put_offer(w, SEAT, offer, seat + 1)
            put_offer(w, UNITS, offer, fresh_units(w, need, shape))
            _sort_first(w, need)
        else:
            drop_first(w, need)
    if rose:
        take_up_again(w, need)
    return True


@walk
def take_up_again(w: Work, need: int) -> None:
    """Put those aside back into the order: the emptiest domains hold more now."""
    if w.h[c.ASIDE] == 0:
        return
    but = w.h[c.BY_RULE]
    for i in range(w.h[c.ASIDE]):
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
    w.h[c.ASIDE] = 0
    _sort_heaps(w, need)
