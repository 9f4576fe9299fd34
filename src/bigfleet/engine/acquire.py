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
    FIRST_SPARE,
    K_BUCKET,
    K_BUYER,
    K_END,
    K_HEAD,
    K_PRICE,
    K_PROBABILITY,
    K_SHAPE,
    K_TIER,
    M_ACTION,
    M_ALL_NEXT,
    M_BOUND,
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
    return 2.0 * price + float(probability) * half_dollars(w.needs[N_INTERRUPTION, need])


@walk
def divisible_share(w: Work, need: int, shape: int) -> float:
    """The smallest share of a missing dimension that an untouched machine covers; below 0 if it covers nothing."""
    daemons = w.clusters[C_DAEMONS, w.needs[N_CLUSTER, need]]
    share, some = 1.0, False
    for d in range(w.allocatable.shape[1]):
        gap = w.need_aggregate[need, d]
        if d > 0 and gap <= 0:
            continue
        room = w.allocatable[shape, d] - w.daemon_base[daemons, d]
        for e in range(w.daemon_start[daemons], w.daemon_start[daemons + 1]):
            if w.matches[w.daemon_requirement[e], shape]:
                room -= w.daemon_extra[e, d]
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
    shape = w.cohorts[K_SHAPE, cohort]
    cost = cost_of(w, need, w.cohorts[K_PRICE, cohort], w.cohorts[K_PROBABILITY, cohort])
    if w.needs[N_DIVISIBLE, need]:
        share = divisible_share(w, need, shape)
        if share < 0:
            return -1.0
        return INFINITE if share == 0 or cost == INFINITE else cost / share
    k = fresh_units(w, need, shape)
    if k <= 0:
        return -1.0
    return INFINITE if cost == INFINITE else cost / min(k, w.needs[N_MISSING, need])


@walk
def soft_level(w: Work, need: int, spread: int, shape: int) -> int:
    """How many units a preferred spread's domain holds of the need; machines outside every domain come last."""
    topology = w.spreads[P_TOPOLOGY, spread]
    domain = w.domain[topology, shape]
    if domain == NONE:
        return w.needs[N_ASKED, need] + 1
    there = 0
    seats = w.scalar[SEATS]
    if seats > 0:
        for i in range(seats):
            if w.seats[S_UNITS, i] > 0 and w.domain[topology, w.machines[M_SHAPE, w.seats[S_MACHINE, i]]] == domain:
                there += w.seats[S_UNITS, i]
        return there
    first = w.needs[N_FIRST, need]
    for e in range(first, first + w.needs[N_COUNT, need]):
        if w.domain[topology, w.machines[M_SHAPE, w.entries[E_MACHINE, e]]] == domain:
            there += w.entries[E_UNITS, e]
    return there


@walk
def is_better(w: Work, need: int, one: int, other: int, one_price: float, other_price: float) -> bool:
    """Whether a need would rather buy from cohort `one` than from `other`."""
    if is_pinned(w, need):
        one_risky, other_risky = w.cohorts[K_PROBABILITY, one] > 0, w.cohorts[K_PROBABILITY, other] > 0
        if one_risky != other_risky:
            return other_risky
    if w.cohorts[K_TIER, one] != w.cohorts[K_TIER, other]:
        return w.cohorts[K_TIER, one] < w.cohorts[K_TIER, other]
    if one_price != other_price:
        return one_price < other_price
    spread = w.needs[N_SPREAD, need]
    for s in range(w.spread_start[spread], w.spread_start[spread + 1]):
        if not w.spreads[P_HARD, s]:
            one_level = soft_level(w, need, s, w.cohorts[K_SHAPE, one])
            other_level = soft_level(w, need, s, w.cohorts[K_SHAPE, other])
            if one_level != other_level:
                return one_level < other_level
    if w.cohorts[K_BUCKET, one] != w.cohorts[K_BUCKET, other]:
        return w.cohorts[K_BUCKET, one] < w.cohorts[K_BUCKET, other]
    if w.cohorts[K_PRICE, one] != w.cohorts[K_PRICE, other]:
        return w.cohorts[K_PRICE, one] < w.cohorts[K_PRICE, other]
    return w.machines[M_RANK, w.pool[w.cohorts[K_HEAD, one]]] < w.machines[M_RANK, w.pool[w.cohorts[K_HEAD, other]]]


@walk
def is_open(w: Work, need: int, cohort: int, again: bool) -> bool:
    """Whether the need may buy from the cohort: there is a machine left and, if a later need of another cluster bought
    it in this very decision, needs are being served `again` and none before this one relies on it by now.
    """
    if w.cohorts[K_HEAD, cohort] >= w.cohorts[K_END, cohort] or not admits(w, need, w.cohorts[K_SHAPE, cohort]):
        return False
    buyer = w.cohorts[K_BUYER, cohort]
    if buyer == NONE:
        return True
    if not again or buyer <= need or w.needs[N_CLUSTER, buyer] == w.needs[N_CLUSTER, need]:
        return False
    user = w.machines[M_SERVES, w.pool[w.cohorts[K_HEAD, cohort]]]
    return user == NONE or user > need


@walk
def cohort_range(w: Work, need: int, domain: int) -> tuple[int, int]:
    """Where the cohorts that the need looks through begin and end, inside its domain if it has one; spares follow."""
    if domain == NONE:
        return 0, w.scalar[FIRST_SPARE]
    at = w.cohort_list_offset[w.needs[N_TOPOLOGY, need]]
    return w.cohort_list_start[at + domain], w.cohort_list_start[at + domain + 1]


@walk
def cohort_at(w: Work, need: int, domain: int, i: int, end: int) -> int:
    """The cohort at one place of that range or behind it among the spares; NONE if it is not in the domain."""
    if i < end:
        return i if domain == NONE else w.cohort_list[i]
    cohort = w.scalar[FIRST_SPARE] + i - end
    if domain != NONE and w.domain[w.needs[N_TOPOLOGY, need], w.cohorts[K_SHAPE, cohort]] != domain:
        return NONE
    return cohort


@walk
def best_cohort(w: Work, need: int, domain: int, again: bool) -> int:
    """The cohort that the need buys its next machine from, inside its domain if it has one; NONE if there is none."""
    best, best_price = NONE, 0.0
    start, end = cohort_range(w, need, domain)
    for i in range(start, end + w.scalar[SPARES]):
        cohort = cohort_at(w, need, domain, i, end)
        if cohort == NONE or not is_open(w, need, cohort, again):
            continue
        price = price_for_gap(w, need, cohort)
        if price < 0:
            continue
        if best == NONE or is_better(w, need, cohort, best, price, best_price):
            best, best_price = cohort, price
    return best


@walk
def _leave_own(w: Work, need: int, machine: int) -> None:
    """Take the machine off the list of a gang's own."""
    before, at = NONE, w.needs[N_OWN_HEAD, need]
    while at >= 0 and at != machine:
        before, at = at, w.machines[M_OWN_NEXT, at]
    if at == NONE:
        return
    if before == NONE:
        w.needs[N_OWN_HEAD, need] = w.machines[M_OWN_NEXT, machine]
    else:
        w.machines[M_OWN_NEXT, before] = w.machines[M_OWN_NEXT, machine]
    if w.needs[N_OWN_TAIL, need] == machine:
        w.needs[N_OWN_TAIL, need] = before


@walk
def evict(w: Work, machine: int) -> None:
    """Nobody takes from the machine any more, and it leaves its cluster's list."""
    cluster = w.machines[M_BOUND, machine]
    need = w.clusters[C_FIRST, cluster]
    while need >= 0:
        first, count = w.needs[N_FIRST, need], w.needs[N_COUNT, need]
        for e in range(first, first + count):
            if w.entries[E_MACHINE, e] == machine:
                v = w.entries[E_VECTOR, e]
                if v >= 0:
                    for d in range(1, w.vector.shape[1]):
                        w.need_aggregate[need, d] += w.vector[v, d]
                    w.needs[N_MISSING, need] = 1
                else:
                    w.needs[N_MISSING, need] += w.entries[E_UNITS, e]
                last = first + count - 1
                w.entries[E_MACHINE, e] = w.entries[E_MACHINE, last]
                w.entries[E_UNITS, e] = w.entries[E_UNITS, last]
                w.entries[E_VECTOR, e] = w.entries[E_VECTOR, last]
                w.needs[N_COUNT, need] = count - 1
                break
        if w.needs[N_TOPOLOGY, need] >= 0 and w.needs[N_OWN, need] == w.machines[M_OWN, machine]:
            _leave_own(w, need, machine)
        need = w.needs[N_LATER, need]
    before, at = NONE, w.clusters[C_ALL_HEAD, cluster]
    while at != machine:
        before, at = at, w.machines[M_ALL_NEXT, at]
    if before == NONE:
        w.clusters[C_ALL_HEAD, cluster] = w.machines[M_ALL_NEXT, machine]
    else:
        w.machines[M_ALL_NEXT, before] = w.machines[M_ALL_NEXT, machine]
    if w.clusters[C_ALL_TAIL, cluster] == machine:
        w.clusters[C_ALL_TAIL, cluster] = before
    w.clusters[C_DISTURBED, cluster] = 1
    relink(w, cluster)


@walk
def _spare(w: Work, machine: int, buyer: int) -> int:
    """A cohort of this one machine, open to whoever comes before its buyer when needs are served again."""
    at = w.scalar[FIRST_SPARE] + w.scalar[SPARES]
    if at >= w.cohorts.shape[1]:
        w.scalar[OVERFLOW] = 1
        return NONE
    w.scalar[SPARES] += 1
    state = w.machines[M_STATE, machine]
    w.cohorts[K_SHAPE, at] = w.machines[M_SHAPE, machine]
    w.cohorts[K_TIER, at] = 1 if state == SPECULATIVE or state == DELETING else 0
    w.cohorts[K_PRICE, at] = w.machines[M_PRICE, machine]
    w.cohorts[K_PROBABILITY, at] = w.machines[M_PROBABILITY, machine]
    w.cohorts[K_BUCKET, at] = w.machines[M_STAMP_RECLAMATION, machine]
    w.cohorts[K_BUYER, at] = buyer
    w.pool[w.cohorts[K_HEAD, at]] = machine
    w.cohorts[K_END, at] = w.cohorts[K_HEAD, at] + 1
    return at


@walk
def unbind(w: Work, machine: int) -> None:
    """Take an acquisition of this decision back: the machine is free again."""
    evict(w, machine)
    a = w.machines[M_ACTION, machine]
    w.actions[A_KIND, a] = NONE
    w.cohorts[K_BUYER, w.actions[A_COHORT, a]] = NONE
    w.machines[M_ACTION, machine] = w.machines[M_BOUND, machine] = NONE


@walk
def bind(w: Work, need: int, machine: int, kind: int, grace: int, outranked: int) -> None:
    """Commit a machine to the need's cluster, stamped for the need, last in the binding order, all of it free."""
    cluster = w.needs[N_CLUSTER, need]
    a = w.scalar[ACTIONS]
    if a >= w.actions.shape[1]:
        w.scalar[OVERFLOW] = 1
        return
    w.actions[A_KIND, a], w.actions[A_MACHINE, a], w.actions[A_NEED, a] = kind, machine, need
    w.actions[A_GRACE, a], w.actions[A_OUTRANKED, a] = grace, outranked
    w.scalar[ACTIONS] = a + 1
    w.machines[M_BOUND, machine] = cluster
    w.machines[M_NUMBER, machine] = w.scalar[NEXT_BINDING]
    w.scalar[NEXT_BINDING] += 1
    w.machines[M_OWN, machine] = w.needs[N_OWN, need]
    w.clusters[C_DISTURBED, cluster] = 1
    former = w.machines[M_ACTION, machine]
    if former != NONE:
        w.actions[A_KIND, former] = NONE
    w.machines[M_ACTION, machine] = a
    w.actions[A_COHORT, a] = NONE
    if kind != PREEMPT:
        w.actions[A_COHORT, a] = _spare(w, machine, need)
    w.machines[M_SERVES, machine] = NONE
    w.machines[M_ALL_NEXT, machine] = w.machines[M_LIVE_NEXT, machine] = NONE
    if w.clusters[C_ALL_TAIL, cluster] == NONE:
        w.clusters[C_ALL_HEAD, cluster] = machine
    else:
        w.machines[M_ALL_NEXT, w.clusters[C_ALL_TAIL, cluster]] = machine
    w.clusters[C_ALL_TAIL, cluster] = machine
    if w.clusters[C_LIVE_TAIL, cluster] == NONE:
        w.clusters[C_LIVE_HEAD, cluster] = machine
    else:
        w.machines[M_LIVE_NEXT, w.clusters[C_LIVE_TAIL, cluster]] = machine
    w.clusters[C_LIVE_TAIL, cluster] = machine
    if w.needs[N_TOPOLOGY, need] >= 0:
        w.machines[M_OWN_NEXT, machine] = NONE
        if w.needs[N_OWN_TAIL, need] == NONE:
            w.needs[N_OWN_HEAD, need] = machine
        else:
            w.machines[M_OWN_NEXT, w.needs[N_OWN_TAIL, need]] = machine
        w.needs[N_OWN_TAIL, need] = machine
    clear(w, machine, cluster)


@walk
def buy(w: Work, need: int, cohort: int) -> int:
    """Bind the cohort's first machine; what is Speculative or being deleted must be created first."""
    machine = w.pool[w.cohorts[K_HEAD, cohort]]
    w.cohorts[K_HEAD, cohort] += 1
    if w.cohorts[K_BUYER, cohort] != NONE:
        evict(w, machine)
    state = w.machines[M_STATE, machine]
    created = state == SPECULATIVE or state == DELETING
    bind(w, need, machine, PROVISION if created else BOOTSTRAP, 0, 0)
    return machine


@walk
def acquire(w: Work, need: int, domain: int, again: bool) -> None:
    """Buy machine after machine until nothing is missing or nothing is to be had."""
    if not w.needs[N_ACTS, need]:
        return
    while w.needs[N_MISSING, need] > 0:
        cohort = best_cohort(w, need, domain, again)
        if cohort == NONE:
            return
        machine = buy(w, need, cohort)
        if w.needs[N_DIVISIBLE, need]:
            if not take_divisible(w, need, machine):
                return
        else:
            take(w, need, machine, min(fitting_units(w, need, machine), w.needs[N_MISSING, need]))
