"""What machines and needs are made of, shown to decisions: shapes, units, spreads and daemons."""

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Tables
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.engine.tables.shapes import DaemonSets


class Structure:
    """Shapes, units, spreads and daemons in the tables. They only ever get more, so their numbers say what is shown."""

    def __init__(self, tables: Tables, inventory: Inventory, needs: NeedsTable, daemons: DaemonSets) -> None:
        self._tables, self._inventory, self._needs, self._daemons = tables, inventory, needs, daemons
        self.shown = tuple[int, ...]()
        """How many of each kind the tables show."""

    def lay(self, width: int) -> None:
        """Show shapes, units, spreads and daemons, if there are new ones."""
        needs, daemons, shapes, t = self._needs, self._daemons, self._inventory.shapes, self._tables
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
        sizes |= dict.fromkeys(range(c.SHAPE_COUNT, c.SHAPE_BEFORE + 1), max(1, known))
        sizes |= dict.fromkeys(range(c.D_BOUND, c.D_POOL + 1), most_domains)
        sizes |= dict.fromkeys((c.T_LEVEL, c.T_LEVEL_USED, c.T_WAITING, c.T_WAITING_LAST), constraints * most_domains)
        sizes |= dict.fromkeys((c.T_LEVEL_LEAST, c.T_LEVEL_COUNT, c.T_LEVEL_DOMAINS, c.T_LEVEL_USED_COUNT), constraints)
        sizes |= {c.T_WANTED: max(1, shapes.matches.shape[0])}
        t.reserve(sizes)
        for place, table in tables.items():
            t.column(place, table.size)[:] = table.ravel()
        # What a domain holds stands elsewhere now, so no row may find what the last one left.
        for place in (c.T_LEVEL, c.T_WAITING, c.T_LEVEL_USED_COUNT):
            t.column(place)[:] = 0
        h = t.work.h
        h[c.LEN_LEVELS] = constraints
        h[c.LEN_SHAPES], h[c.LEN_WANTED], h[c.MOST_DOMAINS] = known, shapes.matches.shape[0], most_domains
        t.use_matches(shapes.matches.data)
        self.shown = structure
