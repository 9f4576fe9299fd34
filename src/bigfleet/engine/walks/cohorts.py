"""Cohorts of the free pool: what they cost, which a need prefers, drawing machines from them.

Compiled; engine section 5.

Spares are cohorts of one machine each, made for every machine that is bought. While needs are served again, an earlier
need may buy such a machine from the later one that has it.
"""

from bigfleet.engine.codes import PODS_DIM, ZERO_BUCKET
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, at, cell, domain_at, put
from bigfleet.engine.heap.values import NONE
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.capacity import admits, fresh_units, is_pinned, room_for_pods

INFINITE = 1e300
"""The cost of what a PINNED need could lose: dearer than everything that has a price."""
_NOTHING = -1.0
"""A share or a price: the machine covers nothing of what is missing."""


@walk
def half_dollars(bucket: int) -> int:
    """A penalty bucket's bound in half dollars: 0 for ZERO, 1 for the next bucket, then double each time."""
    return 0 if bucket <= ZERO_BUCKET else 1 << (bucket - ZERO_BUCKET - 1)


@walk
def cost_of(w: Work, need: int, price: int, probability: int) -> float:
    """Price plus expected loss by interruption, in half micro-dollars an hour; INFINITE for PINNED if it can happen."""
    if is_pinned(w, need):
        return INFINITE if probability > 0 else 2.0 * price
    return 2.0 * price + float(probability) * half_dollars(at(w, c.N_INTERRUPTION, need))


@walk
def divisible_share(w: Work, need: int, shape: int) -> float:
    """The smallest share of a missing dimension that an untouched machine covers; below 0 if it covers nothing."""
    daemons = at(w, c.C_DAEMONS, at(w, c.N_CLUSTER, need))
    if room_for_pods(w, daemons, shape, PODS_DIM) <= 0:
        return _NOTHING
    share, some = 1.0, False
    for d in range(PODS_DIM + 1, w.h[c.WIDTH]):
        gap = cell(w, c.T_GAP, need, d)
        if gap > 0:
            room = room_for_pods(w, daemons, shape, d)
            some = some or room > 0
            share = min(share, max(room, 0) / gap)
    return share if some else _NOTHING


@walk
def price_for_gap(w: Work, need: int, cohort: int) -> float:
    """Effective cost over the share of the gap that one machine of the cohort closes; below 0 if it closes nothing."""
    shape = at(w, c.COHORT_SHAPE, cohort)
    cost = cost_of(w, need, at(w, c.COHORT_PRICE, cohort), at(w, c.COHORT_PROBABILITY, cohort))
    if at(w, c.N_DIVISIBLE, need):
        share = divisible_share(w, need, shape)
        if share < 0:
            return _NOTHING
        return INFINITE if share == 0 or cost == INFINITE else cost / share
    k = fresh_units(w, need, shape)
    if k <= 0:
        return _NOTHING
    return INFINITE if cost == INFINITE else cost / min(k, at(w, c.N_MISSING, need))


@walk
def compare_cohorts(w: Work, need: int, one: int, other: int, one_price: float, other_price: float) -> int:
    """-1 if a need would rather buy from cohort `one` than from `other`, 1 if the other way round, 0 for a tie."""
    if is_pinned(w, need):
        one_risky, other_risky = at(w, c.COHORT_PROBABILITY, one) > 0, at(w, c.COHORT_PROBABILITY, other) > 0
        if one_risky != other_risky:
            return -1 if other_risky else 1
    if at(w, c.COHORT_TIER, one) != at(w, c.COHORT_TIER, other):
        return -1 if at(w, c.COHORT_TIER, one) < at(w, c.COHORT_TIER, other) else 1
    if one_price != other_price:
        return -1 if one_price < other_price else 1
    return 0


@walk
def wins_tie(w: Work, one: int, other: int) -> bool:
    """Whether cohort `one` comes first of two that are equal to a need."""
    if at(w, c.COHORT_RECLAMATION, one) != at(w, c.COHORT_RECLAMATION, other):
        return at(w, c.COHORT_RECLAMATION, one) < at(w, c.COHORT_RECLAMATION, other)
    if at(w, c.COHORT_PRICE, one) != at(w, c.COHORT_PRICE, other):
        return at(w, c.COHORT_PRICE, one) < at(w, c.COHORT_PRICE, other)
    return at(w, c.M_RANK, head_of(w, one)) < at(w, c.M_RANK, head_of(w, other))


@walk
def is_better(w: Work, need: int, one: int, other: int, one_price: float, other_price: float) -> bool:
    """Whether a need without spreads buys from cohort `one` before `other`."""
    preferred = compare_cohorts(w, need, one, other, one_price, other_price)
    return preferred < 0 or (preferred == 0 and wins_tie(w, one, other))


@walk
def head_of(w: Work, cohort: int) -> int:
    """The first machine of a cohort that nobody has drawn yet; there must be one."""
    place = at(w, c.COHORT_HEAD, cohort)
    if cohort < w.h[c.FIRST_SPARE]:
        while at(w, c.M_DRAWN, at(w, c.T_POOL, place)):
            place += 1
        put(w, c.COHORT_HEAD, cohort, place)
    return at(w, c.T_POOL, place)


@walk
def draw(w: Work, cohort: int) -> int:
    """Take the first machine out of a cohort: of its own cohort and of its class, or of a spare."""
    machine = head_of(w, cohort)
    if cohort >= w.h[c.FIRST_SPARE]:
        put(w, c.COHORT_LEFT, cohort, 0)
        return machine
    home = at(w, c.M_COHORT, machine)
    group = at(w, c.COHORT_CLASS, home)
    add(w, c.COHORT_LEFT, home, -1)
    add(w, c.COHORT_LEFT, group, -1)
    put(w, c.M_DRAWN, machine, 1)
    return machine


@walk
def put_back(w: Work, cohort: int, machine: int, head: int) -> None:
    """Undo the last draw from a cohort; `head` is its COHORT_HEAD before that draw."""
    put(w, c.COHORT_HEAD, cohort, head)
    if cohort >= w.h[c.FIRST_SPARE]:
        put(w, c.COHORT_LEFT, cohort, 1)
        return
    home = at(w, c.M_COHORT, machine)
    group = at(w, c.COHORT_CLASS, home)
    add(w, c.COHORT_LEFT, home, 1)
    add(w, c.COHORT_LEFT, group, 1)
    put(w, c.M_DRAWN, machine, 0)


@walk
def is_open(w: Work, need: int, cohort: int, again: bool) -> bool:
    """Whether the need may buy from the cohort: the cohort has a machine left that the need's requirements admit.

    A machine that another need has bought in this decision is open only while needs are served `again`, and only if
    buyer and need are of different clusters. The need must also come before the buyer, and before the need that the
    machine serves.
    """
    if at(w, c.COHORT_LEFT, cohort) <= 0 or not admits(w, need, at(w, c.COHORT_SHAPE, cohort)):
        return False
    buyer = at(w, c.COHORT_BUYER, cohort)
    if buyer == NONE:
        return True
    rank = at(w, c.N_RANK, need)
    if not again or at(w, c.N_RANK, buyer) <= rank or at(w, c.N_CLUSTER, buyer) == at(w, c.N_CLUSTER, need):
        return False
    user = at(w, c.M_SERVES, at(w, c.T_POOL, at(w, c.COHORT_HEAD, cohort)))
    return user == NONE or at(w, c.N_RANK, user) > rank


@walk
def cohort_range(w: Work, need: int, domain: int) -> tuple[int, int]:
    """Where the cohorts that the need looks through begin and end: all classes, or the cohorts of one domain."""
    if domain == NONE:
        return w.h[c.FIRST_CLASS], w.h[c.FIRST_SPARE]
    place = at(w, c.T_COHORT_LIST_OFFSET, at(w, c.N_TOPOLOGY, need))
    return at(w, c.T_COHORT_LIST_START, place + domain), at(w, c.T_COHORT_LIST_START, place + domain + 1)


@walk
def cohort_at(w: Work, need: int, domain: int, i: int, end: int) -> int:
    """The cohort at place `i` of a range; from `end` on these are spares. NONE for a spare outside the domain."""
    if i < end:
        return i if domain == NONE else at(w, c.T_COHORT_LIST, i)
    cohort = w.h[c.FIRST_SPARE] + i - end
    if domain != NONE and domain_at(w, at(w, c.N_TOPOLOGY, need), at(w, c.COHORT_SHAPE, cohort)) != domain:
        return NONE
    return cohort


@walk
def closed_spares(w: Work, need: int, again: bool) -> int:
    """How many spares at the beginning were bought by needs that come before this one, and so are not open to it.

    In phase 1 needs buy in their order, so those spares are sorted by buyer, and the number is found by halving. Once a
    spare was given back this does not hold, and the number is 0.
    """
    low, high = 0, 0 if w.h[c.SPARE_RETURNED] else min(open_spares(w, again), w.h[c.SPARES_IN_TURN])
    rank = at(w, c.N_RANK, need)
    while low < high:
        middle = (low + high) // 2
        if at(w, c.N_RANK, at(w, c.COHORT_BUYER, w.h[c.FIRST_SPARE] + middle)) <= rank:
            low = middle + 1
        else:
            high = middle
    return low


@walk
def open_spares(w: Work, again: bool) -> int:
    """How many spares there are to look through: none in phase 1, except once an acquisition was taken back."""
    return w.h[c.SPARES] if again or w.h[c.SPARE_RETURNED] else 0
