"""Laying out a decision: the tables kept from the last one, brought up to date with what changed since.

A cluster sleeps through a decision if nothing that its outcome rests on has changed: its machines, its needs, and what
the free pool offers to those of its needs that are unmet. What it took the last time then stands as it is.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from bigfleet.engine import linking
from bigfleet.engine.heap import Tables
from bigfleet.engine.inventory import Inventory
from bigfleet.engine.needs import NeedsTable
from bigfleet.engine.records import ClusterRecord, Policy
from bigfleet.engine.shapes import DaemonSets
from bigfleet.engine.work import (
    A_COHORT,
    A_KIND,
    A_MACHINE,
    ACTIONS,
    ARENA,
    C_DAEMONS,
    C_DISTURBED,
    C_EPOCH,
    C_FIRST,
    C_LIVE_TAIL,
    C_PARTIAL,
    C_REPORTED,
    D_BOUND,
    D_POOL,
    E_MACHINE,
    E_UNITS,
    E_VECTOR,
    ENTRIES,
    FIRST_CLASS,
    FIRST_SPARE,
    H_BEFORE,
    H_COUNT,
    H_HELD,
    H_POOL,
    K_BUCKET,
    K_BUYER,
    K_CLASS,
    K_HEAD,
    K_LEFT,
    K_PRICE,
    K_PROBABILITY,
    K_SHAPE,
    K_TIER,
    K_TRIED,
    KIND_ELIGIBLE,
    KIND_POOL,
    LEN_ACTIONS,
    LEN_ARENA,
    LEN_CLUSTERS,
    LEN_COHORTS,
    LEN_ENTRIES,
    LEN_MACHINES,
    LEN_SEATS,
    LEN_SHAPES,
    LEN_SLOTS,
    LEN_VECTORS,
    LEN_VICTIMS,
    LEN_WANTED,
    LISTING,
    LOOSE,
    M_ACTION,
    M_BOUND,
    M_CLUSTER,
    M_COHORT,
    M_DRAIN_SECONDS,
    M_DRAWN,
    M_FLAGS,
    M_LISTED,
    M_NOT_BEFORE,
    M_NUMBER,
    M_OWN,
    M_PRICE,
    M_PROBABILITY,
    M_RANK,
    M_SERVES,
    M_SHAPE,
    M_STAKES_INTERRUPTION,
    M_STAKES_PRIORITY,
    M_STAKES_RECLAMATION,
    M_STAMP_INTERRUPTION,
    M_STAMP_PRIORITY,
    M_STAMP_RECLAMATION,
    M_STATE,
    M_STOOD,
    MOST_DOMAINS,
    N_ACTS,
    N_ASKED,
    N_CLUSTER,
    N_COUNT,
    N_DESK,
    N_DIVISIBLE,
    N_FIRST,
    N_INTERRUPTION,
    N_KIND,
    N_LIMIT,
    N_OWN,
    N_PRIORITY,
    N_RANK,
    N_RECLAMATION,
    N_REQUIREMENT,
    N_SAVED_MISSING,
    N_SPREAD,
    N_TOPOLOGY,
    N_TWIN,
    N_UNIT,
    N_WALK,
    NEXT_BINDING,
    NOW,
    OVERFLOW,
    P_HARD,
    P_SKEW,
    P_TOPOLOGY,
    R_EPOCH,
    R_LAST,
    S_MACHINE,
    S_TURN,
    SEATS,
    SEEN,
    SPARES,
    T_ALLOCATABLE,
    T_ARENA,
    T_CLUSTER_LEAST,
    T_COHORT_LIST,
    T_COHORT_LIST_OFFSET,
    T_COHORT_LIST_START,
    T_DAEMON_BASE,
    T_DAEMON_EXTRA,
    T_DAEMON_REQUIREMENT,
    T_DAEMON_START,
    T_DOMAIN,
    T_DOMAIN_COUNT,
    T_DOMAIN_RANK,
    T_FREE,
    T_KEY_NEED,
    T_LEVEL,
    T_LEVEL_LEAST,
    T_NEED_AGGREGATE,
    T_POOL,
    T_SAVED_GAP,
    T_SCORE_WEIGHTS,
    T_SPREAD_START,
    T_STANDING,
    T_UNIT,
    T_VECTOR,
    T_VICTIM,
    T_WANTED,
    VECTORS,
    VERSION,
    VICTIMS,
    W_EPOCH,
    W_LAST,
    WIDTH,
    Array,
)
from bigfleet.model.machine import MachineState

NONE = -1
_BILLION = 10**9
_STALE = 4
"""So many times as many lists as rows are kept before those of former rows are forgotten."""
_LARGEST_ARENA = 1 << 23
_NO_TIER = 255
_TIERS = np.full(16, _NO_TIER, np.uint8)
"""How soon a machine of each state could serve, if it is free."""
_TIERS[[MachineState.IDLE, MachineState.DRAINING, MachineState.CREATING]] = 0
_TIERS[[MachineState.SPECULATIVE, MachineState.DELETING]] = 1


class Layout:
    """The tables that decisions work in, and which of the inventory's and the needs' changes they show already."""

    def __init__(self, inventory: Inventory, needs: NeedsTable, daemons: DaemonSets) -> None:
        self._inventory, self._needs, self._daemons = inventory, needs, daemons
        self._room = {
            LEN_ENTRIES: 1 << 10,
            LEN_ACTIONS: 1 << 8,
            LEN_COHORTS: 1 << 8,
            LEN_SEATS: 1 << 12,
            LEN_VECTORS: 1 << 6,
            LEN_ARENA: 1 << 16,
            LEN_VICTIMS: 1 << 10,
        }
        self._forget()

    def _forget(self) -> None:
        """Start from nothing."""
        self.tables = Tables()
        self.order = np.zeros(0, np.int64)
        self._records: dict[str, ClusterRecord] = {}
        self._walks: dict[int, int] = {}
        self._desks: dict[int, int] = {}
        self._kinds: dict[int, int] = {}
        self._foundation = self._structure = tuple[int, ...]()
        self._width = 0
        self._rankings = NONE
        self._shape_class = np.zeros(0, np.int64)
        self._classed: tuple[int, ...] = ()
        self._count: tuple[int, int, int] = (0, 0, 0)
        self._held: set[str] = set()
        self._live = np.zeros(0, np.uint8)
        self.awake = self.touched = np.zeros(0, np.bool_)

    def grow(self) -> None:
        """Make four times as much room for the scratch that the last decision ran out of."""
        self._room[int(self.tables.work.h[OVERFLOW])] *= 4

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
        if inventory.wants_compacting or len(self._walks) > _STALE * (len(needs) + 1024):
            inventory.compact()
        if needs.wants_compacting:
            needs.compact()
        foundation = len(shapes.dimensions), inventory.generation, needs.generation
        anew = foundation != self._foundation
        if anew:
            self._forget()
        self._foundation, self._width = foundation, len(shapes.dimensions)
        inventory.ranked()
        shapes.update()
        order, count = needs.order(), max(1, len(inventory.clusters))
        self._reserve(len(inventory.ids), len(needs.need), count)
        dirty = self.tables.column(C_DISTURBED, count) != 0
        touched = self._lay_machines(dirty, anew=anew)
        stale = self._lay_clusters(clusters, clusters if anew else {*told, *self._held}, count)
        self._lay_structure()
        self._lay_needs(clusters, order, now, stale | anew)
        dirty |= stale
        self._lay_policy(policy, now)
        self._lay_pool(policy, now)
        h = self.tables.work.h
        h[NOW], h[NEXT_BINDING] = now, next_binding
        h[[ACTIONS, OVERFLOW, SEATS, SPARES, VERSION, ARENA, SEEN, LOOSE, VICTIMS, LISTING]] = 0
        self.tables.column(C_DISTURBED, count)[:] = 0
        if full:
            dirty[:] = True
        linking.wake(self.tables.work, dirty)
        awake = dirty[needs.cluster.view[order]]
        rows: Array = order[awake]
        linking.reset(self.tables.work, rows, dirty)
        self._move_entries_up(order[~awake])
        self.awake, self.touched = dirty, touched | dirty
        self.tables.decision += 1
        return rows

    def _move_entries_up(self, asleep: Array) -> None:
        """Where much of what needs took is of the past, keep only what those rows take that sleep."""
        t, h = self.tables, self.tables.work.h
        if len(asleep) and 2 * h[ENTRIES] < h[LEN_ENTRIES] and 2 * h[VECTORS] < h[LEN_VECTORS]:
            return
        count = t.column(N_COUNT)[asleep].astype(np.int64)
        first = np.cumsum(count) - count
        taken = np.repeat(t.column(N_FIRST)[asleep] - first, count) + np.arange(count.sum())
        vectors = t.column(E_VECTOR)[taken]
        divided = np.flatnonzero(vectors >= 0)
        kept = t.vectors(T_VECTOR, int(h[VECTORS]))[vectors[divided]]
        vectors[divided] = np.arange(len(divided))
        t.vectors(T_VECTOR, len(divided))[:] = kept
        for place, values in (
            (E_MACHINE, t.column(E_MACHINE)[taken]),
            (E_UNITS, t.column(E_UNITS)[taken]),
            (E_VECTOR, vectors),
        ):
            t.column(place, len(taken))[:] = values
        t.column(N_FIRST)[asleep] = first
        h[ENTRIES], h[VECTORS] = len(taken), len(divided)

    def _reserve(self, machines: int, slots: int, clusters: int) -> None:
        """Make room for all rows, and begin what is new with nothing."""
        width, room, t = self._width, self._room, self.tables
        sizes = dict.fromkeys(range(M_SHAPE, M_DRAWN + 1), machines)
        sizes |= dict.fromkeys((M_NUMBER, M_PRICE, M_NOT_BEFORE), machines)
        sizes |= dict.fromkeys(range(N_RANK, N_WALK + 1), slots)
        sizes |= dict.fromkeys(range(N_ASKED, N_SAVED_MISSING + 1), slots)
        sizes |= dict.fromkeys(range(C_DAEMONS, C_EPOCH + 1), clusters)
        sizes |= dict.fromkeys((E_MACHINE, E_VECTOR, E_UNITS), room[LEN_ENTRIES] + 2 * machines + slots)
        sizes |= dict.fromkeys(range(S_MACHINE, S_TURN + 1), room[LEN_SEATS])
        sizes |= {
            T_FREE: machines * width,
            T_CLUSTER_LEAST: clusters * width,
            T_NEED_AGGREGATE: slots * width,
            T_VECTOR: room[LEN_VECTORS] * width,
            T_VICTIM: room[LEN_VICTIMS],
            T_STANDING: room[LEN_VICTIMS],
            T_SAVED_GAP: width,
            T_SCORE_WEIGHTS: 4,
            T_KEY_NEED: len(self._inventory.keys),
        }
        t.reserve(sizes)
        h = t.work.h
        h[WIDTH], h[LEN_MACHINES], h[LEN_SLOTS], h[LEN_CLUSTERS] = width, machines, slots, clusters
        h[LEN_ENTRIES], h[LEN_SEATS] = t.capacity(E_MACHINE), t.capacity(S_MACHINE)
        h[LEN_VECTORS], h[LEN_VICTIMS] = t.capacity(T_VECTOR) // width, t.capacity(T_VICTIM)
        old_machines, old_slots, old_clusters = self._count
        for place in (M_LISTED, M_ACTION, M_SERVES, M_STOOD):
            t.column(place)[old_machines:machines] = NONE
        t.column(N_RANK)[old_slots:slots] = NONE
        for place in range(C_FIRST, C_LIVE_TAIL + 1):
            t.column(place)[old_clusters:clusters] = NONE
        self._live = np.append(self._live, np.zeros(clusters - old_clusters, np.uint8))
        self._count = machines, slots, clusters

    def _lay_machines(self, dirty: Array, *, anew: bool) -> Array:
        """Show what changed of machines, and put what moved on its cluster's list; the clusters with any change.

        What the last decision bound counts as changed: it only decided, and nothing is done yet.
        """
        inventory, t = self._inventory, self.tables
        changed, moved = inventory.changes()
        machines = len(inventory.ids)
        if anew:
            changed = moved = np.arange(machines)
        undone = np.unique(t.column(A_MACHINE, int(t.work.h[ACTIONS])))
        if len(undone):
            t.column(M_ACTION)[undone] = NONE
            changed, moved = np.union1d(changed, undone), np.union1d(moved, undone)
        for place, column in (
            (M_SHAPE, inventory.shape),
            (M_STATE, inventory.state),
            (M_CLUSTER, inventory.cluster),
            (M_BOUND, inventory.bound),
            (M_NUMBER, inventory.number),
            (M_OWN, inventory.own),
            (M_PRICE, inventory.price),
            (M_PROBABILITY, inventory.probability),
            (M_FLAGS, inventory.flags),
            (M_RANK, inventory.rank),
            (M_DRAIN_SECONDS, inventory.drain_seconds),
            (M_NOT_BEFORE, inventory.not_before),
            (M_STAMP_PRIORITY, inventory.stamp_priority),
            (M_STAMP_INTERRUPTION, inventory.stamp_interruption),
            (M_STAMP_RECLAMATION, inventory.stamp_reclamation),
            (M_STAKES_PRIORITY, inventory.stakes_priority),
            (M_STAKES_INTERRUPTION, inventory.stakes_interruption),
            (M_STAKES_RECLAMATION, inventory.stakes_reclamation),
        ):
            if len(changed) == machines:
                t.column(place, machines)[:] = column.view
            else:
                t.column(place)[changed] = column.view[changed]
        if inventory.rankings != self._rankings:
            t.column(M_RANK, machines)[:] = inventory.rank.view
            self._rankings = inventory.rankings
        touched = dirty.copy()
        bound = inventory.bound.view[changed]
        touched[bound[bound >= 0]] = True
        fresh = moved[inventory.bound.view[moved] >= 0]
        fresh = fresh[np.lexsort((inventory.rank.view[fresh], inventory.number.view[fresh]))]
        linking.relist(t.work, moved, fresh, dirty)
        return touched

    def _lay_structure(self) -> None:
        """Show shapes, units, spreads and daemons, if there are new ones."""
        needs, daemons, shapes, t = self._needs, self._daemons, self._inventory.shapes, self.tables
        topologies = shapes.topologies
        structure = (
            len(shapes),
            len(topologies),
            shapes.matches.shape[0],
            needs.unit_vectors.shape[0],
            len(needs.spread_start),
            len(daemons),
        )
        if structure == self._structure:
            return
        width, known = self._width, len(shapes)
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
        sizes |= {
            T_LEVEL: constraints * most_domains,
            T_LEVEL_LEAST: constraints,
            T_WANTED: max(1, shapes.matches.shape[0]),
        }
        t.reserve(sizes)
        for place, table in tables.items():
            t.column(place, table.size)[:] = table.ravel()
        h = t.work.h
        h[LEN_SHAPES], h[LEN_WANTED], h[MOST_DOMAINS] = known, shapes.matches.shape[0], most_domains
        t.use_matches(shapes.matches.data)
        self._structure = structure

    def _lay_clusters(self, clusters: Mapping[str, ClusterRecord], told: Iterable[str], count: int) -> Array:
        """Show what sessions show; the clusters whose rows are others or may fare differently for it."""
        stale = np.zeros(count, np.bool_)
        stale[list(self._needs.changes())] = True
        for name in told:
            if self._lay_cluster(clusters[name]):
                stale[self._inventory.clusters.intern(name)] = True
        return stale

    def _lay_needs(self, clusters: Mapping[str, ClusterRecord], order: Array, now: int, stale: Array) -> None:
        """Show the rows of these clusters."""
        needs, t = self._needs, self.tables
        if order is not self.order:
            t.column(N_RANK)[:] = NONE
            t.column(N_RANK)[order] = np.arange(len(order))
            self.order = order
        if not stale.any():
            return
        rows = order[stale[needs.cluster.view[order]]]
        for place, column in (
            (N_CLUSTER, needs.cluster),
            (N_REQUIREMENT, needs.requirement),
            (N_UNIT, needs.unit),
            (N_ASKED, needs.asked),
            (N_OWN, needs.own),
            (N_LIMIT, needs.limit),
            (N_PRIORITY, needs.priority),
            (N_INTERRUPTION, needs.interruption),
            (N_RECLAMATION, needs.reclamation),
            (N_TOPOLOGY, needs.topology),
            (N_SPREAD, needs.spread),
            (N_DIVISIBLE, needs.divisible),
        ):
            t.column(place)[rows] = column.view[rows]
        t.column(N_COUNT)[rows] = 0
        cluster, kind = needs.cluster.view[rows].astype(np.int64), needs.kind.view[rows].astype(np.int64)
        t.column(N_KIND)[rows] = _numbers(self._kinds, kind << 32 | t.column(C_DAEMONS)[cluster])
        walks = _numbers(self._walks, cluster << 32 | kind)
        t.column(N_DESK)[rows] = _numbers(self._desks, cluster << 32 | needs.requirement.view[rows])
        for first, last, known in ((W_EPOCH, W_LAST, self._walks), (R_EPOCH, R_LAST, self._desks)):
            had = t.capacity(first)
            t.reserve(dict.fromkeys(range(first, last + 1), len(known)))
            t.column(first)[had:] = NONE
        walks[(needs.limit.view[rows] > 0) | (needs.divisible.view[rows] == 1)] = NONE
        t.column(N_WALK)[rows] = walks
        t.column(N_TWIN)[rows] = _twins(rows, cluster, needs.fingerprint.view[rows], needs.limit.view[rows])
        t.column(N_ACTS)[rows] = self._live[cluster]
        if self._held:
            self._hold_out(rows, clusters, now)
        self._lay_divisible(rows)
        linking.list_rows(t.work, rows, stale)

    def _lay_cluster(self, record: ClusterRecord) -> bool:
        """Show what a cluster's session shows; whether its rows may fare differently for it."""
        before = self._records.get(record.id)
        self._records[record.id] = record
        held = before is not None and bool(before.held_out)
        (self._held.add if record.held_out else self._held.discard)(record.id)
        if before is not None and not held and not record.held_out and _is_alike(before, record):
            return False
        number, t = self._inventory.clusters.intern(record.id), self.tables
        t.column(C_DAEMONS)[number] = self._daemons.intern(record.daemons)
        t.column(C_REPORTED)[number], t.column(C_PARTIAL)[number] = record.reported, record.partial
        self._live[number] = record.live
        return True

    def _hold_out(self, rows: Array, clusters: Mapping[str, ClusterRecord], now: int) -> None:
        """Let no row act whose fingerprint is held out."""
        needs, acts = self._needs, self.tables.column(N_ACTS)
        cluster, fingerprint = needs.cluster.view[rows], needs.fingerprint.view[rows]
        for name in self._held:
            number = self._inventory.clusters.intern(name)
            for held, until in clusters[name].held_out.items():
                if until > now:
                    acts[rows[(cluster == number) & (fingerprint == needs.fingerprint_number(held))]] = 0

    def _lay_divisible(self, rows: Array) -> None:
        """Show what divisible rows ask for."""
        needs, gap = self._needs, self.tables.vectors(T_NEED_AGGREGATE, len(self._needs.need))
        for slot in rows[needs.divisible.view[rows] == 1].tolist():
            gap[slot] = 0
            need = needs.need[slot]
            if need is not None:
                for dimension, amount in self._inventory.shapes.dimensions.row(need.aggregate):
                    gap[slot, dimension] = amount if dimension else 0

    def _lay_policy(self, policy: Policy, now: int) -> None:
        """Show the weights of a victim's score, and which shapes are held out."""
        shapes, t = self._inventory.shapes, self.tables
        weights = (policy.weight_priority, policy.weight_drain, policy.weight_interrupt, policy.weight_reclaim)
        t.column(T_SCORE_WEIGHTS, 4)[:] = [round(weight * _BILLION) for weight in weights]
        held = t.column(H_HELD)
        held[:] = 0
        for (instance_type, zone, capacity_type), until in policy.held_out_shapes.items():
            if until > now:
                held[shapes.of_class(instance_type, zone, capacity_type)] = 1

    def _lay_pool(self, policy: Policy, now: int) -> None:
        """Show the free pool: Idle or on its way there, then Speculative or on its way there; equal machines together.

        Each machine stands in the cohort of its shape, for gangs, and in one class of cohorts that differ in nothing
        that a requirement or a spread looks at, for all others. Spares, one for each machine bought, follow.
        """
        inventory, t = self._inventory, self.tables
        machines, known = len(inventory.ids), max(1, len(inventory.shapes))
        shape, state = inventory.shape.view, inventory.state.view
        alive = (state != 0) & (state != MachineState.FAILED)
        t.column(H_COUNT, known)[:] = np.bincount(shape[alive], minlength=known)
        rows = np.flatnonzero((inventory.bound.view < 0) & (_TIERS[state] != _NO_TIER))
        rows = rows[(inventory.not_before.view[rows] <= now) & (t.column(H_HELD)[shape[rows]] == 0)]
        t.column(H_POOL, known)[:] = np.bincount(shape[rows], minlength=known)
        tier, rank = _TIERS[state[rows]].astype(np.int64), inventory.rank.view[rows].astype(np.int64)
        cohort, leader, group = self._cohorts(rows, tier)
        by_cohort = np.argsort(cohort << 32 | rank)
        by_class = np.argsort(group[cohort] << 32 | rank)
        cohorts, classes, spare = len(leader), int(group.max(initial=-1)) + 1, len(rows) + 1
        # What may be given back is tried as if it were free.
        spare += self._room[LEN_COHORTS] + machines * policy.reclaim_percent // 100
        size = cohorts + classes + spare
        t.reserve(dict.fromkeys(range(K_SHAPE, K_BUYER + 1), size) | {T_POOL: 2 * len(rows) + spare})
        t.reserve(dict.fromkeys(range(A_KIND, A_COHORT + 1), len(rows) + self._room[LEN_ACTIONS]))
        h = t.work.h
        h[LEN_ACTIONS] = t.capacity(A_KIND)
        h[FIRST_CLASS], h[FIRST_SPARE], h[LEN_COHORTS] = cohorts, cohorts + classes, size
        of_class = np.zeros(classes, np.int64)
        of_class[group] = leader
        first = rows[np.concatenate([leader, of_class])]
        left = np.concatenate([np.bincount(cohort, minlength=cohorts), np.bincount(group[cohort], minlength=classes)])
        real = cohorts + classes
        for place, values in (
            (K_SHAPE, shape[first]),
            (K_TIER, _TIERS[state[first]]),
            (K_PRICE, inventory.price.view[first]),
            (K_PROBABILITY, inventory.probability.view[first]),
            (K_BUCKET, inventory.stamp_reclamation.view[first]),
            (K_LEFT, left),
            (K_HEAD, np.cumsum(left) - left),
        ):
            t.column(place, real)[:] = values
        t.column(K_CLASS, cohorts)[:] = cohorts + group
        t.column(K_HEAD)[real:size] = np.arange(2 * len(rows), 2 * len(rows) + spare)
        t.column(K_LEFT)[real:size] = 0
        t.column(K_TRIED, size)[:] = 0
        t.column(K_BUYER, size)[:] = NONE
        t.column(T_POOL, 2 * len(rows))[:] = np.concatenate([rows[by_cohort], rows[by_class]])
        t.column(M_COHORT)[rows] = cohort
        t.column(M_DRAWN)[rows] = 0
        self._list_cohorts(t.column(K_SHAPE, cohorts))
        kinds = max(1, len(self._kinds))
        # Totals and lists of domains, one set a kind of gang at most, and machines with room.
        arena = min(_LARGEST_ARENA, 3 * kinds * int(h[MOST_DOMAINS])) + 4 * (known + len(self._needs))
        t.reserve(dict.fromkeys(range(KIND_POOL, KIND_ELIGIBLE + 1), kinds))
        t.reserve({T_ARENA: self._room[LEN_ARENA] + arena})
        t.work.h[LEN_ARENA] = t.capacity(T_ARENA)
        for place in range(KIND_POOL, KIND_ELIGIBLE + 1):
            t.column(place, kinds)[:] = NONE

    def _cohorts(self, rows: Array, tier: Array) -> tuple[Array, Array, Array]:
        """Each row's cohort, one row of each cohort, and each cohort's class."""
        inventory = self._inventory
        offer = inventory.offer.view[rows].astype(np.int64) * 2 + tier
        _, leader, cohort = np.unique(offer, return_index=True, return_inverse=True)
        first = rows[leader]
        terms = np.stack(
            [
                self._shape_classes()[inventory.shape.view[first]],
                tier[leader],
                inventory.price.view[first],
                inventory.probability.view[first],
                inventory.stamp_reclamation.view[first],
            ]
        )
        return cohort.reshape(-1), leader, _groups(terms)

    def _shape_classes(self) -> Array:
        """Each shape's class: equal for shapes that hold as much, match the same and share the domains of spreads."""
        if self._classed != self._structure:
            shapes = self._inventory.shapes
            spread = np.unique(self._needs.spread_topology.view)
            looked_at = (shapes.allocatable.view.T, shapes.matches.view, shapes.topologies.domain.view[spread])
            self._shape_class = _groups(np.concatenate(looked_at))
            self._classed = self._structure
        return self._shape_class

    def _list_cohorts(self, shape: Array) -> None:
        """List for each topology and domain the cohorts whose machines stand there."""
        topologies, t = self._inventory.shapes.topologies, self.tables
        lists, starts, offsets = [], [np.zeros(1, np.int64)], []
        listed = 0
        for topology in range(len(topologies)):
            places = topologies.domain.view[topology, shape]
            inside = np.flatnonzero(places >= 0)
            lists.append(inside[np.argsort(places[inside], kind="stable")])
            offsets.append(sum(len(part) for part in starts) - 1)
            starts.append(listed + np.cumsum(np.bincount(places[inside], minlength=topologies.count(topology))))
            listed += len(inside)
        tables = {
            T_COHORT_LIST: np.concatenate([np.zeros(0, np.int64), *lists]),
            T_COHORT_LIST_START: np.concatenate(starts),
            T_COHORT_LIST_OFFSET: np.array(offsets, np.int64),
        }
        t.reserve({place: table.size for place, table in tables.items()})
        for place, table in tables.items():
            t.column(place, table.size)[:] = table


def _numbers(known: dict[int, int], keys: Array) -> Array:
    """The numbers of these keys, made on first sight."""
    values, inverse = np.unique(keys, return_inverse=True)
    numbers = [known.setdefault(key, len(known)) for key in values.tolist()]
    return np.array(numbers, np.int64)[inverse.reshape(-1)]


def _groups(columns: Array) -> Array:
    """Numbers for columns that are equal in all rows."""
    group = np.zeros(columns.shape[1], np.int64)
    for values in columns:
        _, inverse = np.unique(values, return_inverse=True)
        _, group = np.unique(group * (inverse.max(initial=0) + 1) + inverse.reshape(-1), return_inverse=True)
        group = group.reshape(-1)
    return group


def _is_alike(one: ClusterRecord, other: ClusterRecord) -> bool:
    """Whether two records of a cluster differ in nothing that serving its rows looks at."""
    return (one.reported, one.partial, one.live, one.daemons) == (
        other.reported,
        other.partial,
        other.live,
        other.daemons,
    )


def _twins(rows: Array, cluster: Array, fingerprint: Array, limit: Array) -> Array:
    """Rings of the rows of one cluster that share a machine limit."""
    twin = rows.copy()
    last: dict[tuple[int, int], int] = {}
    for i in np.flatnonzero(limit).tolist():
        key = (int(cluster[i]), int(fingerprint[i]))
        other = last.get(key)
        if other is not None:
            twin[i], twin[other] = twin[other], rows[i]
        last[key] = i
    return twin
