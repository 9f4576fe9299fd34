"""Giving back: which machines of a cluster nobody needs. Sections 8 and 9, on the picture after phase 2."""

from typing import NamedTuple

import numpy as np

from bigfleet.engine import passes
from bigfleet.engine.inventory import COMMITTED, EMPTY, NOBODY, PROTECTED, UNREQUESTED, Inventory
from bigfleet.engine.records import ClusterRecord, Policy
from bigfleet.engine.work import (
    C_ALL_HEAD,
    C_FIRST,
    E_MACHINE,
    FIRST_SPARE,
    H_HELD,
    K_END,
    K_HEAD,
    K_SHAPE,
    M_ACTION,
    M_ALL_NEXT,
    M_BOUND,
    M_CLUSTER,
    M_FLAGS,
    M_NOT_BEFORE,
    M_PRICE,
    M_RANK,
    M_SERVES,
    M_SHAPE,
    M_STAMP_RECLAMATION,
    M_STATE,
    N_COUNT,
    N_FIRST,
    N_LATER,
    NOW,
    SPARES,
    Array,
    Work,
)
from bigfleet.model.machine import MachineState

RECLAIM_GRACE = 600


class GiveBack(NamedTuple):
    """What a cluster gives back this cycle; `capped` if the rail held some of it."""

    machines: list[int]
    capped: bool


def with_excess(w: Work) -> Array:
    """For each cluster, whether a Configured machine of it serves no need."""
    excess = np.zeros(w.clusters.shape[1], np.bool_)
    passes.mark_excess(w, excess)
    return excess


def give_back(w: Work, inventory: Inventory, cluster: ClusterRecord, policy: Policy) -> GiveBack:
    """What a cluster that has excess gives back now, within the rails."""
    number = inventory.clusters.intern(cluster.id)
    now = int(w.scalar[NOW])
    since = now if cluster.excess_since is None else cluster.excess_since
    if not cluster.live or now - since < policy.reclaim_after:
        return GiveBack([], False)
    machines = _machines(w, number)
    configured = [m for m in machines if _is_configured(w, m)]
    rail = _rail(w, number, len(configured), cluster, policy)
    if passes.is_covered(w, number):
        candidates = _emission(w, inventory, cluster, _untaken_in_keep_order(w, number, machines))
        head = candidates[:rail]
        if candidates and _leaves_all_covered(w, number, head):
            return GiveBack(head, len(candidates) > len(head))
    fallback = _emission(w, inventory, cluster, [m for m in configured if w.machines[M_SERVES, m] == NOBODY])
    return GiveBack(fallback[:rail], len(fallback) > rail)


def _machines(w: Work, cluster: int) -> list[int]:
    machines = []
    machine = int(w.clusters[C_ALL_HEAD, cluster])
    while machine != NOBODY:
        if w.machines[M_BOUND, machine] == cluster:
            machines.append(machine)
        machine = int(w.machines[M_ALL_NEXT, machine])
    return machines


def _is_configured(w: Work, machine: int) -> bool:
    return bool(
        w.machines[M_STATE, machine] == MachineState.CONFIGURED
        and not w.machines[M_FLAGS, machine] & COMMITTED
        and w.machines[M_ACTION, machine] == NOBODY
    )


def _untaken_in_keep_order(w: Work, cluster: int, machines: list[int]) -> list[int]:
    """What is left when the cluster is credited with machines in keep order: with pods first, cheap first, dear to
    move first.
    """
    order = sorted(
        machines,
        key=lambda m: (
            w.machines[M_FLAGS, m] & EMPTY,
            w.machines[M_PRICE, m],
            -int(w.machines[M_STAMP_RECLAMATION, m]),
            w.machines[M_RANK, m],
        ),
    )
    passes.credit_in(w, cluster, np.array(order, np.int64))
    taken = set()
    need = int(w.clusters[C_FIRST, cluster])
    while need != NOBODY:
        first = int(w.needs[N_FIRST, need])
        taken.update(w.entries[E_MACHINE, first : first + int(w.needs[N_COUNT, need])].tolist())
        need = int(w.needs[N_LATER, need])
    passes.restore_all(w, cluster)
    return [m for m in machines if m not in taken and _is_configured(w, m)]


def _emission(w: Work, inventory: Inventory, cluster: ClusterRecord, machines: list[int]) -> list[int]:
    """Those that may go, empty ones first, then cheap ones, then those cheap to move."""
    now = int(w.scalar[NOW])
    going = []
    for m in machines:
        flags = int(w.machines[M_FLAGS, m])
        if flags & (PROTECTED | UNREQUESTED) or inventory.hold_until.view[m] > now:
            continue
        if flags & EMPTY or not cluster.partial:
            going.append(m)
    return sorted(
        going,
        key=lambda m: (
            not w.machines[M_FLAGS, m] & EMPTY,
            w.machines[M_PRICE, m],
            w.machines[M_STAMP_RECLAMATION, m],
            w.machines[M_RANK, m],
        ),
    )


def _leaves_all_covered(w: Work, cluster: int, head: list[int]) -> bool:
    """Whether every need is covered again, credited in the ordinary order without these machines."""
    spares = int(w.scalar[SPARES])
    first = int(w.scalar[FIRST_SPARE]) + spares
    for at, m in enumerate(head, first):
        w.machines[M_BOUND, m] = NOBODY
        if w.machines[M_NOT_BEFORE, m] <= w.scalar[NOW] and not w.shapes[H_HELD, w.machines[M_SHAPE, m]]:
            w.cohorts[K_SHAPE, at] = w.machines[M_SHAPE, m]
            w.cohorts[K_END, at] = w.cohorts[K_HEAD, at] + 1
    w.scalar[SPARES] = spares + len(head)
    covered = passes.credit_anew(w, cluster)
    w.machines[M_BOUND, head] = cluster
    passes.restore_all(w, cluster)
    w.cohorts[K_END, first : first + len(head)] = w.cohorts[K_HEAD, first : first + len(head)]
    w.scalar[SPARES] = spares
    return bool(covered)


def _rail(w: Work, cluster: int, configured: int, record: ClusterRecord, policy: Policy) -> int:
    """At most so many a window, and so many draining at once; at least one of each."""
    draining = int(
        (
            (w.machines[M_STATE] == MachineState.DRAINING)
            & (w.machines[M_CLUSTER] == cluster)
            & (w.machines[M_BOUND] == NOBODY)
        ).sum()
    )
    window = max(1, configured * policy.reclaim_percent // 100) - record.reclaimed_in_window
    at_once = max(1, (configured + draining) * policy.draining_percent // 100) - draining
    return max(0, min(window, at_once))
