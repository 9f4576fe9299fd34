"""What machines and needs refer to, in the heap: shapes, units, spreads and daemons."""

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Heap
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.engine.tables.shapes import DaemonSets


class Structure:
    """Shapes, units, spreads and daemons in the heap. None ever goes, so how many there are says what is written."""

    def __init__(self, heap: Heap, inventory: Inventory, needs: NeedsTable, daemons: DaemonSets) -> None:
        self._heap, self._inventory, self._needs, self._daemons = heap, inventory, needs, daemons
        self.shown = tuple[int, ...]()
        """How many shapes, topologies, requirement lists, units, spreads and daemon sets are in the heap."""

    def lay(self, width: int) -> None:
        """Write shapes, units, spreads and daemons, if there are new ones."""
        needs, daemons, shapes, heap = self._needs, self._daemons, self._inventory.shapes, self._heap
        topologies = shapes.topologies
        structure = (
            len(shapes),
            len(topologies),
            shapes.matches.shape[0],
            needs.unit_vectors.shape[0],
            len(needs.spread_start),
            len(daemons),
        )
        if structure == self.shown:
            return
        known = len(shapes)
        shapes.allocatable.resize(known, width)
        needs.unit_vectors.resize(0, width)
        daemons.widen()
        domains = np.array([topologies.count(number) for number in range(len(topologies))] or [0], np.int64)
        most_domains = max(1, int(domains.max()))
        constraints = max(1, int(np.diff(needs.spread_start.view).max()))
        rank = np.zeros((len(domains), most_domains), np.int64)
        rank[: topologies.rank.shape[0], : topologies.rank.shape[1]] = topologies.rank.view
        tables = {
            c.T_ALLOCATABLE: shapes.allocatable.view,
            c.T_DOMAIN: topologies.domain.view,
            c.T_DOMAIN_RANK: rank,
            c.T_DOMAIN_COUNT: domains,
            c.T_UNIT: needs.unit_vectors.view,
            c.T_DAEMON_BASE: daemons.base.view,
            c.T_DAEMON_EXTRA: daemons.extra.view,
            c.T_DAEMON_START: daemons.extra_start.view,
            c.T_DAEMON_REQUIREMENT: daemons.extra_requirement.view,
            c.T_SPREAD_START: needs.spread_start.view,
            c.SPREAD_TOPOLOGY: needs.spread_topology.view,
            c.SPREAD_SKEW: needs.spread_skew.view,
            c.SPREAD_HARD: needs.spread_hard.view,
        }
        sizes = {place: table.size for place, table in tables.items()}
        sizes |= dict.fromkeys(c.SHAPE_COLUMNS, max(1, known))
        sizes |= dict.fromkeys(c.DOMAIN_COLUMNS, most_domains)
        sizes |= dict.fromkeys((c.T_LEVEL, c.T_LEVEL_USED, c.T_WAITING, c.T_WAITING_LAST), constraints * most_domains)
        sizes |= dict.fromkeys((c.T_LEVEL_LEAST, c.T_LEVEL_COUNT, c.T_LEVEL_DOMAINS, c.T_LEVEL_USED_COUNT), constraints)
        sizes |= {c.T_WANTED: max(1, shapes.matches.shape[0])}
        heap.reserve(sizes)
        for place, table in tables.items():
            heap.column(place, table.size)[:] = table.ravel()
        # Domains have moved in these columns, so no row may find what the last row left there.
        for place in (c.T_LEVEL, c.T_WAITING, c.T_LEVEL_USED_COUNT):
            heap.column(place)[:] = 0
        h = heap.work.h
        h[c.MOST_SPREADS] = constraints
        h[c.LEN_SHAPES], h[c.LEN_REQUIREMENTS], h[c.MOST_DOMAINS] = known, shapes.matches.shape[0], most_domains
        heap.use_matches(shapes.matches.data)
        self.shown = structure
