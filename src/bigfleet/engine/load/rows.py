"""Needs and clusters in the heap: who asks for what, and who may act."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from bigfleet.engine.codes import PODS_DIM
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Heap
from bigfleet.engine.heap.values import NONE
from bigfleet.engine.records import ClusterRecord
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.engine.tables.shapes import DaemonSets
from bigfleet.engine.walks import wake


class Numbered(NamedTuple):
    """Rows, and for each of them its kind, its FITTING_ list and its ADMITTED_ list."""

    rows: Array
    kinds: Array
    fitting: Array
    admitted: Array


class Rows:
    """Needs and clusters in the heap, and the cluster records that it shows."""

    def __init__(self, heap: Heap, inventory: Inventory, needs: NeedsTable, daemons: DaemonSets) -> None:
        self._heap, self._inventory, self._needs, self._daemons = heap, inventory, needs, daemons
        self.order = np.zeros(0, np.int64)
        self.held: set[str] = set()
        """Clusters with a fingerprint that is held out."""
        self._records: dict[str, ClusterRecord] = {}
        self._fitting: dict[int, int] = {}
        self._admitted: dict[int, int] = {}
        self._kinds: dict[int, int] = {}
        self._live = np.zeros(0, np.uint8)
        self._begun = {c.FITTING_EPOCH: 0, c.ADMITTED_EPOCH: 0}

    @property
    def kinds(self) -> int:
        """How many kinds of need there are or were."""
        return len(self._kinds)

    @property
    def fitting_lists(self) -> int:
        """How many FITTING_ lists there are or were, one for each cluster and kind."""
        return len(self._fitting)

    def widen(self, clusters: int) -> None:
        """Make room for so many clusters; new ones are not live."""
        self._live = np.append(self._live, np.zeros(clusters - len(self._live), np.uint8))

    def lay_clusters(self, clusters: Mapping[str, ClusterRecord], told: Iterable[str], count: int) -> Array:
        """Write cluster records; the clusters whose rows have changed or may now get another outcome."""
        stale = np.zeros(count, np.bool_)
        stale[list(self._needs.changes())] = True
        for name in told:
            if self._lay_cluster(clusters[name]):
                stale[self._inventory.clusters.intern(name)] = True
        return stale

    def number(self, order: Array, stale: Array) -> Numbered:
        """The rows of these clusters, with the numbers of their kinds and lists; new ones are numbered here."""
        needs = self._needs
        rows = order[stale[needs.cluster.view[order]]] if stale.any() else order[:0]
        cluster, kind = needs.cluster.view[rows].astype(np.int64), needs.kind.view[rows].astype(np.int64)
        return Numbered(
            rows,
            _numbers(self._kinds, kind << 32 | self._heap.column(c.C_DAEMONS)[cluster]),
            _numbers(self._fitting, cluster << 32 | kind),
            _numbers(self._admitted, cluster << 32 | needs.requirement.view[rows]),
        )

    def sizes(self) -> dict[int, int]:
        """The room that the FITTING_ and ADMITTED_ columns need."""
        sizes = dict.fromkeys(c.FITTING_COLUMNS, len(self._fitting))
        return sizes | dict.fromkeys(c.ADMITTED_COLUMNS, len(self._admitted))

    def lay(
        self, clusters: Mapping[str, ClusterRecord], order: Array, now: int, numbered: Numbered, stale: Array
    ) -> None:
        """Write these rows, which are all rows of the stale clusters."""
        needs, heap, rows = self._needs, self._heap, numbered.rows
        if order is not self.order:
            heap.column(c.N_RANK)[:] = NONE
            heap.column(c.N_RANK)[order] = np.arange(len(order))
            self.order = order
        if not stale.any():
            return
        for place, column in (
            (c.N_CLUSTER, needs.cluster),
            (c.N_REQUIREMENT, needs.requirement),
            (c.N_UNIT, needs.unit),
            (c.N_ASKED, needs.asked),
            (c.N_KEY, needs.key),
            (c.N_LIMIT, needs.limit),
            (c.N_PRIORITY, needs.priority),
            (c.N_INTERRUPTION, needs.interruption),
            (c.N_RECLAMATION, needs.reclamation),
            (c.N_TOPOLOGY, needs.topology),
            (c.N_SPREAD, needs.spread),
            (c.N_DIVISIBLE, needs.divisible),
        ):
            heap.column(place)[rows] = column.view[rows]
        heap.column(c.N_ENTRIES)[rows] = 0
        heap.column(c.N_KIND)[rows], heap.column(c.N_ADMITTED)[rows] = numbered.kinds, numbered.admitted
        for place, had in self._begun.items():
            heap.column(place)[had:] = NONE
            self._begun[place] = heap.capacity(place)
        cluster, fitting = needs.cluster.view[rows], numbered.fitting
        fitting[(needs.limit.view[rows] > 0) | (needs.divisible.view[rows] == 1)] = NONE
        heap.column(c.N_FITTING)[rows] = fitting
        heap.column(c.N_TWIN)[rows] = _twins(rows, cluster, needs.fingerprint.view[rows], needs.limit.view[rows])
        heap.column(c.N_ACTS)[rows] = self._live[cluster]
        if self.held:
            self._hold_out(rows, clusters, now)
        self._lay_divisible(rows)
        wake.list_rows(heap.work, rows, stale)

    def _lay_cluster(self, record: ClusterRecord) -> bool:
        """Write one cluster record; whether the cluster's rows may now get another outcome."""
        before = self._records.get(record.id)
        self._records[record.id] = record
        held = before is not None and bool(before.held_out)
        (self.held.add if record.held_out else self.held.discard)(record.id)
        if before is not None and not held and not record.held_out and _is_alike(before, record):
            return False
        number, heap = self._inventory.clusters.intern(record.id), self._heap
        heap.column(c.C_DAEMONS)[number] = self._daemons.intern(record.daemons)
        heap.column(c.C_REPORTED)[number], heap.column(c.C_PARTIAL)[number] = record.reported, record.partial
        self._live[number] = record.live
        return True

    def _hold_out(self, rows: Array, clusters: Mapping[str, ClusterRecord], now: int) -> None:
        """Clear N_ACTS of rows whose fingerprint is held out."""
        needs, acts = self._needs, self._heap.column(c.N_ACTS)
        cluster, fingerprint = needs.cluster.view[rows], needs.fingerprint.view[rows]
        for name in self.held:
            number = self._inventory.clusters.intern(name)
            for held, until in clusters[name].held_out.items():
                if until > now:
                    acts[rows[(cluster == number) & (fingerprint == needs.fingerprint_number(held))]] = 0

    def _lay_divisible(self, rows: Array) -> None:
        """Write what divisible rows ask for."""
        needs, gap = self._needs, self._heap.vectors(c.T_GAP, len(self._needs.need))
        for slot in rows[needs.divisible.view[rows] == 1].tolist():
            gap[slot] = 0
            need = needs.need[slot]
            if need is not None:
                for dimension, amount in self._inventory.shapes.dimensions.row(need.aggregate):
                    gap[slot, dimension] = amount if dimension != PODS_DIM else 0


def _numbers(known: dict[int, int], keys: Array) -> Array:
    """The numbers of these keys; a new key gets the next number."""
    values, inverse = np.unique(keys, return_inverse=True)
    numbers = [known.setdefault(key, len(known)) for key in values.tolist()]
    return np.array(numbers, np.int64)[inverse.reshape(-1)]


def _is_alike(one: ClusterRecord, other: ClusterRecord) -> bool:
    """Whether two records of a cluster differ in nothing that serving its rows looks at."""
    return (one.reported, one.partial, one.live, one.daemons) == (
        other.reported,
        other.partial,
        other.live,
        other.daemons,
    )


def _twins(rows: Array, cluster: Array, fingerprint: Array, limit: Array) -> Array:
    """N_TWIN of these rows: rings of the rows of one cluster that share a machine limit."""
    twin = rows.copy()
    last: dict[tuple[int, int], int] = {}
    for i in np.flatnonzero(limit).tolist():
        key = (int(cluster[i]), int(fingerprint[i]))
        other = last.get(key)
        if other is not None:
            twin[i], twin[other] = twin[other], rows[i]
        last[key] = i
    return twin
