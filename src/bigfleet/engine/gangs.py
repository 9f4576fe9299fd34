"""Gangs: one domain for all machines of a row. Compiled; section 6.

A gang that is whole on its own machines in one domain is not ranked: nothing outranks that.
"""

from typing import cast

import numpy as np

from bigfleet.engine.acquire import (
    acquire,
    cohort_range,
    is_open,
    open_spares,
)
from bigfleet.engine.compiled import walk
from bigfleet.engine.credit import (
    NONE,
    admits,
    after,
    credit_gang,
    credit_own,
    credit_plain,
    fitting_units,
    fresh_units,
    is_eligible,
    listed,
    look,
    strike,
    untake,
)
from bigfleet.engine.heap import (
    at,
    domain_at,
    domain_rank_at,
    put,
    room_in_arena,
    sort,
)
from bigfleet.engine.spread import fill_spread, has_hard_spread, own_spread_units, spread_prospect
from bigfleet.engine.victims import may_preempt, preempt
from bigfleet.engine.work import (
    ACTIONS,
    D_BOUND,
    D_EXTRA,
    D_EXTRA_TOUCHED,
    D_NEWEST,
    D_OWN,
    D_POOL,
    D_TOUCHED,
    FIRST_CLASS,
    FIRST_SPARE,
    H_COUNT,
    K_LEFT,
    K_SHAPE,
    KIND_ELIGIBLE,
    KIND_EXTRA,
    KIND_EXTRA_PRIORITY,
    KIND_EXTRA_VERSION,
    KIND_LIST,
    KIND_LISTED,
    KIND_POOL,
    KIND_TOTALS,
    LEN_SEATS,
    LEN_SHAPES,
    M_BOUND,
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
    N_NEAR,
    N_OWN,
    N_OWN_HEAD,
    N_PRIORITY,
    N_SATISFIABLE,
    N_TOPOLOGY,
    NO,
    OVERFLOW,
    PRESENCE,
    S_MACHINE,
    S_ROOM,
    SEEN,
    SPARES,
    T_ARENA,
    T_COHORT_LIST,
    T_DOMAIN_COUNT,
    T_STANDING,
    T_VICTIM,
    TOTALS,
    VERSION,
    VICTIMS,
    YES,
    Work,
)

ZERO = cast("int", np.int64(0))
NEVER = cast("int", np.int64(1 << 62))
"""Newer than any binding: what a purchase counts as."""


@walk
def serve(w: Work, need: int) -> None:
    """Credit, then acquire: phase 1 for one need."""
    if at(w, N_TOPOLOGY, need) >= 0:
        if not is_whole_on_own(w, need):
            serve_gang(w, need, NO)
    elif has_hard_spread(w, need):
        fill_spread(w, need, NONE, at(w, N_ACTS, need) == 1, NO, NO)
    else:
        credit_plain(w, need)
        if at(w, N_MISSING, need) > 0:
            acquire(w, need, NONE, NO)


@walk
def credit_only(w: Work, need: int) -> None:
    """What a need takes before it acquires; a gang in the domain that it would choose now."""
    if at(w, N_TOPOLOGY, need) < 0:
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
    put(w, N_DOMAIN, need, domain)
    put(w, N_SATISFIABLE, need, 1)
    if has_hard_spread(w, need):
        fill_spread(w, need, domain, NO, NO, NO)
    else:
        credit_gang(w, need, domain)


@walk
def is_whole_on_own(w: Work, need: int) -> bool:
    """Serve the gang from its own machines if they cover it and all stand in one domain."""
    machine = at(w, N_OWN_HEAD, need)
    if machine == NONE or has_hard_spread(w, need):
        return False
    cluster, topology = at(w, N_CLUSTER, need), at(w, N_TOPOLOGY, need)
    domain, units = NONE, 0
    while machine >= 0:
        shape = at(w, M_SHAPE, machine)
        if at(w, M_BOUND, machine) == cluster and admits(w, need, shape):
            fitting = fitting_units(w, need, machine)
            if fitting > 0:
                if domain != NONE and domain != domain_at(w, topology, shape):
                    return False
                domain = domain_at(w, topology, shape)
                units += fitting
        machine = at(w, M_OWN_NEXT, machine)
    if domain == NONE or units < at(w, N_MISSING, need):
        return False
    put(w, N_DOMAIN, need, domain)
    put(w, N_SATISFIABLE, need, 1)
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
    put(w, N_DOMAIN, need, domain)
    put(w, N_SATISFIABLE, need, 1)
    if has_hard_spread(w, need):
        fill_spread(w, need, domain, at(w, N_ACTS, need) == 1, victims, NO)
        return True
    credit_gang(w, need, domain)
    if at(w, N_MISSING, need) > 0:
        before = w.h[ACTIONS]
        acquire(w, need, domain, victims)
        if victims and at(w, N_MISSING, need) > 0:
            preempt(w, need, domain)
        if w.h[ACTIONS] > before:
            untake(w, need)
            credit_gang(w, need, domain)
    return True


@walk
def best_domain(w: Work, need: int, victims: bool) -> int:
    """The first domain in section 6's ranking that can cover the whole gang; NONE if no domain can."""
    if has_hard_spread(w, need):
        return best_domain_spread(w, need, victims)
    cluster, topology, asked = at(w, N_CLUSTER, need), at(w, N_TOPOLOGY, need), at(w, N_ASKED, need)
    touched, whole = 0, False
    machine = at(w, N_OWN_HEAD, need)
    while machine >= 0:
        shape = at(w, M_SHAPE, machine)
        if at(w, M_BOUND, machine) == cluster and admits(w, need, shape):
            units = fitting_units(w, need, machine)
            if units > 0:
                domain = domain_at(w, topology, shape)
                touched = _add(w, domain, units, asked, YES, ZERO, touched)
                whole = whole or at(w, D_BOUND, domain) >= asked
        machine = at(w, M_OWN_NEXT, machine)
    best, w.h[SEEN] = NONE, 0
    start, to, before, own = listed(w, need)
    for i in range(start, to):
        machine = at(w, T_ARENA, i)
        if machine != NONE:
            units = fitting_units(w, need, machine)
            if units > 0:
                touched, whole, best = _see(w, need, machine, units, touched, whole)
                if best != NONE:
                    break
            elif own:
                strike(w, need, i)
    machine = NONE if best != NONE else after(w, cluster, before)
    while machine >= 0 and best == NONE:
        if at(w, M_BOUND, machine) == cluster and admits(w, need, at(w, M_SHAPE, machine)):
            units = fitting_units(w, need, machine)
            if units > 0:
                touched, whole, best = _see(w, need, machine, units, touched, whole)
        machine = after(w, cluster, machine)
    if best != NONE:
        _forget(w, touched)
        return best
    best, near = NONE, 0
    extra = _note_extra(w, need, victims)
    for i in range(touched):
        domain = at(w, D_TOUCHED, i)
        bound = at(w, D_BOUND, domain)
        near = max(near, bound)
        if bound < asked:
            put(w, D_NEWEST, domain, NEVER)
            if not _can_complete(w, need, domain, asked - bound):
                continue
        if best == NONE or _outranks(w, need, domain, best):
            best = domain
    if best == NONE and at(w, N_ACTS, need):
        best = _best_untouched(w, need, asked, extra)
    put(w, N_NEAR, need, near)
    for i in range(extra):
        put(w, D_EXTRA, at(w, D_EXTRA_TOUCHED, i), 0)
    _forget(w, touched)
    return best


@walk
def _see(w: Work, need: int, machine: int, units: int, touched: int, whole: bool) -> tuple[int, bool, int]:
    """Count a machine with room, unless it is the gang's own: (domains touched, some are whole, the best if sure)."""
    if at(w, M_OWN, machine) == at(w, N_OWN, need):
        return touched, whole, NONE
    seen, asked = w.h[SEEN], at(w, N_ASKED, need)
    if seen >= w.h[LEN_SEATS]:
        w.h[OVERFLOW] = LEN_SEATS
        return touched, whole, NONE
    put(w, S_MACHINE, seen, machine)
    put(w, S_ROOM, seen, units)
    w.h[SEEN] = seen + 1
    domain = domain_at(w, at(w, N_TOPOLOGY, need), at(w, M_SHAPE, machine))
    number = at(w, M_NUMBER, machine)
    touched = _add(w, domain, units, asked, NO, number, touched)
    if at(w, D_BOUND, domain) < asked:
        return touched, whole, NONE
    # In binding order the first domain that is whole has the oldest newest binding: nothing outranks it.
    # Only domains that are whole on the gang's own or on machines without a number have ties.
    return touched, True, domain if number > 0 and not whole else NONE


@walk
def _forget(w: Work, touched: int) -> None:
    """Clear the sums of the domains that were touched."""
    for i in range(touched):
        domain = at(w, D_TOUCHED, i)
        put(w, D_BOUND, domain, 0)
        put(w, D_OWN, domain, 0)
        put(w, D_NEWEST, domain, 0)


@walk
def _add(w: Work, domain: int, units: int, asked: int, own: bool, number: int, touched: int) -> int:
    """Count one bound machine for its domain, as far as the gang would still take from it."""
    if at(w, D_BOUND, domain) >= asked:
        return touched
    if at(w, D_BOUND, domain) == 0:
        put(w, D_TOUCHED, touched, domain)
        touched += 1
    units = min(units, asked - at(w, D_BOUND, domain))
    put(w, D_BOUND, domain, at(w, D_BOUND, domain) + units)
    if own:
        put(w, D_OWN, domain, at(w, D_OWN, domain) + units)
    else:
        put(w, D_NEWEST, domain, max(at(w, D_NEWEST, domain), number))
    return touched


@walk
def _outranks(w: Work, need: int, one: int, other: int) -> bool:
    """Whether one covering domain comes before another."""
    if at(w, D_BOUND, one) != at(w, D_BOUND, other):
        return at(w, D_BOUND, one) > at(w, D_BOUND, other)
    if at(w, D_NEWEST, one) != at(w, D_NEWEST, other):
        return at(w, D_NEWEST, one) < at(w, D_NEWEST, other)
    if at(w, D_OWN, one) != at(w, D_OWN, other):
        return at(w, D_OWN, one) > at(w, D_OWN, other)
    return _is_smaller(w, need, one, other)


@walk
def _is_smaller(w: Work, need: int, one: int, other: int) -> bool:
    """Smaller total over all machines in any state but Failed, then value."""
    one_total, other_total = total_units(w, need, one), total_units(w, need, other)
    if one_total != other_total:
        return one_total < other_total
    topology = at(w, N_TOPOLOGY, need)
    return domain_rank_at(w, topology, one) < domain_rank_at(w, topology, other)


@walk
def total_units(w: Work, need: int, domain: int) -> int:
    """Units that all machines of a domain, untouched and in any state but Failed, would hold."""
    kind = at(w, N_KIND, need)
    look(w, need, TOTALS)
    if at(w, KIND_TOTALS, kind) == NONE:
        _sum_totals(w, need)
    return at(w, T_ARENA, at(w, KIND_TOTALS, kind) + domain)


@walk
def _sum_totals(w: Work, need: int) -> None:
    """Work the totals of all domains out, once for all needs of a kind."""
    topology = at(w, N_TOPOLOGY, need)
    start = room_in_arena(w, at(w, T_DOMAIN_COUNT, topology))
    put(w, KIND_TOTALS, at(w, N_KIND, need), start)
    for shape in range(w.h[LEN_SHAPES]):
        domain = domain_at(w, topology, shape)
        if domain != NONE and at(w, H_COUNT, shape) and admits(w, need, shape):
            units = at(w, H_COUNT, shape) * fresh_units(w, need, shape)
            put(w, T_ARENA, start + domain, at(w, T_ARENA, start + domain) + units)


@walk
def pool_units(w: Work, need: int, domain: int) -> int:
    """Units that the cohorts of a domain hold."""
    units = 0
    start, end = cohort_range(w, need, domain)
    for i in range(start, end):
        cohort = at(w, T_COHORT_LIST, i)
        if at(w, K_LEFT, cohort) > 0 and admits(w, need, at(w, K_SHAPE, cohort)):
            units += at(w, K_LEFT, cohort) * fresh_units(w, need, at(w, K_SHAPE, cohort))
    return units


@walk
def _note_extra(w: Work, need: int, victims: bool) -> int:
    """Sum what a domain offers beyond its cohorts: spares and, if they may be taken, victims; how many domains do."""
    topology, noted = at(w, N_TOPOLOGY, need), 0
    if not at(w, N_ACTS, need):
        return 0
    for i in range(open_spares(w, victims)):
        cohort = w.h[FIRST_SPARE] + i
        shape = at(w, K_SHAPE, cohort)
        if is_open(w, need, cohort, victims):
            noted = _add_extra(w, domain_at(w, topology, shape), fresh_units(w, need, shape), noted)
    if victims:
        for i in range(w.h[VICTIMS]):
            if at(w, T_STANDING, i) >= at(w, N_PRIORITY, need):
                break
            machine = at(w, T_VICTIM, i)
            shape = at(w, M_SHAPE, machine)
            if admits(w, need, shape) and may_preempt(w, need, machine):
                noted = _add_extra(w, domain_at(w, topology, shape), fresh_units(w, need, shape), noted)
    return noted


@walk
def _add_extra(w: Work, domain: int, units: int, noted: int) -> int:
    """Add to what a domain offers."""
    if units <= 0:
        return noted
    if at(w, D_EXTRA, domain) == 0:
        put(w, D_EXTRA_TOUCHED, noted, domain)
        noted += 1
    put(w, D_EXTRA, domain, at(w, D_EXTRA, domain) + units)
    return noted


@walk
def could_be_completed(w: Work, need: int) -> bool:
    """Whether anything speaks for it that victims could complete an unmet gang: bounds, worked out once a kind.

    What its cluster's machines held for it in phase 1, and the most that any domain's pool, spares and victims hold.
    """
    kind, priority = at(w, N_KIND, need), at(w, N_PRIORITY, need)
    if at(w, KIND_EXTRA_VERSION, kind) != w.h[VERSION] or at(w, KIND_EXTRA_PRIORITY, kind) != priority:
        put(w, KIND_EXTRA_VERSION, kind, w.h[VERSION])
        put(w, KIND_EXTRA_PRIORITY, kind, priority)
        topology, noted, most = at(w, N_TOPOLOGY, need), 0, 0
        for i in range(w.h[SPARES]):
            shape = at(w, K_SHAPE, w.h[FIRST_SPARE] + i)
            if admits(w, need, shape):
                noted = _add_extra(w, domain_at(w, topology, shape), fresh_units(w, need, shape), noted)
        for i in range(w.h[VICTIMS]):
            if at(w, T_STANDING, i) >= priority:
                break
            shape = at(w, M_SHAPE, at(w, T_VICTIM, i))
            if admits(w, need, shape):
                noted = _add_extra(w, domain_at(w, topology, shape), fresh_units(w, need, shape), noted)
        for i in range(noted):
            most = max(most, at(w, D_EXTRA, at(w, D_EXTRA_TOUCHED, i)))
            put(w, D_EXTRA, at(w, D_EXTRA_TOUCHED, i), 0)
        put(w, KIND_EXTRA, kind, most)
    if at(w, KIND_EXTRA, kind) == 0:
        return False
    return at(w, N_NEAR, need) + _most_in_pool(w, need) + at(w, KIND_EXTRA, kind) >= at(w, N_ASKED, need)


@walk
def _can_complete(w: Work, need: int, domain: int, missing: int) -> bool:
    if not at(w, N_ACTS, need):
        return False
    if at(w, D_EXTRA, domain) >= missing:
        return True
    return pool_units(w, need, domain) + at(w, D_EXTRA, domain) >= missing


@walk
def _best_untouched(w: Work, need: int, asked: int, extra: int) -> int:
    """The first domain in which the gang has nothing yet and could be had whole."""
    best = NONE
    if asked <= _most_in_pool(w, need):
        best = _first_in_pool(w, need, asked)
    for i in range(extra):
        domain = at(w, D_EXTRA_TOUCHED, i)
        if at(w, D_BOUND, domain) == 0 and _can_complete(w, need, domain, asked):
            if best == NONE or _is_smaller(w, need, domain, best):
                best = domain
    return best


@walk
def _most_in_pool(w: Work, need: int) -> int:
    """No domain's cohorts hold more units of such a need than this.

    Worked out once for all needs of a kind: cohorts only shrink, so it stays a bound.
    """
    kind = at(w, N_KIND, need)
    if at(w, KIND_POOL, kind) == NONE:
        most, topology = 0, at(w, N_TOPOLOGY, need)
        for cohort in range(w.h[FIRST_CLASS]):
            shape = at(w, K_SHAPE, cohort)
            domain = domain_at(w, topology, shape)
            if domain != NONE and admits(w, need, shape):
                units = at(w, D_POOL, domain) + at(w, K_LEFT, cohort) * fresh_units(w, need, shape)
                put(w, D_POOL, domain, units)
                most = max(most, units)
        for cohort in range(w.h[FIRST_CLASS]):
            domain = domain_at(w, topology, at(w, K_SHAPE, cohort))
            if domain != NONE:
                put(w, D_POOL, domain, 0)
        put(w, KIND_POOL, kind, most)
    return at(w, KIND_POOL, kind)


@walk
def _first_in_pool(w: Work, need: int, asked: int) -> int:
    """The first domain by total and value whose cohorts alone hold the gang and in which it has nothing; NONE if none.

    Domains are sorted once a kind, each with a bound on what its cohorts hold that is worked out anew when it matters.
    """
    kind = at(w, N_KIND, need)
    if at(w, KIND_LIST, kind) == NONE:
        _list_domains(w, need)
    start = at(w, KIND_LIST, kind)
    bounds = start + at(w, T_DOMAIN_COUNT, at(w, N_TOPOLOGY, need))
    for i in range(at(w, KIND_LISTED, kind)):
        if at(w, T_ARENA, bounds + i) < asked:
            continue
        domain = at(w, T_ARENA, start + i)
        if at(w, D_BOUND, domain) > 0:
            continue
        units = pool_units(w, need, domain)
        put(w, T_ARENA, bounds + i, units)
        if units >= asked:
            return domain
    return NONE


@walk
def _list_domains(w: Work, need: int) -> None:
    """List the domains whose cohorts hold anything, smallest total first, then by value."""
    kind, topology = at(w, N_KIND, need), at(w, N_TOPOLOGY, need)
    count = at(w, T_DOMAIN_COUNT, topology)
    start = room_in_arena(w, 2 * count)
    known = 0
    for cohort in range(w.h[FIRST_CLASS]):
        domain = domain_at(w, topology, at(w, K_SHAPE, cohort))
        if domain != NONE and at(w, D_POOL, domain) == 0 and admits(w, need, at(w, K_SHAPE, cohort)):
            put(w, D_POOL, domain, 1)
            put(w, T_ARENA, start + known, domain)
            key = total_units(w, need, domain) * count + domain_rank_at(w, topology, domain)
            put(w, T_ARENA, start + count + known, key)
            known += 1
    for i in range(known):
        put(w, D_POOL, at(w, T_ARENA, start + i), 0)
    sort(w, w.h[T_ARENA] + start + count, w.h[T_ARENA] + start, known)
    for i in range(known):
        put(w, T_ARENA, start + count + i, NEVER)
    put(w, KIND_LIST, kind, start)
    put(w, KIND_LISTED, kind, known)


@walk
def best_domain_spread(w: Work, need: int, victims: bool) -> int:
    """The same for a gang whose row is also spread: each domain is tried whole."""
    best = NONE
    for domain in range(at(w, T_DOMAIN_COUNT, at(w, N_TOPOLOGY, need))):
        if total_units(w, need, domain) == 0:
            continue
        covers, bound, newest, own = spread_prospect(w, need, domain, victims)
        if not covers:
            continue
        put(w, D_BOUND, domain, bound)
        put(w, D_NEWEST, domain, newest)
        put(w, D_OWN, domain, own)
        if best == NONE or _outranks(w, need, domain, best):
            best = domain
    for domain in range(at(w, T_DOMAIN_COUNT, at(w, N_TOPOLOGY, need))):
        put(w, D_BOUND, domain, 0)
        put(w, D_OWN, domain, 0)
        put(w, D_NEWEST, domain, 0)
    return best


@walk
def keep_own(w: Work, need: int) -> None:
    """A gang that no domain can cover takes only its own machines, in the domain with most of them, then value."""
    topology = at(w, N_TOPOLOGY, need)
    put(w, N_SATISFIABLE, need, 0)
    best, held = NONE, 0
    machine = at(w, N_OWN_HEAD, need)
    while machine >= 0:
        domain = domain_at(w, topology, at(w, M_SHAPE, machine))
        if domain != NONE and domain != best:
            units = _own_units(w, need, domain)
            if units > held or (units == held and units > 0 and _comes_first(w, topology, domain, best)):
                best, held = domain, units
        machine = at(w, M_OWN_NEXT, machine)
    if best == NONE:
        best = _first_eligible(w, need)
    put(w, N_DOMAIN, need, best)
    if held > 0:
        if has_hard_spread(w, need):
            fill_spread(w, need, best, NO, NO, YES)
        else:
            credit_own(w, need, best)


@walk
def _comes_first(w: Work, topology: int, one: int, other: int) -> bool:
    """Whether one domain's value sorts before another's."""
    return domain_rank_at(w, topology, one) < domain_rank_at(w, topology, other)


@walk
def _first_eligible(w: Work, need: int) -> int:
    """The first domain by value in which a machine could serve the need at all; NONE if there is none."""
    topology, best, kind = at(w, N_TOPOLOGY, need), NONE, at(w, N_KIND, need)
    look(w, need, PRESENCE)
    if at(w, KIND_ELIGIBLE, kind) != NONE:
        return at(w, KIND_ELIGIBLE, kind) - 1
    for shape in range(w.h[LEN_SHAPES]):
        domain = domain_at(w, topology, shape)
        if domain == NONE or domain == best or at(w, H_COUNT, shape) == 0:
            continue
        if (best == NONE or _comes_first(w, topology, domain, best)) and is_eligible(w, need, shape):
            best = domain
    put(w, KIND_ELIGIBLE, kind, best + 1)
    return best


@walk
def _own_units(w: Work, need: int, domain: int) -> int:
    """Units of the gang that its own machines in a domain hold now."""
    if has_hard_spread(w, need):
        return own_spread_units(w, need, domain)
    cluster, topology = at(w, N_CLUSTER, need), at(w, N_TOPOLOGY, need)
    asked, units = at(w, N_ASKED, need), 0
    machine = at(w, N_OWN_HEAD, need)
    while machine >= 0 and units < asked:
        shape = at(w, M_SHAPE, machine)
        if at(w, M_BOUND, machine) == cluster and domain_at(w, topology, shape) == domain and admits(w, need, shape):
            units += fitting_units(w, need, machine)
        machine = at(w, M_OWN_NEXT, machine)
    return min(units, asked)
