"""The engine's input: what changed since the last decision, turned into the engine's records.

Events only mark the machines and clusters that they touched. Records of those are made on the event loop, a slice at a
time, and given to the engine in the thread that then decides. What is marked meanwhile waits for the next decision.
"""

import itertools
import math
from collections.abc import Iterable, Mapping

import msgspec

from bigfleet.engine.records import ClusterRecord, Kind, MachineRecord
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.machine import Machine, MachineState
from bigfleet.shard.decision.durations import Medians
from bigfleet.shard.decision.give_back_rails import GiveBackRails
from bigfleet.shard.decision.holdouts import HoldOuts
from bigfleet.shard.demand.table import Demand
from bigfleet.shard.execution.commitment import Commitment, Commitments
from bigfleet.shard.sessions.node_readiness import NodeReadiness
from bigfleet.shard.supply.stamps import NOT_OURS, Binding, from_metadata
from bigfleet.shard.supply.table import Supply, node_name

_DRAIN_SECONDS = 60
"""How long a drain is expected to take where none of the instance type was seen yet."""

_NEVER = 2**31 - 1
"""A time that never comes: decades on a clock that began with the machine, and small enough for a narrow column."""
_S = MachineState


class EngineUpdate(msgspec.Struct):
    """All that an engine is told before one decision."""

    #: Machines that are new or have changed.
    records: list[MachineRecord]
    #: Machines that are gone.
    removed: list[str]
    #: Clusters that are new or have changed.
    clusters: list[ClusterRecord]
    #: Needs of clusters whose demand has changed, with the order in which rows were first seen.
    needs: dict[str, tuple[tuple[Need, ...], Mapping[NeedKey, int]]]


class EngineInput:
    """Which machines and clusters the engine must hear of, and the records of them."""

    def __init__(
        self,
        supply: Supply,
        demand: Demand,
        commitments: Commitments,
        holdouts: HoldOuts,
        rails: GiveBackRails,
        drains: Medians,
        readiness: NodeReadiness,
    ) -> None:
        self._supply, self._demand, self._commitments = supply, demand, commitments
        self._holdouts, self._rails, self._drains, self._readiness = holdouts, rails, drains, readiness
        self._machines: dict[str, None] = {}
        self._clusters: dict[str, None] = {}
        self._needs: dict[str, tuple[tuple[Need, ...], Mapping[NeedKey, int]]] = {}
        self._kept_idle: dict[str, float] = {}

    def touch(self, machine_id: str) -> None:
        """Something about the machine has changed."""
        self._machines[machine_id] = None

    def touch_all(self, machine_ids: Iterable[str]) -> None:
        """Something about these machines has changed."""
        self._machines.update(dict.fromkeys(machine_ids))

    def touch_cluster(self, cluster: str) -> None:
        """Something about the cluster has changed."""
        self._clusters[cluster] = None

    def replace(self, cluster: str, needs: tuple[Need, ...], arrivals: Mapping[NeedKey, int]) -> None:
        """The cluster's demand has changed to these rows."""
        self._needs[cluster] = (needs, arrivals)

    def keep_idle(self, machine_id: str, until: float) -> None:
        """The provider did not delete the machine: it is not given back before `until`."""
        self._kept_idle[machine_id] = until
        self.touch(machine_id)

    def tick(self, now: float) -> None:
        """Time has passed: machines may be given back again."""
        for machine_id in [machine_id for machine_id, until in self._kept_idle.items() if until <= now]:
            del self._kept_idle[machine_id]
            self.touch(machine_id)

    def begin_update(self, now: float) -> EngineUpdate:
        """Begin what the engine is told next. The machines are still to be added."""
        clusters, self._clusters = self._clusters, {}
        needs, self._needs = self._needs, {}
        known = set(self._demand)
        records = [self._cluster(cluster, now) for cluster in clusters if cluster in known]
        return EngineUpdate([], [], records, needs)

    def add_machines(self, update: EngineUpdate, most: int) -> bool:
        """Add at most so many of the machines that changed. Returns whether there are more."""
        for machine_id in list(itertools.islice(self._machines, most)):
            del self._machines[machine_id]
            machine = self._supply.find(machine_id)
            record = None if machine is None else self._record(machine)
            if record is None:
                update.removed.append(machine_id)
            else:
                update.records.append(record)
        return bool(self._machines)

    def _record(self, machine: Machine) -> MachineRecord | None:
        """One machine as the engine takes it; None where another shard has bound the machine."""
        machine_id, commitment = machine.id, self._commitments.get(machine.id)
        reading = from_metadata(machine.shard_metadata) if machine.shard_metadata else NOT_OURS
        stamp = reading.stamp if isinstance(reading, Binding) else None
        if isinstance(reading, Binding) and reading.shard_id != self._supply.shard_id:
            return None
        cluster, node = machine.cluster, node_name(machine)
        empty, unrequested = self._demand.node(cluster, node) if cluster else (False, None)
        usable = self._supply.usable(machine_id)
        held = not usable or self._supply.is_taken_back(machine_id)
        median = self._drains.of(machine.instance_type)
        return MachineRecord(
            machine=_shown(machine, commitment),
            committed_to="" if commitment is None else commitment.cluster,
            stamp=commitment.stamp if commitment is not None and commitment.cluster else stamp,
            drain_seconds=_DRAIN_SECONDS if median is None else max(1, math.ceil(median)),
            not_before=_NEVER if held else self._holdouts.not_before(machine_id),
            idle_since=self._supply.idle_since(machine_id) if usable and machine_id not in self._kept_idle else _NEVER,
            empty=empty,
            unrequested=unrequested,
            protected=not usable or (bool(cluster) and self._demand.protects(cluster, node)),
            not_ready=self._readiness.flagged(machine_id),
            reclaim_hold_until=self._rails.hold_until(machine_id) if usable else _NEVER,
        )

    def _cluster(self, cluster: str, now: float) -> ClusterRecord:
        held_out = self._holdouts.held_out(cluster, now)
        return self._demand.record(cluster, held_out, self._rails.excess_since(cluster), self._rails.in_window(cluster))


def _shown(machine: Machine, commitment: Commitment | None) -> Machine:
    """The machine as the engine is to see it: a drain or a delete counts from the decision on."""
    if commitment is None:
        return machine
    if commitment.leaves and machine.state is _S.CONFIGURED and machine.cluster == commitment.leaves:
        return msgspec.structs.replace(machine, state=_S.DRAINING)
    if commitment.kind is Kind.DELETE and not commitment.cluster and machine.state is _S.IDLE:
        return msgspec.structs.replace(machine, state=_S.DELETING)
    return machine
