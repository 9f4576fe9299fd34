"""Lists of machines and rows by cluster, and which clusters a decision looks at. Compiled."""

from bigfleet.engine.heap.columns import (
    C_ALL_HEAD,
    C_ALL_TAIL,
    C_FIRST,
    C_LOOKED,
    E_MACHINE,
    E_UNITS,
    E_VECTOR,
    ENTRIES,
    H_BEFORE,
    H_COUNT,
    H_LEFT,
    H_POOL,
    LARGE,
    LEN_CLUSTERS,
    LEN_SHAPES,
    LEN_SLOTS,
    LEN_WANTED,
    M_ALL_NEXT,
    M_BOUND,
    M_GONE,
    M_LISTED,
    M_NUMBER,
    M_OWN,
    M_OWN_NEXT,
    M_RANK,
    M_SERVES,
    M_STOOD,
    M_STOOD_PINNED,
    N_ACTS,
    N_ASKED,
    N_CLUSTER,
    N_COUNT,
    N_DIVISIBLE,
    N_DOMAIN,
    N_FIRST,
    N_LATER,
    N_MISSING,
    N_NEAR,
    N_OWN,
    N_OWN_HEAD,
    N_OWN_TAIL,
    N_RANK,
    N_REQUIREMENT,
    N_SATISFIABLE,
    N_TOPOLOGY,
    N_UNIT,
    NONE,
    PRESENCE,
    T_CLUSTER_LEAST,
    T_KEY_NEED,
    T_NEED_AGGREGATE,
    T_UNIT,
    T_VECTOR,
    T_WANTED,
    TOTALS,
    VECTORS,
    WIDTH,
    Array,
    Work,
)
from bigfleet.engine.heap.heap import (
    at,
    cell,
    fill,
    put,
    put_cell,
)
from bigfleet.engine.jit import entry, walk
from bigfleet.engine.walks.capacity import clear
from bigfleet.engine.walks.machine_lists import append, relink


@entry
def relist(w: Work, moved: Array, fresh: Array, dirty: Array) -> None:
    """Take machines that moved off their clusters' lists, and put those bound now on, given in binding order.

    Clusters that are dirty before may list what was bound in the last decision only, and miss what it took from them.
    """
    for i in range(moved.shape[0]):
        listed = at(w, M_LISTED, moved[i])
        if listed != NONE:
            dirty[listed] = True
        put(w, M_LISTED, moved[i], NONE)
    for cluster in range(w.h[LEN_CLUSTERS]):
        if dirty[cluster]:
            _drop_unlisted(w, cluster)
    for i in range(moved.shape[0]):
        put(w, M_SERVES, moved[i], NONE)
        put(w, M_STOOD, moved[i], NONE)
    for i in range(fresh.shape[0]):
        cluster = at(w, M_BOUND, fresh[i])
        dirty[cluster] = True
        put(w, M_LISTED, fresh[i], cluster)
        _insert(w, cluster, fresh[i])


@walk
def _drop_unlisted(w: Work, cluster: int) -> None:
    """Keep only those on the cluster's list that are marked as listed there."""
    machine = at(w, C_ALL_HEAD, cluster)
    put(w, C_ALL_HEAD, cluster, NONE)
    put(w, C_ALL_TAIL, cluster, NONE)
    while machine != NONE:
        following = at(w, M_ALL_NEXT, machine)
        if at(w, M_LISTED, machine) == cluster:
            append(w, C_ALL_HEAD, C_ALL_TAIL, M_ALL_NEXT, cluster, machine)
        machine = following


@walk
def _comes_before(w: Work, one: int, other: int) -> bool:
    """Whether one machine was bound before another."""
    if at(w, M_NUMBER, one) != at(w, M_NUMBER, other):
        return at(w, M_NUMBER, one) < at(w, M_NUMBER, other)
    return at(w, M_RANK, one) < at(w, M_RANK, other)


@walk
def _insert(w: Work, cluster: int, machine: int) -> None:
    """Put a machine on the cluster's list where its binding number says; most come last."""
    before = at(w, C_ALL_TAIL, cluster)
    if before != NONE and _comes_before(w, machine, before):
        before = NONE
        place = at(w, C_ALL_HEAD, cluster)
        while _comes_before(w, place, machine):
            before, place = place, at(w, M_ALL_NEXT, place)
    following = at(w, C_ALL_HEAD, cluster) if before == NONE else at(w, M_ALL_NEXT, before)
    put(w, M_ALL_NEXT, machine, following)
    if before == NONE:
        put(w, C_ALL_HEAD, cluster, machine)
    else:
        put(w, M_ALL_NEXT, before, machine)
    if following == NONE:
        put(w, C_ALL_TAIL, cluster, machine)


@entry
def list_rows(w: Work, rows: Array, stale: Array) -> None:
    """List each stale cluster's rows, given in order, and note the least that any unit asks of each dimension."""
    for cluster in range(w.h[LEN_CLUSTERS]):
        if stale[cluster]:
            put(w, C_FIRST, cluster, NONE)
            for d in range(w.h[WIDTH]):
                put_cell(w, T_CLUSTER_LEAST, cluster, d, LARGE)
    for i in range(rows.shape[0] - 1, -1, -1):
        need = rows[i]
        cluster = at(w, N_CLUSTER, need)
        put(w, N_LATER, need, at(w, C_FIRST, cluster))
        put(w, C_FIRST, cluster, need)
        for d in range(w.h[WIDTH]):
            least = min(cell(w, T_CLUSTER_LEAST, cluster, d), cell(w, T_UNIT, at(w, N_UNIT, need), d))
            put_cell(w, T_CLUSTER_LEAST, cluster, d, least)


@entry
def wake(w: Work, awake: Array) -> None:
    """Wake the clusters with an unmet row to which the pool offers more than at the end of the last phase 1, and those
    whose outcome rested on which machines there are, where that has changed.
    """
    looked = 0
    fill(w, T_WANTED, w.h[LEN_WANTED], 0)
    for shape in range(w.h[LEN_SHAPES]):
        count, before = at(w, H_COUNT, shape), at(w, H_BEFORE, shape)
        if count != before:
            looked = looked | TOTALS
            if count == 0 or before == 0:
                looked = looked | PRESENCE
            put(w, H_BEFORE, shape, count)
        if at(w, H_POOL, shape) > at(w, H_LEFT, shape):
            for requirement in range(w.h[LEN_WANTED]):
                if w.matches[requirement, shape]:
                    put(w, T_WANTED, requirement, 1)
    for need in range(w.h[LEN_SLOTS]):
        if at(w, N_RANK, need) >= 0 and at(w, N_MISSING, need) > 0 and at(w, N_ACTS, need):
            if at(w, T_WANTED, at(w, N_REQUIREMENT, need)):
                awake[at(w, N_CLUSTER, need)] = True
    if looked:
        for cluster in range(w.h[LEN_CLUSTERS]):
            if at(w, C_LOOKED, cluster) & looked:
                awake[cluster] = True


@entry
def reset(w: Work, rows: Array, awake: Array) -> None:
    """Let no row of the awake clusters take anything, and link their machines, all of them free."""
    for i in range(rows.shape[0]):
        _reset_row(w, rows[i])
    for cluster in range(w.h[LEN_CLUSTERS]):
        if awake[cluster]:
            put(w, C_LOOKED, cluster, 0)
            machine = at(w, C_ALL_HEAD, cluster)
            while machine != NONE:
                clear(w, machine, cluster)
                put(w, M_SERVES, machine, NONE)
                put(w, M_STOOD, machine, NONE)
                put(w, M_STOOD_PINNED, machine, 0)
                put(w, M_GONE, machine, 0)
                machine = at(w, M_ALL_NEXT, machine)
            relink(w, cluster)
            _link_own(w, cluster)


@walk
def _reset_row(w: Work, need: int) -> None:
    missing = at(w, N_ASKED, need)
    if at(w, N_DIVISIBLE, need):
        missing = 0
        first = at(w, N_FIRST, need)
        for e in range(first, first + at(w, N_COUNT, need)):
            for d in range(1, w.h[WIDTH]):
                given = cell(w, T_VECTOR, at(w, E_VECTOR, e), d)
                put_cell(w, T_NEED_AGGREGATE, need, d, cell(w, T_NEED_AGGREGATE, need, d) + given)
        for d in range(1, w.h[WIDTH]):
            if cell(w, T_NEED_AGGREGATE, need, d) > 0:
                missing = 1
    put(w, N_MISSING, need, missing)
    put(w, N_COUNT, need, 0)
    put(w, N_NEAR, need, 0)
    put(w, N_DOMAIN, need, NONE)
    put(w, N_SATISFIABLE, need, 1)
    put(w, N_OWN_HEAD, need, NONE)
    put(w, N_OWN_TAIL, need, NONE)


@entry
def move_up(w: Work, rows: Array, machines: Array, units: Array, vectors: Array, amounts: Array) -> None:
    """Keep of all entries and vectors, given as copies, only those of these rows, one behind the other."""
    entry = vector = 0
    for i in range(rows.shape[0]):
        first = at(w, N_FIRST, rows[i])
        put(w, N_FIRST, rows[i], entry)
        for e in range(first, first + at(w, N_COUNT, rows[i])):
            divided = NONE
            if vectors[e] >= 0:
                divided = vector
                vector += 1
                for d in range(w.h[WIDTH]):
                    put_cell(w, T_VECTOR, divided, d, amounts[vectors[e], d])
            put(w, E_MACHINE, entry, machines[e])
            put(w, E_UNITS, entry, units[e])
            put(w, E_VECTOR, entry, divided)
            entry += 1
    w.h[ENTRIES], w.h[VECTORS] = entry, vector


@walk
def _link_own(w: Work, cluster: int) -> None:
    """Put the cluster's machines on the lists of the gangs that they are stamped for."""
    gangs = False
    need = at(w, C_FIRST, cluster)
    while need != NONE:
        if at(w, N_TOPOLOGY, need) >= 0:
            put(w, T_KEY_NEED, at(w, N_OWN, need), need + 1)
            gangs = True
        need = at(w, N_LATER, need)
    if not gangs:
        return
    machine = at(w, C_ALL_HEAD, cluster)
    while machine != NONE:
        need = NONE
        if at(w, M_OWN, machine) != NONE:
            need = at(w, T_KEY_NEED, at(w, M_OWN, machine)) - 1
        if need != NONE:
            append(w, N_OWN_HEAD, N_OWN_TAIL, M_OWN_NEXT, need, machine)
        machine = at(w, M_ALL_NEXT, machine)
    need = at(w, C_FIRST, cluster)
    while need != NONE:
        put(w, T_KEY_NEED, at(w, N_OWN, need), 0)
        need = at(w, N_LATER, need)
