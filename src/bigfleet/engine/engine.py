"""The engine: machines, needs and clusters go in, and a decision on them comes out."""

from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bigfleet.engine.codes import COMMITTED, NOBODY
from bigfleet.engine.give_back import RECLAIM_GRACE, Excess
from bigfleet.engine.heap import columns as c
from bigfleet.engine.heap.heap import Heap
from bigfleet.engine.heap.values import LARGE, NONE, PREEMPT
from bigfleet.engine.load.layout import Layout
from bigfleet.engine.records import MAX_TIME, Action, ClusterRecord, Kind, Policy, Stamp
from bigfleet.engine.tables.inventory import Inventory
from bigfleet.engine.tables.needs import NeedsTable
from bigfleet.engine.tables.shapes import DaemonSets
from bigfleet.engine.tables.validate import MAX_NUMBER
from bigfleet.engine.verdicts import Verdicts
from bigfleet.engine.walks import phases
from bigfleet.model.machine import CapacityType, MachineState

_KINDS = (Kind.BOOTSTRAP, Kind.PROVISION, Kind.PREEMPT)
"""What the numbers in A_KIND stand for."""


class Decision(NamedTuple):
    """The outcome of one decision."""

    actions: list[Action]
    """What to do, in the order in which it was decided."""
    verdicts: Verdicts
    """What became of each need, worked out when it is asked for."""
    dropped: list[str]
    """Idle machines whose commitment ends, because no need takes them."""
    excess: frozenset[str]
    """Clusters with a Configured machine that no need takes."""
    capped: frozenset[str]
    """Clusters among those of which a rail kept a machine from being given back."""


class Spent(NamedTuple):
    """Seconds by phase. Laying out the heap is part of the first, making actions of the outcome part of the third."""

    phase1: float
    phase2: float
    phase3: float


class Engine:
    """The machines, needs and clusters of a shard, and the decisions on them.

    Machines and needs are changed between decisions, never while a decision is made in another thread.
    """

    def __init__(self) -> None:
        self.inventory = Inventory()
        self.needs = NeedsTable(self.inventory)
        self.daemons = DaemonSets(self.inventory.shapes)
        self.clusters: dict[str, ClusterRecord] = {}
        self._told: set[str] = set()
        self._layout = Layout(self.inventory, self.needs, self.daemons)
        self.spent = Spent(0.0, 0.0, 0.0)
        """How long the phases of the last decision took."""

    @property
    def heap(self) -> Heap:
        """What the last decision left behind, for `available` to read."""
        return self._layout.heap

    def set_cluster(self, record: ClusterRecord) -> None:
        """Set the record of a cluster."""
        self.inventory.clusters.intern(record.id)
        # Resources that only a daemon names must have a dimension before the heap is laid out.
        self.daemons.intern(record.daemons)
        self.clusters[record.id] = record
        self._told.add(record.id)

    def decide(self, policy: Policy, now: int, next_binding: int, *, full: bool = False) -> Decision:
        """Decide what to do now. Clusters that nothing has changed for keep their outcome, unless `full` is set.

        Nothing of it is carried out, so the inventory stays as it is. Verdicts of the decision before become stale.
        """
        if not 0 <= next_binding <= MAX_NUMBER - len(self.inventory):
            raise ValueError(f"next_binding: is {next_binding}, but must lie between 0 and 2**62 less the machines")
        if not -MAX_TIME <= now <= MAX_TIME:
            raise ValueError(f"now: is {now}, but must lie within 2**62 seconds of 0")
        layout = self._layout
        while True:
            began = perf_counter()
            rows = layout.prepare(self.clusters, self._told, policy, now, next_binding, full=full)
            self._told.clear()
            heap = layout.heap
            phases.phase_one(heap.work, rows, layout.awake)
            assigned = perf_counter()
            if not heap.work.h[c.OVERFLOW]:
                phases.phase_two(heap.work, layout.order)
            preempted = perf_counter()
            if not heap.work.h[c.OVERFLOW]:
                phases.mark_excess(heap.work, layout.touched)
                decision = self._outcome(heap, layout.order, policy)
                if not heap.work.h[c.OVERFLOW]:
                    self.spent = Spent(assigned - began, preempted - assigned, perf_counter() - preempted)
                    return decision
            layout.break_off()

    def footprint(self) -> dict[str, int]:
        """The bytes of the heap, by what they are for."""
        parts = dict.fromkeys(("machines", "free", "rows", "taken", "pool", "other"), 0)
        for place, size in self._layout.heap.footprint().items():
            parts[c.part_of(place)] += size
        return parts

    def _outcome(self, heap: Heap, slots: npt.NDArray[Any], policy: Policy) -> Decision:
        """Make a decision of what the phases left in the heap."""
        kept = np.flatnonzero(heap.column(c.A_KIND, int(heap.work.h[c.ACTIONS])) >= 0)
        actions = self._acquisitions(heap, kept)
        known = int(heap.work.h[c.LEN_MACHINES])
        idle = (heap.column(c.M_STATE, known) == MachineState.IDLE) & (heap.column(c.M_SERVES, known) == NOBODY)
        dropped = self._ids(heap, np.flatnonzero(idle & ((heap.column(c.M_FLAGS, known) & COMMITTED) != 0)))
        names = self.inventory.clusters.values
        with_excess = [str(names[number]) for number in np.flatnonzero(heap.column(c.C_EXCESS)[: len(names)]).tolist()]
        records = (self.clusters.get(cluster_id) for cluster_id in sorted(with_excess))
        giving = [record for record in records if record is not None and record.reported]
        reclaims, capped = self._reclaims(heap, giving, policy) if giving else ([], frozenset[str]())
        actions += [*reclaims, *self._releases(heap, policy)]
        verdicts = Verdicts(heap, self.needs, self.inventory, slots)
        return Decision(actions, verdicts, dropped, frozenset(record.id for record in giving), capped)

    def _acquisitions(self, heap: Heap, kept: npt.NDArray[Any]) -> list[Action]:
        """Bootstraps, provisions and preemptions, in the order in which they were decided."""
        machine, slots = heap.column(c.A_MACHINE)[kept], heap.column(c.A_NEED)[kept]
        columns = (
            heap.column(c.A_KIND)[kept],
            slots,
            self.needs.cluster.view[slots],
            heap.column(c.M_BINDING)[machine],
            heap.column(c.A_GRACE)[kept],
            heap.column(c.A_OUTRANKED)[kept],
        )
        rows = zip(self.inventory.ids.many(machine), *(column.tolist() for column in columns), strict=True)
        needs, names = self.needs.need, self.inventory.clusters.values
        actions, last = [], NONE
        for machine_id, kind, slot, home, number, grace, outranked in rows:
            # A need buys many machines one after the other, so what their actions have in common is made once.
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

    def _reclaims(self, heap: Heap, giving: list[ClusterRecord], policy: Policy) -> tuple[list[Action], frozenset[str]]:
        """(Reclaims from clusters with excess, clusters of which a rail kept something.)"""
        excess = Excess(heap, self.inventory, giving, policy)
        results = [(record.id, excess.give_back(record)) for record in giving]
        machines = [machine for _, result in results for machine in result.machines]
        homes = [cluster_id for cluster_id, result in results for _ in result.machines]
        ids = self.inventory.ids.many(np.array(machines, np.int64))
        reclaims = [
            Action(Kind.RECLAIM, machine_id, home, "no need took it", RECLAIM_GRACE)
            for machine_id, home in zip(ids, homes, strict=True)
        ]
        return reclaims, frozenset(cluster_id for cluster_id, result in results if result.capped)

    def _releases(self, heap: Heap, policy: Policy) -> list[Action]:
        """Deletions of machines that are bound to no cluster and have been Idle for longer than the policy allows."""
        inventory, now = self.inventory, int(heap.work.h[c.NOW])
        machines = int(heap.work.h[c.LEN_MACHINES])
        idle = np.flatnonzero(
            (heap.column(c.M_STATE, machines) == MachineState.IDLE) & (heap.column(c.M_BOUND, machines) == NOBODY)
        )
        types = inventory.shapes.capacity_type.view[inventory.shape.view[idle]]
        going = np.zeros(len(idle), np.bool_)
        for capacity_type, hold in policy.idle_hold.items():
            going |= (types == capacity_type) & (now - inventory.idle_since.view[idle].astype(np.int64) > hold)
        actions = []
        for m in self._sorted(heap, idle[going]):
            hold = policy.idle_hold[CapacityType(int(inventory.shapes.capacity_type.view[inventory.shape.view[m]]))]
            actions.append(Action(Kind.DELETE, inventory.ids[m], "", f"idle for more than {hold} s"))
        return actions

    def _sorted(self, heap: Heap, rows: npt.NDArray[Any]) -> list[int]:
        """These machines in the order of their ids."""
        ordered: list[int] = rows[np.argsort(heap.column(c.M_RANK)[rows])].tolist()
        return ordered

    def _ids(self, heap: Heap, rows: npt.NDArray[Any]) -> list[str]:
        """The ids of these machines, sorted."""
        return self.inventory.ids.many(np.array(self._sorted(heap, rows), np.int64))
