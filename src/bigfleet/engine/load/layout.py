"""Laying out a decision: the tables kept from the last one, brought up to date with what changed since.

A cluster sleeps through a decision if nothing that its outcome rests on has changed: its machines, its needs, and what
the free pool offers to those of its needs that are unmet. What it took the last time then stands as it is.
"""

from collections.abc import Mapping

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Tables
from bigfleet.engine.heap.values import NONE
from bigfleet.engine.load.pool import Pool
from bigfleet.engine.load.rows import Rows
from bigfleet.engine.load.structure import Structure
from bigfleet.engine.records import ClusterRecord, Policy
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.engine.tables.shapes import DaemonSets
from bigfleet.engine.walks import wake

_STALE = 4
"""So many times as many lists as rows are kept before those of former rows are forgotten."""


class Layout:
    """The tables that decisions work in, and which of the inventory's and the needs' changes they show already."""

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
        """Start from nothing."""
        self.tables = Tables()
        parts = self.tables, self._inventory, self._needs
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
        """The slots of all rows, in order."""
        return self._rows.order

    def break_off(self) -> None:
        """Give up on a decision that ran out of scratch: the next has much more of it, and all is laid anew.

        Lists and marks may have been left halfway.
        """
        h = self.tables.work.h
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
        """Bring the tables up to date and clear what is decided anew; the slots of those rows, in order.

        `told` are the clusters whose record was set since the last time. With `full` everything is decided anew, else
        only what is awake.
        """
        inventory, needs, shapes = self._inventory, self._needs, self._inventory.shapes
        if inventory.wants_compacting or self._rows.walks > _STALE * (len(needs) + 1024):
            inventory.compact()
        if needs.wants_compacting:
            needs.compact()
        foundation = len(shapes.dimensions), inventory.generation, needs.generation
        anew = foundation != self._foundation
        if anew:
            self._forget()
        self._foundation, self._width = foundation, len(shapes.dimensions)
        inventory.ranked()
        inventory.reshape()
        shapes.update()
        order, count = needs.order(), max(1, len(inventory.clusters))
        # What is small comes first: to make room for more is to move all that is there.
        self._structure.lay(self._width)
        self._reserve_clusters(count)
        stale = self._rows.lay_clusters(clusters, clusters if anew else {*told, *self._rows.held}, count)
        rows = self._rows.number(order, stale | anew)
        self._reserve(len(inventory.ids), len(needs.need))
        dirty = self.tables.column(c.C_DISTURBED, count) != 0
        changed, touched = self._lay_machines(dirty, now, anew=anew)
        self._rows.lay(clusters, order, now, rows, stale | anew)
        dirty |= stale
        self._pool.lay_policy(policy, now)
        self._pool.lay(policy, now, changed, self._structure.shown, self._rows.kinds)
        h = self.tables.work.h
        h[c.NOW], h[c.NEXT_BINDING] = now, next_binding
        h[
            [
                c.ACTIONS,
                c.OVERFLOW,
                c.SPARES,
                c.SPARES_IN_TURN,
                c.VERSION,
                c.ARENA,
                c.SEEN,
                c.LOOSE,
                c.VICTIMS,
                c.LISTING,
            ]
        ] = 0
        self.tables.column(c.C_DISTURBED, count)[:] = 0
        if full or anew:
            dirty[:] = True
        wake.wake(self.tables.work, dirty)
        awake = dirty[needs.cluster.view[order]]
        rows = order[awake]
        former = int(self.tables.column(c.N_COUNT)[rows].sum(dtype=np.int64))
        wake.reset(self.tables.work, rows, dirty)
        self._make_room(former, order[~awake])
        self.awake, self.touched = dirty, touched | dirty
        self.tables.decision += 1
        return rows

    def _make_room(self, former: int, asleep: Array) -> None:
        """Where those who decide anew, and had so many entries, may lack room for them, move up what others keep."""
        t, h = self.tables, self.tables.work.h
        entries, vectors = int(h[c.ENTRIES]), int(h[c.VECTORS])
        free = int(h[c.LEN_ENTRIES]) - entries
        if len(asleep) and free > 2 * former + h[c.LEN_ENTRIES] // 16 and 2 * vectors < h[c.LEN_VECTORS]:
            return
        taken = (t.column(place, entries).copy() for place in (c.E_MACHINE, c.E_UNITS, c.E_VECTOR))
        wake.move_up(t.work, asleep, *taken, t.vectors(c.T_VECTOR, vectors).copy())

    def _reserve_clusters(self, clusters: int) -> None:
        """Make room for all clusters, and begin new ones with nothing."""
        width, t = self._width, self.tables
        sizes = dict.fromkeys(range(c.C_DAEMONS, c.C_EPOCH + 1), clusters)
        t.reserve(sizes | {c.T_CLUSTER_LEAST: clusters * width})
        t.work.h[c.WIDTH], t.work.h[c.LEN_CLUSTERS] = width, clusters
        for place in range(c.C_FIRST, c.C_LIVE_TAIL + 1):
            t.column(place)[self._clusters : clusters] = NONE
        self._rows.widen(clusters)
        self._clusters = clusters

    def _reserve(self, machines: int, slots: int) -> None:
        """Make room for all machines and rows, and begin what is new with nothing."""
        width, room, t = self._width, self._room, self.tables
        sizes = self._rows.sizes()
        sizes |= dict.fromkeys(c.MACHINE_COLUMNS, machines)
        sizes |= dict.fromkeys(range(c.N_RANK, c.N_WALK + 1), slots)
        sizes |= dict.fromkeys(range(c.N_ASKED, c.N_SAVED_MISSING + 1), slots)
        sizes |= dict.fromkeys((c.E_MACHINE, c.E_VECTOR, c.E_UNITS), room[c.LEN_ENTRIES] + machines * 3 // 2 + slots)
        sizes |= dict.fromkeys(range(c.S_MACHINE, c.S_TURN + 1), room[c.LEN_SEATS])
        sizes |= {
            c.T_FREE: machines * width,
            c.T_NEED_AGGREGATE: slots * width,
            c.T_VECTOR: room[c.LEN_VECTORS] * width,
            c.T_VICTIM: room[c.LEN_VICTIMS],
            c.T_STANDING: room[c.LEN_VICTIMS],
            c.T_SAVED_GAP: width,
            c.T_SCORE_WEIGHTS: 4,
            c.T_KEY_NEED: len(self._inventory.keys),
        }
        t.reserve(sizes)
        h = t.work.h
        h[c.LEN_MACHINES], h[c.LEN_SLOTS] = machines, slots
        h[c.LEN_ENTRIES], h[c.LEN_SEATS] = t.capacity(c.E_MACHINE), t.capacity(c.S_MACHINE)
        h[c.LEN_VECTORS], h[c.LEN_VICTIMS] = t.capacity(c.T_VECTOR) // width, t.capacity(c.T_VICTIM)
        old_machines, old_slots = self._count
        for place in (c.M_LISTED, c.M_ACTION, c.M_SERVES, c.M_STOOD, c.M_COHORT):
            t.column(place)[old_machines:machines] = NONE
        t.column(c.N_RANK)[old_slots:slots] = NONE
        self._count = machines, slots

    def _lay_machines(self, dirty: Array, now: int, *, anew: bool) -> tuple[Array, Array]:
        """Show what changed of machines, and put what moved on its cluster's list; what changed, and in which clusters.

        What the last decision bound is shown as it was: it only decided, and nothing is done yet.
        """
        inventory, t = self._inventory, self.tables
        told, moved = inventory.changes()
        machines = len(inventory.ids)
        if anew:
            told = moved = np.arange(machines)
        changed = told
        undone = np.unique(t.column(c.A_MACHINE, int(t.work.h[c.ACTIONS])))
        if len(undone):
            t.column(c.M_ACTION)[undone] = NONE
            t.column(c.M_DRAWN)[undone] = 0
            changed, moved = np.union1d(changed, undone), np.union1d(moved, undone)
        for place, column in (
            (c.M_SHAPE, inventory.shape),
            (c.M_STATE, inventory.state),
            (c.M_CLUSTER, inventory.cluster),
            (c.M_BOUND, inventory.bound),
            (c.M_NUMBER, inventory.number),
            (c.M_OWN, inventory.own),
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
                t.column(place, machines)[:] = column.view
            else:
                t.column(place)[changed] = column.view[changed]
        t.column(c.M_LATER, machines)[:] = inventory.not_before.view > now
        if inventory.rankings != self._rankings:
            t.column(c.M_RANK, machines)[:] = inventory.rank.view
            self._rankings = inventory.rankings
        touched = dirty.copy()
        bound = inventory.bound.view[changed]
        touched[bound[bound >= 0]] = True
        fresh = moved[inventory.bound.view[moved] >= 0]
        fresh = fresh[np.lexsort((inventory.rank.view[fresh], inventory.number.view[fresh]))]
        wake.relist(t.work, moved, fresh, dirty)
        return told, touched
