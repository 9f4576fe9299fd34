"""Serve: one need gets what it takes and buys, a gang in one domain. Compiled; engine sections 5 and 6.

For a gang that its own machines in one domain hold whole, no domain is chosen: nothing outranks that one.
"""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, at, domain_at, domain_rank_at, put
from bigfleet.engine.heap.values import NO, NONE, PRESENCE, YES
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.acquire import acquire
from bigfleet.engine.walks.capacity import admits, fitting_units, is_eligible, note_reliance
from bigfleet.engine.walks.credit import credit_gang, credit_own, credit_plain, untake
from bigfleet.engine.walks.gang.ranking import best_domain
from bigfleet.engine.walks.spread.levels import has_hard_spread
from bigfleet.engine.walks.spread.rows import serve_spread, units_on_own_seats
from bigfleet.engine.walks.victims import preempt


@walk
def serve(w: Work, need: int) -> None:
    """Serve one need in phase 1: credit it, then let it acquire what it still lacks."""
    if at(w, c.N_TOPOLOGY, need) >= 0:
        if not serve_whole_from_own(w, need):
            serve_gang(w, need, NO)
    elif has_hard_spread(w, need):
        serve_spread(w, need, NONE, at(w, c.N_ACTS, need) == 1, NO, NO)
    else:
        credit_plain(w, need)
        if at(w, c.N_MISSING, need) > 0:
            acquire(w, need, NONE, NO)


@walk
def credit_only(w: Work, need: int) -> None:
    """Credit one need without letting it acquire; a gang in the domain that it would choose now."""
    if at(w, c.N_TOPOLOGY, need) < 0:
        if has_hard_spread(w, need):
            serve_spread(w, need, NONE, NO, NO, NO)
        else:
            credit_plain(w, need)
        return
    if serve_whole_from_own(w, need):
        return
    domain = best_domain(w, need, NO)
    if domain == NONE:
        keep_own(w, need)
        return
    put(w, c.N_DOMAIN, need, domain)
    put(w, c.N_SATISFIABLE, need, 1)
    if has_hard_spread(w, need):
        serve_spread(w, need, domain, NO, NO, NO)
    else:
        credit_gang(w, need, domain)


@walk
def serve_whole_from_own(w: Work, need: int) -> bool:
    """Serve the gang from its own machines if they hold it whole and all stand in one domain; whether they do."""
    machine = at(w, c.N_OWN_HEAD, need)
    if machine == NONE or has_hard_spread(w, need):
        return False
    cluster, topology = at(w, c.N_CLUSTER, need), at(w, c.N_TOPOLOGY, need)
    domain, units = NONE, 0
    while machine >= 0:
        shape = at(w, c.M_SHAPE, machine)
        if at(w, c.M_BOUND, machine) == cluster and admits(w, need, shape):
            fitting = fitting_units(w, need, machine)
            if fitting > 0:
                if domain != NONE and domain != domain_at(w, topology, shape):
                    return False
                domain = domain_at(w, topology, shape)
                units += fitting
        machine = at(w, c.M_OWN_NEXT, machine)
    if domain == NONE or units < at(w, c.N_MISSING, need):
        return False
    put(w, c.N_DOMAIN, need, domain)
    put(w, c.N_SATISFIABLE, need, 1)
    credit_own(w, need, domain)
    return True


@walk
def serve_gang(w: Work, need: int, victims: bool) -> None:
    """Serve the gang in the best domain that can cover it; if there is none, leave it with its own machines.

    With `victims`, in phase 2, a gang that no domain can cover takes nothing; the caller restores what it had.
    """
    domain = best_domain(w, need, victims)
    if domain == NONE:
        if not victims:
            keep_own(w, need)
        return
    put(w, c.N_DOMAIN, need, domain)
    put(w, c.N_SATISFIABLE, need, 1)
    if has_hard_spread(w, need):
        serve_spread(w, need, domain, at(w, c.N_ACTS, need) == 1, victims, NO)
        return
    credit_gang(w, need, domain)
    if at(w, c.N_MISSING, need) > 0:
        before = w.h[c.ACTIONS]
        acquire(w, need, domain, victims)
        if victims and at(w, c.N_MISSING, need) > 0:
            preempt(w, need, domain)
        if w.h[c.ACTIONS] > before:
            untake(w, need)
            credit_gang(w, need, domain)


@walk
def keep_own(w: Work, need: int) -> None:
    """Let a gang that no domain can cover take its own machines only, in the domain where they hold most units."""
    topology = at(w, c.N_TOPOLOGY, need)
    put(w, c.N_SATISFIABLE, need, 0)
    best, held = NONE, 0
    machine = at(w, c.N_OWN_HEAD, need)
    while machine >= 0:
        domain = domain_at(w, topology, at(w, c.M_SHAPE, machine))
        if domain != NONE and domain != best:
            units = _own_units(w, need, domain)
            if units > held or (units == held and units > 0 and _comes_first(w, topology, domain, best)):
                best, held = domain, units
        machine = at(w, c.M_OWN_NEXT, machine)
    if best == NONE:
        best = _first_eligible(w, need)
    put(w, c.N_DOMAIN, need, best)
    if held > 0:
        if has_hard_spread(w, need):
            serve_spread(w, need, best, NO, NO, YES)
        else:
            credit_own(w, need, best)


@walk
def _comes_first(w: Work, topology: int, one: int, other: int) -> bool:
    """Whether one domain's value sorts before another's."""
    return domain_rank_at(w, topology, one) < domain_rank_at(w, topology, other)


@walk
def _first_eligible(w: Work, need: int) -> int:
    """The first domain by value in which a machine could serve the need at all; NONE if there is none."""
    topology, best, kind = at(w, c.N_TOPOLOGY, need), NONE, at(w, c.N_KIND, need)
    note_reliance(w, need, PRESENCE)
    if at(w, c.KIND_ELIGIBLE, kind) != NONE:
        return at(w, c.KIND_ELIGIBLE, kind) - 1
    for shape in range(w.h[c.LEN_SHAPES]):
        domain = domain_at(w, topology, shape)
        if domain == NONE or domain == best or at(w, c.SHAPE_COUNT, shape) == 0:
            continue
        if (best == NONE or _comes_first(w, topology, domain, best)) and is_eligible(w, need, shape):
            best = domain
    put(w, c.KIND_ELIGIBLE, kind, best + 1)
    return best


@walk
def _own_units(w: Work, need: int, domain: int) -> int:
    """Units of the gang that its own machines in a domain hold now."""
    if has_hard_spread(w, need):
        return units_on_own_seats(w, need, domain)
    cluster, topology = at(w, c.N_CLUSTER, need), at(w, c.N_TOPOLOGY, need)
    asked, units = at(w, c.N_ASKED, need), 0
    machine = at(w, c.N_OWN_HEAD, need)
    while machine >= 0 and units < asked:
        shape = at(w, c.M_SHAPE, machine)
        if at(w, c.M_BOUND, machine) == cluster and domain_at(w, topology, shape) == domain and admits(w, need, shape):
            units += fitting_units(w, need, machine)
        machine = at(w, c.M_OWN_NEXT, machine)
    return min(units, asked)
