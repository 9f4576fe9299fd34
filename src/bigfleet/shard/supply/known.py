"""What is known of one provider's machines, and the effects of supply. Values and tables; the rules are in `table`."""

import enum
from collections import Counter

import msgspec

from bigfleet.model.machine import CapacityType, Machine, MachineState


class Changed(msgspec.Struct, frozen=True, gc=False):
    """What is known of a machine has changed."""

    machine_id: str
    #: The machine as it was known; None where it was not known.
    before: Machine | None
    #: The machine as it is known now; None where it is gone. Equal to `before` where only `usable` has changed.
    after: Machine | None
    provider: str


class Doubt(msgspec.Struct, frozen=True, gc=False):
    """Only Get can tell how this machine stands."""

    machine_id: str
    provider: str


class UnaskedDrain(msgspec.Struct, frozen=True, gc=False):
    """The provider takes back a machine that ran (protocol rule 2). The machine's `Changed` comes just before."""

    machine_id: str


class IncidentKind(enum.StrEnum):
    """What a person should hear of. HIGHER_EPOCH says that another process is this shard, and this one must stop."""

    SECOND_ID = "second_id"
    SECOND_NODE_NAME = "second_node_name"
    FOREIGN_STAMP = "foreign_stamp"
    GARBLED_STAMP = "garbled_stamp"
    HIGHER_EPOCH = "higher_epoch"


class Incident(msgspec.Struct, frozen=True, gc=False):
    """Something is wrong with a machine that this shard cannot mend."""

    kind: IncidentKind
    machine_id: str
    text: str


Effect = Changed | Doubt | UnaskedDrain | Incident


class OpenDoubt(msgspec.Struct, frozen=True, gc=False):
    """A doubt that stands."""

    #: A Get or List that began before this does not settle the doubt.
    since: float
    #: Whether a full list lacked the machine.
    absent: bool


class NameClaim(msgspec.Struct, frozen=True, gc=False):
    """Why a machine was refused: another has its id or its node name."""

    kind: IncidentKind
    #: The id or the node name.
    name: str
    #: The provider that has the id, or the machine that has the node name.
    holder: str


class KnownMachines:
    """What is known of one provider and its machines."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: Whether the provider answered when it was last asked for a list.
        self.reachable = False
        #: When the provider last answered a List; None while it has not since the shard started.
        self.answered_at: float | None = None
        #: Why the provider does not answer; empty where it does, or where nobody told.
        self.problem = ""
        #: Whether the provider has been listed in full since the shard started.
        self.listed_whole = False
        self.machines: dict[str, Machine] = {}
        self.counts: Counter[tuple[MachineState, CapacityType]] = Counter()
        #: When machines were last heard of by an ack or the lack of one, by a Get, or by a row that moved them. A row
        #: or answer that was asked for before that may be older.
        self.heard: dict[str, float] = {}
        self.doubts: dict[str, OpenDoubt] = {}
        #: How many doubtful full lists in a row lacked each machine.
        self.lacked: dict[str, int] = {}
        #: Machines that were refused, and why.
        self.claims: dict[str, NameClaim] = {}

    def may_lag(self, machine_id: str, began: float) -> bool:
        """Whether a row of a List that began then may be older than what was heard of the machine.

        Of two times that are equal nobody knows, and a Get does no harm.
        """
        heard = self.heard.get(machine_id)
        return heard is not None and began <= heard

    def put(self, machine: Machine) -> Machine | None:
        """Know the machine like this. Returns what was known of it before."""
        before = self.machines.get(machine.id)
        if before is not None:
            self.counts[before.state, before.capacity_type] -= 1
        self.machines[machine.id] = machine
        self.counts[machine.state, machine.capacity_type] += 1
        self.claims.pop(machine.id, None)
        return before

    def remove(self, machine: Machine) -> None:
        """Forget the machine. When it was last heard of is still remembered, since rows of it may yet come late."""
        del self.machines[machine.id]
        self.counts[machine.state, machine.capacity_type] -= 1
        self.doubts.pop(machine.id, None)
