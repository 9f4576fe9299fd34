"""One decision: lay the columns out, run the three phases, and say the outcome in strings again."""

from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bigfleet.engine.give_back import RECLAIM_GRACE, Excess
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Tables
from bigfleet.engine.heap.values import LARGE, NONE, PREEMPT
from bigfleet.engine.load.layout import Layout
from bigfleet.engine.records import MAX_TIME, Action, ClusterRecord, Kind, Policy, Stamp, Verdict
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.engine.tables.shapes import DaemonSets
from bigfleet.engine.tables.validate import COMMITTED, MAX_NUMBER, NOBODY
from bigfleet.engine.verdicts import Verdicts
from bigfleet.engine.walks import phases
from bigfleet.model.machine import CapacityType, MachineState

_KINDS = (Kind.BOOTSTRAP, Kind.PROVISION, Kind.PREEMPT)


class Decision(NamedTuple):
    """The outcome: actions in the order they were decided, and on demand what became of each need.

    `dropped` are machines whose commitment ends, `excess` clusters with a Configured machine that nobody took, `capped`
    those of them whose rail held something back.
    """

    actions: list[Action]
    verdicts: Verdicts
    dropped: list[str]
    excess: frozenset[str]
    capped: frozenset[str]

    def shortfalls(self) -> list[Verdict]:
        """The needs that were left short, first served first."""
        return [self.verdicts[row] for row in self.verdicts.short()]


class Spent(NamedTuple):
    """Seconds by phase; laying tables out is part of the first, saying the outcome of the third."""

    phase1: float
    phase2: float
    phase3: float


class Engine:
    """A shard's picture of its fleet, and the decisions it makes on it.

    Records and rows are applied between decisions, never while one is made in another thread.
    """

    def __init__(self) -> None:
        self.inventory = Inventory()
        self.needs = NeedsTable(self.inventory)
        self._daemons = DaemonSets(self.inventory.shapes)
        self._clusters: dict[str, ClusterRecord] = {}
        self._told: set[str] = set()
        self._layout = Layout(self.inventory, self.needs, self._daemons)
        self.spent = Spent(0.0, 0.0, 0.0)
        """How long the phases of the last decision took."""

    def set_cluster(self, record: ClusterRecord) -> None:
        """Take what a cluster's session shows."""
        self.inventory.clusters.intern(record.id)
        # Resources that only a daemon names must be known before tables are laid.
        self._daemons.intern(record.daemons)
        self._clusters[record.id] = record
        self._told.add(record.id)

    def decide(self, policy: Policy, now: int, next_binding: int, *, full: bool = False) -> Decision:
        """What to do now, from what changed since the last decision; with `full`, from scratch. Changes nothing.

        The verdicts of the decision before end with it.
        """
        if not 0 <= next_binding <= MAX_NUMBER - len(self.inventory):
            raise ValueError(f"next_binding: is {next_binding}, but must lie between 0 and 2**62 less the machines")
        if not -MAX_TIME <= now <= MAX_TIME:
            raise ValueError(f"now: is {now}, but must lie within 2**62 seconds of 0")
        layout = self._layout
        while True:
            began = perf_counter()
            rows = layout.prepare(self._clusters, self._told, policy, now, next_binding, full=full)
            self._told.clear()
            w = layout.tables
            phases.phase_one(w.work, rows, layout.awake)
            assigned = perf_counter()
            if not w.work.h[c.OVERFLOW]:
                phases.phase_two(w.work, layout.order)
            preempted = perf_counter()
            if not w.work.h[c.OVERFLOW]:
                phases.mark_excess(w.work, layout.touched)
                decision = self._outcome(w, layout.order, policy)
                if not w.work.h[c.OVERFLOW]:
                    self.spent = Spent(assigned - began, preempted - assigned, perf_counter() - preempted)
                    return decision
            layout.break_off()

    def footprint(self) -> dict[str, int]:
        """The bytes that decisions keep, by what they are for."""
        parts = dict.fromkeys(("machines", "free", "rows", "taken", "pool", "other"), 0)
        for place, size in self._layout.tables.footprint().items():
            parts[c.part_of(place)] += size
        return parts

    def _outcome(self, w: Tables, slots: npt.NDArray[Any], policy: Policy) -> Decision:
        kept = np.flatnonzero(w.column(c.A_KIND, int(w.work.h[c.ACTIONS])) >= 0)
        actions = self._acquisitions(w, kept)
        known = int(w.work.h[c.LEN_MACHINES])
        idle = (w.column(c.M_STATE, known) == MachineState.IDLE) & (w.column(c.M_SERVES, known) == NOBODY)
        dropped = self._ids(w, np.flatnonzero(idle & ((w.column(c.M_FLAGS, known) & COMMITTED) != 0)))
        names = self.inventory.clusters.values
        with_excess = [str(names[number]) for number in np.flatnonzero(w.column(c.C_EXCESS)[: len(names)]).tolist()]
        records = (self._clusters.get(cluster_id) for cluster_id in sorted(with_excess))
        giving = [record for record in records if record is not None and record.reported]
        reclaims, capped = self._reclaims(w, giving, policy) if giving else ([], frozenset[str]())
        actions += [*reclaims, *self._releases(w, policy)]
        verdicts = Verdicts(w, self.needs, self.inventory, slots)
        return Decision(actions, verdicts, dropped, frozenset(record.id for record in giving), capped)

    def _acquisitions(self, w: Tables, kept: npt.NDArray[Any]) -> list[Action]:
        """The acquisitions in the order in which they were decided."""
        machine, slots = w.column(c.A_MACHINE)[kept], w.column(c.A_NEED)[kept]
        columns = (
            w.column(c.A_KIND)[kept],
            slots,
            self.needs.cluster.view[slots],
            w.column(c.M_NUMBER)[machine],
            w.column(c.A_GRACE)[kept],
            w.column(c.A_OUTRANKED)[kept],
        )
        rows = zip(self.inventory.ids.many(machine), *(column.tolist() for column in columns), strict=True)
        needs, names = self.needs.need, self.inventory.clusters.values
        actions, last = [], NONE
        for machine_id, kind, slot, home, number, grace, outranked in rows:
            # A need buys many machines one after the other: what they have in common is made once.
            if slot != last:
                need, last = needs[slot], slot
                assert need is not None  # noqa: S101 - live slots only
                profile, key, cluster = need.profile, need.key, str(names[home])
                stakes = profile.priority, profile.interruption, profile.reclamation
                wanted = f"{cluster} needs {profile.fingerprint}"
            reason = wanted
            if kind == PREEMPT:
                reason = f"{cluster} at {stakes[0]} outranks {'nobody' if outranked == LARGE else outranked}"
            actions.append(Action(_KINDS[kind], machine_id, cluster, reason, grace, Stamp(key, *stakes, number)))
        return actions

    def _reclaims(self, w: Tables, giving: list[ClusterRecord], policy: Policy) -> tuple[list[Action], frozenset[str]]:
        """What clusters with excess give back, and those whose rail held something back."""
        excess = Excess(w, self.inventory, giving, policy)
        results = [(record.id, excess.give_back(record)) for record in giving]
        machines = [machine for _, result in results for machine in result.machines]
        homes = [cluster_id for cluster_id, result in results for _ in result.machines]
        ids = self.inventory.ids.many(np.array(machines, np.int64))
        reclaims = [
            Action(Kind.RECLAIM, machine_id, home, "no need took it", RECLAIM_GRACE)
            for machine_id, home in zip(ids, homes, strict=True)
        ]
        return reclaims, frozenset(cluster_id for cluster_id, result in results if result.capped)

    def _releases(self, w: Tables, policy: Policy) -> list[Action]:
        inventory, now = self.inventory, int(w.work.h[c.NOW])
        machines = int(w.work.h[c.LEN_MACHINES])
        idle = np.flatnonzero(
            (w.column(c.M_STATE, machines) == MachineState.IDLE) & (w.column(c.M_BOUND, machines) == NOBODY)
        )
        types = inventory.shapes.capacity_type.view[inventory.shape.view[idle]]
        going = np.zeros(len(idle), np.bool_)
        for capacity_type, hold in policy.idle_hold.items():
            going |= (types == capacity_type) & (now - inventory.idle_since.view[idle].astype(np.int64) > hold)
        actions = []
        for m in self._sorted(w, idle[going]):
            hold = policy.idle_hold[CapacityType(int(inventory.shapes.capacity_type.view[inventory.shape.view[m]]))]
            actions.append(Action(Kind.DELETE, inventory.ids[m], "", f"idle for more than {hold} s"))
        return actions

    def _sorted(self, w: Tables, rows: npt.NDArray[Any]) -> list[int]:
        ordered: list[int] = rows[np.argsort(w.column(c.M_RANK)[rows])].tolist()
        return ordered

    def _ids(self, w: Tables, rows: npt.NDArray[Any]) -> list[str]:
        return self.inventory.ids.many(np.array(self._sorted(w, rows), np.int64))
