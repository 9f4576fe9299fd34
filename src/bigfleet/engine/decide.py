"""One decision: lay the columns out, run the three phases, and say the outcome in strings again."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bigfleet.engine import passes
from bigfleet.engine.credit import LARGE
from bigfleet.engine.giveback import RECLAIM_GRACE, give_back, with_excess
from bigfleet.engine.heap import Tables
from bigfleet.engine.inventory import COMMITTED, NOBODY, Inventory
from bigfleet.engine.layout import first_room, lay_out
from bigfleet.engine.needs import NeedsTable
from bigfleet.engine.records import Action, ClusterRecord, Kind, Policy, Stamp
from bigfleet.engine.shapes import DaemonSets
from bigfleet.engine.verdicts import Verdicts
from bigfleet.engine.work import (
    A_GRACE,
    A_KIND,
    A_MACHINE,
    A_NEED,
    A_OUTRANKED,
    ACTIONS,
    M_BOUND,
    M_FLAGS,
    M_NUMBER,
    M_RANK,
    M_SERVES,
    M_SHAPE,
    M_STATE,
    N_CLUSTER,
    N_OWN,
    NOW,
    OVERFLOW,
)
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


class Engine:
    """A shard's picture of its fleet, and the decisions it makes on it."""

    def __init__(self) -> None:
        self.inventory = Inventory()
        self.needs = NeedsTable(self.inventory)
        self._daemons = DaemonSets(self.inventory.shapes)
        self._clusters: dict[str, ClusterRecord] = {}

    def set_cluster(self, record: ClusterRecord) -> None:
        """Take what a cluster's session shows."""
        self.inventory.clusters.intern(record.id)
        self._clusters[record.id] = record

    def decide(self, policy: Policy, now: int, next_binding: int) -> Decision:
        """What to do now. Decides; changes nothing."""
        room = first_room(self.inventory, self.needs)
        for record in self._clusters.values():
            self._daemons.intern(record.daemons)
        while True:
            w, slots = lay_out(
                self.inventory, self.needs, self._daemons, self._clusters, policy, now, next_binding, room
            )
            self._run(w)
            if not w.work.h[OVERFLOW]:
                break
            room = room.doubled()
        return self._outcome(w, slots, policy)

    def _run(self, w: Tables) -> None:
        order = self.inventory.binding_order()
        passes.link(w.work, order)
        size = 1 << max(4, int(2 * len(w.table(N_OWN))).bit_length())
        passes.link_own(w.work, order, np.zeros(size, np.int64), np.full(size, NOBODY, np.int64))
        passes.phase_one(w.work)
        if not w.work.h[OVERFLOW]:
            passes.phase_two(w.work)

    def _outcome(self, w: Tables, slots: npt.NDArray[Any], policy: Policy) -> Decision:
        kept = np.flatnonzero(w.table(A_KIND)[: w.work.h[ACTIONS]] >= 0)
        actions = [self._acquisition(w, slots, a) for a in kept.tolist()]
        idle = (w.table(M_STATE) == MachineState.IDLE) & (w.table(M_SERVES) == NOBODY)
        dropped = self._ids(w, np.flatnonzero(idle & ((w.table(M_FLAGS) & COMMITTED) != 0)))
        excess, capped = set(), set()
        has_excess = with_excess(w)
        for cluster_id in sorted(self._clusters):
            record = self._clusters[cluster_id]
            if not record.reported or not has_excess[self.inventory.clusters.intern(cluster_id)]:
                continue
            excess.add(cluster_id)
            result = give_back(w, self.inventory, record, policy)
            actions += [
                Action(Kind.RECLAIM, self.inventory.ids[m], cluster_id, "no need took it", RECLAIM_GRACE)
                for m in result.machines
            ]
            if result.capped:
                capped.add(cluster_id)
        actions += self._releases(w, policy)
        verdicts = Verdicts(w, self.needs, self.inventory, slots)
        return Decision(actions, verdicts, dropped, frozenset(excess), frozenset(capped))

    def _acquisition(self, w: Tables, slots: npt.NDArray[Any], a: int) -> Action:
        kind = _KINDS[w.table(A_KIND)[a]]
        machine, row = int(w.table(A_MACHINE)[a]), int(w.table(A_NEED)[a])
        need = self.needs.need[slots[row]]
        assert need is not None  # noqa: S101 - live slots only
        profile = need.profile
        cluster = str(self.inventory.clusters.values[w.table(N_CLUSTER)[row]])
        stamp = Stamp(
            need.key, profile.priority, profile.interruption, profile.reclamation, int(w.table(M_NUMBER)[machine])
        )
        if kind is Kind.PREEMPT:
            outranked = int(w.table(A_OUTRANKED)[a])
            reason = f"{cluster} at {profile.priority} outranks {'nobody' if outranked == LARGE else outranked}"
        else:
            reason = f"{cluster} needs {profile.fingerprint}"
        return Action(kind, self.inventory.ids[machine], cluster, reason, int(w.table(A_GRACE)[a]), stamp)

    def _releases(self, w: Tables, policy: Policy) -> list[Action]:
        inventory, now = self.inventory, int(w.work.h[NOW])
        actions = []
        idle = (w.table(M_STATE) == MachineState.IDLE) & (w.table(M_BOUND) == NOBODY)
        types = inventory.shapes.capacity_type.view[w.table(M_SHAPE)]
        going = np.zeros(len(idle), bool)
        for capacity_type, hold in policy.idle_hold.items():
            going |= idle & (types == capacity_type) & (now - inventory.idle_since.view > hold)
        for m in self._sorted(w, np.flatnonzero(going)):
            hold = policy.idle_hold[CapacityType(int(types[m]))]
            actions.append(Action(Kind.DELETE, inventory.ids[m], "", f"idle for more than {hold} s"))
        return actions

    def _sorted(self, w: Tables, rows: npt.NDArray[Any]) -> list[int]:
        ordered: list[int] = rows[np.argsort(w.table(M_RANK)[rows])].tolist()
        return ordered

    def _ids(self, w: Tables, rows: npt.NDArray[Any]) -> list[str]:
        return [self.inventory.ids[m] for m in self._sorted(w, rows)]
