"""The three phases over all needs and clusters, built from the walks. Compiled; sections 5, 7 and 8."""

from bigfleet.engine.acquire import acquire, unbind
from bigfleet.engine.compiled import entry, walk
from bigfleet.engine.credit import (
    NONE,
    admits,
    clear,
    credit_plain,
    fitting_units,
    relink,
    take,
    take_divisible,
    untake,
)
from bigfleet.engine.gangs import credit_only, serve, serve_gang
from bigfleet.engine.inventory import COMMITTED
from bigfleet.engine.spread import fill_spread, fill_spread_in, has_hard_spread
from bigfleet.engine.victims import CONFIGURED, PINNED, may_have_victims, preempt
from bigfleet.engine.work import (
    A_KIND,
    A_MACHINE,
    ACTIONS,
    C_ALL_HEAD,
    C_ALL_TAIL,
    C_DISTURBED,
    C_FIRST,
    E_MACHINE,
    E_UNITS,
    E_VECTOR,
    M_ACTION,
    M_ALL_NEXT,
    M_BOUND,
    M_FLAGS,
    M_OWN,
    M_OWN_NEXT,
    M_SERVES,
    M_SHAPE,
    M_STATE,
    M_STOOD,
    M_STOOD_PINNED,
    N_ACTS,
    N_CLUSTER,
    N_COUNT,
    N_DIVISIBLE,
    N_DOMAIN,
    N_FIRST,
    N_INTERRUPTION,
    N_LATER,
    N_MISSING,
    N_OWN,
    N_OWN_HEAD,
    N_OWN_TAIL,
    N_RECLAMATION,
    N_SATISFIABLE,
    N_SAVED_COUNT,
    N_SAVED_DOMAIN,
    N_SAVED_FIRST,
    N_SAVED_MISSING,
    N_SAVED_SATISFIABLE,
    N_TOPOLOGY,
    N_UNIT,
    NO,
    OVERFLOW,
    PREEMPT,
    VERSION,
    YES,
    Array,
    Work,
)


@entry
def link(w: Work, order: Array) -> None:
    """Put bound machines, given in binding order, on their clusters' lists, with all of them free."""
    for i in range(order.shape[0]):
        machine = order[i]
        cluster = w.machines[M_BOUND, machine]
        clear(w, machine, cluster)
        if w.clusters[C_ALL_TAIL, cluster] == NONE:
            w.clusters[C_ALL_HEAD, cluster] = machine
        else:
            w.machines[M_ALL_NEXT, w.clusters[C_ALL_TAIL, cluster]] = machine
        w.clusters[C_ALL_TAIL, cluster] = machine
    for cluster in range(w.clusters.shape[1]):
        relink(w, cluster)


@walk
def _hash(key: int) -> int:
    return key ^ (key >> 29) ^ (key >> 17)


@entry
def link_own(w: Work, order: Array, table_key: Array, table_need: Array) -> None:
    """Put bound machines on the lists of the gangs they are stamped for, found by (cluster, need key)."""
    mask = table_key.shape[0] - 1
    for need in range(w.needs.shape[1]):
        if w.needs[N_TOPOLOGY, need] >= 0:
            key = (w.needs[N_CLUSTER, need] << 32) | w.needs[N_OWN, need]
            at = _hash(key) & mask
            while table_need[at] != NONE:
                at = (at + 1) & mask
            table_key[at], table_need[at] = key, need
    for i in range(order.shape[0]):
        machine = order[i]
        if w.machines[M_OWN, machine] == NONE:
            continue
        key = (w.machines[M_BOUND, machine] << 32) | w.machines[M_OWN, machine]
        at = _hash(key) & mask
        while table_need[at] != NONE and table_key[at] != key:
            at = (at + 1) & mask
        need = table_need[at]
        if need == NONE:
            continue
        if w.needs[N_OWN_TAIL, need] == NONE:
            w.needs[N_OWN_HEAD, need] = machine
        else:
            w.machines[M_OWN_NEXT, w.needs[N_OWN_TAIL, need]] = machine
        w.needs[N_OWN_TAIL, need] = machine


@entry
def phase_one(w: Work) -> None:
    """Serve every need in order, and note for each machine the highest need that it serves."""
    for need in range(w.needs.shape[1]):
        serve(w, need)
        if w.scalar[OVERFLOW]:
            return
    for cluster in range(w.clusters.shape[1]):
        note_standings(w, cluster)


@walk
def note_standings(w: Work, cluster: int) -> None:
    """For each machine of the cluster, the first need in the order that takes from it now, and the first that ever did
    in this decision; and whether one of those was PINNED.
    """
    machine = w.clusters[C_ALL_HEAD, cluster]
    while machine >= 0:
        w.machines[M_SERVES, machine] = NONE
        machine = w.machines[M_ALL_NEXT, machine]
    need = w.clusters[C_FIRST, cluster]
    while need >= 0:
        pinned = w.needs[N_INTERRUPTION, need] == PINNED or w.needs[N_RECLAMATION, need] == PINNED
        first = w.needs[N_FIRST, need]
        for e in range(first, first + w.needs[N_COUNT, need]):
            machine = w.entries[E_MACHINE, e]
            if w.machines[M_SERVES, machine] == NONE:
                w.machines[M_SERVES, machine] = need
                stood = w.machines[M_STOOD, machine]
                if stood == NONE or need < stood:
                    w.machines[M_STOOD, machine] = need
            if pinned:
                w.machines[M_STOOD_PINNED, machine] = 1
        need = w.needs[N_LATER, need]


@walk
def save(w: Work, need: int) -> None:
    """Remember what the need takes, and let it take nothing."""
    w.needs[N_SAVED_FIRST, need], w.needs[N_SAVED_COUNT, need] = w.needs[N_FIRST, need], w.needs[N_COUNT, need]
    w.needs[N_SAVED_MISSING, need] = w.needs[N_MISSING, need]
    w.needs[N_SAVED_DOMAIN, need], w.needs[N_SAVED_SATISFIABLE, need] = (
        w.needs[N_DOMAIN, need],
        w.needs[N_SATISFIABLE, need],
    )
    untake(w, need)


@walk
def restore(w: Work, need: int) -> None:
    """Let the need take again what it took when it was saved."""
    untake(w, need)
    first, count = w.needs[N_SAVED_FIRST, need], w.needs[N_SAVED_COUNT, need]
    unit = w.unit[w.needs[N_UNIT, need]]
    for e in range(first, first + count):
        machine, v = w.entries[E_MACHINE, e], w.entries[E_VECTOR, e]
        for d in range(unit.shape[0]):
            if v >= 0:
                w.free[machine, d] -= w.vector[v, d]
                if d > 0:
                    w.need_aggregate[need, d] -= w.vector[v, d]
            else:
                w.free[machine, d] -= w.entries[E_UNITS, e] * unit[d]
    w.needs[N_FIRST, need], w.needs[N_COUNT, need] = first, count
    w.needs[N_MISSING, need] = w.needs[N_SAVED_MISSING, need]
    w.needs[N_DOMAIN, need], w.needs[N_SATISFIABLE, need] = (
        w.needs[N_SAVED_DOMAIN, need],
        w.needs[N_SAVED_SATISFIABLE, need],
    )


@entry
def phase_two(w: Work) -> None:
    """Serve every need that is still unmet once more, victims being candidates after all others."""
    for need in range(w.needs.shape[1]):
        if w.needs[N_MISSING, need] > 0:
            serve_once_more(w, need)
            if w.scalar[OVERFLOW]:
                return
    # What was bought and then made needless is not bought.
    for a in range(w.scalar[ACTIONS]):
        machine = w.actions[A_MACHINE, a]
        kind = w.actions[A_KIND, a]
        if kind != NONE and kind != PREEMPT and w.machines[M_SERVES, machine] == NONE:
            unbind(w, machine)


@walk
def serve_once_more(w: Work, need: int) -> None:
    """Serve an unmet need with all that later needs of its cluster took free to it, and those needs after it."""
    cluster = w.needs[N_CLUSTER, need]
    # Where nothing was bought or lost this cycle, serving again can only differ by victims.
    if not w.clusters[C_DISTURBED, cluster] and (not w.needs[N_ACTS, need] or not may_have_victims(w, need)):
        return
    for d in range(w.saved_gap.shape[0]):
        w.saved_gap[d] = w.need_aggregate[need, d]
    missing = w.needs[N_MISSING, need]
    later = need
    while later >= 0:
        save(w, later)
        later = w.needs[N_LATER, later]
    relink(w, cluster)
    actions = w.scalar[ACTIONS]
    if w.needs[N_TOPOLOGY, need] >= 0:
        serve_gang(w, need, YES)
    elif has_hard_spread(w, need):
        fill_spread(w, need, NONE, w.needs[N_ACTS, need] == 1, YES, NO)
    else:
        credit_plain(w, need)
        if w.needs[N_ACTS, need] and w.needs[N_MISSING, need] > 0:
            acquire(w, need, NONE, YES)
            preempt(w, need, NONE)
    if w.scalar[ACTIONS] == actions and not _is_less_short(w, need, missing):
        later = need
        while later >= 0:
            restore(w, later)
            later = w.needs[N_LATER, later]
        return
    w.scalar[VERSION] += 1
    later = w.needs[N_LATER, need]
    while later >= 0:
        credit_only(w, later)
        later = w.needs[N_LATER, later]
    note_standings(w, cluster)


@walk
def _is_less_short(w: Work, need: int, missing: int) -> bool:
    if not w.needs[N_DIVISIBLE, need]:
        return w.needs[N_MISSING, need] < missing
    less = False
    for d in range(1, w.saved_gap.shape[0]):
        if w.need_aggregate[need, d] > w.saved_gap[d]:
            return False
        less = less or w.need_aggregate[need, d] < w.saved_gap[d]
    return less


@entry
def credit_in(w: Work, cluster: int, order: Array) -> None:
    """Credit all needs of the cluster anew with its machines in this order, gangs in the domain they have."""
    need = w.clusters[C_FIRST, cluster]
    while need >= 0:
        save(w, need)
        need = w.needs[N_LATER, need]
    need = w.clusters[C_FIRST, cluster]
    while need >= 0:
        _credit_one_in(w, need, order)
        need = w.needs[N_LATER, need]


@walk
def _credit_one_in(w: Work, need: int, order: Array) -> None:
    cluster, topology, domain = w.needs[N_CLUSTER, need], w.needs[N_TOPOLOGY, need], w.needs[N_DOMAIN, need]
    if has_hard_spread(w, need):
        fill_spread_in(w, need, domain, order)
        return
    for i in range(order.shape[0]):
        if w.needs[N_MISSING, need] <= 0:
            return
        machine = order[i]
        shape = w.machines[M_SHAPE, machine]
        if w.machines[M_BOUND, machine] != cluster or not admits(w, need, shape):
            continue
        if topology >= 0 and w.domain[topology, shape] != domain:
            continue
        if w.needs[N_DIVISIBLE, need]:
            take_divisible(w, need, machine)
        else:
            units = min(fitting_units(w, need, machine), w.needs[N_MISSING, need])
            if units > 0:
                take(w, need, machine, units)


@entry
def credit_anew(w: Work, cluster: int) -> bool:
    """Credit all needs of the cluster anew in the ordinary order; whether every one comes out covered."""
    need = w.clusters[C_FIRST, cluster]
    while need >= 0:
        save(w, need)
        need = w.needs[N_LATER, need]
    relink(w, cluster)
    covered = True
    need = w.clusters[C_FIRST, cluster]
    while need >= 0:
        credit_only(w, need)
        covered = covered and w.needs[N_MISSING, need] <= 0
        need = w.needs[N_LATER, need]
    return covered


@entry
def restore_all(w: Work, cluster: int) -> None:
    """Undo `credit_in` or `credit_anew`."""
    need = w.clusters[C_FIRST, cluster]
    while need >= 0:
        untake(w, need)
        need = w.needs[N_LATER, need]
    need = w.clusters[C_FIRST, cluster]
    while need >= 0:
        restore(w, need)
        need = w.needs[N_LATER, need]
    relink(w, cluster)


@entry
def mark_excess(w: Work, excess: Array) -> None:
    """Mark each cluster with a Configured machine that serves no need."""
    for cluster in range(w.clusters.shape[1]):
        machine = w.clusters[C_ALL_HEAD, cluster]
        while machine >= 0 and not excess[cluster]:
            if (
                w.machines[M_SERVES, machine] == NONE
                and w.machines[M_BOUND, machine] == cluster
                and w.machines[M_STATE, machine] == CONFIGURED
                and w.machines[M_ACTION, machine] == NONE
                and not w.machines[M_FLAGS, machine] & COMMITTED
            ):
                excess[cluster] = True
            machine = w.machines[M_ALL_NEXT, machine]


@entry
def is_covered(w: Work, cluster: int) -> bool:
    """Whether no need of the cluster misses anything."""
    need = w.clusters[C_FIRST, cluster]
    while need >= 0:
        if w.needs[N_MISSING, need] > 0:
            return False
        need = w.needs[N_LATER, need]
    return True
