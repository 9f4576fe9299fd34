"""Lists of machines and rows by cluster, and which clusters a decision looks at. Compiled."""

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import (
    Array,
    Work,
    add_cell,
    at,
    cell,
    fill,
    put,
    put_cell,
)
from bigfleet.engine.heap.values import LARGE, NONE, PRESENCE, TOTALS
from bigfleet.engine.jit import entry, walk
from bigfleet.engine.walks.capacity import clear
from bigfleet.engine.walks.machine_lists import append, relink


@entry
def relist(w: Work, moved: Array, fresh: Array, dirty: Array) -> None:
    """Take machines that moved off their clusters' lists, and put those bound now on, given in binding order.

    Clusters that are dirty before may list what was bound in the last decision only, and miss what it took from them.
    """
    for i in range(moved.shape[0]):
        listed = at(w, c.M_LISTED, moved[i])
        if listed != NONE:
            dirty[listed] = True
        put(w, c.M_LISTED, moved[i], NONE)
    for cluster in range(w.h[c.LEN_CLUSTERS]):
        if dirty[cluster]:
            _drop_unlisted(w, cluster)
    for i in range(moved.shape[0]):
        put(w, c.M_SERVES, moved[i], NONE)
        put(w, c.M_STOOD, moved[i], NONE)
    for i in range(fresh.shape[0]):
        cluster = at(w, c.M_BOUND, fresh[i])
        dirty[cluster] = True
        put(w, c.M_LISTED, fresh[i], cluster)
        _insert(w, cluster, fresh[i])


@walk
def _drop_unlisted(w: Work, cluster: int) -> None:
    """Keep only those on the cluster's list that are marked as listed there."""
    machine = at(w, c.C_ALL_HEAD, cluster)
    put(w, c.C_ALL_HEAD, cluster, NONE)
    put(w, c.C_ALL_TAIL, cluster, NONE)
    while machine != NONE:
        following = at(w, c.M_ALL_NEXT, machine)
        if at(w, c.M_LISTED, machine) == cluster:
            append(w, c.C_ALL_HEAD, c.C_ALL_TAIL, c.M_ALL_NEXT, cluster, machine)
        machine = following


@walk
def _comes_before(w: Work, one: int, other: int) -> bool:
    """Whether one machine was bound before another."""
    if at(w, c.M_NUMBER, one) != at(w, c.M_NUMBER, other):
        return at(w, c.M_NUMBER, one) < at(w, c.M_NUMBER, other)
    return at(w, c.M_RANK, one) < at(w, c.M_RANK, other)


@walk
def _insert(w: Work, cluster: int, machine: int) -> None:
    """Put a machine on the cluster's list where its binding number says; most come last."""
    before = at(w, c.C_ALL_TAIL, cluster)
    if before != NONE and _comes_before(w, machine, before):
        before = NONE
        place = at(w, c.C_ALL_HEAD, cluster)
        while _comes_before(w, place, machine):
            before, place = place, at(w, c.M_ALL_NEXT, place)
    following = at(w, c.C_ALL_HEAD, cluster) if before == NONE else at(w, c.M_ALL_NEXT, before)
    put(w, c.M_ALL_NEXT, machine, following)
    if before == NONE:
        put(w, c.C_ALL_HEAD, cluster, machine)
    else:
        put(w, c.M_ALL_NEXT, before, machine)
    if following == NONE:
        put(w, c.C_ALL_TAIL, cluster, machine)


@entry
def list_rows(w: Work, rows: Array, stale: Array) -> None:
    """List each stale cluster's rows, given in order, and note the least that any unit asks of each dimension."""
    for cluster in range(w.h[c.LEN_CLUSTERS]):
        if stale[cluster]:
            put(w, c.C_FIRST, cluster, NONE)
            for d in range(w.h[c.WIDTH]):
                put_cell(w, c.T_CLUSTER_LEAST, cluster, d, LARGE)
    for i in range(rows.shape[0] - 1, -1, -1):
        need = rows[i]
        cluster = at(w, c.N_CLUSTER, need)
        put(w, c.N_LATER, need, at(w, c.C_FIRST, cluster))
        put(w, c.C_FIRST, cluster, need)
        for d in range(w.h[c.WIDTH]):
            least = min(cell(w, c.T_CLUSTER_LEAST, cluster, d), cell(w, c.T_UNIT, at(w, c.N_UNIT, need), d))
            put_cell(w, c.T_CLUSTER_LEAST, cluster, d, least)


@entry
def wake(w: Work, awake: Array) -> None:
    """Wake the clusters with an unmet row to which the pool offers more than at the end of the last phase 1, and those
    whose outcome rested on which machines there are, where that has changed.
    """
    looked = 0
    fill(w, c.T_WANTED, w.h[c.LEN_WANTED], 0)
    for shape in range(w.h[c.LEN_SHAPES]):
        count, before = at(w, c.SHAPE_COUNT, shape), at(w, c.SHAPE_BEFORE, shape)
        if count != before:
            looked = looked | TOTALS
            if count == 0 or before == 0:
                looked = looked | PRESENCE
            put(w, c.SHAPE_BEFORE, shape, count)
        if at(w, c.SHAPE_POOL, shape) > at(w, c.SHAPE_LEFT, shape):
            for requirement in range(w.h[c.LEN_WANTED]):
                if w.matches[requirement, shape]:
                    put(w, c.T_WANTED, requirement, 1)
    for need in range(w.h[c.LEN_SLOTS]):
        if at(w, c.N_RANK, need) >= 0 and at(w, c.N_MISSING, need) > 0 and at(w, c.N_ACTS, need):
            if at(w, c.T_WANTED, at(w, c.N_REQUIREMENT, need)):
                awake[at(w, c.N_CLUSTER, need)] = True
    if looked:
        for cluster in range(w.h[c.LEN_CLUSTERS]):
            if at(w, c.C_LOOKED, cluster) & looked:
                awake[cluster] = True


@entry
def reset(w: Work, rows: Array, awake: Array) -> None:
    """Let no row of the awake clusters take anything, and link their machines, all of them free."""
    for i in range(rows.shape[0]):
        _reset_row(w, rows[i])
    for cluster in range(w.h[c.LEN_CLUSTERS]):
        if awake[cluster]:
            put(w, c.C_LOOKED, cluster, 0)
            machine = at(w, c.C_ALL_HEAD, cluster)
            while machine != NONE:
                clear(w, machine, cluster)
                put(w, c.M_SERVES, machine, NONE)
                put(w, c.M_STOOD, machine, NONE)
                put(w, c.M_STOOD_PINNED, machine, 0)
                put(w, c.M_GONE, machine, 0)
                machine = at(w, c.M_ALL_NEXT, machine)
            relink(w, cluster)
            _link_own(w, cluster)


@walk
def _reset_row(w: Work, need: int) -> None:
    missing = at(w, c.N_ASKED, need)
    if at(w, c.N_DIVISIBLE, need):
        missing = 0
        first = at(w, c.N_FIRST, need)
        for e in range(first, first + at(w, c.N_COUNT, need)):
            for d in range(1, w.h[c.WIDTH]):
                given = cell(w, c.T_VECTOR, at(w, c.E_VECTOR, e), d)
                add_cell(w, c.T_NEED_AGGREGATE, need, d, given)
        for d in range(1, w.h[c.WIDTH]):
            if cell(w, c.T_NEED_AGGREGATE, need, d) > 0:
                missing = 1
    put(w, c.N_MISSING, need, missing)
    put(w, c.N_COUNT, need, 0)
    put(w, c.N_NEAR, need, 0)
    put(w, c.N_DOMAIN, need, NONE)
    put(w, c.N_SATISFIABLE, need, 1)
    put(w, c.N_OWN_HEAD, need, NONE)
    put(w, c.N_OWN_TAIL, need, NONE)


@entry
def move_up(w: Work, rows: Array, machines: Array, units: Array, vectors: Array, amounts: Array) -> None:
    """Keep of all entries and vectors, given as copies, only those of these rows, one behind the other."""
    entry = vector = 0
    for i in range(rows.shape[0]):
        first = at(w, c.N_FIRST, rows[i])
        put(w, c.N_FIRST, rows[i], entry)
        for e in range(first, first + at(w, c.N_COUNT, rows[i])):
            divided = NONE
            if vectors[e] >= 0:
                divided = vector
                vector += 1
                for d in range(w.h[c.WIDTH]):
                    put_cell(w, c.T_VECTOR, divided, d, amounts[vectors[e], d])
            put(w, c.E_MACHINE, entry, machines[e])
            put(w, c.E_UNITS, entry, units[e])
            put(w, c.E_VECTOR, entry, divided)
            entry += 1
    w.h[c.ENTRIES], w.h[c.VECTORS] = entry, vector


@walk
def _link_own(w: Work, cluster: int) -> None:
    """Put the cluster's machines on the lists of the gangs that they are stamped for."""
    gangs = False
    need = at(w, c.C_FIRST, cluster)
    while need != NONE:
        if at(w, c.N_TOPOLOGY, need) >= 0:
            put(w, c.T_KEY_NEED, at(w, c.N_OWN, need), need + 1)
            gangs = True
        need = at(w, c.N_LATER, need)
    if not gangs:
        return
    machine = at(w, c.C_ALL_HEAD, cluster)
    while machine != NONE:
        need = NONE
        if at(w, c.M_OWN, machine) != NONE:
            need = at(w, c.T_KEY_NEED, at(w, c.M_OWN, machine)) - 1
        if need != NONE:
            append(w, c.N_OWN_HEAD, c.N_OWN_TAIL, c.M_OWN_NEXT, need, machine)
        machine = at(w, c.M_ALL_NEXT, machine)
    need = at(w, c.C_FIRST, cluster)
    while need != NONE:
        put(w, c.T_KEY_NEED, at(w, c.N_OWN, need), 0)
        need = at(w, c.N_LATER, need)
