"""Credit: what a need takes from the machines that count for its cluster. Compiled; sections 3, 5 and 6.

Spread is in `spread.py`, the choice of a gang's domain in `gangs.py`.
"""

from typing import cast

import numpy as np

from bigfleet.engine.compiled import step, walk
from bigfleet.engine.work import (
    C_ALL_HEAD,
    C_ALL_TAIL,
    C_DAEMONS,
    C_LIVE_HEAD,
    C_LIVE_TAIL,
    E_MACHINE,
    E_UNITS,
    E_VECTOR,
    ENTRIES,
    M_ALL_NEXT,
    M_BOUND,
    M_LIVE_NEXT,
    M_OWN,
    M_OWN_NEXT,
    M_SHAPE,
    N_CLUSTER,
    N_COUNT,
    N_DIVISIBLE,
    N_FIRST,
    N_INTERRUPTION,
    N_LIMIT,
    N_MISSING,
    N_OWN,
    N_OWN_HEAD,
    N_REQUIREMENT,
    N_TOPOLOGY,
    N_TWIN,
    N_UNIT,
    OVERFLOW,
    VECTORS,
    Work,
)

# A numpy number, not a Python one: for a literal argument numba would compile every function once more.
NONE = cast("int", np.int64(-1))
LARGE = cast("int", np.int64(1 << 62))


@walk
def clear(w: Work, machine: int, cluster: int) -> None:
    """Make all of the machine free, less the daemons that the cluster runs on such a node."""
    shape = w.machines[M_SHAPE, machine]
    daemons = w.clusters[C_DAEMONS, cluster]
    free = w.free[machine]
    for d in range(free.shape[0]):
        free[d] = w.allocatable[shape, d] - w.daemon_base[daemons, d]
    for e in range(w.daemon_start[daemons], w.daemon_start[daemons + 1]):
        if w.matches[w.daemon_requirement[e], shape]:
            for d in range(free.shape[0]):
                free[d] -= w.daemon_extra[e, d]
    for d in range(free.shape[0]):
        free[d] = max(free[d], 0)


@walk
def fresh_units(w: Work, need: int, shape: int) -> int:
    """Units of the need that an untouched machine of this shape holds for the need's cluster."""
    unit = w.unit[w.needs[N_UNIT, need]]
    daemons = w.clusters[C_DAEMONS, w.needs[N_CLUSTER, need]]
    start, end = w.daemon_start[daemons], w.daemon_start[daemons + 1]
    k = LARGE
    for d in range(unit.shape[0]):
        if unit[d] > 0:
            room = w.allocatable[shape, d] - w.daemon_base[daemons, d]
            for e in range(start, end):
                if w.matches[w.daemon_requirement[e], shape]:
                    room -= w.daemon_extra[e, d]
            k = min(k, max(room, 0) // unit[d])
    if w.needs[N_LIMIT, need] > 0:
        k = min(k, w.needs[N_LIMIT, need])
    return k


@step
def admits(w: Work, need: int, shape: int) -> bool:
    """Whether machines of this shape may serve the need at all, room aside."""
    return w.matches[w.needs[N_REQUIREMENT, need], shape] != 0


@step
def is_pinned(w: Work, need: int) -> bool:
    """Whether the need's interruption penalty is beyond every bound."""
    return w.needs[N_INTERRUPTION, need] == 27


@walk
def is_eligible(w: Work, need: int, shape: int) -> bool:
    """Whether a machine of this shape matches and, untouched, holds one unit."""
    if not admits(w, need, shape):
        return False
    if w.needs[N_DIVISIBLE, need]:
        return divisible_fits(w, need, shape)
    return fresh_units(w, need, shape) > 0


@walk
def divisible_fits(w: Work, need: int, shape: int) -> bool:
    """Whether an untouched machine has a pod slot and something of what a divisible need asks for."""
    daemons = w.clusters[C_DAEMONS, w.needs[N_CLUSTER, need]]
    start, end = w.daemon_start[daemons], w.daemon_start[daemons + 1]
    some = False
    for d in range(w.allocatable.shape[1]):
        if d > 0 and w.need_aggregate[need, d] == 0:
            continue
        room = w.allocatable[shape, d] - w.daemon_base[daemons, d]
        for e in range(start, end):
            if w.matches[w.daemon_requirement[e], shape]:
                room -= w.daemon_extra[e, d]
        if d == 0 and room <= 0:
            return False
        if d > 0 and room > 0:
            some = True
    return some


@step
def fitting_units(w: Work, need: int, machine: int) -> int:
    """Units of the need that the machine still holds, within the machine limit."""
    unit = w.needs[N_UNIT, need]
    k = LARGE
    for d in range(w.unit.shape[1]):
        size = w.unit[unit, d]
        if size > 0:
            k = min(k, w.free[machine, d] // size)
    k = max(k, 0)
    if k > 0 and w.needs[N_LIMIT, need] > 0:
        k = min(k, below_limit(w, need, machine))
    return k


@walk
def below_limit(w: Work, need: int, machine: int) -> int:
    """Units of the need's profile that the machine limit still lets on to the machine."""
    there = units_on(w, need, machine)
    twin = w.needs[N_TWIN, need]
    while twin != need:
        there += units_on(w, twin, machine)
        twin = w.needs[N_TWIN, twin]
    return max(w.needs[N_LIMIT, need] - there, 0)


@walk
def units_on(w: Work, need: int, machine: int) -> int:
    """Units that the need takes from the machine now."""
    first = w.needs[N_FIRST, need]
    for e in range(first, first + w.needs[N_COUNT, need]):
        if w.entries[E_MACHINE, e] == machine:
            return w.entries[E_UNITS, e]
    return 0


@walk
def take(w: Work, need: int, machine: int, units: int) -> None:
    """So many units of the need on a machine that it takes nothing from yet.

    Only the need being served takes, so its entries are the last and stand together.
    """
    unit = w.unit[w.needs[N_UNIT, need]]
    for d in range(unit.shape[0]):
        w.free[machine, d] -= units * unit[d]
    w.needs[N_MISSING, need] -= units
    e = w.scalar[ENTRIES]
    if e >= w.entries.shape[1]:
        w.scalar[OVERFLOW] = 1
        return
    if w.needs[N_COUNT, need] == 0:
        w.needs[N_FIRST, need] = e
    w.entries[E_MACHINE, e] = machine
    w.entries[E_UNITS, e] = units
    w.entries[E_VECTOR, e] = NONE
    w.needs[N_COUNT, need] += 1
    w.scalar[ENTRIES] = e + 1


@walk
def take_divisible(w: Work, need: int, machine: int) -> bool:
    """All that a divisible need can use of the machine, and one pod slot; False if that is nothing."""
    free, gap = w.free[machine], w.need_aggregate[need]
    if free[0] < 1 or units_on(w, need, machine) > 0:
        return False
    v, e = w.scalar[VECTORS], w.scalar[ENTRIES]
    if v >= w.vector.shape[0] or e >= w.entries.shape[1]:
        w.scalar[OVERFLOW] = 1
        return False
    taken = w.vector[v]
    some = False
    for d in range(1, free.shape[0]):
        taken[d] = min(gap[d], free[d])
        some = some or taken[d] > 0
    if not some:
        return False
    taken[0] = 1
    for d in range(free.shape[0]):
        free[d] -= taken[d]
        if d > 0:
            gap[d] -= taken[d]
    if w.needs[N_COUNT, need] == 0:
        w.needs[N_FIRST, need] = e
    w.entries[E_MACHINE, e] = machine
    w.entries[E_UNITS, e] = 1
    w.entries[E_VECTOR, e] = v
    w.needs[N_COUNT, need] += 1
    w.scalar[ENTRIES], w.scalar[VECTORS] = e + 1, v + 1
    w.needs[N_MISSING, need] = 0
    for d in range(1, gap.shape[0]):
        if gap[d] > 0:
            w.needs[N_MISSING, need] = 1
    return True


@walk
def untake(w: Work, need: int) -> None:
    """The need takes nothing any more."""
    unit = w.unit[w.needs[N_UNIT, need]]
    first = w.needs[N_FIRST, need]
    for e in range(first, first + w.needs[N_COUNT, need]):
        machine = w.entries[E_MACHINE, e]
        v = w.entries[E_VECTOR, e]
        if v >= 0:
            for d in range(unit.shape[0]):
                w.free[machine, d] += w.vector[v, d]
                if d > 0:
                    w.need_aggregate[need, d] += w.vector[v, d]
            w.needs[N_MISSING, need] = 1
        else:
            units = w.entries[E_UNITS, e]
            for d in range(unit.shape[0]):
                w.free[machine, d] += units * unit[d]
            w.needs[N_MISSING, need] += units
    w.needs[N_COUNT, need] = 0


@step
def is_full(w: Work, machine: int, cluster: int) -> bool:
    """Whether not even the cluster's smallest units would fit."""
    full = False
    for d in range(w.cluster_least.shape[1]):
        full = full or w.free[machine, d] < w.cluster_least[cluster, d]
    return full


@walk
def relink(w: Work, cluster: int) -> None:
    """Put every machine of the cluster back on the list of those with room."""
    w.clusters[C_LIVE_HEAD, cluster], w.clusters[C_LIVE_TAIL, cluster] = (
        w.clusters[C_ALL_HEAD, cluster],
        w.clusters[C_ALL_TAIL, cluster],
    )
    machine = w.clusters[C_ALL_HEAD, cluster]
    while machine >= 0:
        w.machines[M_LIVE_NEXT, machine] = w.machines[M_ALL_NEXT, machine]
        machine = w.machines[M_ALL_NEXT, machine]


@walk
def credit_plain(w: Work, need: int) -> None:
    """A plain need takes its cluster's machines in binding order."""
    cluster = w.needs[N_CLUSTER, need]
    divisible = w.needs[N_DIVISIBLE, need]
    before = NONE
    machine = w.clusters[C_LIVE_HEAD, cluster]
    while machine >= 0 and w.needs[N_MISSING, need] > 0:
        following = w.machines[M_LIVE_NEXT, machine]
        if w.machines[M_BOUND, machine] == cluster and admits(w, need, w.machines[M_SHAPE, machine]):
            if divisible:
                take_divisible(w, need, machine)
            else:
                units = min(fitting_units(w, need, machine), w.needs[N_MISSING, need])
                if units > 0:
                    take(w, need, machine, units)
        before = _step_on(w, cluster, before, machine, following)
        machine = following


@step
def _step_on(w: Work, cluster: int, before: int, machine: int, following: int) -> int:
    """Go on to the next machine with room, leaving this one off the list if it has none; what precedes the next."""
    keep = w.machines[M_BOUND, machine] == cluster and not is_full(w, machine, cluster)
    if not keep:
        if before == NONE:
            w.clusters[C_LIVE_HEAD, cluster] = following
        else:
            w.machines[M_LIVE_NEXT, before] = following
        if following == NONE:
            w.clusters[C_LIVE_TAIL, cluster] = before
    return machine if keep else before


@walk
def credit_gang(w: Work, need: int, domain: int) -> None:
    """A gang takes its own machines in the domain first, then the cluster's others there, in binding order."""
    credit_own(w, need, domain)
    cluster, topology = w.needs[N_CLUSTER, need], w.needs[N_TOPOLOGY, need]
    before = NONE
    machine = w.clusters[C_LIVE_HEAD, cluster]
    while machine >= 0 and w.needs[N_MISSING, need] > 0:
        following = w.machines[M_LIVE_NEXT, machine]
        shape = w.machines[M_SHAPE, machine]
        if (
            w.domain[topology, shape] == domain
            and w.machines[M_BOUND, machine] == cluster
            and w.machines[M_OWN, machine] != w.needs[N_OWN, need]
            and admits(w, need, shape)
        ):
            units = min(fitting_units(w, need, machine), w.needs[N_MISSING, need])
            if units > 0:
                take(w, need, machine, units)
        before = _step_on(w, cluster, before, machine, following)
        machine = following


@walk
def credit_own(w: Work, need: int, domain: int) -> None:
    """A gang takes its own machines in the domain."""
    cluster, topology = w.needs[N_CLUSTER, need], w.needs[N_TOPOLOGY, need]
    machine = w.needs[N_OWN_HEAD, need]
    while machine >= 0 and w.needs[N_MISSING, need] > 0:
        shape = w.machines[M_SHAPE, machine]
        if w.machines[M_BOUND, machine] == cluster and w.domain[topology, shape] == domain and admits(w, need, shape):
            units = min(fitting_units(w, need, machine), w.needs[N_MISSING, need])
            if units > 0:
                take(w, need, machine, units)
        machine = w.machines[M_OWN_NEXT, machine]
