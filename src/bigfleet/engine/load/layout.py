"""Laying out a decision: the heap is kept from the last decision and brought up to date with what has changed.

A cluster sleeps through a decision if nothing has changed that its outcome rests on: its machines, its needs, and what
the free pool offers to its unmet needs. The needs of a sleeping cluster keep what they took in the last decision.
"""

from collections.abc import Mapping

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Heap
from bigfleet.engine.heap.values import NONE, WEIGHTS
from bigfleet.engine.load.pool import Pool
from bigfleet.engine.load.rows import Rows
from bigfleet.engine.load.structure import Structure
from bigfleet.engine.records import ClusterRecord, Policy
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.engine.tables.shapes import DaemonSets
from bigfleet.engine.walks import wake

_STALE_LISTS = 4
"""Once there are so many times as many FITTING_ lists as rows, those of former rows are forgotten."""
_FEW_ROWS = 1024
"""Added to the number of rows there, so that small fleets do not forget lists all the time."""


class Layout:
    """The heap that decisions work in, kept up to date with the inventory and the table of needs."""

    def __init__(self, inventory: Inventory, needs: NeedsTable, daemons: DaemonSets) -> None:
        self._inventory, self._needs, self._daemons = inventory, needs, daemons
        self._room = {
            c.LEN_ENTRIES: 1 << 10,
            c.LEN_ACTIONS: 1 << 8,
            c.LEN_COHORTS: 1 << 8,
            c.LEN_SEATS: 1 << 12,
            c.LEN_VECTORS: 1 << 6,
            c.LEN_ARENA: 1 << 16,
            c.LEN_VICTIMS: 1 << 10,
        }
        self._forget()

    def _forget(self) -> None:
        """Begin with an empty heap."""
        self.heap = Heap()
        parts = self.heap, self._inventory, self._needs
        self._structure, self._rows = Structure(*parts, self._daemons), Rows(*parts, self._daemons)
        self._pool = Pool(*parts, self._room)
        self._foundation = tuple[int, ...]()
        self._width = 0
        self._rankings = NONE
        self._count: tuple[int, int] = (0, 0)
        self._clusters = 0
        self.awake = self.touched = np.zeros(0, np.bool_)

    @property
    def order(self) -> Array:
        """The slots of all rows, in the order in which they are served."""
        return self._rows.order

    def break_off(self) -> None:
        """Give up a decision that ran out of room in some column: the next one gets much more room there.

        Lists and marks may have been left halfway, so the whole heap is laid out again.
        """
        h = self.heap.work.h
        short = int(h[c.OVERFLOW])
        self._room[short] = max(4 * self._room[short], int(h[short]) // 2)
        self._foundation = ()

    def prepare(
        self,
        clusters: Mapping[str, ClusterRecord],
        told: set[str],
        policy: Policy,
        now: int,
        next_binding: int,
        *,
        full: bool,
    ) -> Array:
        """Bring the heap up to date and clear the outcome of awake clusters; the slots of their rows, in order.

        `told` are the clusters whose record was set since the last decision. With `full` all clusters are awake.
        """
        inventory, needs, shapes = self._inventory, self._needs, self._inventory.shapes
        if inventory.wants_compacting or self._rows.fitting_lists > _STALE_LISTS * (len(needs) + _FEW_ROWS):
            inventory.compact()
        if needs.wants_compacting:
            needs.compact()
        foundation = len(shapes.dimensions), inventory.generation, needs.generation
        everything = foundation != self._foundation
        if everything:
            self._forget()
        self._foundation, self._width = foundation, len(shapes.dimensions)
        inventory.ranked()
        inventory.reshape()
        shapes.update()
        order, count = needs.order(), max(1, len(inventory.clusters))
        # Small columns come first, since making room in a column moves everything that is in the heap by then.
        self._structure.lay(self._width)
        self._reserve_clusters(count)
        stale = self._rows.lay_clusters(clusters, clusters if everything else {*told, *self._rows.held}, count)
        rows = self._rows.number(order, stale | everything)
        self._reserve(len(inventory.ids), len(needs.need))
        dirty = self.heap.column(c.C_DISTURBED, count) != 0
        changed, touched = self._lay_machines(dirty, now, everything=everything)
        self._rows.lay(clusters, order, now, rows, stale | everything)
        dirty |= stale
        self._pool.lay_policy(policy, now)
        self._pool.lay(policy, now, changed, self._structure.shown, self._rows.kinds)
        h = self.heap.work.h
        h[c.NOW], h[c.NEXT_BINDING] = now, next_binding
        h[list(c.BEGIN_AT_ZERO)] = 0
        self.heap.column(c.C_DISTURBED, count)[:] = 0
        if full or everything:
            dirty[:] = True
        wake.wake(self.heap.work, dirty)
        awake = dirty[needs.cluster.view[order]]
        rows = order[awake]
        former = int(self.heap.column(c.N_ENTRIES)[rows].sum(dtype=np.int64))
        wake.reset_awake(self.heap.work, rows, dirty)
        self._make_room(former, order[~awake])
        self.awake, self.touched = dirty, touched | dirty
        self.heap.decision += 1
        return rows

    def _make_room(self, former: int, asleep: Array) -> None:
        """Compact the entries of sleeping rows if awake rows, which had `former` entries, may lack room for theirs."""
        heap, h = self.heap, self.heap.work.h
        entries, vectors = int(h[c.ENTRIES]), int(h[c.VECTORS])
        free = int(h[c.LEN_ENTRIES]) - entries
        if len(asleep) and free > 2 * former + h[c.LEN_ENTRIES] // 16 and 2 * vectors < h[c.LEN_VECTORS]:
            return
        machines, units, places = (heap.column(each, entries).copy() for each in (c.E_MACHINE, c.E_UNITS, c.E_VECTOR))
        amounts = heap.vectors(c.T_VECTOR, vectors).copy()
        wake.compact_entries(heap.work, asleep, machines, units, places, amounts)

    def _reserve_clusters(self, clusters: int) -> None:
        """Make room for all clusters; new ones have no machines and no needs."""
        width, heap = self._width, self.heap
        sizes = dict.fromkeys(c.CLUSTER_COLUMNS, clusters)
        heap.reserve(sizes | {c.T_CLUSTER_LEAST: clusters * width})
        heap.work.h[c.WIDTH], heap.work.h[c.LEN_CLUSTERS] = width, clusters
        for place in (c.C_FIRST_NEED, c.C_ALL_HEAD, c.C_ALL_TAIL, c.C_ROOM_HEAD, c.C_ROOM_TAIL):
            heap.column(place)[self._clusters : clusters] = NONE
        self._rows.widen(clusters)
        self._clusters = clusters

    def _reserve(self, machines: int, slots: int) -> None:
        """Make room for all machines and rows; new ones are on no list."""
        width, room, heap = self._width, self._room, self.heap
        sizes = self._rows.sizes()
        sizes |= dict.fromkeys(c.MACHINE_COLUMNS, machines)
        sizes |= dict.fromkeys(c.NEED_COLUMNS, slots)
        sizes |= dict.fromkeys(c.ENTRY_COLUMNS, room[c.LEN_ENTRIES] + machines * 3 // 2 + slots)
        sizes |= dict.fromkeys(c.SEAT_COLUMNS, room[c.LEN_SEATS])
        sizes |= {
            c.T_FREE: machines * width,
            c.T_GAP: slots * width,
            c.T_VECTOR: room[c.LEN_VECTORS] * width,
            c.T_VICTIM: room[c.LEN_VICTIMS],
            c.T_STANDING: room[c.LEN_VICTIMS],
            c.T_SAVED_GAP: width,
            c.T_SCORE_WEIGHTS: WEIGHTS,
            c.T_KEY_NEED: len(self._inventory.keys),
        }
        heap.reserve(sizes)
        h = heap.work.h
        h[c.LEN_MACHINES], h[c.LEN_SLOTS] = machines, slots
        h[c.LEN_ENTRIES], h[c.LEN_SEATS] = heap.capacity(c.E_MACHINE), heap.capacity(c.S_MACHINE)
        h[c.LEN_VECTORS], h[c.LEN_VICTIMS] = heap.capacity(c.T_VECTOR) // width, heap.capacity(c.T_VICTIM)
        old_machines, old_slots = self._count
        for place in (c.M_LISTED, c.M_ACTION, c.M_SERVES, c.M_STANDS_BY, c.M_COHORT):
            heap.column(place)[old_machines:machines] = NONE
        heap.column(c.N_RANK)[old_slots:slots] = NONE
        self._count = machines, slots

    def _lay_machines(self, dirty: Array, now: int, *, everything: bool) -> tuple[Array, Array]:
        """Write changed machines into the heap and onto their clusters' lists: (changed machines, touched clusters).

        Machines that the last decision bound are written as the inventory shows them: that is not done yet.
        """
        inventory, heap = self._inventory, self.heap
        told, moved = inventory.changes()
        machines = len(inventory.ids)
        if everything:
            told = moved = np.arange(machines)
        changed = told
        undone = np.unique(heap.column(c.A_MACHINE, int(heap.work.h[c.ACTIONS])))
        if len(undone):
            heap.column(c.M_ACTION)[undone] = NONE
            heap.column(c.M_DRAWN)[undone] = 0
            changed, moved = np.union1d(changed, undone), np.union1d(moved, undone)
        for place, column in (
            (c.M_SHAPE, inventory.shape),
            (c.M_STATE, inventory.state),
            (c.M_CLUSTER, inventory.cluster),
            (c.M_BOUND, inventory.bound),
            (c.M_BINDING, inventory.binding),
            (c.M_STAMPED_FOR, inventory.stamped_for),
            (c.M_PRICE, inventory.price),
            (c.M_PROBABILITY, inventory.probability),
            (c.M_FLAGS, inventory.flags),
            (c.M_RANK, inventory.rank),
            (c.M_DRAIN_SECONDS, inventory.drain_seconds),
            (c.M_STAMP_PRIORITY, inventory.stamp_priority),
            (c.M_STAMP_INTERRUPTION, inventory.stamp_interruption),
            (c.M_STAMP_RECLAMATION, inventory.stamp_reclamation),
            (c.M_STAKES_PRIORITY, inventory.stakes_priority),
            (c.M_STAKES_INTERRUPTION, inventory.stakes_interruption),
            (c.M_STAKES_RECLAMATION, inventory.stakes_reclamation),
        ):
            if len(changed) == machines:
                heap.column(place, machines)[:] = column.view
            else:
                heap.column(place)[changed] = column.view[changed]
        heap.column(c.M_NOT_YET, machines)[:] = inventory.not_before.view > now
        if inventory.rankings != self._rankings:
            heap.column(c.M_RANK, machines)[:] = inventory.rank.view
            self._rankings = inventory.rankings
        touched = dirty.copy()
        bound = inventory.bound.view[changed]
        touched[bound[bound >= 0]] = True
        fresh = moved[inventory.bound.view[moved] >= 0]
        fresh = fresh[np.lexsort((inventory.rank.view[fresh], inventory.binding.view[fresh]))]
        wake.relist(heap.work, moved, fresh, dirty)
        return told, touched
