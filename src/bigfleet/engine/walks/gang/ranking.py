"""Ranking: the first of the domains that can cover a gang. Compiled; section 6."""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, at, domain_at, put
from bigfleet.engine.heap.values import NEVER, NO, NONE, YES, ZERO
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.capacity import admits, fitting_units
from bigfleet.engine.walks.gang.domains import best_untouched, can_complete, is_smaller, note_extra, total_units
from bigfleet.engine.walks.machine_lists import after, following, list_anew, listed, strike
from bigfleet.engine.walks.spread.levels import has_hard_spread
from bigfleet.engine.walks.spread.rows import spread_prospect


@walk
def best_domain(w: Work, need: int, victims: bool) -> int:
    """The first domain in section 6's ranking that can cover the whole gang; NONE if no domain can."""
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
    best, w.h[c.SEEN] = NONE, 0
    start, count, bits, before = listed(w, need)
    i = following(w, bits, ZERO, count)
    while i < count and best == NONE:
        machine = at(w, c.T_ARENA, start + i)
        units = fitting_units(w, need, machine)
        if units > 0:
            touched, whole, best = _see(w, need, machine, units, touched, whole)
        else:
            strike(w, need, i)
        i = following(w, bits, i + 1, count)
    passed = 0
    machine = NONE if best != NONE else after(w, cluster, before)
    while machine >= 0 and best == NONE:
        if at(w, c.M_BOUND, machine) == cluster and admits(w, need, at(w, c.M_SHAPE, machine)):
            units = fitting_units(w, need, machine)
            if units > 0:
                touched, whole, best = _see(w, need, machine, units, touched, whole)
        passed += 1
        machine = after(w, cluster, machine)
    list_anew(w, need, passed)
    if best != NONE:
        _forget(w, touched)
        return best
    best, near = NONE, 0
    extra = note_extra(w, need, victims)
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
    put(w, c.N_NEAR, need, near)
    for i in range(extra):
        put(w, c.D_EXTRA, at(w, c.D_EXTRA_TOUCHED, i), 0)
    _forget(w, touched)
    return best


@walk
def _see(w: Work, need: int, machine: int, units: int, touched: int, whole: bool) -> tuple[int, bool, int]:
    """Count a machine with room, unless it is the gang's own: (domains touched, some are whole, the best if sure)."""
    if at(w, c.M_OWN, machine) == at(w, c.N_OWN, need):
        return touched, whole, NONE
    seen, asked = w.h[c.SEEN], at(w, c.N_ASKED, need)
    if seen >= w.h[c.LEN_SEATS]:
        w.h[c.OVERFLOW] = c.LEN_SEATS
        return touched, whole, NONE
    domain = domain_at(w, at(w, c.N_TOPOLOGY, need), at(w, c.M_SHAPE, machine))
    put(w, c.S_MACHINE, seen, machine)
    put(w, c.S_ROOM, seen, units)
    put(w, c.S_DOMAIN, seen, domain)
    w.h[c.SEEN] = seen + 1
    number = at(w, c.M_NUMBER, machine)
    touched = _add(w, domain, units, asked, NO, number, touched)
    if at(w, c.D_BOUND, domain) < asked:
        return touched, whole, NONE
    # In binding order the first domain that is whole has the oldest newest binding: nothing outranks it.
    # Only domains that are whole on the gang's own or on machines without a number have ties.
    return touched, True, domain if number > 0 and not whole else NONE


@walk
def _forget(w: Work, touched: int) -> None:
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
    """Whether one covering domain comes before another."""
    if at(w, c.D_BOUND, one) != at(w, c.D_BOUND, other):
        return at(w, c.D_BOUND, one) > at(w, c.D_BOUND, other)
    if at(w, c.D_NEWEST, one) != at(w, c.D_NEWEST, other):
        return at(w, c.D_NEWEST, one) < at(w, c.D_NEWEST, other)
    if at(w, c.D_OWN, one) != at(w, c.D_OWN, other):
        return at(w, c.D_OWN, one) > at(w, c.D_OWN, other)
    return is_smaller(w, need, one, other)


@walk
def best_domain_spread(w: Work, need: int, victims: bool) -> int:
    """The same for a gang whose row is also spread: each domain is tried whole."""
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
