"""Ranking: which of the domains that can cover a gang comes first. Compiled; engine section 6.

The order is: most units on machines of the cluster, then the oldest of their newest bindings, then most units on the
gang's own machines, then the smallest domain.
"""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, at, domain_at, put
from bigfleet.engine.heap.values import NEVER, NO, NONE, YES, ZERO
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.capacity import admits, fitting_units
from bigfleet.engine.walks.gang.domains import best_untouched, can_complete, is_smaller, sum_extra, total_units
from bigfleet.engine.walks.machine_lists import (
    machines_with_room,
    next_set_bit,
    next_with_room,
    relist_if_long,
    strike_off,
)
from bigfleet.engine.walks.spread.levels import has_hard_spread
from bigfleet.engine.walks.spread.rows import spread_prospect


@walk
def best_domain(w: Work, need: int, victims: bool) -> int:
    """The first domain of the ranking that can cover the whole gang; NONE if no domain can.

    The gang's own machines are counted first, then its cluster's others in binding order, which become seats.
    """
    if has_hard_spread(w, need):
        return best_domain_spread(w, need, victims)
    cluster, topology, asked = at(w, c.N_CLUSTER, need), at(w, c.N_TOPOLOGY, need), at(w, c.N_ASKED, need)
    touched, whole = 0, False
    machine = at(w, c.N_OWN_HEAD, need)
    while machine >= 0:
        shape = at(w, c.M_SHAPE, machine)
        if at(w, c.M_BOUND, machine) == cluster and admits(w, need, shape):
            units = fitting_units(w, need, machine)
            if units > 0:
                domain = domain_at(w, topology, shape)
                touched = _add(w, domain, units, asked, YES, ZERO, touched)
                whole = whole or at(w, c.D_BOUND, domain) >= asked
        machine = at(w, c.M_OWN_NEXT, machine)
    best, w.h[c.SEATS_SEEN] = NONE, 0
    start, count, bits, before = machines_with_room(w, need)
    i = next_set_bit(w, bits, ZERO, count)
    while i < count and best == NONE:
        machine = at(w, c.T_ARENA, start + i)
        units = fitting_units(w, need, machine)
        if units > 0:
            touched, whole, best = _count_other(w, need, machine, units, touched, whole)
        else:
            strike_off(w, need, i)
        i = next_set_bit(w, bits, i + 1, count)
    passed = 0
    machine = NONE if best != NONE else next_with_room(w, cluster, before)
    while machine >= 0 and best == NONE:
        if at(w, c.M_BOUND, machine) == cluster and admits(w, need, at(w, c.M_SHAPE, machine)):
            units = fitting_units(w, need, machine)
            if units > 0:
                touched, whole, best = _count_other(w, need, machine, units, touched, whole)
        passed += 1
        machine = next_with_room(w, cluster, machine)
    relist_if_long(w, need, passed)
    if best != NONE:
        _clear_sums(w, touched)
        return best
    best, near = NONE, 0
    extra = sum_extra(w, need, victims)
    for i in range(touched):
        domain = at(w, c.D_TOUCHED, i)
        bound = at(w, c.D_BOUND, domain)
        near = max(near, bound)
        if bound < asked:
            put(w, c.D_NEWEST, domain, NEVER)
            if not can_complete(w, need, domain, asked - bound):
                continue
        if best == NONE or _outranks(w, need, domain, best):
            best = domain
    if best == NONE and at(w, c.N_ACTS, need):
        best = best_untouched(w, need, asked, extra)
    put(w, c.N_MOST_BOUND, need, near)
    for i in range(extra):
        put(w, c.D_EXTRA, at(w, c.D_EXTRA_TOUCHED, i), 0)
    _clear_sums(w, touched)
    return best


@walk
def _count_other(w: Work, need: int, machine: int, units: int, touched: int, whole: bool) -> tuple[int, bool, int]:
    """Count a machine that is not the gang's own: (domains touched, whether one is whole, the best if sure)."""
    if at(w, c.M_STAMPED_FOR, machine) == at(w, c.N_KEY, need):
        return touched, whole, NONE
    seen, asked = w.h[c.SEATS_SEEN], at(w, c.N_ASKED, need)
    if seen >= w.h[c.LEN_SEATS]:
        w.h[c.OVERFLOW] = c.LEN_SEATS
        return touched, whole, NONE
    domain = domain_at(w, at(w, c.N_TOPOLOGY, need), at(w, c.M_SHAPE, machine))
    put(w, c.S_MACHINE, seen, machine)
    put(w, c.S_ROOM, seen, units)
    put(w, c.S_DOMAIN, seen, domain)
    w.h[c.SEATS_SEEN] = seen + 1
    number = at(w, c.M_BINDING, machine)
    touched = _add(w, domain, units, asked, NO, number, touched)
    if at(w, c.D_BOUND, domain) < asked:
        return touched, whole, NONE
    # Machines come in binding order, so the first domain that holds the gang whole has the oldest newest binding, and
    # nothing outranks it. A tie needs a domain that is whole on the gang's own machines, or machines without a number.
    return touched, True, domain if number > 0 and not whole else NONE


@walk
def _clear_sums(w: Work, touched: int) -> None:
    """Clear the sums of the domains that were touched."""
    for i in range(touched):
        domain = at(w, c.D_TOUCHED, i)
        put(w, c.D_BOUND, domain, 0)
        put(w, c.D_OWN, domain, 0)
        put(w, c.D_NEWEST, domain, 0)


@walk
def _add(w: Work, domain: int, units: int, asked: int, own: bool, number: int, touched: int) -> int:
    """Count one bound machine for its domain, as far as the gang would still take from it."""
    if at(w, c.D_BOUND, domain) >= asked:
        return touched
    if at(w, c.D_BOUND, domain) == 0:
        put(w, c.D_TOUCHED, touched, domain)
        touched += 1
    units = min(units, asked - at(w, c.D_BOUND, domain))
    add(w, c.D_BOUND, domain, units)
    if own:
        add(w, c.D_OWN, domain, units)
    else:
        put(w, c.D_NEWEST, domain, max(at(w, c.D_NEWEST, domain), number))
    return touched


@walk
def _outranks(w: Work, need: int, one: int, other: int) -> bool:
    """Whether one domain that covers the gang comes before another that does."""
    if at(w, c.D_BOUND, one) != at(w, c.D_BOUND, other):
        return at(w, c.D_BOUND, one) > at(w, c.D_BOUND, other)
    if at(w, c.D_NEWEST, one) != at(w, c.D_NEWEST, other):
        return at(w, c.D_NEWEST, one) < at(w, c.D_NEWEST, other)
    if at(w, c.D_OWN, one) != at(w, c.D_OWN, other):
        return at(w, c.D_OWN, one) > at(w, c.D_OWN, other)
    return is_smaller(w, need, one, other)


@walk
def best_domain_spread(w: Work, need: int, victims: bool) -> int:
    """The first domain of the ranking for a gang that is also spread: each domain is tried with all its seats."""
    best = NONE
    for domain in range(at(w, c.T_DOMAIN_COUNT, at(w, c.N_TOPOLOGY, need))):
        if total_units(w, need, domain) == 0:
            continue
        covers, bound, newest, own = spread_prospect(w, need, domain, victims)
        if not covers:
            continue
        put(w, c.D_BOUND, domain, bound)
        put(w, c.D_NEWEST, domain, newest)
        put(w, c.D_OWN, domain, own)
        if best == NONE or _outranks(w, need, domain, best):
            best = domain
    for domain in range(at(w, c.T_DOMAIN_COUNT, at(w, c.N_TOPOLOGY, need))):
        put(w, c.D_BOUND, domain, 0)
        put(w, c.D_OWN, domain, 0)
        put(w, c.D_NEWEST, domain, 0)
    return best
