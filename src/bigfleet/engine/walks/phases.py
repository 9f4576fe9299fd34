"""The three phases over all needs and clusters: what Python calls. Compiled; engine sections 5, 7 and 8.

Phase 1 credits and acquires. Phase 2 serves unmet needs again, with victims. Phase 3 asks what may be given back.
"""

from bigfleet.engine.codes import COMMITTED, CONFIGURED, PINNED, PODS_DIM
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Work, add, add_cell, at, cell, domain_at, put
from bigfleet.engine.heap.values import BOUGHT, NO, NONE, PREEMPT, ROBBED, YES, ZERO
from bigfleet.engine.jit import entry, walk
from bigfleet.engine.walks.acquire import acquire
from bigfleet.engine.walks.bind import unbind
from bigfleet.engine.walks.capacity import admits, fitting_units
from bigfleet.engine.walks.credit import credit_plain, take, take_divisible, untake
from bigfleet.engine.walks.gang.domains import could_be_completed
from bigfleet.engine.walks.machine_lists import list_all_with_room
from bigfleet.engine.walks.serve import credit_only, serve, serve_gang
from bigfleet.engine.walks.spread.levels import has_hard_spread
from bigfleet.engine.walks.spread.rows import credit_spread_in, serve_spread
from bigfleet.engine.walks.victims import (
    is_listed_for,
    list_victims,
    may_have_victims,
    preempt,
)


@entry
def phase_one(w: Work, rows: Array, awake: Array) -> None:
    """Phase 1: serve these needs in order, and note what each machine of the awake clusters serves and stands by."""
    w.h[c.LISTS_IN_USE] = 1
    for i in range(rows.shape[0]):
        serve(w, rows[i])
        if w.h[c.OVERFLOW]:
            return
    w.h[c.LISTS_IN_USE], w.h[c.SPARES_IN_TURN] = 0, w.h[c.SPARES]
    for cluster in range(w.h[c.LEN_CLUSTERS]):
        if awake[cluster]:
            note_standings(w, cluster)
    # What a need asleep in the next decision would have found in the pool is at least what is left of it now.
    for shape in range(w.h[c.LEN_SHAPES]):
        put(w, c.SHAPE_LEFT, shape, at(w, c.SHAPE_POOL, shape))
    for a in range(w.h[c.ACTIONS]):
        shape = at(w, c.M_SHAPE, at(w, c.A_MACHINE, a))
        add(w, c.SHAPE_LEFT, shape, -1)


@walk
def note_standings(w: Work, cluster: int) -> None:
    """Note for each machine of the cluster M_SERVES, M_STANDS_BY and M_SERVED_PINNED, by what needs take now."""
    machine = at(w, c.C_ALL_HEAD, cluster)
    while machine >= 0:
        put(w, c.M_SERVES, machine, NONE)
        machine = at(w, c.M_ALL_NEXT, machine)
    need = at(w, c.C_FIRST_NEED, cluster)
    while need >= 0:
        pinned = at(w, c.N_INTERRUPTION, need) == PINNED or at(w, c.N_RECLAMATION, need) == PINNED
        first = at(w, c.N_FIRST_ENTRY, need)
        for e in range(first, first + at(w, c.N_ENTRIES, need)):
            machine = at(w, c.E_MACHINE, e)
            if at(w, c.M_SERVES, machine) == NONE:
                put(w, c.M_SERVES, machine, need)
                stood = at(w, c.M_STANDS_BY, machine)
                if stood == NONE or at(w, c.N_RANK, need) < at(w, c.N_RANK, stood):
                    put(w, c.M_STANDS_BY, machine, need)
            if pinned:
                put(w, c.M_SERVED_PINNED, machine, 1)
        need = at(w, c.N_NEXT, need)


@walk
def save(w: Work, need: int) -> None:
    """Remember what the need takes in its N_SAVED_ columns, and let it take nothing."""
    put(w, c.N_SAVED_FIRST_ENTRY, need, at(w, c.N_FIRST_ENTRY, need))
    put(w, c.N_SAVED_ENTRIES, need, at(w, c.N_ENTRIES, need))
    put(w, c.N_SAVED_MISSING, need, at(w, c.N_MISSING, need))
    put(w, c.N_SAVED_DOMAIN, need, at(w, c.N_DOMAIN, need))
    put(w, c.N_SAVED_SATISFIABLE, need, at(w, c.N_SATISFIABLE, need))
    untake(w, need)


@walk
def restore(w: Work, need: int) -> None:
    """Let the need take again what it took when it was saved."""
    untake(w, need)
    first, count = at(w, c.N_SAVED_FIRST_ENTRY, need), at(w, c.N_SAVED_ENTRIES, need)
    unit = at(w, c.N_UNIT, need)
    for e in range(first, first + count):
        machine, v = at(w, c.E_MACHINE, e), at(w, c.E_VECTOR, e)
        for d in range(w.h[c.WIDTH]):
            if v >= 0:
                add_cell(w, c.T_FREE, machine, d, -cell(w, c.T_VECTOR, v, d))
                if d != PODS_DIM:
                    add_cell(w, c.T_GAP, need, d, -cell(w, c.T_VECTOR, v, d))
            else:
                add_cell(w, c.T_FREE, machine, d, -at(w, c.E_UNITS, e) * cell(w, c.T_UNIT, unit, d))
    put(w, c.N_FIRST_ENTRY, need, first)
    put(w, c.N_ENTRIES, need, count)
    put(w, c.N_MISSING, need, at(w, c.N_SAVED_MISSING, need))
    put(w, c.N_DOMAIN, need, at(w, c.N_SAVED_DOMAIN, need))
    put(w, c.N_SATISFIABLE, need, at(w, c.N_SAVED_SATISFIABLE, need))


@entry
def phase_two(w: Work, order: Array) -> None:
    """Phase 2: serve every unmet need again, in order. A need may then preempt what it can neither take nor buy."""
    list_victims(w, order, ZERO, NO)
    for i in range(order.shape[0]):
        need = order[i]
        if at(w, c.N_MISSING, need) > 0:
            if not is_listed_for(w, need):
                # The need was met when victims were listed, and was robbed since. Needs behind it may be robbed too.
                list_victims(w, order, i, YES)
                w.h[c.VERSION] = w.h[c.VERSION] + 1
            serve_once_more(w, need)
            if w.h[c.OVERFLOW]:
                return
    # A purchase that serves no need by now is taken back.
    for a in range(w.h[c.ACTIONS]):
        machine = at(w, c.A_MACHINE, a)
        kind = at(w, c.A_KIND, a)
        if kind != NONE and kind != PREEMPT and at(w, c.M_SERVES, machine) == NONE:
            unbind(w, machine)


@walk
def serve_once_more(w: Work, need: int) -> None:
    """Serve an unmet need as if later needs of its cluster took nothing; then credit those with what is left.

    Where that changes nothing for the need, all of them take again what they took before.
    """
    cluster = at(w, c.N_CLUSTER, need)
    if at(w, c.C_DISTURBED, cluster) != ROBBED and not _may_be_relieved(w, need):
        return
    for d in range(w.h[c.WIDTH]):
        put(w, c.T_SAVED_GAP, d, cell(w, c.T_GAP, need, d))
    missing, entries, vectors = at(w, c.N_MISSING, need), w.h[c.ENTRIES], w.h[c.VECTORS]
    later = need
    while later >= 0:
        save(w, later)
        later = at(w, c.N_NEXT, later)
    list_all_with_room(w, cluster)
    actions = w.h[c.ACTIONS]
    if at(w, c.N_TOPOLOGY, need) >= 0:
        serve_gang(w, need, YES)
    elif has_hard_spread(w, need):
        serve_spread(w, need, NONE, at(w, c.N_ACTS, need) == 1, YES, NO)
    else:
        credit_plain(w, need)
        if at(w, c.N_ACTS, need) and at(w, c.N_MISSING, need) > 0:
            acquire(w, need, NONE, YES)
            preempt(w, need, NONE)
    if w.h[c.ACTIONS] == actions and not _is_less_short(w, need, missing):
        later = need
        while later >= 0:
            restore(w, later)
            later = at(w, c.N_NEXT, later)
        w.h[c.ENTRIES], w.h[c.VECTORS] = entries, vectors
        return
    w.h[c.VERSION] = w.h[c.VERSION] + 1
    later = at(w, c.N_NEXT, need)
    while later >= 0:
        credit_only(w, later)
        later = at(w, c.N_NEXT, later)
    note_standings(w, cluster)


@walk
def _may_be_relieved(w: Work, need: int) -> bool:
    """Whether serving an unmet need again could help it, given that its cluster was not robbed.

    Victims could help it. What its cluster bought for later needs could help it too.
    """
    bought = at(w, c.C_DISTURBED, at(w, c.N_CLUSTER, need)) == BOUGHT
    if not bought and (not at(w, c.N_ACTS, need) or w.h[c.VICTIMS] == 0):
        return False
    if at(w, c.N_TOPOLOGY, need) >= 0 and not has_hard_spread(w, need):
        return could_be_completed(w, need)
    return bought or may_have_victims(w, need)


@walk
def _is_less_short(w: Work, need: int, missing: int) -> bool:
    """Whether the need lacks less than so many units, or than T_SAVED_GAP: less of one resource and more of none."""
    if not at(w, c.N_DIVISIBLE, need):
        return at(w, c.N_MISSING, need) < missing
    less = False
    for d in range(PODS_DIM + 1, w.h[c.WIDTH]):
        if cell(w, c.T_GAP, need, d) > at(w, c.T_SAVED_GAP, d):
            return False
        less = less or cell(w, c.T_GAP, need, d) < at(w, c.T_SAVED_GAP, d)
    return less


@entry
def strike_taken(w: Work, cluster: int, order: Array, place: Array, left: Array) -> None:
    """Clear `left` for each machine that some need takes when the cluster is credited in this order of machines.

    `left` is found by `place`, which is found by machine. A gang stays in its domain. In the end all needs take what
    they took before.
    """
    entries, vectors = w.h[c.ENTRIES], w.h[c.VECTORS]
    need = at(w, c.C_FIRST_NEED, cluster)
    while need >= 0:
        save(w, need)
        need = at(w, c.N_NEXT, need)
    need = at(w, c.C_FIRST_NEED, cluster)
    while need >= 0:
        _credit_one_in(w, need, order)
        first = at(w, c.N_FIRST_ENTRY, need)
        for e in range(first, first + at(w, c.N_ENTRIES, need)):
            left[place[at(w, c.E_MACHINE, e)]] = False
        need = at(w, c.N_NEXT, need)
    _restore_all(w, cluster)
    w.h[c.ENTRIES], w.h[c.VECTORS] = entries, vectors


@walk
def _credit_one_in(w: Work, need: int, order: Array) -> None:
    """Credit a need that takes nothing now with these machines, in this order."""
    cluster, topology, domain = at(w, c.N_CLUSTER, need), at(w, c.N_TOPOLOGY, need), at(w, c.N_DOMAIN, need)
    if has_hard_spread(w, need):
        credit_spread_in(w, need, domain, order)
        return
    for i in range(order.shape[0]):
        if at(w, c.N_MISSING, need) <= 0:
            return
        machine = order[i]
        shape = at(w, c.M_SHAPE, machine)
        if at(w, c.M_BOUND, machine) != cluster or not admits(w, need, shape):
            continue
        if topology >= 0 and domain_at(w, topology, shape) != domain:
            continue
        if at(w, c.N_DIVISIBLE, need):
            take_divisible(w, need, machine)
        else:
            units = min(fitting_units(w, need, machine), at(w, c.N_MISSING, need))
            if units > 0:
                take(w, need, machine, units)


@entry
def is_covered_without(w: Work, cluster: int, going: Array) -> bool:
    """Whether every need of the cluster is met when the cluster is credited in binding order without these machines.

    Machines that are given back drain for nobody, so they are candidates: each is tried as a spare. In the end all
    needs take what they took before.
    """
    entries, vectors, spares, loose = w.h[c.ENTRIES], w.h[c.VECTORS], w.h[c.SPARES], w.h[c.SPARE_RETURNED]
    first = w.h[c.FIRST_SPARE] + spares
    for i in range(going.shape[0]):
        machine = going[i]
        shape = at(w, c.M_SHAPE, machine)
        put(w, c.M_BOUND, machine, NONE)
        if not at(w, c.M_NOT_YET, machine) and not at(w, c.SHAPE_HELD, shape):
            put(w, c.COHORT_SHAPE, first + i, shape)
            put(w, c.COHORT_LEFT, first + i, 1)
    w.h[c.SPARES], w.h[c.SPARE_RETURNED] = spares + going.shape[0], 1
    need = at(w, c.C_FIRST_NEED, cluster)
    while need >= 0:
        save(w, need)
        need = at(w, c.N_NEXT, need)
    list_all_with_room(w, cluster)
    covered = True
    need = at(w, c.C_FIRST_NEED, cluster)
    while need >= 0:
        credit_only(w, need)
        covered = covered and at(w, c.N_MISSING, need) <= 0
        need = at(w, c.N_NEXT, need)
    for i in range(going.shape[0]):
        put(w, c.M_BOUND, going[i], cluster)
        put(w, c.COHORT_LEFT, first + i, 0)
    _restore_all(w, cluster)
    w.h[c.ENTRIES], w.h[c.VECTORS], w.h[c.SPARES], w.h[c.SPARE_RETURNED] = entries, vectors, spares, loose
    return covered


@walk
def _restore_all(w: Work, cluster: int) -> None:
    """Let every need of the cluster take what it took when it was saved."""
    need = at(w, c.C_FIRST_NEED, cluster)
    while need >= 0:
        untake(w, need)
        need = at(w, c.N_NEXT, need)
    need = at(w, c.C_FIRST_NEED, cluster)
    while need >= 0:
        restore(w, need)
        need = at(w, c.N_NEXT, need)
    list_all_with_room(w, cluster)


@entry
def mark_excess(w: Work, touched: Array) -> None:
    """Set C_EXCESS of each touched cluster: whether a Configured machine of it serves no need."""
    for cluster in range(w.h[c.LEN_CLUSTERS]):
        if not touched[cluster] and not at(w, c.C_DISTURBED, cluster):
            continue
        excess = 0
        machine = at(w, c.C_ALL_HEAD, cluster)
        while machine >= 0 and not excess:
            if (
                at(w, c.M_SERVES, machine) == NONE
                and at(w, c.M_BOUND, machine) == cluster
                and at(w, c.M_STATE, machine) == CONFIGURED
                and at(w, c.M_ACTION, machine) == NONE
                and not at(w, c.M_FLAGS, machine) & COMMITTED
            ):
                excess = 1
            machine = at(w, c.M_ALL_NEXT, machine)
        put(w, c.C_EXCESS, cluster, excess)


@entry
def is_covered(w: Work, cluster: int) -> bool:
    """Whether no need of the cluster lacks anything."""
    need = at(w, c.C_FIRST_NEED, cluster)
    while need >= 0:
        if at(w, c.N_MISSING, need) > 0:
            return False
        need = at(w, c.N_NEXT, need)
    return True
