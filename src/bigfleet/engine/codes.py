"""Numbers that mean the same in the tables and in the heap, and the few of the model's that walks compare with.

Compiled walks take them as constants.
"""

from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import MachineState

NOBODY = -1
"""In a column of clusters, needs or keys: there is none."""

PODS_DIM = 0
"""The dimension of a vector of resources that counts pods. Those of resources proper follow."""

# Flags of a machine, as bits.
EMPTY = 1
"""No pod runs on the machine that would have to move."""
PROTECTED = 2
"""The machine may be neither preempted nor given back."""
NOT_READY = 4
"""The machine's node has not come up in time, so it counts for no cluster."""
UNREQUESTED = 8
"""Pods run on the machine that no request speaks for."""
COMMITTED = 16
"""The shard has committed the machine to a cluster, and is carrying that out."""
STAMPED = 32
"""It is known what the machine was bound for."""

# States and buckets that walks compare with.
SPECULATIVE = MachineState.SPECULATIVE.value
CONFIGURED = MachineState.CONFIGURED.value
DELETING = MachineState.DELETING.value
ZERO_BUCKET = PenaltyBucket.ZERO.value
PINNED = PenaltyBucket.PINNED.value
