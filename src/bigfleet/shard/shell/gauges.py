"""What the engine holds, counted for metrics: machines by state, type and bucket, and rows of demand by bucket."""

from collections import Counter

import numpy as np

from bigfleet.engine.engine import Engine
from bigfleet.engine.tables.inventory import VACANT
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.telemetry.metrics import ShardMetrics

_TYPES, _BUCKETS = len(CapacityType), PenaltyBucket.PINNED + 1

Machines = Counter[tuple[MachineState, CapacityType, PenaltyBucket]]
Rows = Counter[PenaltyBucket]


def count(engine: Engine) -> tuple[Machines, Rows]:
    """Both counts. The engine must not be deciding meanwhile."""
    inventory, needs = engine.inventory, engine.needs
    state = inventory.state.view.astype(np.int64)
    there = state != VACANT
    types = inventory.shapes.capacity_type.view[inventory.shape.view[there]].astype(np.int64)
    codes = (state[there] * _TYPES + types) * _BUCKETS + inventory.stamp_interruption.view[there]
    counted = np.bincount(codes)
    machines: Machines = Counter()
    for code in np.flatnonzero(counted).tolist():
        rest, bucket = divmod(code, _BUCKETS)
        machines[MachineState(rest // _TYPES), CapacityType(rest % _TYPES), PenaltyBucket(bucket)] = int(counted[code])
    rows = np.bincount(needs.interruption.view[needs.order()])
    return machines, Counter({PenaltyBucket(bucket): int(rows[bucket]) for bucket in np.flatnonzero(rows).tolist()})


class Gauges:
    """Sets the metrics, those to 0 that have nothing to count any more among them."""

    def __init__(self, metrics: ShardMetrics) -> None:
        self._metrics = metrics
        self._machines: Machines = Counter()
        self._rows: Rows = Counter()

    def show(self, machines: Machines, rows: Rows) -> None:
        """These are the counts now."""
        for kind in machines.keys() | self._machines.keys():
            self._metrics.inventory_machines.of(*(part.label for part in kind)).set(machines[kind])
        for bucket in rows.keys() | self._rows.keys():
            self._metrics.demand_machines.of(bucket.label).set(rows[bucket])
        self._machines, self._rows = machines, rows
