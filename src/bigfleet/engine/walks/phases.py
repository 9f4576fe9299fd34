"""The three phases over all needs and clusters, built from the walks. Compiled; sections 5, 7 and 8."""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Work, add, add_cell, at, cell, domain_at, put
from bigfleet.engine.heap.values import BOUGHT, NO, NONE, PREEMPT, ROBBED, YES, ZERO
from bigfleet.engine.jit import entry, walk
from bigfleet.engine.tables.validate import COMMITTED
from bigfleet.engine.walks.acquire import acquire
from bigfleet.engine.walks.bind import unbind
from bigfleet.engine.walks.capacity import admits, fitting_units
from bigfleet.engine.walks.credit import credit_plain, take, take_divisible, untake
from bigfleet.engine.walks.gang.domains import could_be_completed
from bigfleet.engine.walks.machine_lists import relink
from bigfleet.engine.walks.serve import credit_only, serve, serve_gang
from bigfleet.engine.walks.spread.levels import has_hard_spread
from bigfleet.engine.walks.spread.rows import fill_spread, fill_spread_in
from bigfleet.engine.walks.victims import (
    CONFIGURED,
    PINNED,
    is_listed_for,
    list_victims,
    may_have_victims,
    preempt,
)


@entry
def phase_one(w: Work, rows: Array, awake: Array) -> None:
    """Serve these needs in order, and note for each machine of the awake clusters the highest need that it serves."""
    w.h[c.LISTING] = 1
    for i in range(rows.shape[0]):
        serve(w, rows[i])
        if w.h[c.OVERFLOW]:
            return
    w.h[c.LISTING], w.h[c.SPARES_IN_TURN] = 0, w.h[c.SPARES]
    for cluster in range(w.h[c.LEN_CLUSTERS]):
        if awake[cluster]:
            note_standings(w, cluster)
    # What is left of the pool now is what needs that are asleep the next time would have found at the least.
    for shape in range(w.h[c.LEN_SHAPES]):
        put(w, c.SHAPE_LEFT, shape, at(w, c.SHAPE_POOL, shape))
    for a in range(w.h[c.ACTIONS]):
        shape = at(w, c.M_SHAPE, at(w, c.A_MACHINE, a))
        add(w, c.SHAPE_LEFT, shape, -1)


@walk
def note_standings(w: Work, cluster: int) -> None:
    """For each machine of the cluster, the first need in the order that takes from it now, and the first that ever did
    in this decision; and whether one of those was PINNED.
    """
    machine = at(w, c.C_ALL_HEAD, cluster)
    while machine >= 0:
        put(w, c.M_SERVES, machine, NONE)
        machine = at(w, c.M_ALL_NEXT, machine)
    need = at(w, c.C_FIRST, cluster)
    while need >= 0:
        pinned = at(w, c.N_INTERRUPTION, need) == PINNED or at(w, c.N_RECLAMATION, need) == PINNED
        first = at(w, c.N_FIRST, need)
        for e in range(first, first + at(w, c.N_COUNT, need)):
            machine = at(w, c.E_MACHINE, e)
            if at(w, c.M_SERVES, machine) == NONE:
                put(w, c.M_SERVES, machine, need)
                stood = at(w, c.M_STOOD, machine)
                if stood == NONE or at(w, c.N_RANK, need) < at(w, c.N_RANK, stood):
                    put(w, c.M_STOOD, machine, need)
            if pinned:
                put(w, c.M_STOOD_PINNED, machine, 1)
        need = at(w, c.N_LATER, need)


@walk
def save(w: Work, need: int) -> None:
    """Remember what the need takes, and let it take nothing."""
    put(w, c.N_SAVED_FIRST, need, at(w, c.N_FIRST, need))
    put(w, c.N_SAVED_COUNT, need, at(w, c.N_COUNT, need))
    put(w, c.N_SAVED_MISSING, need, at(w, c.N_MISSING, need))
    put(w, c.N_SAVED_DOMAIN, need, at(w, c.N_DOMAIN, need))
    put(w, c.N_SAVED_SATISFIABLE, need, at(w, c.N_SATISFIABLE, need))
    untake(w, need)


@walk
def restore(w: Work, need: int) -> None:
    """Let the need take again what it took when it was saved."""
    untake(w, need)
    first, count = at(w, c.N_SAVED_FIRST, need), at(w, c.N_SAVED_COUNT, need)
    unit = at(w, c.N_UNIT, need)
    for e in range(first, first + count):
        machine, v = at(w, c.E_MACHINE, e), at(w, c.E_VECTOR, e)
        for d in range(w.h[c.WIDTH]):
            if v >= 0:
                add_cell(w, c.T_FREE, machine, d, -cell(w, c.T_VECTOR, v, d))
                if d > 0:
                    add_cell(w, c.T_NEED_AGGREGATE, need, d, -cell(w, c.T_VECTOR, v, d))
            else:
                add_cell(w, c.T_FREE, machine, d, -at(w, c.E_UNITS, e) * cell(w, c.T_UNIT, unit, d))
    put(w, c.N_FIRST, need, first)
    put(w, c.N_COUNT, need, count)
    put(w, c.N_MISSING, need, at(w, c.N_SAVED_MISSING, need))
    put(w, c.N_DOMAIN, need, at(w, c.N_SAVED_DOMAIN, need))
    put(w, c.N_SATISFIABLE, need, at(w, c.N_SAVED_SATISFIABLE, need))


@entry
def phase_two(w: Work, order: Array) -> None:
    """Serve every need that is still unmet once more, in order, victims being candidates after all others."""
    list_victims(w, order, ZERO, NO)
    for i in range(order.shape[0]):
        need = order[i]
        if at(w, c.N_MISSING, need) > 0:
            if not is_listed_for(w, need):
                # It was met when victims were listed, and has been robbed since; so may others be that follow.
                list_victims(w, order, i, YES)
                w.h[c.VERSION] = w.h[c.VERSION] + 1
            serve_once_more(w, need)
            if w.h[c.OVERFLOW]:
                return
    # What was bought and then made needless is not bought.
    for a in range(w.h[c.ACTIONS]):
        machine = at(w, c.A_MACHINE, a)
        kind = at(w, c.A_KIND, a)
        if kind != NONE and kind != PREEMPT and at(w, c.M_SERVES, machine) == NONE:
            unbind(w, machine)


@walk
def serve_once_more(w: Work, need: int) -> None:
    """Serve an unmet need with all that later needs of its cluster took free to it, and those needs after it."""
    cluster = at(w, c.N_CLUSTER, need)
    if at(w, c.C_DISTURBED, cluster) != ROBBED and not _may_be_relieved(w, need):
        return
    for d in range(w.h[c.WIDTH]):
        put(w, c.T_SAVED_GAP, d, cell(w, c.T_NEED_AGGREGATE, need, d))
    missing, entries, vectors = at(w, c.N_MISSING, need), w.h[c.ENTRIES], w.h[c.VECTORS]
    later = need
    while later >= 0:
        save(w, later)
        later = at(w, c.N_LATER, later)
    relink(w, cluster)
    actions = w.h[c.ACTIONS]
    if at(w, c.N_TOPOLOGY, need) >= 0:
        serve_gang(w, need, YES)
    elif has_hard_spread(w, need):
        fill_spread(w, need, NONE, at(w, c.N_ACTS, need) == 1, YES, NO)
    else:
        credit_plain(w, need)
        if at(w, c.N_ACTS, need) and at(w, c.N_MISSING, need) > 0:
            acquire(w, need, NONE, YES)
            preempt(w, need, NONE)
    if w.h[c.ACTIONS] == actions and not _is_less_short(w, need, missing):
        later = need
        while later >= 0:
            restore(w, later)
            later = at(w, c.N_LATER, later)
        w.h[c.ENTRIES], w.h[c.VECTORS] = entries, vectors
        return
    w.h[c.VERSION] = w.h[c.VERSION] + 1
    later = at(w, c.N_LATER, need)
    while later >= 0:
        credit_only(w, later)
        later = at(w, c.N_LATER, later)
    note_standings(w, cluster)


@walk
def _may_be_relieved(w: Work, need: int) -> bool:
    """Whether serving an unmet need again could do anything for it, where its cluster lost nothing.

    Where it bought nothing either, only by victims; else also by what was bought for later needs.
    """
    bought = at(w, c.C_DISTURBED, at(w, c.N_CLUSTER, need)) == BOUGHT
    if not bought and (not at(w, c.N_ACTS, need) or w.h[c.VICTIMS] == 0):
        return False
    if at(w, c.N_TOPOLOGY, need) >= 0 and not has_hard_spread(w, need):
        return could_be_completed(w, need)
    return bought or may_have_victims(w, need)


@walk
def _is_less_short(w: Work, need: int, missing: int) -> bool:
    if not at(w, c.N_DIVISIBLE, need):
        return at(w, c.N_MISSING, need) < missing
    less = False
    for d in range(1, w.h[c.WIDTH]):
        if cell(w, c.T_NEED_AGGREGATE, need, d) > at(w, c.T_SAVED_GAP, d):
            return False
        less = less or cell(w, c.T_NEED_AGGREGATE, need, d) < at(w, c.T_SAVED_GAP, d)
    return less


@entry
def strike_taken(w: Work, cluster: int, order: Array, place: Array, left: Array) -> None:
    """Strike from those left, by its place, each machine that a need takes if the cluster is credited in this order.

    Gangs are in the domain they have. What needs take stays as it is.
    """
    entries, vectors = w.h[c.ENTRIES], w.h[c.VECTORS]
    need = at(w, c.C_FIRST, cluster)
    while need >= 0:
        save(w, need)
        need = at(w, c.N_LATER, need)
    need = at(w, c.C_FIRST, cluster)
    while need >= 0:
        _credit_one_in(w, need, order)
        first = at(w, c.N_FIRST, need)
        for e in range(first, first + at(w, c.N_COUNT, need)):
            left[place[at(w, c.E_MACHINE, e)]] = False
        need = at(w, c.N_LATER, need)
    _restore_all(w, cluster)
    w.h[c.ENTRIES], w.h[c.VECTORS] = entries, vectors


@walk
def _credit_one_in(w: Work, need: int, order: Array) -> None:
    cluster, topology, domain = at(w, c.N_CLUSTER, need), at(w, c.N_TOPOLOGY, need), at(w, c.N_DOMAIN, need)
    if has_hard_spread(w, need):
        fill_spread_in(w, need, domain, order)
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
    """Whether every need of the cluster is covered again, credited in the ordinary order without these machines.

    They drain for nobody then, so they are candidates. What needs take stays as it is.
    """
    entries, vectors, spares, loose = w.h[c.ENTRIES], w.h[c.VECTORS], w.h[c.SPARES], w.h[c.LOOSE]
    first = w.h[c.FIRST_SPARE] + spares
    for i in range(going.shape[0]):
        machine = going[i]
        shape = at(w, c.M_SHAPE, machine)
        put(w, c.M_BOUND, machine, NONE)
        if not at(w, c.M_LATER, machine) and not at(w, c.SHAPE_HELD, shape):
            put(w, c.COHORT_SHAPE, first + i, shape)
            put(w, c.COHORT_LEFT, first + i, 1)
    w.h[c.SPARES], w.h[c.LOOSE] = spares + going.shape[0], 1
    need = at(w, c.C_FIRST, cluster)
    while need >= 0:
        save(w, need)
        need = at(w, c.N_LATER, need)
    relink(w, cluster)
    covered = True
    need = at(w, c.C_FIRST, cluster)
    while need >= 0:
        credit_only(w, need)
        covered = covered and at(w, c.N_MISSING, need) <= 0
        need = at(w, c.N_LATER, need)
    for i in range(going.shape[0]):
        put(w, c.M_BOUND, going[i], cluster)
        put(w, c.COHORT_LEFT, first + i, 0)
    _restore_all(w, cluster)
    w.h[c.ENTRIES], w.h[c.VECTORS], w.h[c.SPARES], w.h[c.LOOSE] = entries, vectors, spares, loose
    return covered


@walk
def _restore_all(w: Work, cluster: int) -> None:
    """Let all needs of the cluster take what they took when they were saved."""
    need = at(w, c.C_FIRST, cluster)
    while need >= 0:
        untake(w, need)
        need = at(w, c.N_LATER, need)
    need = at(w, c.C_FIRST, cluster)
    while need >= 0:
        restore(w, need)
        need = at(w, c.N_LATER, need)
    relink(w, cluster)


@entry
def mark_excess(w: Work, touched: Array) -> None:
    """Mark each touched cluster by whether a Configured machine of it serves no need."""
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
    """Whether no need of the cluster misses anything."""
    need = at(w, c.C_FIRST, cluster)
    while need >= 0:
        if at(w, c.N_MISSING, need) > 0:
            return False
        need = at(w, c.N_LATER, need)
    return True
