"""What outlives the process: the records of the local file, without the file."""

import msgspec

from bigfleet.model.machine import Machine
from bigfleet.shard.decision.holdouts import KeptHoldOuts
from bigfleet.shard.demand.table import KeptCluster
from bigfleet.shard.execution.commitment import Commitment


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of which there is one for the whole shard, written together."""

    #: The arrival of the next new row of demand.
    next_arrival: int = 0
    #: The number of the next binding; 0 while the file tells too little for a preemption.
    next_binding: int = 0
    #: Why an admin paused the shard; empty where none did.
    pause_reason: str = ""
    #: What is no candidate for a while.
    holdouts: KeptHoldOuts = msgspec.field(default_factory=KeptHoldOuts)
    #: How long the last drains took, by instance type.
    drains: dict[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    #: Until when machines that would not empty are no candidates.
    reclaim_holds: dict[str, float] = msgspec.field(default_factory=dict)
    #: Since when clusters have had excess.
    excess_since: dict[str, float] = msgspec.field(default_factory=dict)


class Batch(msgspec.Struct):
    """What one write makes durable together: values by id; None erases what the file had."""

    commitments: dict[str, Commitment | None] = msgspec.field(default_factory=dict)
    #: Machines that are bound or committed, with the names of their providers.
    machines: dict[str, tuple[str, Machine] | None] = msgspec.field(default_factory=dict)
    #: Since when machines have been Idle.
    idle: dict[str, float | None] = msgspec.field(default_factory=dict)
    #: The number of the binding in which a machine's Node was seen Ready.
    ready: dict[str, int | None] = msgspec.field(default_factory=dict)
    clusters: dict[str, KeptCluster | None] = msgspec.field(default_factory=dict)
    values: Values | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    def merge(self, later: "Batch") -> None:
        """Add what was to be written after this batch; the later value counts where both have one."""
        self.commitments |= later.commitments
        self.machines |= later.machines
        self.idle |= later.idle
        self.ready |= later.ready
        self.clusters |= later.clusters
        if later.values is not None:
            self.values = later.values


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier life of the shard left."""

    #: Whether anything was ever written; otherwise everything else is empty.
    found: bool
    #: When the file was last written, on the clock of the life that wrote it.
    written: float
    #: The same on the wall clock.
    wall: float
    commitments: dict[str, Commitment]
    #: Machines that were bound or committed, with the names of their providers.
    machines: dict[str, tuple[str, Machine]]
    #: Since when machines had been Idle.
    idle: dict[str, float]
    #: The number of the binding in which a machine's Node was seen Ready.
    ready: dict[str, int]
    clusters: dict[str, KeptCluster]
    values: Values
