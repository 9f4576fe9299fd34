"""Wake: which clusters a decision looks at, and their lists of machines and needs made ready for it. Compiled.

A cluster that is not woken keeps the outcome of the decision before.
"""

from bigfleet.engine.codes import PODS_DIM
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
from bigfleet.engine.walks.capacity import empty_machine
from bigfleet.engine.walks.machine_lists import append, list_all_with_room


@entry
def relist(w: Work, moved: Array, fresh: Array, dirty: Array) -> None:
    """Bring clusters' lists of all machines up to date, and mark those clusters dirty.

    `moved` leave the list that they are on. `fresh`, given in binding order, join the list of the cluster that they are
    bound to. A cluster that is dirty already also drops machines that the last decision bound, since that was only
    decided and not done; machines that the last decision took from it are among `fresh`.
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
        put(w, c.M_STANDS_BY, moved[i], NONE)
    for i in range(fresh.shape[0]):
        cluster = at(w, c.M_BOUND, fresh[i])
        dirty[cluster] = True
        put(w, c.M_LISTED, fresh[i], cluster)
        _insert(w, cluster, fresh[i])


@walk
def _drop_unlisted(w: Work, cluster: int) -> None:
    """Keep on the cluster's list only machines whose M_LISTED names the cluster."""
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
    """Whether one machine was bound before another; where neither has a number, by id."""
    if at(w, c.M_BINDING, one) != at(w, c.M_BINDING, other):
        return at(w, c.M_BINDING, one) < at(w, c.M_BINDING, other)
    return at(w, c.M_RANK, one) < at(w, c.M_RANK, other)


@walk
def _insert(w: Work, cluster: int, machine: int) -> None:
    """Put a machine on the cluster's list by its binding number; most come last."""
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
    """List the needs of each stale cluster, given in order, and note the least that its units ask of each dimension."""
    for cluster in range(w.h[c.LEN_CLUSTERS]):
        if stale[cluster]:
            put(w, c.C_FIRST_NEED, cluster, NONE)
            for d in range(w.h[c.WIDTH]):
                put_cell(w, c.T_CLUSTER_LEAST, cluster, d, LARGE)
    for i in range(rows.shape[0] - 1, -1, -1):
        need = rows[i]
        cluster = at(w, c.N_CLUSTER, need)
        put(w, c.N_NEXT, need, at(w, c.C_FIRST_NEED, cluster))
        put(w, c.C_FIRST_NEED, cluster, need)
        for d in range(w.h[c.WIDTH]):
            least = min(cell(w, c.T_CLUSTER_LEAST, cluster, d), cell(w, c.T_UNIT, at(w, c.N_UNIT, need), d))
            put_cell(w, c.T_CLUSTER_LEAST, cluster, d, least)


@entry
def wake(w: Work, awake: Array) -> None:
    """Mark clusters as awake whose outcome may have changed though their own machines and needs have not.

    One is a cluster with an unmet need to which the pool offers more than it did after the last phase 1. The other is a
    cluster whose outcome rested on which shapes have machines, or how many, if that has changed.
    """
    changed = 0
    fill(w, c.T_WANTED, w.h[c.LEN_REQUIREMENTS], 0)
    for shape in range(w.h[c.LEN_SHAPES]):
        count, before = at(w, c.SHAPE_COUNT, shape), at(w, c.SHAPE_BEFORE, shape)
        if count != before:
            changed = changed | TOTALS
            if count == 0 or before == 0:
                changed = changed | PRESENCE
            put(w, c.SHAPE_BEFORE, shape, count)
        if at(w, c.SHAPE_POOL, shape) > at(w, c.SHAPE_LEFT, shape):
            for requirement in range(w.h[c.LEN_REQUIREMENTS]):
                if w.matches[requirement, shape]:
                    put(w, c.T_WANTED, requirement, 1)
    for need in range(w.h[c.LEN_SLOTS]):
        if at(w, c.N_RANK, need) >= 0 and at(w, c.N_MISSING, need) > 0 and at(w, c.N_ACTS, need):
            if at(w, c.T_WANTED, at(w, c.N_REQUIREMENT, need)):
                awake[at(w, c.N_CLUSTER, need)] = True
    if changed:
        for cluster in range(w.h[c.LEN_CLUSTERS]):
            if at(w, c.C_RESTS_ON, cluster) & changed:
                awake[cluster] = True


@entry
def reset_awake(w: Work, rows: Array, awake: Array) -> None:
    """Let no need of the awake clusters take anything; all their machines are empty and on their lists."""
    for i in range(rows.shape[0]):
        _reset_row(w, rows[i])
    for cluster in range(w.h[c.LEN_CLUSTERS]):
        if awake[cluster]:
            put(w, c.C_RESTS_ON, cluster, 0)
            machine = at(w, c.C_ALL_HEAD, cluster)
            while machine != NONE:
                empty_machine(w, machine, cluster)
                put(w, c.M_SERVES, machine, NONE)
                put(w, c.M_STANDS_BY, machine, NONE)
                put(w, c.M_SERVED_PINNED, machine, 0)
                put(w, c.M_VICTIM_TRIED, machine, 0)
                machine = at(w, c.M_ALL_NEXT, machine)
            list_all_with_room(w, cluster)
            _link_own(w, cluster)


@walk
def _reset_row(w: Work, need: int) -> None:
    """Let the need take nothing and lack all that it asks for."""
    missing = at(w, c.N_ASKED, need)
    if at(w, c.N_DIVISIBLE, need):
        missing = 0
        first = at(w, c.N_FIRST_ENTRY, need)
        for e in range(first, first + at(w, c.N_ENTRIES, need)):
            for d in range(PODS_DIM + 1, w.h[c.WIDTH]):
                given = cell(w, c.T_VECTOR, at(w, c.E_VECTOR, e), d)
                add_cell(w, c.T_GAP, need, d, given)
        for d in range(PODS_DIM + 1, w.h[c.WIDTH]):
            if cell(w, c.T_GAP, need, d) > 0:
                missing = 1
    put(w, c.N_MISSING, need, missing)
    put(w, c.N_ENTRIES, need, 0)
    put(w, c.N_MOST_BOUND, need, 0)
    put(w, c.N_DOMAIN, need, NONE)
    put(w, c.N_SATISFIABLE, need, 1)
    put(w, c.N_OWN_HEAD, need, NONE)
    put(w, c.N_OWN_TAIL, need, NONE)


@entry
def compact_entries(w: Work, rows: Array, machines: Array, units: Array, vectors: Array, amounts: Array) -> None:
    """Keep only the entries and vectors of these rows, side by side; all of them are given as copies."""
    entry = vector = 0
    for i in range(rows.shape[0]):
        first = at(w, c.N_FIRST_ENTRY, rows[i])
        put(w, c.N_FIRST_ENTRY, rows[i], entry)
        for e in range(first, first + at(w, c.N_ENTRIES, rows[i])):
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
    """Put the cluster's machines on the lists of own machines of the gangs that they are stamped for."""
    gangs = False
    need = at(w, c.C_FIRST_NEED, cluster)
    while need != NONE:
        if at(w, c.N_TOPOLOGY, need) >= 0:
            put(w, c.T_KEY_NEED, at(w, c.N_KEY, need), need + 1)
            gangs = True
        need = at(w, c.N_NEXT, need)
    if not gangs:
        return
    machine = at(w, c.C_ALL_HEAD, cluster)
    while machine != NONE:
        need = NONE
        if at(w, c.M_STAMPED_FOR, machine) != NONE:
            need = at(w, c.T_KEY_NEED, at(w, c.M_STAMPED_FOR, machine)) - 1
        if need != NONE:
            append(w, c.N_OWN_HEAD, c.N_OWN_TAIL, c.M_OWN_NEXT, need, machine)
        machine = at(w, c.M_ALL_NEXT, machine)
    need = at(w, c.C_FIRST_NEED, cluster)
    while need != NONE:
        put(w, c.T_KEY_NEED, at(w, c.N_KEY, need), 0)
        need = at(w, c.N_NEXT, need)
