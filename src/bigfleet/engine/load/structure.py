"""What machines and needs are made of, shown to decisions: shapes, units, spreads and daemons."""

import numpy as np

from bigfleet.engine.heap.columns import (
    D_BOUND,
    D_POOL,
    H_BEFORE,
    H_COUNT,
    LEN_LEVELS,
    LEN_SHAPES,
    LEN_WANTED,
    MOST_DOMAINS,
    P_HARD,
    P_SKEW,
    P_TOPOLOGY,
    T_ALLOCATABLE,
    T_DAEMON_BASE,
    T_DAEMON_EXTRA,
    T_DAEMON_REQUIREMENT,
    T_DAEMON_START,
    T_DOMAIN,
    T_DOMAIN_COUNT,
    T_DOMAIN_RANK,
    T_LEVEL,
    T_LEVEL_COUNT,
    T_LEVEL_DOMAINS,
    T_LEVEL_LEAST,
    T_LEVEL_USED,
    T_LEVEL_USED_COUNT,
    T_SPREAD_START,
    T_UNIT,
    T_WAITING,
    T_WAITING_LAST,
    T_WANTED,
)
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
            T_ALLOCATABLE: shapes.allocatable.view,
            T_DOMAIN: topologies.domain.view,
            T_DOMAIN_RANK: rank,
            T_DOMAIN_COUNT: domains,
            T_UNIT: needs.unit_vectors.view,
            T_DAEMON_BASE: daemons.base.view,
            T_DAEMON_EXTRA: daemons.extra.view,
            T_DAEMON_START: daemons.extra_start.view,
            T_DAEMON_REQUIREMENT: daemons.extra_requirement.view,
            T_SPREAD_START: needs.spread_start.view,
            P_TOPOLOGY: needs.spread_topology.view,
            P_SKEW: needs.spread_skew.view,
            P_HARD: needs.spread_hard.view,
        }
        sizes = {place: table.size for place, table in tables.items()}
        sizes |= dict.fromkeys(range(H_COUNT, H_BEFORE + 1), max(1, known))
        sizes |= dict.fromkeys(range(D_BOUND, D_POOL + 1), most_domains)
        sizes |= dict.fromkeys((T_LEVEL, T_LEVEL_USED, T_WAITING, T_WAITING_LAST), constraints * most_domains)
        sizes |= dict.fromkeys((T_LEVEL_LEAST, T_LEVEL_COUNT, T_LEVEL_DOMAINS, T_LEVEL_USED_COUNT), constraints)
        sizes |= {T_WANTED: max(1, shapes.matches.shape[0])}
        t.reserve(sizes)
        for place, table in tables.items():
            t.column(place, table.size)[:] = table.ravel()
        # What a domain holds stands elsewhere now, so no row may find what the last one left.
        for place in (T_LEVEL, T_WAITING, T_LEVEL_USED_COUNT):
            t.column(place)[:] = 0
        h = t.work.h
        h[LEN_LEVELS] = constraints
        h[LEN_SHAPES], h[LEN_WANTED], h[MOST_DOMAINS] = known, shapes.matches.shape[0], most_domains
        t.use_matches(shapes.matches.data)
        self.shown = structure
