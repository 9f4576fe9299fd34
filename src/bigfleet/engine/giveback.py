"""Giving back: which machines of a cluster nobody needs. Sections 8 and 9, on the picture after phase 2."""

from typing import NamedTuple

import numpy as np

from bigfleet.engine import passes
from bigfleet.engine.heap import Tables
from bigfleet.engine.inventory import Inventory
from bigfleet.engine.reading import COMMITTED, EMPTY, NOBODY, PROTECTED, UNREQUESTED
from bigfleet.engine.records import ClusterRecord, Policy
from bigfleet.engine.work import (
    C_ALL_HEAD,
    C_FIRST,
    E_MACHINE,
    ENTRIES,
    FIRST_SPARE,
    H_HELD,
    K_LEFT,
    K_SHAPE,
    LEN_CLUSTERS,
    LEN_MACHINES,
    LOOSE,
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
    VECTORS,
    Array,
)
from bigfleet.model.machine import MachineState

RECLAIM_GRACE = 600


class GiveBack(NamedTuple):
    """What a cluster gives back this cycle; `capped` if the rail held some of it."""

    machines: list[int]
    capped: bool


def draining_by_cluster(w: Tables) -> Array:
    """How many machines drain from each cluster for nobody."""
    n = int(w.work.h[LEN_MACHINES])
    state, home, bound = w.column(M_STATE, n), w.column(M_CLUSTER, n), w.column(M_BOUND, n)
    leaving = home[(state == MachineState.DRAINING) & (bound == NOBODY) & (home != NOBODY)]
    return np.bincount(leaving, minlength=int(w.work.h[LEN_CLUSTERS]))


def give_back(w: Tables, inventory: Inventory, cluster: ClusterRecord, draining: int, policy: Policy) -> GiveBack:
    """What a cluster that has excess gives back now, within the rails; so many drain from it for nobody already."""
    number = inventory.clusters.intern(cluster.id)
    now = int(w.work.h[NOW])
    since = now if cluster.excess_since is None else cluster.excess_since
    if not cluster.live or now - since < policy.reclaim_after:
        return GiveBack([], False)
    machines = _machines(w, number)
    configured = [m for m in machines if _is_configured(w, m)]
    rail = _rail(len(configured), draining, cluster, policy)
    if passes.is_covered(w.work, number):
        candidates = _emission(w, inventory, cluster, _untaken_in_keep_order(w, number, machines))
        head = candidates[:rail]
        if candidates and _leaves_all_covered(w, number, head):
            return GiveBack(head, len(candidates) > len(head))
    fallback = _emission(w, inventory, cluster, [m for m in configured if w.column(M_SERVES)[m] == NOBODY])
    return GiveBack(fallback[:rail], len(fallback) > rail)


def _machines(w: Tables, cluster: int) -> list[int]:
    machines = []
    machine = int(w.column(C_ALL_HEAD)[cluster])
    while machine != NOBODY:
        if w.column(M_BOUND)[machine] == cluster:
            machines.append(machine)
        machine = int(w.column(M_ALL_NEXT)[machine])
    return machines


def _is_configured(w: Tables, machine: int) -> bool:
    return bool(
        w.column(M_STATE)[machine] == MachineState.CONFIGURED
        and not w.column(M_FLAGS)[machine] & COMMITTED
        and w.column(M_ACTION)[machine] == NOBODY
    )


def _untaken_in_keep_order(w: Tables, cluster: int, machines: list[int]) -> list[int]:
    """What is left when the cluster is credited with machines in keep order: with pods first, cheap first, dear to
    move first.
    """
    order = sorted(
        machines,
        key=lambda m: (
            w.column(M_FLAGS)[m] & EMPTY,
            w.column(M_PRICE)[m],
            -int(w.column(M_STAMP_RECLAMATION)[m]),
            w.column(M_RANK)[m],
        ),
    )
    before = w.work.h[[ENTRIES, VECTORS]]
    passes.credit_in(w.work, cluster, np.array(order, np.int64))
    taken = set()
    need = int(w.column(C_FIRST)[cluster])
    while need != NOBODY:
        first = int(w.column(N_FIRST)[need])
        taken.update(w.column(E_MACHINE)[first : first + int(w.column(N_COUNT)[need])].tolist())
        need = int(w.column(N_LATER)[need])
    passes.restore_all(w.work, cluster)
    w.work.h[[ENTRIES, VECTORS]] = before
    return [m for m in machines if m not in taken and _is_configured(w, m)]


def _emission(w: Tables, inventory: Inventory, cluster: ClusterRecord, machines: list[int]) -> list[int]:
    """Those that may go, empty ones first, then cheap ones, then those cheap to move."""
    now = int(w.work.h[NOW])
    going = []
    for m in machines:
        flags = int(w.column(M_FLAGS)[m])
        if flags & (PROTECTED | UNREQUESTED) or inventory.hold_until.view[m] > now:
            continue
        if flags & EMPTY or not cluster.partial:
            going.append(m)
    return sorted(
        going,
        key=lambda m: (
            not w.column(M_FLAGS)[m] & EMPTY,
            w.column(M_PRICE)[m],
            w.column(M_STAMP_RECLAMATION)[m],
            w.column(M_RANK)[m],
        ),
    )


def _leaves_all_covered(w: Tables, cluster: int, head: list[int]) -> bool:
    """Whether every need is covered again, credited in the ordinary order without these machines."""
    spares = int(w.work.h[SPARES])
    first = int(w.work.h[FIRST_SPARE]) + spares
    for at, m in enumerate(head, first):
        w.column(M_BOUND)[m] = NOBODY
        if w.column(M_NOT_BEFORE)[m] <= w.work.h[NOW] and not w.column(H_HELD)[w.column(M_SHAPE)[m]]:
            w.column(K_SHAPE)[at] = w.column(M_SHAPE)[m]
            w.column(K_LEFT)[at] = 1
    loose = int(w.work.h[LOOSE])
    w.work.h[SPARES], w.work.h[LOOSE] = spares + len(head), 1
    before = w.work.h[[ENTRIES, VECTORS]]
    covered = passes.credit_anew(w.work, cluster)
    w.column(M_BOUND)[head] = cluster
    passes.restore_all(w.work, cluster)
    w.work.h[[ENTRIES, VECTORS]] = before
    w.column(K_LEFT)[first : first + len(head)] = 0
    w.work.h[SPARES], w.work.h[LOOSE] = spares, loose
    return bool(covered)


def _rail(configured: int, draining: int, record: ClusterRecord, policy: Policy) -> int:
    """At most so many a window, and so many draining at once; at least one of each."""
    window = max(1, configured * policy.reclaim_percent // 100) - record.reclaimed_in_window
    at_once = max(1, (configured + draining) * policy.draining_percent // 100) - draining
    return max(0, min(window, at_once))
