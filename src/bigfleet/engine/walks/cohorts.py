"""The market: the cohorts of the free pool, cheapest for what they close of a gap first. Compiled; section 5."""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, at, cell, domain_at, put
from bigfleet.engine.heap.values import NONE
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.capacity import admits, fresh_units, is_pinned

INFINITE = 1e300


@walk
def half_dollars(bucket: int) -> int:
    """A penalty bucket's bound in half dollars; buckets are numbered as on the wire, ZERO is 1."""
    return 0 if bucket <= 1 else 1 << (bucket - 2)


@walk
def cost_of(w: Work, need: int, price: int, probability: int) -> float:
    """Price plus expected interruption, in half micro-dollars an hour; infinite where a PINNED need could lose it."""
    if is_pinned(w, need):
        return INFINITE if probability > 0 else 2.0 * price
    return 2.0 * price + float(probability) * half_dollars(at(w, c.N_INTERRUPTION, need))


@walk
def divisible_share(w: Work, need: int, shape: int) -> float:
    """The smallest share of a missing dimension that an untouched machine covers; below 0 if it covers nothing."""
    daemons = at(w, c.C_DAEMONS, at(w, c.N_CLUSTER, need))
    share, some = 1.0, False
    for d in range(w.h[c.WIDTH]):
        gap = cell(w, c.T_NEED_AGGREGATE, need, d)
        if d > 0 and gap <= 0:
            continue
        room = cell(w, c.T_ALLOCATABLE, shape, d) - cell(w, c.T_DAEMON_BASE, daemons, d)
        for e in range(at(w, c.T_DAEMON_START, daemons), at(w, c.T_DAEMON_START, daemons + 1)):
            if w.matches[at(w, c.T_DAEMON_REQUIREMENT, e), shape]:
                room -= cell(w, c.T_DAEMON_EXTRA, e, d)
        if d == 0:
            if room <= 0:
                return -1.0
            continue
        some = some or room > 0
        share = min(share, max(room, 0) / gap)
    return share if some else -1.0


@walk
def price_for_gap(w: Work, need: int, cohort: int) -> float:
    """Effective cost over the share of the gap that one machine of the cohort closes; below 0 if it closes nothing."""
    shape = at(w, c.COHORT_SHAPE, cohort)
    cost = cost_of(w, need, at(w, c.COHORT_PRICE, cohort), at(w, c.COHORT_PROBABILITY, cohort))
    if at(w, c.N_DIVISIBLE, need):
        share = divisible_share(w, need, shape)
        if share < 0:
            return -1.0
        return INFINITE if share == 0 or cost == INFINITE else cost / share
    k = fresh_units(w, need, shape)
    if k <= 0:
        return -1.0
    return INFINITE if cost == INFINITE else cost / min(k, at(w, c.N_MISSING, need))


@walk
def prefers(w: Work, need: int, one: int, other: int, one_price: float, other_price: float) -> int:
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
    if at(w, c.COHORT_BUCKET, one) != at(w, c.COHORT_BUCKET, other):
        return at(w, c.COHORT_BUCKET, one) < at(w, c.COHORT_BUCKET, other)
    if at(w, c.COHORT_PRICE, one) != at(w, c.COHORT_PRICE, other):
        return at(w, c.COHORT_PRICE, one) < at(w, c.COHORT_PRICE, other)
    return at(w, c.M_RANK, head_of(w, one)) < at(w, c.M_RANK, head_of(w, other))


@walk
def is_better(w: Work, need: int, one: int, other: int, one_price: float, other_price: float) -> bool:
    """Whether a need without spreads buys from cohort `one` before `other`."""
    preferred = prefers(w, need, one, other, one_price, other_price)
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
    """Take the first machine out of a cohort and out of every other that it is in."""
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
    """Undo the last draw from a cohort, whose head was there before."""
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
    """Whether the need may buy from the cohort: there is a machine left and, if a later need of another cluster bought
    it in this very decision, needs are being served `again` and none before this one relies on it by now.
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
    """Where the cohorts that the need looks through begin and end, inside its domain if it has one; spares follow."""
    if domain == NONE:
        return w.h[c.FIRST_CLASS], w.h[c.FIRST_SPARE]
    place = at(w, c.T_COHORT_LIST_OFFSET, at(w, c.N_TOPOLOGY, need))
    return at(w, c.T_COHORT_LIST_START, place + domain), at(w, c.T_COHORT_LIST_START, place + domain + 1)


@walk
def cohort_at(w: Work, need: int, domain: int, i: int, end: int) -> int:
    """The cohort at one place of that range or behind it among the spares; NONE if it is not in the domain."""
    if i < end:
        return i if domain == NONE else at(w, c.T_COHORT_LIST, i)
    cohort = w.h[c.FIRST_SPARE] + i - end
    if domain != NONE and domain_at(w, at(w, c.N_TOPOLOGY, need), at(w, c.COHORT_SHAPE, cohort)) != domain:
        return NONE
    return cohort


@walk
def closed_spares(w: Work, need: int, again: bool) -> int:
    """How many of the first spares cannot be open to a need: none behind it bought them.

    In phase 1 needs buy in their turn, so those of earlier ones come first, until one is taken back.
    """
    low, high = 0, 0 if w.h[c.LOOSE] else min(open_spares(w, again), w.h[c.SPARES_IN_TURN])
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
    """How many spares there are to look through: before needs are served again, none is open unless taken back."""
    return w.h[c.SPARES] if again or w.h[c.LOOSE] else 0
