"""What supply reports as effects, and what it remembers of one provider: values and a record, no rules."""

import enum
from collections import Counter

import msgspec

from bigfleet.model.machine import CapacityType, Machine, MachineState


class Changed(msgspec.Struct, frozen=True, gc=False):
    """A machine is known anew, differently, or (`after` None) no more. Both are equal where only `usable` changed."""

    machine_id: str
    before: Machine | None
    after: Machine | None
    provider: str


class Doubt(msgspec.Struct, frozen=True, gc=False):
    """Only Get can tell how this machine stands."""

    machine_id: str
    provider: str


class UnaskedDrain(msgspec.Struct, frozen=True, gc=False):
    """The provider takes back a machine that ran (protocol.md 2); its Changed comes just before."""

    machine_id: str


class IncidentKind(enum.StrEnum):
    """What a person should hear of. Higher epoch: another process is this shard, and this one must stop."""

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


class Open(msgspec.Struct, frozen=True, gc=False):
    """A doubt that stands: what began before `since` does not settle it; `absent` if a full list lacked the machine."""

    since: float
    absent: bool


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The id or node name for which a machine was refused, and who has it: a provider or a machine."""

    kind: IncidentKind
    name: str
    holder: str


class Provider:
    """One provider's machines, and what else must be remembered of few of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reachable = self.listed_whole = False
        self.machines: dict[str, Machine] = {}
        self.counts: Counter[tuple[MachineState, CapacityType]] = Counter()
        self.heard: dict[str, float] = {}
        """When machines were last told of by an ack or the lack of one, by Get, or by a row that moved them: what was
        asked for before that may be older."""
        self.doubts: dict[str, Open] = {}
        self.lacked: dict[str, int] = {}
        self.claims: dict[str, Claim] = {}

    def may_lag(self, machine_id: str, began: float) -> bool:
        """Whether a row may be older than what was heard. At one instant nobody knows, and asking does no harm."""
        heard = self.heard.get(machine_id)
        return heard is not None and began <= heard

    def put(self, machine: Machine) -> Machine | None:
        """Know the machine so; what it was known as before."""
        before = self.machines.get(machine.id)
        if before is not None:
            self.counts[before.state, before.capacity_type] -= 1
        self.machines[machine.id] = machine
        self.counts[machine.state, machine.capacity_type] += 1
        self.claims.pop(machine.id, None)
        return before

    def remove(self, machine: Machine) -> None:
        """Know the machine no more. When it was last heard of is still remembered: rows may yet lag."""
        del self.machines[machine.id]
        self.counts[machine.state, machine.capacity_type] -= 1
        self.doubts.pop(machine.id, None)
