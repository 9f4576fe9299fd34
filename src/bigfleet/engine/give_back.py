"""Giving back: which machines a cluster with excess gives back after phase 2, within the rails. Sections 8 and 9."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.codes import COMMITTED, EMPTY, NOBODY, PROTECTED, UNREQUESTED
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Heap
from bigfleet.engine.records import ClusterRecord, Policy
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.walks import phases
from bigfleet.model.machine import MachineState

RECLAIM_GRACE = 600
"""Seconds that pods are given on a machine that is given back."""


class GiveBack(NamedTuple):
    """What a cluster gives back in this decision."""

    machines: list[int]
    capped: bool
    """Whether a rail kept a machine from being given back."""


class Excess:
    """The machines of all clusters that may give some back, sorted at once; those of a cluster stand side by side."""

    def __init__(self, heap: Heap, inventory: Inventory, clusters: Sequence[ClusterRecord], policy: Policy) -> None:
        self._heap, self._inventory, self._policy = heap, inventory, policy
        n, known = int(heap.work.h[c.LEN_MACHINES]), int(heap.work.h[c.LEN_CLUSTERS])
        state, bound, flags = heap.column(c.M_STATE, n), heap.column(c.M_BOUND, n), heap.column(c.M_FLAGS, n)
        home = heap.column(c.M_CLUSTER, n)
        leaving = home[(state == MachineState.DRAINING) & (bound == NOBODY) & (home != NOBODY)]
        self._draining = np.bincount(leaving, minlength=known)
        giving = np.zeros(known + 1, np.bool_)
        giving[[inventory.clusters.intern(record.id) for record in clusters if self._is_due(record)]] = True
        machines = np.flatnonzero(giving[bound])
        cluster, flags = bound[machines], flags[machines]
        empty = (flags & EMPTY) != 0
        price, rank = heap.column(c.M_PRICE)[machines], heap.column(c.M_RANK)[machines]
        bucket = heap.column(c.M_STAMP_RECLAMATION)[machines].astype(np.int64)
        configured = (state[machines] == MachineState.CONFIGURED) & (flags & COMMITTED == 0)
        configured &= heap.column(c.M_ACTION)[machines] == NOBODY
        may_go = configured & (flags & (PROTECTED | UNREQUESTED) == 0)
        may_go &= inventory.hold_until.view[machines] <= heap.work.h[c.NOW]
        may_go &= empty | (heap.column(c.C_PARTIAL)[cluster] == 0)
        # Machines kept first run pods, are cheap, and are dear to move. Machines given back first are empty, cheap, and
        # cheap to move.
        keep = np.lexsort((rank, -bucket, price, empty, cluster))
        give = np.lexsort((rank, bucket, price, ~empty, cluster))
        self._keep, self._give = machines[keep], machines[give]
        self._may_go = np.zeros(n, np.bool_)
        self._may_go[machines] = may_go
        self._place = np.zeros(n, np.int64)
        self._place[self._keep] = np.arange(len(keep))
        self._left = np.ones(len(keep), np.bool_)
        self._end = np.cumsum(np.bincount(cluster, minlength=known))
        self._configured = np.bincount(cluster[configured], minlength=known)

    def _is_due(self, cluster: ClusterRecord) -> bool:
        """Whether a cluster has had excess for long enough."""
        now = int(self._heap.work.h[c.NOW])
        since = now if cluster.excess_since is None else cluster.excess_since
        return cluster.live and now - since >= self._policy.reclaim_after

    def give_back(self, cluster: ClusterRecord) -> GiveBack:
        """What a cluster gives back now, within the rails."""
        if not self._is_due(cluster):
            return GiveBack([], False)
        heap, number = self._heap, self._inventory.clusters.intern(cluster.id)
        start, end = int(self._end[number - 1]) if number else 0, int(self._end[number])
        give = self._give[start:end]
        give = give[self._may_go[give]]
        rail = self._rail(number, cluster)
        if phases.is_covered(heap.work, number):
            phases.strike_taken(heap.work, number, self._keep[start:end], self._place, self._left)
            candidates = give[self._left[self._place[give]]]
            head = candidates[:rail]
            if len(candidates) and phases.is_covered_without(heap.work, number, head):
                return GiveBack(head.tolist(), len(candidates) > len(head))
        fallback = give[heap.column(c.M_SERVES)[give] == NOBODY]
        return GiveBack(fallback[:rail].tolist(), len(fallback) > rail)

    def _rail(self, number: int, record: ClusterRecord) -> int:
        """How many machines the rails allow: a share in a window, and a share draining at once, at least one each."""
        configured, draining, policy = int(self._configured[number]), int(self._draining[number]), self._policy
        window = max(1, configured * policy.reclaim_percent // 100) - record.reclaimed_in_window
        at_once = max(1, (configured + draining) * policy.draining_percent // 100) - draining
        return max(0, min(window, at_once))
