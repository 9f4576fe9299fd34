"""Domains: units of a gang that each holds, in all, in the pool, in spares and victims. Compiled; engine section 6.

What is the same for all needs of a kind is worked out once in a decision and kept in the KIND_ columns.
"""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, at, domain_at, domain_rank_at, put, room_in_arena, sort
from bigfleet.engine.heap.values import LARGE, NONE, TOTALS
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.capacity import admits, fresh_units, note_reliance
from bigfleet.engine.walks.cohorts import closed_spares, cohort_range, is_open, open_spares
from bigfleet.engine.walks.victims import may_preempt


@walk
def is_smaller(w: Work, need: int, one: int, other: int) -> bool:
    """Whether one domain comes before another by size: the smaller total of units, then the value of the domain."""
    one_total, other_total = total_units(w, need, one), total_units(w, need, other)
    if one_total != other_total:
        return one_total < other_total
    topology = at(w, c.N_TOPOLOGY, need)
    return domain_rank_at(w, topology, one) < domain_rank_at(w, topology, other)


@walk
def total_units(w: Work, need: int, domain: int) -> int:
    """Units that all machines of a domain, untouched and in any state but Failed, would hold."""
    kind = at(w, c.N_KIND, need)
    note_reliance(w, need, TOTALS)
    if at(w, c.KIND_TOTALS, kind) == NONE:
        _sum_totals(w, need)
    return at(w, c.T_ARENA, at(w, c.KIND_TOTALS, kind) + domain)


@walk
def _sum_totals(w: Work, need: int) -> None:
    """Work out the totals of all domains, for all needs of this kind."""
    topology = at(w, c.N_TOPOLOGY, need)
    start = room_in_arena(w, at(w, c.T_DOMAIN_COUNT, topology))
    put(w, c.KIND_TOTALS, at(w, c.N_KIND, need), start)
    for shape in range(w.h[c.LEN_SHAPES]):
        domain = domain_at(w, topology, shape)
        if domain != NONE and at(w, c.SHAPE_COUNT, shape) and admits(w, need, shape):
            units = at(w, c.SHAPE_COUNT, shape) * fresh_units(w, need, shape)
            add(w, c.T_ARENA, start + domain, units)


@walk
def pool_units(w: Work, need: int, domain: int) -> int:
    """Units of the need that the cohorts of a domain hold."""
    units = 0
    start, end = cohort_range(w, need, domain)
    for i in range(start, end):
        cohort = at(w, c.T_COHORT_LIST, i)
        if at(w, c.COHORT_LEFT, cohort) > 0 and admits(w, need, at(w, c.COHORT_SHAPE, cohort)):
            units += at(w, c.COHORT_LEFT, cohort) * fresh_units(w, need, at(w, c.COHORT_SHAPE, cohort))
    return units


@walk
def sum_extra(w: Work, need: int, victims: bool) -> int:
    """Set D_EXTRA: units that each domain's spares hold and, with `victims`, its victims; how many domains have any."""
    topology, noted = at(w, c.N_TOPOLOGY, need), 0
    if not at(w, c.N_ACTS, need):
        return 0
    for i in range(closed_spares(w, need, victims), open_spares(w, victims)):
        cohort = w.h[c.FIRST_SPARE] + i
        shape = at(w, c.COHORT_SHAPE, cohort)
        if is_open(w, need, cohort, victims):
            noted = _add_extra(w, domain_at(w, topology, shape), fresh_units(w, need, shape), noted)
    if victims:
        for i in range(w.h[c.VICTIMS]):
            if at(w, c.T_STANDING, i) >= at(w, c.N_PRIORITY, need):
                break
            machine = at(w, c.T_VICTIM, i)
            shape = at(w, c.M_SHAPE, machine)
            if admits(w, need, shape) and may_preempt(w, need, machine):
                noted = _add_extra(w, domain_at(w, topology, shape), fresh_units(w, need, shape), noted)
    return noted


@walk
def _add_extra(w: Work, domain: int, units: int, noted: int) -> int:
    """Add units to D_EXTRA of a domain, and list the domain if it is new; how many are listed then."""
    if units <= 0:
        return noted
    if at(w, c.D_EXTRA, domain) == 0:
        put(w, c.D_EXTRA_TOUCHED, noted, domain)
        noted += 1
    add(w, c.D_EXTRA, domain, units)
    return noted


@walk
def could_be_completed(w: Work, need: int) -> bool:
    """Whether spares and victims could complete an unmet gang. Yes may be wrong, no may not.

    The bound is a sum: the most that its cluster's machines held in any domain in phase 1, the most that the pool holds
    in any domain, and the most that spares and victims hold in any domain.
    """
    kind, priority = at(w, c.N_KIND, need), at(w, c.N_PRIORITY, need)
    if at(w, c.KIND_EXTRA_VERSION, kind) != w.h[c.VERSION] or at(w, c.KIND_EXTRA_PRIORITY, kind) != priority:
        put(w, c.KIND_EXTRA_VERSION, kind, w.h[c.VERSION])
        put(w, c.KIND_EXTRA_PRIORITY, kind, priority)
        topology, noted, most = at(w, c.N_TOPOLOGY, need), 0, 0
        for i in range(w.h[c.SPARES]):
            shape = at(w, c.COHORT_SHAPE, w.h[c.FIRST_SPARE] + i)
            if admits(w, need, shape):
                noted = _add_extra(w, domain_at(w, topology, shape), fresh_units(w, need, shape), noted)
        for i in range(w.h[c.VICTIMS]):
            if at(w, c.T_STANDING, i) >= priority:
                break
            shape = at(w, c.M_SHAPE, at(w, c.T_VICTIM, i))
            if admits(w, need, shape):
                noted = _add_extra(w, domain_at(w, topology, shape), fresh_units(w, need, shape), noted)
        for i in range(noted):
            most = max(most, at(w, c.D_EXTRA, at(w, c.D_EXTRA_TOUCHED, i)))
            put(w, c.D_EXTRA, at(w, c.D_EXTRA_TOUCHED, i), 0)
        put(w, c.KIND_EXTRA, kind, most)
    if at(w, c.KIND_EXTRA, kind) == 0:
        return False
    return at(w, c.N_MOST_BOUND, need) + _most_in_pool(w, need) + at(w, c.KIND_EXTRA, kind) >= at(w, c.N_ASKED, need)


@walk
def can_complete(w: Work, need: int, domain: int, missing: int) -> bool:
    """Whether pool, spares and victims of a domain hold so many units of the gang."""
    if not at(w, c.N_ACTS, need):
        return False
    if at(w, c.D_EXTRA, domain) >= missing:
        return True
    return pool_units(w, need, domain) + at(w, c.D_EXTRA, domain) >= missing


@walk
def best_untouched(w: Work, need: int, asked: int, extra: int) -> int:
    """The first domain by size that holds nothing of the gang yet and could hold it whole; NONE if there is none."""
    best = NONE
    if asked <= _most_in_pool(w, need):
        best = _first_in_pool(w, need, asked)
    for i in range(extra):
        domain = at(w, c.D_EXTRA_TOUCHED, i)
        if at(w, c.D_BOUND, domain) == 0 and can_complete(w, need, domain, asked):
            if best == NONE or is_smaller(w, need, domain, best):
                best = domain
    return best


@walk
def _most_in_pool(w: Work, need: int) -> int:
    """A bound: no domain's cohorts hold more units of the need than this.

    It is worked out once for all needs of a kind. It stays a bound because cohorts only shrink.
    """
    kind = at(w, c.N_KIND, need)
    if at(w, c.KIND_POOL, kind) == NONE:
        most, topology = 0, at(w, c.N_TOPOLOGY, need)
        for cohort in range(w.h[c.FIRST_CLASS]):
            shape = at(w, c.COHORT_SHAPE, cohort)
            domain = domain_at(w, topology, shape)
            if domain != NONE and admits(w, need, shape):
                units = at(w, c.D_POOL, domain) + at(w, c.COHORT_LEFT, cohort) * fresh_units(w, need, shape)
                put(w, c.D_POOL, domain, units)
                most = max(most, units)
        for cohort in range(w.h[c.FIRST_CLASS]):
            domain = domain_at(w, topology, at(w, c.COHORT_SHAPE, cohort))
            if domain != NONE:
                put(w, c.D_POOL, domain, 0)
        put(w, c.KIND_POOL, kind, most)
    return at(w, c.KIND_POOL, kind)


@walk
def _first_in_pool(w: Work, need: int, asked: int) -> int:
    """The first domain by size whose cohorts hold the gang and which has nothing of it yet; NONE if there is none.

    Domains are sorted once for a kind. Each has a bound on what its cohorts hold, which is brought up to date only when
    the gang might fit.
    """
    kind = at(w, c.N_KIND, need)
    if at(w, c.KIND_LIST, kind) == NONE:
        _list_domains(w, need)
    start = at(w, c.KIND_LIST, kind)
    bounds = start + at(w, c.T_DOMAIN_COUNT, at(w, c.N_TOPOLOGY, need))
    for i in range(at(w, c.KIND_LISTED, kind)):
        if at(w, c.T_ARENA, bounds + i) < asked:
            continue
        domain = at(w, c.T_ARENA, start + i)
        if at(w, c.D_BOUND, domain) > 0:
            continue
        units = pool_units(w, need, domain)
        put(w, c.T_ARENA, bounds + i, units)
        if units >= asked:
            return domain
    return NONE


@walk
def _list_domains(w: Work, need: int) -> None:
    """List the domains with an admitted cohort, smallest total first, then by value; their bounds are open."""
    kind, topology = at(w, c.N_KIND, need), at(w, c.N_TOPOLOGY, need)
    count = at(w, c.T_DOMAIN_COUNT, topology)
    start = room_in_arena(w, 2 * count)
    known = 0
    for cohort in range(w.h[c.FIRST_CLASS]):
        domain = domain_at(w, topology, at(w, c.COHORT_SHAPE, cohort))
        if domain != NONE and at(w, c.D_POOL, domain) == 0 and admits(w, need, at(w, c.COHORT_SHAPE, cohort)):
            put(w, c.D_POOL, domain, 1)
            put(w, c.T_ARENA, start + known, domain)
            key = total_units(w, need, domain) * count + domain_rank_at(w, topology, domain)
            put(w, c.T_ARENA, start + count + known, key)
            known += 1
    for i in range(known):
        put(w, c.D_POOL, at(w, c.T_ARENA, start + i), 0)
    sort(w, w.h[c.T_ARENA] + start + count, w.h[c.T_ARENA] + start, known)
    for i in range(known):
        put(w, c.T_ARENA, start + count + i, LARGE)
    put(w, c.KIND_LIST, kind, start)
    put(w, c.KIND_LISTED, kind, known)
