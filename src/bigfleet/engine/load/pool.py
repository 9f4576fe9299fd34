"""The free pool in the heap: machines that are bound to no cluster, equal ones together in cohorts and classes."""

from collections.abc import Mapping

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Heap
from bigfleet.engine.heap.values import AT_ONCE, NONE, TO_BE_CREATED, WEIGHTS
from bigfleet.engine.records import Policy
from bigfleet.engine.tables.inventory import VACANT, Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.model.machine import MachineState

_BILLION = 10**9
_LARGEST_ARENA = 1 << 23
"""Cells of the arena that are reserved for domains at most; a decision that needs more breaks off and gets them."""
_NO_TIER = 255
"""A machine in such a state is not in the pool."""
_SLOTS_A_SHAPE, _SLOTS_A_NEED, _LISTS_A_DOMAIN = 12, 4, 3
"""Cells of the arena for each shape, need, and domain of each kind: offers, machines with room, totals and lists."""
_TIERS = np.full(16, _NO_TIER, np.uint8)
"""By state: how soon a free machine could serve."""
_TIERS[[MachineState.IDLE, MachineState.DRAINING, MachineState.CREATING]] = AT_ONCE
_TIERS[[MachineState.SPECULATIVE, MachineState.DELETING]] = TO_BE_CREATED


class Pool:
    """The free pool in the heap. It is sorted again only when a change reaches a machine in it.

    `room` says how much room decisions need for what they add to it, by LEN_.
    """

    def __init__(self, heap: Heap, inventory: Inventory, needs: NeedsTable, room: Mapping[int, int]) -> None:
        self._heap, self._inventory, self._needs, self._room = heap, inventory, needs, room
        self._shape_class = np.zeros(0, np.int64)
        self._classed = self._sorted = tuple[int, ...]()
        self._members = self._left = self._held = np.zeros(0, np.int64)
        self._cohort_count = self._due = 0

    def lay_policy(self, policy: Policy, now: int) -> None:
        """Write the weights of a victim's score, and which shapes are held out."""
        shapes, heap = self._inventory.shapes, self._heap
        weights = (policy.weight_priority, policy.weight_drain, policy.weight_interrupt, policy.weight_reclaim)
        heap.column(c.T_SCORE_WEIGHTS, WEIGHTS)[:] = [round(weight * _BILLION) for weight in weights]
        held = heap.column(c.SHAPE_HELD)
        held[:] = 0
        for (instance_type, zone, capacity_type), until in policy.held_out_shapes.items():
            if until > now:
                held[shapes.of_class(instance_type, zone, capacity_type)] = 1

    def lay(self, policy: Policy, now: int, changed: Array, structure: tuple[int, ...], kinds: int) -> None:
        """Write the free pool: machines that are Idle or will be, then those that are Speculative or will be.

        Each machine is in a cohort of one shape, for gangs. For all other needs it is in a class: cohorts that differ
        in nothing that a requirement or a spread looks at. Room for spares, one for each machine bought, follows.
        """
        inventory, heap = self._inventory, self._heap
        machines, known, kinds = len(inventory.ids), max(1, len(inventory.shapes)), max(1, kinds)
        shape, state = inventory.shape.view, inventory.state.view
        alive = (state != VACANT) & (state != MachineState.FAILED)
        heap.column(c.SHAPE_COUNT, known)[:] = np.bincount(shape[alive], minlength=known)
        held = heap.column(c.SHAPE_HELD, known)
        shown = {} if self._is_current(now, changed, structure, held) else self._sort(now, structure, held)
        size = len(self._left) + len(self._members) + 1 + self._room[c.LEN_COHORTS]
        # Machines that may be given back are tried as spares.
        size += machines * policy.reclaim_percent // 100
        sizes = dict.fromkeys(c.COHORT_COLUMNS, size)
        sizes |= dict.fromkeys(c.ACTION_COLUMNS, len(self._members) + self._room[c.LEN_ACTIONS])
        sizes |= dict.fromkeys(c.KIND_COLUMNS, kinds)
        arena = min(_LARGEST_ARENA, _LISTS_A_DOMAIN * kinds * int(heap.work.h[c.MOST_DOMAINS]))
        arena += _SLOTS_A_SHAPE * known + _SLOTS_A_NEED * len(self._needs)
        sizes |= {place: values.size for place, values in shown.items() if place not in c.COHORT_COLUMNS}
        sizes |= {c.T_POOL: 2 * len(self._members) + size, c.T_ARENA: self._room[c.LEN_ARENA] + arena}
        heap.reserve(sizes)
        for place, values in shown.items():
            heap.column(place, values.size)[:] = values
        h = heap.work.h
        h[c.LEN_ACTIONS], h[c.LEN_ARENA] = heap.capacity(c.A_KIND), heap.capacity(c.T_ARENA)
        h[c.FIRST_CLASS], h[c.FIRST_SPARE], h[c.LEN_COHORTS] = self._cohort_count, len(self._left), size
        self._begin(size)
        for place in c.KIND_COLUMNS:
            heap.column(place, kinds)[:] = NONE

    def _is_current(self, now: int, changed: Array, structure: tuple[int, ...], held: Array) -> bool:
        """Whether the pool is as it was: no change has reached a machine that is or was in it."""
        if structure != self._sorted or now >= self._due or not np.array_equal(held, self._held):
            return False
        if (self._heap.column(c.M_COHORT)[changed] != NONE).any():
            return False
        inventory = self._inventory
        return not ((inventory.bound.view[changed] < 0) & (_TIERS[inventory.state.view[changed]] != _NO_TIER)).any()

    def _sort(self, now: int, structure: tuple[int, ...], held: Array) -> dict[int, Array]:
        """Sort the pool into cohorts and classes; what to write, by column."""
        inventory, heap = self._inventory, self._heap
        shape, state = inventory.shape.view, inventory.state.view
        heap.column(c.M_COHORT)[self._members] = NONE
        free = np.flatnonzero((inventory.bound.view < 0) & (_TIERS[state] != _NO_TIER))
        later = inventory.not_before.view[free].astype(np.int64)
        self._due = int(later[later > now].min(initial=np.iinfo(np.int64).max))
        rows = free[(later <= now) & (held[shape[free]] == 0)]
        heap.column(c.SHAPE_POOL, len(held))[:] = np.bincount(shape[rows], minlength=len(held))
        cohort, leader, group = self._cohorts(rows, _TIERS[state[rows]].astype(np.int64), structure)
        by_rank = _places(rows, inventory.by_id, len(shape))
        grouped = group[cohort]
        order = np.concatenate([by_rank[_stable_order(each[by_rank])] for each in (cohort, grouped)])
        cohorts, classes = len(leader), int(group.max(initial=-1)) + 1
        of_class = np.zeros(classes, np.int64)
        of_class[group] = leader
        first = rows[np.concatenate([leader, of_class])]
        self._left = np.concatenate([np.bincount(cohort, minlength=cohorts), np.bincount(grouped, minlength=classes)])
        self._members, self._cohort_count = rows, cohorts
        self._sorted, self._held = structure, held.copy()
        heap.column(c.M_COHORT)[rows] = cohort
        heap.column(c.M_DRAWN)[rows] = 0
        return {
            c.COHORT_SHAPE: shape[first],
            c.COHORT_TIER: _TIERS[state[first]],
            c.COHORT_PRICE: inventory.price.view[first],
            c.COHORT_PROBABILITY: inventory.probability.view[first],
            c.COHORT_RECLAMATION: inventory.stamp_reclamation.view[first],
            c.COHORT_CLASS: cohorts + group,
            c.T_POOL: rows[order],
            **self._cohort_lists(shape[first[:cohorts]]),
        }

    def _begin(self, size: int) -> None:
        """Begin a decision: nothing is drawn from any cohort, and there is no spare yet."""
        heap, real = self._heap, len(self._left)
        heap.column(c.COHORT_LEFT, real)[:] = self._left
        heap.column(c.COHORT_HEAD, real)[:] = np.cumsum(self._left) - self._left
        heap.column(c.COHORT_HEAD)[real:size] = np.arange(2 * len(self._members), 2 * len(self._members) + size - real)
        heap.column(c.COHORT_LEFT)[real:size] = 0
        heap.column(c.COHORT_BUYER, size)[:] = NONE

    def _cohorts(self, rows: Array, tier: Array, structure: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """(The cohort of each of these rows, the place of one row of each cohort, the class of each cohort.)"""
        inventory = self._inventory
        offer = inventory.offer.view[rows].astype(np.int64) * 2 + tier
        leader, cohort = _numbered(offer)
        first = rows[leader]
        terms = np.stack(
            [
                self._shape_classes(structure)[inventory.shape.view[first]],
                tier[leader],
                inventory.price.view[first],
                inventory.probability.view[first],
                inventory.stamp_reclamation.view[first],
            ]
        )
        return cohort, leader, _groups(terms)

    def _shape_classes(self, structure: tuple[int, ...]) -> Array:
        """By shape a number, equal for shapes that hold as much, match the same lists and share domains of spreads."""
        if self._classed != structure:
            shapes = self._inventory.shapes
            spread = np.unique(self._needs.spread_topology.view)
            looked_at = (shapes.allocatable.view.T, _packed(shapes.matches.view), shapes.topologies.domain.view[spread])
            self._shape_class = _groups(np.concatenate(looked_at))
            self._classed = structure
        return self._shape_class

    def _cohort_lists(self, shape: Array) -> dict[int, Array]:
        """The cohorts by topology and domain, given the shape of each cohort; what to write, by column."""
        topologies = self._inventory.shapes.topologies
        lists, starts, offsets = [], [np.zeros(1, np.int64)], []
        listed = 0
        for topology in range(len(topologies)):
            places = topologies.domain.view[topology, shape]
            inside = np.flatnonzero(places >= 0)
            lists.append(inside[np.argsort(places[inside], kind="stable")])
            offsets.append(sum(len(part) for part in starts) - 1)
            starts.append(listed + np.cumsum(np.bincount(places[inside], minlength=topologies.count(topology))))
            listed += len(inside)
        return {
            c.T_COHORT_LIST: np.concatenate([np.zeros(0, np.int64), *lists]),
            c.T_COHORT_LIST_START: np.concatenate(starts),
            c.T_COHORT_LIST_OFFSET: np.array(offsets, np.int64),
        }


# The pool may be the whole fleet while few of its machines change, so what follows sorts it without comparing.


def _places(rows: Array, order: Array, count: int) -> Array:
    """Where in `rows` each number stands that `order` names, in that order; all numbers are below `count`."""
    place = np.full(count, NONE, np.int64)
    place[rows] = np.arange(len(rows))
    found = place[order]
    return found[found != NONE]


def _stable_order(number: Array) -> Array:
    """The places of the numbers in rising order; equal numbers keep their order."""
    # Up to 16 bits numpy sorts by digits.
    narrow = np.uint16 if number.max(initial=0) <= np.iinfo(np.uint16).max else np.int64
    return np.argsort(number.astype(narrow), kind="stable")


def _numbered(values: Array) -> tuple[Array, Array]:
    """Number the distinct values in rising order: (where each is first found, the number of each value)."""
    first = np.full(int(values.max(initial=-1)) + 1, NONE, np.int64)
    # Where several are written to one place, the last one stays.
    first[values[::-1]] = np.arange(len(values) - 1, -1, -1)
    found = first != NONE
    return first[found], (np.cumsum(found) - 1)[values]


def _packed(matches: Array) -> Array:
    """Rows of bits packed 64 to one row of numbers: there may be thousands of requirement lists."""
    bits = np.packbits(matches, axis=0)
    padded = np.zeros((matches.shape[1], -(-len(bits) // 8) * 8), np.uint8)
    padded[:, : len(bits)] = bits.T
    return padded.view(np.int64).T


def _groups(columns: Array) -> Array:
    """Numbers for columns that are equal in all rows."""
    group = np.zeros(columns.shape[1], np.int64)
    for values in columns:
        _, inverse = np.unique(values, return_inverse=True)
        _, group = np.unique(group * (inverse.max(initial=0) + 1) + inverse.reshape(-1), return_inverse=True)
        group = group.reshape(-1)
    return group
