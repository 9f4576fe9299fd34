"""Binding a machine to the cluster of a need, and taking it away again. Compiled; section 5."""

from bigfleet.engine.heap.columns import (
    A_COHORT,
    A_GRACE,
    A_KIND,
    A_MACHINE,
    A_NEED,
    A_OUTRANKED,
    ACTIONS,
    BOUGHT,
    C_ALL_HEAD,
    C_ALL_TAIL,
    C_DISTURBED,
    C_FIRST,
    C_LIVE_HEAD,
    C_LIVE_TAIL,
    E_MACHINE,
    E_UNITS,
    E_VECTOR,
    FIRST_SPARE,
    K_BUCKET,
    K_BUYER,
    K_HEAD,
    K_LEFT,
    K_PRICE,
    K_PROBABILITY,
    K_SHAPE,
    K_TIER,
    LEN_COHORTS,
    LOOSE,
    M_ACTION,
    M_ALL_NEXT,
    M_BOUND,
    M_LIVE_NEXT,
    M_NUMBER,
    M_OWN,
    M_OWN_NEXT,
    M_PRICE,
    M_PROBABILITY,
    M_SERVES,
    M_SHAPE,
    M_STAMP_RECLAMATION,
    M_STATE,
    N_CLUSTER,
    N_COUNT,
    N_FIRST,
    N_LATER,
    N_MISSING,
    N_OWN,
    N_OWN_HEAD,
    N_OWN_TAIL,
    N_TOPOLOGY,
    NEXT_BINDING,
    NONE,
    OVERFLOW,
    PREEMPT,
    ROBBED,
    SPARES,
    T_NEED_AGGREGATE,
    T_POOL,
    T_VECTOR,
    WIDTH,
    Work,
)
from bigfleet.engine.heap.heap import at, cell, put, put_cell
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.capacity import clear
from bigfleet.engine.walks.machine_lists import append, leave, relink

SPECULATIVE = 1
DELETING = 7


@walk
def evict(w: Work, machine: int) -> None:
    """Nobody takes from the machine any more, and it leaves its cluster's list."""
    cluster = at(w, M_BOUND, machine)
    need = at(w, C_FIRST, cluster)
    while need >= 0:
        first, count = at(w, N_FIRST, need), at(w, N_COUNT, need)
        for e in range(first, first + count):
            if at(w, E_MACHINE, e) == machine:
                v = at(w, E_VECTOR, e)
                if v >= 0:
                    for d in range(1, w.h[WIDTH]):
                        put_cell(
                            w, T_NEED_AGGREGATE, need, d, cell(w, T_NEED_AGGREGATE, need, d) + cell(w, T_VECTOR, v, d)
                        )
                    put(w, N_MISSING, need, 1)
                else:
                    put(w, N_MISSING, need, at(w, N_MISSING, need) + at(w, E_UNITS, e))
                last = first + count - 1
                put(w, E_MACHINE, e, at(w, E_MACHINE, last))
                put(w, E_UNITS, e, at(w, E_UNITS, last))
                put(w, E_VECTOR, e, at(w, E_VECTOR, last))
                put(w, N_COUNT, need, count - 1)
                break
        if at(w, N_TOPOLOGY, need) >= 0 and at(w, N_OWN, need) == at(w, M_OWN, machine):
            leave(w, N_OWN_HEAD, N_OWN_TAIL, M_OWN_NEXT, need, machine)
        need = at(w, N_LATER, need)
    leave(w, C_ALL_HEAD, C_ALL_TAIL, M_ALL_NEXT, cluster, machine)
    put(w, C_DISTURBED, cluster, ROBBED)
    relink(w, cluster)


@walk
def _spare(w: Work, machine: int, buyer: int) -> int:
    """A cohort of this one machine, open to whoever comes before its buyer when needs are served again."""
    place = w.h[FIRST_SPARE] + w.h[SPARES]
    if place >= w.h[LEN_COHORTS]:
        w.h[OVERFLOW] = LEN_COHORTS
        return NONE
    w.h[SPARES] = w.h[SPARES] + 1
    state = at(w, M_STATE, machine)
    put(w, K_SHAPE, place, at(w, M_SHAPE, machine))
    put(w, K_TIER, place, 1 if state == SPECULATIVE or state == DELETING else 0)
    put(w, K_PRICE, place, at(w, M_PRICE, machine))
    put(w, K_PROBABILITY, place, at(w, M_PROBABILITY, machine))
    put(w, K_BUCKET, place, at(w, M_STAMP_RECLAMATION, machine))
    put(w, K_BUYER, place, buyer)
    put(w, T_POOL, at(w, K_HEAD, place), machine)
    put(w, K_LEFT, place, 1)
    return place


@walk
def unbind(w: Work, machine: int) -> None:
    """Take an acquisition of this decision back: the machine is free again."""
    evict(w, machine)
    a = at(w, M_ACTION, machine)
    put(w, A_KIND, a, NONE)
    put(w, K_BUYER, at(w, A_COHORT, a), NONE)
    w.h[LOOSE] = 1
    put(w, M_ACTION, machine, NONE)
    put(w, M_BOUND, machine, NONE)


@walk
def bind(w: Work, need: int, machine: int, kind: int, grace: int, outranked: int) -> None:
    """Commit a machine to the need's cluster, stamped for the need, last in the binding order, all of it free."""
    cluster = at(w, N_CLUSTER, need)
    a = w.h[ACTIONS]
    put(w, A_KIND, a, kind)
    put(w, A_MACHINE, a, machine)
    put(w, A_NEED, a, need)
    put(w, A_GRACE, a, grace)
    put(w, A_OUTRANKED, a, outranked)
    w.h[ACTIONS] = a + 1
    put(w, M_BOUND, machine, cluster)
    put(w, M_NUMBER, machine, w.h[NEXT_BINDING])
    w.h[NEXT_BINDING] = w.h[NEXT_BINDING] + 1
    put(w, M_OWN, machine, at(w, N_OWN, need))
    put(w, C_DISTURBED, cluster, max(at(w, C_DISTURBED, cluster), ROBBED if kind == PREEMPT else BOUGHT))
    former = at(w, M_ACTION, machine)
    if former != NONE:
        put(w, A_KIND, former, NONE)
    put(w, M_ACTION, machine, a)
    put(w, A_COHORT, a, NONE)
    if kind != PREEMPT:
        put(w, A_COHORT, a, _spare(w, machine, need))
    put(w, M_SERVES, machine, NONE)
    append(w, C_ALL_HEAD, C_ALL_TAIL, M_ALL_NEXT, cluster, machine)
    append(w, C_LIVE_HEAD, C_LIVE_TAIL, M_LIVE_NEXT, cluster, machine)
    if at(w, N_TOPOLOGY, need) >= 0:
        append(w, N_OWN_HEAD, N_OWN_TAIL, M_OWN_NEXT, need, machine)
    clear(w, machine, cluster)
