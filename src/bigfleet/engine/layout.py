"""Laying out one decision: views of the kept columns beside fresh scratch columns."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bigfleet.engine.compiled import entry
from bigfleet.engine.heap import Tables
from bigfleet.engine.inventory import Inventory
from bigfleet.engine.needs import NeedsTable
from bigfleet.engine.records import ClusterRecord, Policy
from bigfleet.engine.shapes import DaemonSets
from bigfleet.engine.work import (
    C_DAEMONS,
    C_DISTURBED,
    C_EPOCH,
    C_FIRST,
    C_PARTIAL,
    C_REPORTED,
    FIRST_CLASS,
    FIRST_SPARE,
    M_BOUND,
    M_CLUSTER,
    M_COHORT,
    M_DRAIN_SECONDS,
    M_DRAWN,
    M_FLAGS,
    M_FULL,
    M_GONE,
    M_NOT_BEFORE,
    M_NUMBER,
    M_OWN,
    M_PRICE,
    M_PROBABILITY,
    M_RANK,
    M_SHAPE,
    M_STAKES_INTERRUPTION,
    M_STAKES_PRIORITY,
    M_STAKES_RECLAMATION,
    M_STAMP_INTERRUPTION,
    M_STAMP_PRIORITY,
    M_STAMP_RECLAMATION,
    M_STATE,
    M_STOOD_PINNED,
    N_ACTS,
    N_ASKED,
    N_CLUSTER,
    N_DIVISIBLE,
    N_DOMAIN,
    N_INTERRUPTION,
    N_KIND,
    N_LATER,
    N_LIMIT,
    N_MISSING,
    N_NEAR,
    N_OWN,
    N_OWN_HEAD,
    N_OWN_TAIL,
    N_PRIORITY,
    N_RECLAMATION,
    N_REQUIREMENT,
    N_SATISFIABLE,
    N_SPREAD,
    N_TOPOLOGY,
    N_TWIN,
    N_UNIT,
    N_WALK,
    NEXT_BINDING,
    NOW,
    SCALARS,
    Array,
)
from bigfleet.model.machine import MachineState

NONE = -1
_BILLION = 10**9
_NO_TIER = 255


class Room(NamedTuple):
    """How much scratch there is; doubled and tried again when a decision runs out of it."""

    entries: int
    actions: int
    seats: int
    vectors: int
    spares: int
    arena: int

    def doubled(self) -> "Room":
        """Twice as much of everything."""
        return Room(*(2 * size for size in self))


def first_room(inventory: Inventory, needs: NeedsTable) -> Room:
    """Enough for all but odd cases."""
    machines = len(inventory.ids)
    return Room(
        2 * machines + 4 * len(needs) + 1024,
        machines + 16,
        machines + 1024,
        1024,
        machines + 64,
        (1 << 16) + 4 * len(inventory.shapes),
    )


def lay_out(
    inventory: Inventory,
    needs: NeedsTable,
    daemons: DaemonSets,
    clusters: Mapping[str, ClusterRecord],
    policy: Policy,
    now: int,
    next_binding: int,
    room: Room,
) -> tuple[Tables, Array]:
    """The columns of one decision, and the slots of the needs table in the order of its rows."""
    shapes = inventory.shapes
    slots = needs.order()
    inventory.ranked()
    shapes.update()
    width = len(shapes.dimensions)
    shapes.allocatable.resize(len(shapes), width)
    needs.unit_vectors.resize(0, width)
    daemons.widen()
    n, r, c = len(inventory.ids), len(slots), max(1, len(inventory.clusters))
    scalar = np.zeros(SCALARS, np.int64)
    scalar[NOW], scalar[NEXT_BINDING] = now, next_binding

    shape, state, bound = inventory.shape.view, inventory.state.view, inventory.bound.view.copy()
    alive = (state != 0) & (state != MachineState.FAILED)
    shape_count = np.bincount(shape[alive], minlength=max(1, len(shapes)))
    shape_held = _held_shapes(inventory, policy, now)
    cohorts = _cohorts(inventory, needs, bound, shape_held, now, room.spares)
    scalar[FIRST_CLASS], scalar[FIRST_SPARE] = cohorts.first_class, len(cohorts.shape) - cohorts.spare
    domain_count = np.array([shapes.topologies.count(t) for t in range(len(shapes.topologies))] or [0], np.int64)
    cohort_list, cohort_list_start, cohort_list_offset = _cohorts_by_domain(
        shapes.topologies.domain.view, cohorts, domain_count
    )
    most_domains = max(1, int(domain_count.max()))
    most_constraints = max(1, int(np.diff(needs.spread_start.view).max()))

    need_cluster = needs.cluster.view[slots].astype(np.int64)
    need_unit = needs.unit.view[slots].astype(np.int64)
    need_asked = needs.asked.view[slots]
    divisible = needs.divisible.view[slots]
    aggregate = np.zeros((r, width), np.int64)
    for row in np.flatnonzero(divisible):
        need = needs.need[slots[row]]
        if need is not None:
            for dimension, amount in shapes.dimensions.row(need.aggregate):
                aggregate[row, dimension] = amount if dimension else 0
    missing = need_asked.copy()
    missing[divisible == 1] = (aggregate[divisible == 1] > 0).any(axis=1)
    cluster_daemons, reported, partial, acts = _cluster_columns(inventory, daemons, clusters, needs, slots, c, now)
    unit = np.ascontiguousarray(needs.unit_vectors.view)
    least = np.full((c, width), np.iinfo(np.int64).max, np.int64)
    later, first_of = np.full(r, NONE, np.int64), np.full(c, NONE, np.int64)
    _by_cluster(need_cluster, need_unit, unit, least, later, first_of)

    topologies = shapes.topologies
    machines = np.full((M_DRAWN - M_SHAPE + 1, n), NONE, np.int64)
    for at, column in (
        (M_SHAPE, inventory.shape),
        (M_STATE, inventory.state),
        (M_CLUSTER, inventory.cluster),
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
        machines[at - M_SHAPE] = column.view
    machines[M_BOUND - M_SHAPE] = bound
    machines[[M_STOOD_PINNED - M_SHAPE, M_GONE - M_SHAPE, M_FULL - M_SHAPE, M_DRAWN - M_SHAPE]] = 0
    machines[M_COHORT - M_SHAPE] = cohorts.of_machine

    pairs, walks = np.unique(need_cluster * needs.kinds + needs.kind.view[slots], return_inverse=True)
    walks[(needs.limit.view[slots] > 0) | (divisible == 1)] = NONE
    rows = np.zeros((N_NEAR - N_CLUSTER + 1, r), np.int64)
    for at, column in (
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
        rows[at - N_CLUSTER] = column.view[slots]
    for at, values in (
        (N_TWIN, _twins(need_cluster, needs.fingerprint.view[slots], needs.limit.view[slots])),
        (N_ACTS, acts),
        (N_LATER, later),
        (N_MISSING, missing),
        (N_DOMAIN, NONE),
        (N_OWN_HEAD, NONE),
        (N_OWN_TAIL, NONE),
        (N_SATISFIABLE, 1),
        (N_KIND, needs.kind.view[slots] * len(daemons) + cluster_daemons[need_cluster]),
        (N_WALK, walks),
    ):
        rows[at - N_CLUSTER] = values

    lists = np.full((C_EPOCH - C_DAEMONS + 1, c), NONE, np.int64)
    for at, values in (
        (C_DAEMONS, cluster_daemons),
        (C_REPORTED, reported),
        (C_PARTIAL, partial),
        (C_DISTURBED, 0),
        (C_FIRST, first_of),
        (C_EPOCH, 0),
    ):
        lists[at - C_DAEMONS] = values
    configured = np.flatnonzero((state == MachineState.CONFIGURED) & (bound >= 0))
    weights = (policy.weight_priority, policy.weight_drain, policy.weight_interrupt, policy.weight_reclaim)
    tables: dict[str, Array] = {
        "machines": machines,
        "needs": rows,
        "clusters": lists,
        "kinds": np.full((8, max(1, needs.kinds * len(daemons))), NONE, np.int64),
        "starts": np.full((2, len(pairs)), NONE, np.int64),
        "cohorts": np.stack(
            [
                cohorts.shape,
                cohorts.tier,
                cohorts.price,
                cohorts.probability,
                cohorts.bucket,
                cohorts.head,
                cohorts.left,
                cohorts.group,
                np.zeros(len(cohorts.shape), np.int64),
                np.full(len(cohorts.shape), NONE, np.int64),
            ]
        ).astype(np.int64),
        "entries": np.empty((3, room.entries), np.int64),
        "seats": np.empty((9, room.seats), np.int64),
        "sums": np.zeros((7, most_domains), np.int64),
        "shapes": np.stack([shape_count, shape_held, np.zeros_like(shape_count)]).astype(np.int64),
        "spreads": np.stack([needs.spread_topology.view, needs.spread_skew.view, needs.spread_hard.view]).astype(
            np.int64
        ),
        "actions": np.empty((6, room.actions), np.int64),
        "allocatable": np.ascontiguousarray(shapes.allocatable.view),
        "domain": np.ascontiguousarray(topologies.domain.view),
        "domain_rank": np.ascontiguousarray(topologies.rank.view),
        "domain_count": domain_count,
        "daemon_base": np.ascontiguousarray(daemons.base.view),
        "daemon_start": daemons.extra_start.view,
        "daemon_requirement": daemons.extra_requirement.view,
        "daemon_extra": np.ascontiguousarray(daemons.extra.view),
        "cluster_least": least,
        "need_aggregate": aggregate,
        "unit": unit,
        "spread_start": needs.spread_start.view,
        "cohort_list": cohort_list,
        "cohort_list_start": cohort_list_start,
        "cohort_list_offset": cohort_list_offset,
        "pool": cohorts.pool,
        "free": np.zeros((n, width), np.int64),
        "vector": np.empty((room.vectors, width), np.int64),
        "configured": configured,
        "arena": np.zeros(room.arena, np.int64),
        "wanted": np.zeros(max(1, shapes.matches.shape[0]), np.int64),
        "victim": np.empty(len(configured), np.int64),
        "standing": np.empty(len(configured), np.int64),
        "level": np.zeros((most_constraints, most_domains), np.int64),
        "level_least": np.zeros(most_constraints, np.int64),
        "saved_gap": np.zeros(width, np.int64),
        "score_weights": np.array([round(weight * _BILLION) for weight in weights], np.int64),
    }
    return Tables(np.ascontiguousarray(shapes.matches.view), scalar, tables), slots


class _Cohorts(NamedTuple):
    shape: Array
    tier: Array
    price: Array
    probability: Array
    bucket: Array
    head: Array
    left: Array
    group: Array
    pool: Array
    of_machine: Array
    first_class: int
    spare: int


def _held_shapes(inventory: Inventory, policy: Policy, now: int) -> Array:
    held = np.zeros(max(1, len(inventory.shapes)), np.uint8)
    for (instance_type, zone, capacity_type), until in policy.held_out_shapes.items():
        if until > now:
            held[inventory.shapes.of_class(instance_type, zone, capacity_type)] = 1
    return held


def _cohorts(
    inventory: Inventory, needs: NeedsTable, bound: Array, shape_held: Array, now: int, spare: int
) -> _Cohorts:
    """The free pool: Idle or on its way there, then Speculative or on its way there; equal machines together.

    Each machine stands in the cohort of its shape, for gangs, and in one class of cohorts that differ in nothing that a
    requirement or a spread looks at, for all others.
    """
    tiers = np.full(16, _NO_TIER, np.uint8)
    tiers[[MachineState.IDLE, MachineState.DRAINING, MachineState.CREATING]] = 0
    tiers[[MachineState.SPECULATIVE, MachineState.DELETING]] = 1
    shape = inventory.shape.view
    tier = tiers[inventory.state.view]
    free = (bound < 0) & (tier != _NO_TIER) & (inventory.not_before.view <= now)
    rows = np.flatnonzero(free)
    rows = rows[shape_held[shape[rows]] == 0]
    offer = inventory.offer.view[rows].astype(np.int64) * 2 + tier[rows]
    ordered = np.lexsort((inventory.rank.view[rows], offer))
    rows, offer = rows[ordered], offer[ordered]
    head = np.flatnonzero(np.diff(offer, prepend=-1))
    left = np.diff(np.append(head, len(rows)))
    first = rows[head]
    of_row = np.repeat(np.arange(len(head)), left)
    columns = (inventory.price.view[first], inventory.probability.view[first], inventory.stamp_reclamation.view[first])
    keys = np.column_stack([shape_classes(inventory, needs)[shape[first]], tier[first], *columns])
    _, leader, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    by_class = np.lexsort((inventory.rank.view[rows], group[of_row]))
    sizes = np.bincount(group[of_row], minlength=len(leader))
    heads = len(rows) + np.cumsum(sizes) - sizes
    of_machine = np.full(len(shape), NONE, np.int64)
    of_machine[rows] = of_row
    spares = np.arange(2 * len(rows), 2 * len(rows) + spare)
    both = np.concatenate([first, first[leader], np.zeros(spare, np.int64)]).astype(np.int64)
    return _Cohorts(
        shape=shape[both] if len(shape) else both,
        tier=tier[both] if len(shape) else both,
        price=inventory.price.view[both] if len(shape) else both,
        probability=inventory.probability.view[both] if len(shape) else both,
        bucket=inventory.stamp_reclamation.view[both] if len(shape) else both,
        head=np.concatenate([head, heads, spares]),
        left=np.concatenate([left, sizes, np.zeros(spare, np.int64)]),
        group=np.concatenate([len(head) + group, np.full(len(leader) + spare, NONE)]),
        pool=np.concatenate([rows, rows[by_class], np.zeros(spare, np.int64)]),
        of_machine=of_machine,
        first_class=len(head),
        spare=spare,
    )


def shape_classes(inventory: Inventory, needs: NeedsTable) -> Array:
    """Each shape's class: equal for shapes that hold as much, match the same and lie in the same domains of spreads."""
    shapes = inventory.shapes
    spread = np.unique(needs.spread_topology.view)
    looked_at = np.concatenate([shapes.allocatable.view.T, shapes.matches.view, shapes.topologies.domain.view[spread]])
    _, classes = np.unique(looked_at, axis=1, return_inverse=True)
    return classes.reshape(-1) if len(shapes) else np.zeros(1, np.int64)


def _cohorts_by_domain(domain: Array, cohorts: _Cohorts, domain_count: Array) -> tuple[Array, Array, Array]:
    """For each topology and domain, the cohorts whose machines stand there."""
    real = cohorts.first_class
    lists, starts, offsets = [], [np.zeros(1, np.int64)], []
    at = 0
    for topology in range(domain.shape[0]):
        places = domain[topology, cohorts.shape[:real]]
        inside = np.flatnonzero(places >= 0)
        ordered = inside[np.argsort(places[inside], kind="stable")]
        counts = np.bincount(places[inside], minlength=int(domain_count[topology]))
        offsets.append(sum(len(part) for part in starts) - 1)
        starts.append(at + np.cumsum(counts))
        lists.append(ordered)
        at += len(ordered)
    return (
        np.concatenate(lists).astype(np.int64) if lists else np.zeros(1, np.int64),
        np.concatenate(starts).astype(np.int64),
        np.array(offsets or [0], np.int64),
    )


def _cluster_columns(
    inventory: Inventory,
    daemons: DaemonSets,
    clusters: Mapping[str, ClusterRecord],
    needs: NeedsTable,
    slots: Array,
    count: int,
    now: int,
) -> tuple[Array, Array, Array, Array]:
    sets, reported = np.zeros(count, np.int32), np.zeros(count, np.uint8)
    partial, live = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
    held: dict[tuple[int, int], bool] = {}
    for record in clusters.values():
        at = inventory.clusters.intern(record.id)
        sets[at] = daemons.intern(record.daemons)
        reported[at], partial[at], live[at] = record.reported, record.partial, record.live
        for fingerprint, until in record.held_out.items():
            if until > now:
                held[at, needs.fingerprint_number(fingerprint)] = True
    acts = live[needs.cluster.view[slots]]
    if held:
        for row, slot in enumerate(slots):
            if (int(needs.cluster.view[slot]), int(needs.fingerprint.view[slot])) in held:
                acts[row] = 0
    return sets, reported, partial, acts


def _twins(cluster: Array, fingerprint: Array, limit: Array) -> Array:
    """Rings of the rows of one cluster that share a machine limit."""
    twin = np.arange(len(cluster), dtype=np.int32)
    last: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(limit):
        key = (int(cluster[row]), int(fingerprint[row]))
        other = last.get(key)
        if other is not None:
            twin[row], twin[other] = twin[other], row
        last[key] = int(row)
    return twin


@entry
def _by_cluster(cluster: Array, unit_of: Array, unit: Array, least: Array, later: Array, first_of: Array) -> None:
    """Each cluster's rows as a list in the order, and the least that any of its units asks of each dimension."""
    for row in range(cluster.shape[0] - 1, -1, -1):
        c = cluster[row]
        later[row] = first_of[c]
        first_of[c] = row
        for d in range(least.shape[1]):
            least[c, d] = min(least[c, d], unit[unit_of[row], d])
