"""Verdicts: what became of a need, in words that a person or another program can use. Made on demand only."""

from typing import NamedTuple

import numpy as np

from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Array, Tables, Work, at
from bigfleet.engine.heap.values import BOOTSTRAP, NONE, PREEMPT, PROVISION
from bigfleet.engine.jit import entry
from bigfleet.engine.records import UnmetReason, Verdict
from bigfleet.engine.tables.inventory import VACANT, Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.engine.walks.capacity import fresh_units, is_eligible
from bigfleet.engine.walks.spread.offers import LEVELS
from bigfleet.engine.walks.spread.rows import could_hold, could_hold_in_one
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.machine import MachineState
from bigfleet.model.resources import Resources


class StaleError(RuntimeError):
    """Verdicts were asked for after machines or rows had changed, or the engine had decided again."""


class Verdicts:
    """The outcome of one decision, need by need, in the order in which they were served, until the next change."""

    def __init__(self, w: Tables, needs: NeedsTable, inventory: Inventory, slots: Array) -> None:
        self._tables, self._needs, self._inventory, self._slots = w, needs, inventory, slots
        self._shown = self._now()
        kept = np.flatnonzero(w.column(c.A_KIND)[: w.work.h[c.ACTIONS]] >= 0)
        self._bought = _Bought(*(_by_need(w, kept, kind) for kind in (BOOTSTRAP, PROVISION, PREEMPT)))

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def _work(self) -> Tables:
        if self._now() != self._shown:
            raise StaleError(
                "machines or rows have changed, or the engine has decided again: ask for verdicts before that"
            )
        return self._tables

    def _now(self) -> tuple[int, int, int]:
        return self._tables.decision, self._needs.edits, self._inventory.edits

    def __getitem__(self, row: int) -> Verdict:
        w, slot, need = self._work, int(self._slots[row]), self.need(row)
        missing = int(w.column(c.N_MISSING)[slot])
        domain = int(w.column(c.N_DOMAIN)[slot])
        topologies = self._inventory.shapes.topologies
        return Verdict(
            cluster=str(self._inventory.clusters.values[w.column(c.N_CLUSTER)[slot]]),
            key=need.key,
            satisfied=missing <= 0,
            missing_units=0 if w.column(c.N_DIVISIBLE)[slot] else missing,
            residual=self._residual(slot, missing, need.unit),
            claimed_machines=int(w.column(c.N_COUNT)[slot]),
            bootstraps=self._bought.bootstraps.get(slot, 0),
            provisions=self._bought.provisions.get(slot, 0),
            preempts=self._bought.preempts.get(slot, 0),
            domain=() if domain == NONE else topologies.names(int(w.column(c.N_TOPOLOGY)[slot]))[domain],
            same_satisfiable=bool(w.column(c.N_SATISFIABLE)[slot]),
            unmet_reason=UnmetReason.NONE if missing <= 0 else self._reason(slot),
        )

    def of(self, cluster_id: str) -> list[int]:
        """The rows of one cluster, of all where it is empty."""
        if not cluster_id:
            return list(range(len(self._slots)))
        number = self._inventory.clusters.find(cluster_id)
        rows: list[int] = np.flatnonzero(self._work.column(c.N_CLUSTER)[self._slots] == number).tolist()
        return rows

    def need(self, row: int) -> Need:
        """The need itself."""
        need = self._needs.need[int(self._slots[row])]
        if need is None:
            raise IndexError(f"row {row} was withdrawn after this decision")
        return need

    def short(self) -> list[int]:
        """The rows that were left short."""
        w = self._work
        rows: list[int] = np.flatnonzero(w.column(c.N_MISSING)[self._slots] > 0).tolist()
        return rows

    def lacking(self, row: int) -> tuple[str, NeedKey, int, Resources]:
        """The cluster, key and priority of a row that was left short, and what it lacks; why, only a verdict says."""
        w, slot, need = self._work, int(self._slots[row]), self.need(row)
        cluster = str(self._inventory.clusters.values[w.column(c.N_CLUSTER)[slot]])
        residual = self._residual(slot, int(w.column(c.N_MISSING)[slot]), need.unit)
        return cluster, need.key, need.profile.priority, residual

    def takes(self, row: int) -> dict[str, dict[str, int]]:
        """What a need takes from each machine, by resource, pod slots included."""
        w, names, slot = self._work, self._inventory.shapes.dimensions.names, int(self._slots[row])
        first, count = int(w.column(c.N_FIRST)[slot]), int(w.column(c.N_COUNT)[slot])
        unit = self._vector(c.T_UNIT, int(w.column(c.N_UNIT)[slot]))
        taken = {}
        for e in range(first, first + count):
            v = int(w.column(c.E_VECTOR)[e])
            vector = self._vector(c.T_VECTOR, v) if v >= 0 else unit * w.column(c.E_UNITS)[e]
            amounts = {names[d]: int(vector[d]) for d in range(len(names)) if vector[d]}
            taken[self._inventory.ids[w.column(c.E_MACHINE)[e]]] = dict(sorted(amounts.items()))
        return dict(sorted(taken.items()))

    def _vector(self, table: int, number: int) -> Array:
        return self._work.vectors(table, number + 1)[number]

    def _residual(self, slot: int, missing: int, unit: Resources) -> Resources:
        if not self._work.column(c.N_DIVISIBLE)[slot]:
            return tuple((name, missing * amount) for name, amount in unit) if missing > 0 else ()
        names = self._inventory.shapes.dimensions.names
        gap = self._vector(c.T_NEED_AGGREGATE, slot)
        return tuple(sorted((names[d], int(gap[d])) for d in range(1, len(gap)) if gap[d] > 0))

    def _by_shape(self) -> Array:
        """All machines in any state but Failed, by shape, then by id."""
        w = self._work
        machines = int(w.work.h[c.LEN_MACHINES])
        state, rank = w.column(c.M_STATE, machines), w.column(c.M_RANK, machines)
        alive = np.flatnonzero((state != VACANT) & (state != MachineState.FAILED))
        return alive[np.lexsort((rank[alive], w.column(c.M_SHAPE)[alive]))]

    def _could_hold(self, slot: int) -> bool:
        """Whether the whole fleet, empty and all this row's, would hold it within domain and skew."""
        w, needs = self._work, self._needs
        first, last = needs.spread_start.view[needs.spread.view[slot] :][:2]
        if needs.spread_hard.view[first:last].any():
            machines = self._by_shape()
            offers = int(w.work.h[c.ARENA]) + (LEVELS + last - first + 3) * (len(self._inventory.shapes) + 3)
            w.reserve(dict.fromkeys(range(c.S_MACHINE, c.S_TURN + 1), len(machines)) | {c.T_ARENA: int(offers)})
            w.work.h[c.LEN_SEATS], w.work.h[c.LEN_ARENA] = w.capacity(c.S_MACHINE), w.capacity(c.T_ARENA)
            return bool(could_hold(w.work, slot, machines))
        return int(w.column(c.N_TOPOLOGY)[slot]) < 0 or bool(could_hold_in_one(w.work, slot))

    def _reason(self, slot: int) -> UnmetReason:
        w = self._work
        divisible = w.column(c.N_DIVISIBLE)[slot]
        fleet = int(fleet_units(w.work, slot))
        if fleet < 0 or (not divisible and fleet < w.column(c.N_ASKED)[slot]):
            return UnmetReason.NO_MATCHING_SUPPLY
        if not divisible and not self._could_hold(slot):
            return UnmetReason.TOPOLOGY_UNSATISFIABLE
        return UnmetReason.PREEMPTION_EXHAUSTED if slot in self._bought.preempts else UnmetReason.PRIORITY_STARVED


class _Bought(NamedTuple):
    """Acquisitions by the row that they were made for."""

    bootstraps: dict[int, int]
    provisions: dict[int, int]
    preempts: dict[int, int]


def _by_need(w: Tables, actions: Array, kind: int) -> dict[int, int]:
    rows, counts = np.unique(w.column(c.A_NEED)[actions[w.column(c.A_KIND)[actions] == kind]], return_counts=True)
    return dict(zip(rows.tolist(), counts.tolist(), strict=True))


@entry
def fleet_units(w: Work, need: int) -> int:
    """Units that the whole fleet, untouched and in any state but Failed, would hold; below 0 if nothing matches."""
    units, some = 0, False
    for shape in range(w.h[c.LEN_SHAPES]):
        if at(w, c.SHAPE_COUNT, shape) and is_eligible(w, need, shape):
            some = True
            if not at(w, c.N_DIVISIBLE, need):
                units += at(w, c.SHAPE_COUNT, shape) * fresh_units(w, need, shape)
    return units if some else -1
