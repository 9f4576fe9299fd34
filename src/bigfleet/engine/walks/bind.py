"""Binding a machine to the cluster of a need, and taking a machine from its cluster. Compiled; engine section 5."""

from bigfleet.engine.codes import DELETING, PODS_DIM, SPECULATIVE
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Work, add, add_cell, at, cell, put
from bigfleet.engine.heap.values import AT_ONCE, BOUGHT, NONE, PREEMPT, ROBBED, TO_BE_CREATED
from bigfleet.engine.jit import walk
from bigfleet.engine.walks.capacity import empty_machine
from bigfleet.engine.walks.machine_lists import append, leave, list_all_with_room


@walk
def evict(w: Work, machine: int) -> None:
    """Take the machine from its cluster: no need there has it any more, and it leaves the cluster's lists."""
    cluster = at(w, c.M_BOUND, machine)
    need = at(w, c.C_FIRST_NEED, cluster)
    while need >= 0:
        first, count = at(w, c.N_FIRST_ENTRY, need), at(w, c.N_ENTRIES, need)
        for e in range(first, first + count):
            if at(w, c.E_MACHINE, e) == machine:
                v = at(w, c.E_VECTOR, e)
                if v >= 0:
                    for d in range(PODS_DIM + 1, w.h[c.WIDTH]):
                        add_cell(w, c.T_GAP, need, d, cell(w, c.T_VECTOR, v, d))
                    put(w, c.N_MISSING, need, 1)
                else:
                    add(w, c.N_MISSING, need, at(w, c.E_UNITS, e))
                last = first + count - 1
                put(w, c.E_MACHINE, e, at(w, c.E_MACHINE, last))
                put(w, c.E_UNITS, e, at(w, c.E_UNITS, last))
                put(w, c.E_VECTOR, e, at(w, c.E_VECTOR, last))
                put(w, c.N_ENTRIES, need, count - 1)
                break
        if at(w, c.N_TOPOLOGY, need) >= 0 and at(w, c.N_KEY, need) == at(w, c.M_STAMPED_FOR, machine):
            leave(w, c.N_OWN_HEAD, c.N_OWN_TAIL, c.M_OWN_NEXT, need, machine)
        need = at(w, c.N_NEXT, need)
    leave(w, c.C_ALL_HEAD, c.C_ALL_TAIL, c.M_ALL_NEXT, cluster, machine)
    put(w, c.C_DISTURBED, cluster, ROBBED)
    list_all_with_room(w, cluster)


@walk
def must_be_created(w: Work, machine: int) -> bool:
    """Whether the machine is a slot, or on its way back to being one."""
    state = at(w, c.M_STATE, machine)
    return state == SPECULATIVE or state == DELETING


@walk
def _spare(w: Work, machine: int, buyer: int) -> int:
    """Make a spare of the machine, open to needs before its buyer when needs are served again; NONE if no room."""
    place = w.h[c.FIRST_SPARE] + w.h[c.SPARES]
    if place >= w.h[c.LEN_COHORTS]:
        w.h[c.OVERFLOW] = c.LEN_COHORTS
        return NONE
    w.h[c.SPARES] = w.h[c.SPARES] + 1
    put(w, c.COHORT_SHAPE, place, at(w, c.M_SHAPE, machine))
    put(w, c.COHORT_TIER, place, TO_BE_CREATED if must_be_created(w, machine) else AT_ONCE)
    put(w, c.COHORT_PRICE, place, at(w, c.M_PRICE, machine))
    put(w, c.COHORT_PROBABILITY, place, at(w, c.M_PROBABILITY, machine))
    put(w, c.COHORT_RECLAMATION, place, at(w, c.M_STAMP_RECLAMATION, machine))
    put(w, c.COHORT_BUYER, place, buyer)
    put(w, c.T_POOL, at(w, c.COHORT_HEAD, place), machine)
    put(w, c.COHORT_LEFT, place, 1)
    return place


@walk
def unbind(w: Work, machine: int) -> None:
    """Take back the acquisition of a machine that this decision bought: the machine is free again."""
    evict(w, machine)
    a = at(w, c.M_ACTION, machine)
    put(w, c.A_KIND, a, NONE)
    put(w, c.COHORT_BUYER, at(w, c.A_COHORT, a), NONE)
    w.h[c.SPARE_RETURNED] = 1
    put(w, c.M_ACTION, machine, NONE)
    put(w, c.M_BOUND, machine, NONE)


@walk
def bind(w: Work, need: int, machine: int, kind: int, grace: int, outranked: int) -> None:
    """Acquire a machine for the need: bound to the need's cluster, stamped for the need, last in binding order, empty.

    The caller has made sure that there is room for one acquisition more.
    """
    cluster = at(w, c.N_CLUSTER, need)
    a = w.h[c.ACTIONS]
    put(w, c.A_KIND, a, kind)
    put(w, c.A_MACHINE, a, machine)
    put(w, c.A_NEED, a, need)
    put(w, c.A_GRACE, a, grace)
    put(w, c.A_OUTRANKED, a, outranked)
    w.h[c.ACTIONS] = a + 1
    put(w, c.M_BOUND, machine, cluster)
    put(w, c.M_BINDING, machine, w.h[c.NEXT_BINDING])
    w.h[c.NEXT_BINDING] = w.h[c.NEXT_BINDING] + 1
    put(w, c.M_STAMPED_FOR, machine, at(w, c.N_KEY, need))
    put(w, c.C_DISTURBED, cluster, max(at(w, c.C_DISTURBED, cluster), ROBBED if kind == PREEMPT else BOUGHT))
    former = at(w, c.M_ACTION, machine)
    if former != NONE:
        put(w, c.A_KIND, former, NONE)
    put(w, c.M_ACTION, machine, a)
    put(w, c.A_COHORT, a, NONE)
    if kind != PREEMPT:
        put(w, c.A_COHORT, a, _spare(w, machine, need))
    put(w, c.M_SERVES, machine, NONE)
    append(w, c.C_ALL_HEAD, c.C_ALL_TAIL, c.M_ALL_NEXT, cluster, machine)
    append(w, c.C_ROOM_HEAD, c.C_ROOM_TAIL, c.M_ROOM_NEXT, cluster, machine)
    if at(w, c.N_TOPOLOGY, need) >= 0:
        append(w, c.N_OWN_HEAD, c.N_OWN_TAIL, c.M_OWN_NEXT, need, machine)
    empty_machine(w, machine, cluster)
