"""Acquire: what a need buys of the free pool, cheapest for what it closes of the gap first. Compiled; section 5."""

from bigfleet.engine.compiled import walk
from bigfleet.engine.credit import (
    NONE,
    admits,
    clear,
    fitting_units,
    fresh_units,
    is_pinned,
    relink,
    take,
    take_divisible,
)
from bigfleet.engine.heap import at, cell, domain_at, put, put_cell
from bigfleet.engine.work import (
    A_COHORT,
    A_GRACE,
    A_KIND,
    A_MACHINE,
    A_NEED,
    A_OUTRANKED,
    ACTIONS,
    BOOTSTRAP,
    C_ALL_HEAD,
    C_ALL_TAIL,
    C_DAEMONS,
    C_DISTURBED,
    C_FIRST,
    C_LIVE_HEAD,
    C_LIVE_TAIL,
    E_MACHINE,
    E_UNITS,
    E_VECTOR,
    FIRST_CLASS,
    FIRST_SPARE,
    K_BUCKET,
    K_BUYER,
    K_CLASS,
    K_HEAD,
    K_LEFT,
    K_PRICE,
    K_PROBABILITY,
    K_SHAPE,
    K_TIER,
    LEN_ACTIONS,
    LEN_COHORTS,
    LOOSE,
    M_ACTION,
    M_ALL_NEXT,
    M_BOUND,
    M_COHORT,
    M_DRAWN,
    M_LIVE_NEXT,
    M_NUMBER,
    M_OWN,
    M_OWN_NEXT,
    M_PRICE,
    M_PROBABILITY,
    M_RANK,
    M_SERVES,
    M_SHAPE,
    M_STAMP_RECLAMATION,
    M_STATE,
    N_ACTS,
    N_ASKED,
    N_CLUSTER,
    N_COUNT,
    N_DIVISIBLE,
    N_FIRST,
    N_INTERRUPTION,
    N_LATER,
    N_MISSING,
    N_OWN,
    N_OWN_HEAD,
    N_OWN_TAIL,
    N_RANK,
    N_SPREAD,
    N_TOPOLOGY,
    NEXT_BINDING,
    OVERFLOW,
    P_HARD,
    P_TOPOLOGY,
    PREEMPT,
    PROVISION,
    S_MACHINE,
    S_UNITS,
    SEATS,
    SPARES,
    T_ALLOCATABLE,
    T_COHORT_LIST,
    T_COHORT_LIST_OFFSET,
    T_COHORT_LIST_START,
    T_DAEMON_BASE,
    T_DAEMON_EXTRA,
    T_DAEMON_REQUIREMENT,
    T_DAEMON_START,
    T_NEED_AGGREGATE,
    T_POOL,
    T_SPREAD_START,
    T_VECTOR,
    WIDTH,
    Work,
)

INFINITE = 1e300
SPECULATIVE = 1
DELETING = 7


@walk
def half_dollars(bucket: int) -> int:
    """A penalty bucket's bound in half dollars; buckets are numbered as on the wire, ZERO is 1."""
    return 0 if bucket <= 1 else 1 << (bucket - 2)


@walk
def cost_of(w: Work, need: int, price: int, probability: int) -> float:
    """Price plus expected interruption, in half micro-dollars an hour; infinite where a PINNED need could lose it."""
    if is_pinned(w, need):
        return INFINITE if probability > 0 else 2.0 * price
    return 2.0 * price + float(probability) * half_dollars(at(w, N_INTERRUPTION, need))


@walk
def divisible_share(w: Work, need: int, shape: int) -> float:
    """The smallest share of a missing dimension that an untouched machine covers; below 0 if it covers nothing."""
    daemons = at(w, C_DAEMONS, at(w, N_CLUSTER, need))
    share, some = 1.0, False
    for d in range(w.h[WIDTH]):
        gap = cell(w, T_NEED_AGGREGATE, need, d)
        if d > 0 and gap <= 0:
            continue
        room = cell(w, T_ALLOCATABLE, shape, d) - cell(w, T_DAEMON_BASE, daemons, d)
        for e in range(at(w, T_DAEMON_START, daemons), at(w, T_DAEMON_START, daemons + 1)):
            if w.matches[at(w, T_DAEMON_REQUIREMENT, e), shape]:
                room -= cell(w, T_DAEMON_EXTRA, e, d)
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
    shape = at(w, K_SHAPE, cohort)
    cost = cost_of(w, need, at(w, K_PRICE, cohort), at(w, K_PROBABILITY, cohort))
    if at(w, N_DIVISIBLE, need):
        share = divisible_share(w, need, shape)
        if share < 0:
            return -1.0
        return INFINITE if share == 0 or cost == INFINITE else cost / share
    k = fresh_units(w, need, shape)
    if k <= 0:
        return -1.0
    return INFINITE if cost == INFINITE else cost / min(k, at(w, N_MISSING, need))


@walk
def soft_level(w: Work, need: int, spread: int, shape: int) -> int:
    """How many units a preferred spread's domain holds of the need; machines outside every domain come last."""
    topology = at(w, P_TOPOLOGY, spread)
    domain = domain_at(w, topology, shape)
    if domain == NONE:
        return at(w, N_ASKED, need) + 1
    there = 0
    seats = w.h[SEATS]
    if seats > 0:
        for i in range(seats):
            if at(w, S_UNITS, i) > 0 and domain_at(w, topology, at(w, M_SHAPE, at(w, S_MACHINE, i))) == domain:
                there += at(w, S_UNITS, i)
        return there
    first = at(w, N_FIRST, need)
    for e in range(first, first + at(w, N_COUNT, need)):
        if domain_at(w, topology, at(w, M_SHAPE, at(w, E_MACHINE, e))) == domain:
            there += at(w, E_UNITS, e)
    return there


@walk
def is_better(w: Work, need: int, one: int, other: int, one_price: float, other_price: float) -> bool:
    """Whether a need would rather buy from cohort `one` than from `other`."""
    if is_pinned(w, need):
        one_risky, other_risky = at(w, K_PROBABILITY, one) > 0, at(w, K_PROBABILITY, other) > 0
        if one_risky != other_risky:
            return other_risky
    if at(w, K_TIER, one) != at(w, K_TIER, other):
        return at(w, K_TIER, one) < at(w, K_TIER, other)
    if one_price != other_price:
        return one_price < other_price
    spread = at(w, N_SPREAD, need)
    for s in range(at(w, T_SPREAD_START, spread), at(w, T_SPREAD_START, spread + 1)):
        if not at(w, P_HARD, s):
            one_level = soft_level(w, need, s, at(w, K_SHAPE, one))
            other_level = soft_level(w, need, s, at(w, K_SHAPE, other))
            if one_level != other_level:
                return one_level < other_level
    if at(w, K_BUCKET, one) != at(w, K_BUCKET, other):
        return at(w, K_BUCKET, one) < at(w, K_BUCKET, other)
    if at(w, K_PRICE, one) != at(w, K_PRICE, other):
        return at(w, K_PRICE, one) < at(w, K_PRICE, other)
    return at(w, M_RANK, head_of(w, one)) < at(w, M_RANK, head_of(w, other))


@walk
def head_of(w: Work, cohort: int) -> int:
    """The first machine of a cohort that nobody has drawn yet; there must be one."""
    place = at(w, K_HEAD, cohort)
    if cohort < w.h[FIRST_SPARE]:
        while at(w, M_DRAWN, at(w, T_POOL, place)):
            place += 1
        put(w, K_HEAD, cohort, place)
    return at(w, T_POOL, place)


@walk
def draw(w: Work, cohort: int) -> int:
    """Take the first machine out of a cohort and out of every other that it is in."""
    machine = head_of(w, cohort)
    if cohort >= w.h[FIRST_SPARE]:
        put(w, K_LEFT, cohort, 0)
        return machine
    home = at(w, M_COHORT, machine)
    group = at(w, K_CLASS, home)
    put(w, K_LEFT, home, at(w, K_LEFT, home) - 1)
    put(w, K_LEFT, group, at(w, K_LEFT, group) - 1)
    put(w, M_DRAWN, machine, 1)
    return machine


@walk
def put_back(w: Work, cohort: int, machine: int, head: int) -> None:
    """Undo the last draw from a cohort, whose head was there before."""
    put(w, K_HEAD, cohort, head)
    if cohort >= w.h[FIRST_SPARE]:
        put(w, K_LEFT, cohort, 1)
        return
    home = at(w, M_COHORT, machine)
    group = at(w, K_CLASS, home)
    put(w, K_LEFT, home, at(w, K_LEFT, home) + 1)
    put(w, K_LEFT, group, at(w, K_LEFT, group) + 1)
    put(w, M_DRAWN, machine, 0)


@walk
def is_open(w: Work, need: int, cohort: int, again: bool) -> bool:
    """Whether the need may buy from the cohort: there is a machine left and, if a later need of another cluster bought
    it in this very decision, needs are being served `again` and none before this one relies on it by now.
    """
    if at(w, K_LEFT, cohort) <= 0 or not admits(w, need, at(w, K_SHAPE, cohort)):
        return False
    buyer = at(w, K_BUYER, cohort)
    if buyer == NONE:
        return True
    rank = at(w, N_RANK, need)
    if not again or at(w, N_RANK, buyer) <= rank or at(w, N_CLUSTER, buyer) == at(w, N_CLUSTER, need):
        return False
    user = at(w, M_SERVES, at(w, T_POOL, at(w, K_HEAD, cohort)))
    return user == NONE or at(w, N_RANK, user) > rank


@walk
def cohort_range(w: Work, need: int, domain: int) -> tuple[int, int]:
    """Where the cohorts that the need looks through begin and end, inside its domain if it has one; spares follow."""
    if domain == NONE:
        return w.h[FIRST_CLASS], w.h[FIRST_SPARE]
    place = at(w, T_COHORT_LIST_OFFSET, at(w, N_TOPOLOGY, need))
    return at(w, T_COHORT_LIST_START, place + domain), at(w, T_COHORT_LIST_START, place + domain + 1)


@walk
def cohort_at(w: Work, need: int, domain: int, i: int, end: int) -> int:
    """The cohort at one place of that range or behind it among the spares; NONE if it is not in the domain."""
    if i < end:
        return i if domain == NONE else at(w, T_COHORT_LIST, i)
    cohort = w.h[FIRST_SPARE] + i - end
    if domain != NONE and domain_at(w, at(w, N_TOPOLOGY, need), at(w, K_SHAPE, cohort)) != domain:
        return NONE
    return cohort


@walk
def open_spares(w: Work, again: bool) -> int:
    """How many spares there are to look through: before needs are served again, none is open unless taken back."""
    return w.h[SPARES] if again or w.h[LOOSE] else 0


@walk
def best_cohorts(w: Work, need: int, domain: int, again: bool) -> tuple[int, float, int, float, int]:
    """The cohort that the need buys its next machine from, inside its domain if it has one, and the runner-up.

    Each with its price, NONE where there is none; and the most units that a machine of any of them holds.
    """
    best, best_price, second, second_price, most = NONE, 0.0, NONE, 0.0, 0
    start, end = cohort_range(w, need, domain)
    for i in range(start, end + open_spares(w, again)):
        cohort = cohort_at(w, need, domain, i, end)
        if cohort == NONE or not is_open(w, need, cohort, again):
            continue
        price = price_for_gap(w, need, cohort)
        if price < 0:
            continue
        most = max(most, fresh_units(w, need, at(w, K_SHAPE, cohort)))
        if best == NONE or is_better(w, need, cohort, best, price, best_price):
            second, second_price = best, best_price
            best, best_price = cohort, price
        elif second == NONE or is_better(w, need, cohort, second, price, second_price):
            second, second_price = cohort, price
    return best, best_price, second, second_price, most


@walk
def _leave_own(w: Work, need: int, machine: int) -> None:
    """Take the machine off the list of a gang's own."""
    before, place = NONE, at(w, N_OWN_HEAD, need)
    while place >= 0 and place != machine:
        before, place = place, at(w, M_OWN_NEXT, place)
    if place == NONE:
        return
    if before == NONE:
        put(w, N_OWN_HEAD, need, at(w, M_OWN_NEXT, machine))
    else:
        put(w, M_OWN_NEXT, before, at(w, M_OWN_NEXT, machine))
    if at(w, N_OWN_TAIL, need) == machine:
        put(w, N_OWN_TAIL, need, before)


@walk
def evict(w: Work, machine: int) -> None:
    """Nobody takes from the machine any more, and it leaves its cluster's list."""
    cluster = at(w, M_BOUND, machine)
    need = at(w, C_FIRST, cluster)
    while need >= 0:
        first, count = at(w, N_FIRST, need), at(w, N_COUNT, need)
        for e in range(first, first + count):
            if at(w, E_MACHINE, e) == machine:
                v = at(w, E_VECTOR, e)
                if v >= 0:
                    for d in range(1, w.h[WIDTH]):
                        put_cell(
                            w, T_NEED_AGGREGATE, need, d, cell(w, T_NEED_AGGREGATE, need, d) + cell(w, T_VECTOR, v, d)
                        )
                    put(w, N_MISSING, need, 1)
                else:
                    put(w, N_MISSING, need, at(w, N_MISSING, need) + at(w, E_UNITS, e))
                last = first + count - 1
                put(w, E_MACHINE, e, at(w, E_MACHINE, last))
                put(w, E_UNITS, e, at(w, E_UNITS, last))
                put(w, E_VECTOR, e, at(w, E_VECTOR, last))
                put(w, N_COUNT, need, count - 1)
                break
        if at(w, N_TOPOLOGY, need) >= 0 and at(w, N_OWN, need) == at(w, M_OWN, machine):
            _leave_own(w, need, machine)
        need = at(w, N_LATER, need)
    before, place = NONE, at(w, C_ALL_HEAD, cluster)
    while place != machine:
        before, place = place, at(w, M_ALL_NEXT, place)
    if before == NONE:
        put(w, C_ALL_HEAD, cluster, at(w, M_ALL_NEXT, machine))
    else:
        put(w, M_ALL_NEXT, before, at(w, M_ALL_NEXT, machine))
    if at(w, C_ALL_TAIL, cluster) == machine:
        put(w, C_ALL_TAIL, cluster, before)
    put(w, C_DISTURBED, cluster, 1)
    relink(w, cluster)


@walk
def _spare(w: Work, machine: int, buyer: int) -> int:
    """A cohort of this one machine, open to whoever comes before its buyer when needs are served again."""
    place = w.h[FIRST_SPARE] + w.h[SPARES]
    if place >= w.h[LEN_COHORTS]:
        w.h[OVERFLOW] = LEN_COHORTS
        return NONE
    w.h[SPARES] = w.h[SPARES] + 1
    state = at(w, M_STATE, machine)
    put(w, K_SHAPE, place, at(w, M_SHAPE, machine))
    put(w, K_TIER, place, 1 if state == SPECULATIVE or state == DELETING else 0)
    put(w, K_PRICE, place, at(w, M_PRICE, machine))
    put(w, K_PROBABILITY, place, at(w, M_PROBABILITY, machine))
    put(w, K_BUCKET, place, at(w, M_STAMP_RECLAMATION, machine))
    put(w, K_BUYER, place, buyer)
    put(w, T_POOL, at(w, K_HEAD, place), machine)
    put(w, K_LEFT, place, 1)
    return place


@walk
def unbind(w: Work, machine: int) -> None:
    """Take an acquisition of this decision back: the machine is free again."""
    evict(w, machine)
    a = at(w, M_ACTION, machine)
    put(w, A_KIND, a, NONE)
    put(w, K_BUYER, at(w, A_COHORT, a), NONE)
    w.h[LOOSE] = 1
    put(w, M_ACTION, machine, NONE)
    put(w, M_BOUND, machine, NONE)


@walk
def bind(w: Work, need: int, machine: int, kind: int, grace: int, outranked: int) -> None:
    """Commit a machine to the need's cluster, stamped for the need, last in the binding order, all of it free."""
    cluster = at(w, N_CLUSTER, need)
    a = w.h[ACTIONS]
    if a >= w.h[LEN_ACTIONS]:
        w.h[OVERFLOW] = LEN_ACTIONS
        return
    put(w, A_KIND, a, kind)
    put(w, A_MACHINE, a, machine)
    put(w, A_NEED, a, need)
    put(w, A_GRACE, a, grace)
    put(w, A_OUTRANKED, a, outranked)
    w.h[ACTIONS] = a + 1
    put(w, M_BOUND, machine, cluster)
    put(w, M_NUMBER, machine, w.h[NEXT_BINDING])
    w.h[NEXT_BINDING] = w.h[NEXT_BINDING] + 1
    put(w, M_OWN, machine, at(w, N_OWN, need))
    put(w, C_DISTURBED, cluster, 1)
    former = at(w, M_ACTION, machine)
    if former != NONE:
        put(w, A_KIND, former, NONE)
    put(w, M_ACTION, machine, a)
    put(w, A_COHORT, a, NONE)
    if kind != PREEMPT:
        put(w, A_COHORT, a, _spare(w, machine, need))
    put(w, M_SERVES, machine, NONE)
    put(w, M_ALL_NEXT, machine, NONE)
    put(w, M_LIVE_NEXT, machine, NONE)
    if at(w, C_ALL_TAIL, cluster) == NONE:
        put(w, C_ALL_HEAD, cluster, machine)
    else:
        put(w, M_ALL_NEXT, at(w, C_ALL_TAIL, cluster), machine)
    put(w, C_ALL_TAIL, cluster, machine)
    if at(w, C_LIVE_TAIL, cluster) == NONE:
        put(w, C_LIVE_HEAD, cluster, machine)
    else:
        put(w, M_LIVE_NEXT, at(w, C_LIVE_TAIL, cluster), machine)
    put(w, C_LIVE_TAIL, cluster, machine)
    if at(w, N_TOPOLOGY, need) >= 0:
        put(w, M_OWN_NEXT, machine, NONE)
        if at(w, N_OWN_TAIL, need) == NONE:
            put(w, N_OWN_HEAD, need, machine)
        else:
            put(w, M_OWN_NEXT, at(w, N_OWN_TAIL, need), machine)
        put(w, N_OWN_TAIL, need, machine)
    clear(w, machine, cluster)


@walk
def buy(w: Work, need: int, cohort: int) -> int:
    """Bind the cohort's first machine; what is Speculative or being deleted must be created first."""
    machine = draw(w, cohort)
    if at(w, K_BUYER, cohort) != NONE:
        evict(w, machine)
    state = at(w, M_STATE, machine)
    created = state == SPECULATIVE or state == DELETING
    bind(w, need, machine, PROVISION if created else BOOTSTRAP, 0, 0)
    return machine


@walk
def acquire(w: Work, need: int, domain: int, again: bool) -> None:
    """Buy machine after machine until nothing is missing or nothing is to be had."""
    if not at(w, N_ACTS, need):
        return
    spread = at(w, N_SPREAD, need)
    in_bulk = not at(w, N_DIVISIBLE, need) and at(w, T_SPREAD_START, spread) == at(w, T_SPREAD_START, spread + 1)
    while at(w, N_MISSING, need) > 0:
        cohort, price, second, second_price, most = best_cohorts(w, need, domain, again)
        if cohort == NONE:
            return
        more = True
        while more:
            machine = buy(w, need, cohort)
            if at(w, N_DIVISIBLE, need):
                if not take_divisible(w, need, machine):
                    return
            else:
                take(w, need, machine, min(fitting_units(w, need, machine), at(w, N_MISSING, need)))
            # As long as no machine holds more than is missing, no price moves, and the best stays so but for its id.
            more = in_bulk and at(w, N_MISSING, need) >= max(most, 1) and at(w, K_LEFT, cohort) > 0
            more = more and (second == NONE or is_better(w, need, cohort, second, price, second_price))
