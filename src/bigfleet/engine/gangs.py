"""Gangs: one domain for all machines of a row. Compiled; section 6.

A gang that is whole on its own machines in one domain is not ranked: nothing outranks that.
"""

from typing import cast

import numpy as np

from bigfleet.engine.acquire import acquire, cohort_at, cohort_range, is_open
from bigfleet.engine.compiled import walk
from bigfleet.engine.credit import (
    NONE,
    admits,
    credit_gang,
    credit_own,
    credit_plain,
    fitting_units,
    fresh_units,
    is_eligible,
    relink,
    untake,
)
from bigfleet.engine.spread import fill_spread, has_hard_spread, own_spread_units, spread_prospect
from bigfleet.engine.victims import preempt, victim_units
from bigfleet.engine.work import (
    ACTIONS,
    C_LIVE_HEAD,
    D_BOUND,
    D_NEWEST,
    D_OWN,
    D_TOUCHED,
    H_COUNT,
    K_END,
    K_HEAD,
    K_SHAPE,
    KIND_POOL,
    M_BOUND,
    M_LIVE_NEXT,
    M_NUMBER,
    M_OWN,
    M_OWN_NEXT,
    M_SHAPE,
    N_ACTS,
    N_ASKED,
    N_CLUSTER,
    N_DOMAIN,
    N_KIND,
    N_MISSING,
    N_OWN,
    N_OWN_HEAD,
    N_SATISFIABLE,
    N_TOPOLOGY,
    NO,
    SPARES,
    YES,
    Work,
)

ZERO = cast("int", np.int64(0))
NEVER = cast("int", np.int64(1 << 62))
"""Newer than any binding: what a purchase counts as."""


@walk
def serve(w: Work, need: int) -> None:
    """Credit, then acquire: phase 1 for one need."""
    if w.needs[N_TOPOLOGY, need] >= 0:
        if not is_whole_on_own(w, need):
            serve_gang(w, need, NO)
    elif has_hard_spread(w, need):
        fill_spread(w, need, NONE, w.needs[N_ACTS, need] == 1, NO, NO)
    else:
        credit_plain(w, need)
        if w.needs[N_MISSING, need] > 0:
            acquire(w, need, NONE, NO)


@walk
def credit_only(w: Work, need: int) -> None:
    """What a need takes before it acquires; a gang in the domain that it would choose now."""
    if w.needs[N_TOPOLOGY, need] < 0:
        if has_hard_spread(w, need):
            fill_spread(w, need, NONE, NO, NO, NO)
        else:
            credit_plain(w, need)
        return
    if is_whole_on_own(w, need):
        return
    domain = best_domain(w, need, NO)
    if domain == NONE:
        keep_own(w, need)
        return
    w.needs[N_DOMAIN, need], w.needs[N_SATISFIABLE, need] = domain, 1
    if has_hard_spread(w, need):
        fill_spread(w, need, domain, NO, NO, NO)
    else:
        credit_gang(w, need, domain)


@walk
def is_whole_on_own(w: Work, need: int) -> bool:
    """Serve the gang from its own machines if they cover it and all stand in one domain."""
    if has_hard_spread(w, need):
        return False
    cluster, topology = w.needs[N_CLUSTER, need], w.needs[N_TOPOLOGY, need]
    domain, units = NONE, 0
    machine = w.needs[N_OWN_HEAD, need]
    while machine >= 0:
        shape = w.machines[M_SHAPE, machine]
        if w.machines[M_BOUND, machine] == cluster and admits(w, need, shape):
            fitting = fitting_units(w, need, machine)
            if fitting > 0:
                if domain != NONE and domain != w.domain[topology, shape]:
                    return False
                domain = w.domain[topology, shape]
                units += fitting
        machine = w.machines[M_OWN_NEXT, machine]
    if domain == NONE or units < w.needs[N_MISSING, need]:
        return False
    w.needs[N_DOMAIN, need], w.needs[N_SATISFIABLE, need] = domain, 1
    credit_own(w, need, domain)
    return True


@walk
def serve_gang(w: Work, need: int, victims: bool) -> bool:
    """Serve the gang in the best domain that can cover it; if there is none, leave it with its own machines.

    In phase 2 (`victims`) a gang that no domain can cover is left alone, and the answer is False.
    """
    domain = best_domain(w, need, victims)
    if domain == NONE:
        if not victims:
            keep_own(w, need)
        return False
    w.needs[N_DOMAIN, need], w.needs[N_SATISFIABLE, need] = domain, 1
    if has_hard_spread(w, need):
        fill_spread(w, need, domain, w.needs[N_ACTS, need] == 1, victims, NO)
        return True
    credit_gang(w, need, domain)
    if w.needs[N_MISSING, need] > 0:
        before = w.scalar[ACTIONS]
        acquire(w, need, domain, victims)
        if victims and w.needs[N_MISSING, need] > 0:
            preempt(w, need, domain)
        if w.scalar[ACTIONS] > before:
            untake(w, need)
            relink(w, w.needs[N_CLUSTER, need])
            credit_gang(w, need, domain)
    return True


@walk
def best_domain(w: Work, need: int, victims: bool) -> int:
    """The first domain in section 6's ranking that can cover the whole gang; NONE if no domain can."""
    if has_hard_spread(w, need):
        return best_domain_spread(w, need, victims)
    cluster, topology, asked = w.needs[N_CLUSTER, need], w.needs[N_TOPOLOGY, need], w.needs[N_ASKED, need]
    touched, whole = 0, False
    machine = w.needs[N_OWN_HEAD, need]
    while machine >= 0:
        shape = w.machines[M_SHAPE, machine]
        if w.machines[M_BOUND, machine] == cluster and admits(w, need, shape):
            units = fitting_units(w, need, machine)
            if units > 0:
                domain = w.domain[topology, shape]
                touched = _add(w, domain, units, asked, YES, ZERO, touched)
                whole = whole or w.sums[D_BOUND, domain] >= asked
        machine = w.machines[M_OWN_NEXT, machine]
    best = NONE
    machine = w.clusters[C_LIVE_HEAD, cluster]
    while machine >= 0 and best == NONE:
        shape = w.machines[M_SHAPE, machine]
        if (
            w.machines[M_BOUND, machine] == cluster
            and w.machines[M_OWN, machine] != w.needs[N_OWN, need]
            and admits(w, need, shape)
        ):
            units = fitting_units(w, need, machine)
            if units > 0:
                domain, number = w.domain[topology, shape], w.machines[M_NUMBER, machine]
                touched = _add(w, domain, units, asked, NO, number, touched)
                # In binding order the first domain that is whole has the oldest newest binding: nothing outranks it.
                # Only domains that are whole on the gang's own or on machines without a number have ties.
                if w.sums[D_BOUND, domain] >= asked:
                    if number > 0 and not whole:
                        best = domain
                    whole = True
        machine = w.machines[M_LIVE_NEXT, machine]
    if best != NONE:
        _forget(w, touched)
        return best
    best = NONE
    for i in range(touched):
        domain = w.sums[D_TOUCHED, i]
        bound = w.sums[D_BOUND, domain]
        if bound < asked:
            w.sums[D_NEWEST, domain] = NEVER
            if not _can_complete(w, need, domain, asked - bound, victims):
                continue
        if best == NONE or _outranks(w, need, domain, best):
            best = domain
    if best == NONE and w.needs[N_ACTS, need]:
        best = _best_untouched(w, need, asked, victims)
    _forget(w, touched)
    return best


@walk
def _forget(w: Work, touched: int) -> None:
    """Clear the sums of the domains that were touched."""
    for i in range(touched):
        domain = w.sums[D_TOUCHED, i]
        w.sums[D_BOUND, domain] = w.sums[D_OWN, domain] = w.sums[D_NEWEST, domain] = 0


@walk
def _add(w: Work, domain: int, units: int, asked: int, own: bool, number: int, touched: int) -> int:
    """Count one bound machine for its domain, as far as the gang would still take from it."""
    if w.sums[D_BOUND, domain] >= asked:
        return touched
    if w.sums[D_BOUND, domain] == 0:
        w.sums[D_TOUCHED, touched] = domain
        touched += 1
    units = min(units, asked - w.sums[D_BOUND, domain])
    w.sums[D_BOUND, domain] += units
    if own:
        w.sums[D_OWN, domain] += units
    else:
        w.sums[D_NEWEST, domain] = max(w.sums[D_NEWEST, domain], number)
    return touched


@walk
def _outranks(w: Work, need: int, one: int, other: int) -> bool:
    """Whether one covering domain comes before another."""
    if w.sums[D_BOUND, one] != w.sums[D_BOUND, other]:
        return w.sums[D_BOUND, one] > w.sums[D_BOUND, other]
    if w.sums[D_NEWEST, one] != w.sums[D_NEWEST, other]:
        return w.sums[D_NEWEST, one] < w.sums[D_NEWEST, other]
    if w.sums[D_OWN, one] != w.sums[D_OWN, other]:
        return w.sums[D_OWN, one] > w.sums[D_OWN, other]
    return _is_smaller(w, need, one, other)


@walk
def _is_smaller(w: Work, need: int, one: int, other: int) -> bool:
    """Smaller total over all machines in any state but Failed, then value."""
    one_total, other_total = total_units(w, need, one), total_units(w, need, other)
    if one_total != other_total:
        return one_total < other_total
    topology = w.needs[N_TOPOLOGY, need]
    return w.domain_rank[topology, one] < w.domain_rank[topology, other]


@walk
def total_units(w: Work, need: int, domain: int) -> int:
    """Units that all machines of a domain, untouched and in any state but Failed, would hold."""
    topology, units = w.needs[N_TOPOLOGY, need], 0
    for shape in range(w.shapes.shape[1]):
        if w.domain[topology, shape] == domain and w.shapes[H_COUNT, shape] and admits(w, need, shape):
            units += w.shapes[H_COUNT, shape] * fresh_units(w, need, shape)
    return units


@walk
def pool_units(w: Work, need: int, domain: int, again: bool) -> int:
    """Units that the free pool holds in a domain."""
    units = 0
    start, end = cohort_range(w, need, domain)
    for i in range(start, end + w.scalar[SPARES]):
        cohort = cohort_at(w, need, domain, i, end)
        if cohort != NONE and is_open(w, need, cohort, again):
            left = w.cohorts[K_END, cohort] - w.cohorts[K_HEAD, cohort]
            units += left * fresh_units(w, need, w.cohorts[K_SHAPE, cohort])
    return units


@walk
def _can_complete(w: Work, need: int, domain: int, missing: int, victims: bool) -> bool:
    if not w.needs[N_ACTS, need]:
        return False
    units = pool_units(w, need, domain, victims)
    if units < missing and victims:
        units += victim_units(w, need, domain)
    return units >= missing


@walk
def _best_untouched(w: Work, need: int, asked: int, victims: bool) -> int:
    """The first domain in which the gang has nothing yet and could be had whole."""
    if not victims and asked > _most_in_pool(w, need):
        return NONE
    best = NONE
    for domain in range(w.domain_count[w.needs[N_TOPOLOGY, need]]):
        if w.sums[D_BOUND, domain] == 0 and _can_complete(w, need, domain, asked, victims):
            if best == NONE or _is_smaller(w, need, domain, best):
                best = domain
    return best


@walk
def _most_in_pool(w: Work, need: int) -> int:
    """No domain's free pool holds more units of such a need than this.

    Worked out once for all needs of a kind: in phase 1 the pool only shrinks, so it stays a bound.
    """
    kind = w.needs[N_KIND, need]
    if w.kinds[KIND_POOL, kind] == NONE:
        most = 0
        for domain in range(w.domain_count[w.needs[N_TOPOLOGY, need]]):
            most = max(most, pool_units(w, need, domain, NO))
        w.kinds[KIND_POOL, kind] = most
    return w.kinds[KIND_POOL, kind]


@walk
def best_domain_spread(w: Work, need: int, victims: bool) -> int:
    """The same for a gang whose row is also spread: each domain is tried whole."""
    best = NONE
    for domain in range(w.domain_count[w.needs[N_TOPOLOGY, need]]):
        if total_units(w, need, domain) == 0:
            continue
        covers, bound, newest, own = spread_prospect(w, need, domain, victims)
        if not covers:
            continue
        w.sums[D_BOUND, domain], w.sums[D_NEWEST, domain], w.sums[D_OWN, domain] = bound, newest, own
        if best == NONE or _outranks(w, need, domain, best):
            best = domain
    for domain in range(w.domain_count[w.needs[N_TOPOLOGY, need]]):
        w.sums[D_BOUND, domain] = w.sums[D_OWN, domain] = w.sums[D_NEWEST, domain] = 0
    return best


@walk
def keep_own(w: Work, need: int) -> None:
    """A gang that no domain can cover takes only its own machines, in the domain with most of them, then value."""
    topology = w.needs[N_TOPOLOGY, need]
    w.needs[N_SATISFIABLE, need] = 0
    best, held = NONE, 0
    machine = w.needs[N_OWN_HEAD, need]
    while machine >= 0:
        domain = w.domain[topology, w.machines[M_SHAPE, machine]]
        if domain != NONE and domain != best:
            units = _own_units(w, need, domain)
            if units > held or (units == held and units > 0 and _comes_first(w, topology, domain, best)):
                best, held = domain, units
        machine = w.machines[M_OWN_NEXT, machine]
    if best == NONE:
        best = _first_eligible(w, need)
    w.needs[N_DOMAIN, need] = best
    if held > 0:
        if has_hard_spread(w, need):
            fill_spread(w, need, best, NO, NO, YES)
        else:
            credit_own(w, need, best)


@walk
def _comes_first(w: Work, topology: int, one: int, other: int) -> bool:
    """Whether one domain's value sorts before another's."""
    return w.domain_rank[topology, one] < w.domain_rank[topology, other]


@walk
def _first_eligible(w: Work, need: int) -> int:
    """The first domain by value in which a machine could serve the need at all; NONE if there is none."""
    topology, best = w.needs[N_TOPOLOGY, need], NONE
    for shape in range(w.shapes.shape[1]):
        domain = w.domain[topology, shape]
        if domain == NONE or domain == best or w.shapes[H_COUNT, shape] == 0:
            continue
        if (best == NONE or _comes_first(w, topology, domain, best)) and is_eligible(w, need, shape):
            best = domain
    return best


@walk
def _own_units(w: Work, need: int, domain: int) -> int:
    """Units of the gang that its own machines in a domain hold now."""
    if has_hard_spread(w, need):
        return own_spread_units(w, need, domain)
    cluster, topology = w.needs[N_CLUSTER, need], w.needs[N_TOPOLOGY, need]
    asked, units = w.needs[N_ASKED, need], 0
    machine = w.needs[N_OWN_HEAD, need]
    while machine >= 0 and units < asked:
        shape = w.machines[M_SHAPE, machine]
        if w.machines[M_BOUND, machine] == cluster and w.domain[topology, shape] == domain and admits(w, need, shape):
            units += fitting_units(w, need, machine)
        machine = w.machines[M_OWN_NEXT, machine]
    return min(units, asked)
