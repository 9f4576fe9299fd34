"""Verdicts: what became of each need in a decision. A verdict is worked out only when it is asked for."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from bigfleet.engine.candidates import Candidates, CandidateTable
from bigfleet.engine.codes import PODS_DIM
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Heap
from bigfleet.engine.heap.values import BOOTSTRAP, NONE, PREEMPT, PROVISION
from bigfleet.engine.records import UnmetReason, Verdict
from bigfleet.engine.tables.inventory import VACANT, Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.engine.walks.fleet import fleet_could_hold, fleet_units, one_domain_could_hold
from bigfleet.engine.walks.spread.offers import LEVELS
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.machine import MachineState
from bigfleet.model.resources import Resources


class StaleError(RuntimeError):
    """A verdict was asked for after machines or needs had changed, or after a later decision."""


class Verdicts:
    """The outcome of one decision by row, first served first. They hold until a machine or need changes."""

    def __init__(self, heap: Heap, needs: NeedsTable, inventory: Inventory, slots: Array) -> None:
        self._heap, self._needs, self._inventory, self._slots = heap, needs, inventory, slots
        self._shown = self._now()
        kept = np.flatnonzero(heap.column(c.A_KIND)[: heap.work.h[c.ACTIONS]] >= 0)
        self._candidates: CandidateTable | None = None
        self._bought = _Bought(*(_by_need(heap, kept, kind) for kind in (BOOTSTRAP, PROVISION, PREEMPT)))

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def _shown_heap(self) -> Heap:
        if self._now() != self._shown:
            raise StaleError(
                "verdicts are stale: machines or needs have changed, or the engine has decided again; ask before that"
            )
        return self._heap

    def _now(self) -> tuple[int, int, int]:
        return self._heap.decision, self._needs.edits, self._inventory.edits

    def __getitem__(self, row: int) -> Verdict:
        heap, slot, need = self._shown_heap, int(self._slots[row]), self.need(row)
        missing = int(heap.column(c.N_MISSING)[slot])
        domain = int(heap.column(c.N_DOMAIN)[slot])
        topologies = self._inventory.shapes.topologies
        return Verdict(
            cluster=str(self._inventory.clusters.values[heap.column(c.N_CLUSTER)[slot]]),
            key=need.key,
            satisfied=missing <= 0,
            missing_units=0 if heap.column(c.N_DIVISIBLE)[slot] else missing,
            residual=self._residual(slot, missing, need.unit),
            claimed_machines=int(heap.column(c.N_ENTRIES)[slot]),
            bootstraps=self._bought.bootstraps.get(slot, 0),
            provisions=self._bought.provisions.get(slot, 0),
            preempts=self._bought.preempts.get(slot, 0),
            domain=() if domain == NONE else topologies.names(int(heap.column(c.N_TOPOLOGY)[slot]))[domain],
            same_satisfiable=bool(heap.column(c.N_SATISFIABLE)[slot]),
            unmet_reason=UnmetReason.NONE if missing <= 0 else self._reason(slot),
        )

    def of(self, cluster_id: str) -> list[int]:
        """The rows of one cluster; all rows for an empty id."""
        if not cluster_id:
            return list(range(len(self._slots)))
        number = self._inventory.clusters.find(cluster_id)
        rows: list[int] = np.flatnonzero(self._shown_heap.column(c.N_CLUSTER)[self._slots] == number).tolist()
        return rows

    def need(self, row: int) -> Need:
        """The need of a row."""
        need = self._needs.need[int(self._slots[row])]
        if need is None:
            raise IndexError(f"row {row} was withdrawn after this decision")
        return need

    def short(self) -> list[int]:
        """The rows that lack something."""
        heap = self._shown_heap
        rows: list[int] = np.flatnonzero(heap.column(c.N_MISSING)[self._slots] > 0).tolist()
        return rows

    def lacking(self, row: int) -> tuple[str, NeedKey, int, Resources]:
        """(Cluster, key, priority, what is lacking) of a row that lacks something. Cheaper than its verdict."""
        heap, slot, need = self._shown_heap, int(self._slots[row]), self.need(row)
        cluster = str(self._inventory.clusters.values[heap.column(c.N_CLUSTER)[slot]])
        residual = self._residual(slot, int(heap.column(c.N_MISSING)[slot]), need.unit)
        return cluster, need.key, need.profile.priority, residual

    def takes(self, row: int) -> dict[str, dict[str, int]]:
        """What a need takes from each machine, by resource, pod slots included."""
        heap, names, slot = self._shown_heap, self._inventory.shapes.dimensions.names, int(self._slots[row])
        first, count = int(heap.column(c.N_FIRST_ENTRY)[slot]), int(heap.column(c.N_ENTRIES)[slot])
        unit = self._vector(c.T_UNIT, int(heap.column(c.N_UNIT)[slot]))
        taken = {}
        for e in range(first, first + count):
            v = int(heap.column(c.E_VECTOR)[e])
            vector = self._vector(c.T_VECTOR, v) if v >= 0 else unit * heap.column(c.E_UNITS)[e]
            amounts = {names[d]: int(vector[d]) for d in range(len(names)) if vector[d]}
            taken[self._inventory.ids[heap.column(c.E_MACHINE)[e]]] = dict(sorted(amounts.items()))
        return dict(sorted(taken.items()))

    def on_their_way(self, row: int) -> Counter[MachineState]:
        """How many of the machines that a need takes from do not serve yet, by the state that each is in."""
        heap, slot = self._shown_heap, int(self._slots[row])
        first, count = int(heap.column(c.N_FIRST_ENTRY)[slot]), int(heap.column(c.N_ENTRIES)[slot])
        states = heap.column(c.M_STATE)[heap.column(c.E_MACHINE)[first : first + count]]
        counted = np.bincount(states, minlength=len(MachineState))
        found = {MachineState(state): int(counted[state]) for state in np.flatnonzero(counted).tolist()}
        return Counter({state: number for state, number in found.items() if state is not MachineState.CONFIGURED})

    def candidates(self, row: int) -> Candidates:
        """The machines that could serve a need if they were free, and what keeps them from it."""
        heap = self._shown_heap
        if self._candidates is None:
            self._candidates = CandidateTable(heap, self._inventory)
        return self._candidates.of(int(self._slots[row]))

    def _vector(self, table: int, number: int) -> Array:
        return self._shown_heap.vectors(table, number + 1)[number]

    def _residual(self, slot: int, missing: int, unit: Resources) -> Resources:
        """What the need in a slot lacks, by resource."""
        if not self._shown_heap.column(c.N_DIVISIBLE)[slot]:
            return tuple((name, missing * amount) for name, amount in unit) if missing > 0 else ()
        names = self._inventory.shapes.dimensions.names
        gap = self._vector(c.T_GAP, slot)
        return tuple(sorted((names[d], int(gap[d])) for d in range(PODS_DIM + 1, len(gap)) if gap[d] > 0))

    def _by_shape(self) -> Array:
        """All machines in any state but Failed, sorted by shape, then by id."""
        heap = self._shown_heap
        machines = int(heap.work.h[c.LEN_MACHINES])
        state, rank = heap.column(c.M_STATE, machines), heap.column(c.M_RANK, machines)
        alive = np.flatnonzero((state != VACANT) & (state != MachineState.FAILED))
        return alive[np.lexsort((rank[alive], heap.column(c.M_SHAPE)[alive]))]

    def _could_hold(self, slot: int) -> bool:
        """Whether the fleet, empty and all the row's own, would hold the row within its domain and skew."""
        heap, needs = self._shown_heap, self._needs
        first, last = needs.spread_start.view[needs.spread.view[slot] :][:2]
        if needs.spread_hard.view[first:last].any():
            machines = self._by_shape()
            offers = int(heap.work.h[c.ARENA_END]) + (LEVELS + last - first + 3) * (len(self._inventory.shapes) + 3)
            heap.reserve(dict.fromkeys(c.SEAT_COLUMNS, len(machines)) | {c.T_ARENA: int(offers)})
            heap.work.h[c.LEN_SEATS], heap.work.h[c.LEN_ARENA] = heap.capacity(c.S_MACHINE), heap.capacity(c.T_ARENA)
            return bool(fleet_could_hold(heap.work, slot, machines))
        return int(heap.column(c.N_TOPOLOGY)[slot]) < 0 or bool(one_domain_could_hold(heap.work, slot))

    def _reason(self, slot: int) -> UnmetReason:
        """Why the need in a slot lacks something."""
        heap = self._shown_heap
        divisible = heap.column(c.N_DIVISIBLE)[slot]
        fleet = int(fleet_units(heap.work, slot))
        if fleet < 0 or (not divisible and fleet < heap.column(c.N_ASKED)[slot]):
            return UnmetReason.NO_MATCHING_SUPPLY
        if not divisible and not self._could_hold(slot):
            return UnmetReason.TOPOLOGY_UNSATISFIABLE
        return UnmetReason.PREEMPTION_EXHAUSTED if slot in self._bought.preempts else UnmetReason.PRIORITY_STARVED


class _Bought(NamedTuple):
    """How many acquisitions of each kind were made, by slot of the need."""

    bootstraps: dict[int, int]
    provisions: dict[int, int]
    preempts: dict[int, int]


def _by_need(heap: Heap, actions: Array, kind: int) -> dict[int, int]:
    """How many of these acquisitions are of one kind, by slot of the need."""
    rows, counts = np.unique(heap.column(c.A_NEED)[actions[heap.column(c.A_KIND)[actions] == kind]], return_counts=True)
    return dict(zip(rows.tolist(), counts.tolist(), strict=True))
