"""Every state of a machine, every legal edge and every invariant, as data.

Two rules for this file. Nothing outside it decides what is legal: providers, shards and tests ask the tables
here. And nothing in it acts: it holds values and answers questions about them.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from bigfleet.model.resources import Resources


class MachineState(enum.IntEnum):
    """Where a machine is in its life. Values are the wire numbers; UNSPECIFIED never enters the model."""

    SPECULATIVE = 1
    CREATING = 2
    IDLE = 3
    CONFIGURING = 4
    CONFIGURED = 5
    DRAINING = 6
    DELETING = 7
    FAILED = 8

    @property
    def label(self) -> str:
        """The state as metrics and people write it: `Configured`."""
        return self.name.capitalize()


class CapacityType(enum.IntEnum):
    """How a machine is paid for. Values are the wire numbers."""

    UNSPECIFIED = 0
    BARE_METAL = 1
    RESERVED = 2
    ON_DEMAND = 3
    SPOT = 4

    @property
    def label(self) -> str:
        """The type as metrics and the `capacity-type` label write it: `OnDemand`."""
        return self.name.title().replace("_", "")


class Call(enum.Enum):
    """The four calls by which a shard moves a machine."""

    CREATE = "Create"
    CONFIGURE = "Configure"
    DRAIN = "Drain"
    DELETE = "Delete"


class Presence(enum.Enum):
    """Whether a field must be empty, must be set, or may be either."""

    EMPTY = "empty"
    SET = "set"
    ANY = "any"

    def admits(self, present: bool) -> bool:
        """True if a field that is (or is not) there satisfies this rule."""
        return self is Presence.ANY or (self is Presence.SET) == present


class LegalCall(msgspec.Struct, frozen=True):
    """One legal use of a call."""

    call: Call
    source: MachineState
    """The state in which the machine must be."""
    host: Presence
    """Whether the machine must have a host."""
    via: MachineState
    """The state in which the machine is while the provider is at work."""
    end: MachineState
    """The state in which the machine is when the provider has done its work."""


_S = MachineState

ASKS: tuple[LegalCall, ...] = (
    LegalCall(Call.CREATE, _S.SPECULATIVE, Presence.EMPTY, _S.CREATING, _S.IDLE),
    LegalCall(Call.CONFIGURE, _S.IDLE, Presence.SET, _S.CONFIGURING, _S.CONFIGURED),
    LegalCall(Call.DRAIN, _S.CONFIGURED, Presence.SET, _S.DRAINING, _S.IDLE),
    LegalCall(Call.DELETE, _S.IDLE, Presence.SET, _S.DELETING, _S.SPECULATIVE),
    # The ways out of Failed (protocol rule 1).
    LegalCall(Call.DRAIN, _S.FAILED, Presence.SET, _S.DRAINING, _S.IDLE),
    LegalCall(Call.DELETE, _S.FAILED, Presence.ANY, _S.DELETING, _S.SPECULATIVE),
    LegalCall(Call.CREATE, _S.FAILED, Presence.EMPTY, _S.CREATING, _S.IDLE),
)
"""What a shard may ask. An ask that is not here is refused by the provider and changes nothing."""

TRANSITIONAL: frozenset[MachineState] = frozenset(ask.via for ask in ASKS)
"""States in which a provider is at work; each of them may end in Failed."""


class Invariant(msgspec.Struct, frozen=True):
    """Which fields the record of a machine in one state must have."""

    host: Presence
    cluster: Presence
    last_error: Presence


INVARIANTS: Mapping[MachineState, Invariant] = MappingProxyType(
    {
        _S.SPECULATIVE: Invariant(Presence.EMPTY, Presence.EMPTY, Presence.ANY),
        _S.CREATING: Invariant(Presence.EMPTY, Presence.EMPTY, Presence.ANY),
        _S.IDLE: Invariant(Presence.SET, Presence.EMPTY, Presence.ANY),
        _S.CONFIGURING: Invariant(Presence.SET, Presence.SET, Presence.ANY),
        _S.CONFIGURED: Invariant(Presence.SET, Presence.SET, Presence.ANY),
        _S.DRAINING: Invariant(Presence.SET, Presence.SET, Presence.ANY),
        _S.DELETING: Invariant(Presence.SET, Presence.EMPTY, Presence.ANY),
        _S.FAILED: Invariant(Presence.ANY, Presence.ANY, Presence.SET),
    }
)
"""The fields each state requires."""

HOSTED: frozenset[MachineState] = frozenset(state for state, rule in INVARIANTS.items() if rule.host is Presence.SET)
"""States that always have a host."""

UNASKED: frozenset[tuple[MachineState, MachineState]] = frozenset(
    {(_S.CONFIGURED, _S.DRAINING)}
    | {(state, _S.FAILED) for state in HOSTED}
    | {(state, _S.SPECULATIVE) for state in HOSTED | {_S.FAILED}}
)
"""Changes that a provider may show though nobody asked: taken back, broken, host gone (protocol rule 2)."""

EDGES: frozenset[tuple[MachineState, MachineState]] = frozenset(
    {(ask.source, ask.via) for ask in ASKS}
    # Out of Failed a drain or delete may have nothing to do, and its end is seen at once (see `acknowledged`).
    | {(ask.source, ask.end) for ask in ASKS if ask.source is _S.FAILED and ask.call is not Call.CREATE}
    | {(ask.via, ask.end) for ask in ASKS}
    | {(state, _S.FAILED) for state in TRANSITIONAL}
    | UNASKED
)
"""Every step that a correct provider can be seen to take, asked or not."""

_ASKS_BY_CALL: Mapping[tuple[Call, MachineState], LegalCall] = {(ask.call, ask.source): ask for ask in ASKS}


def acknowledged(ask: LegalCall, host: bool, cluster: bool) -> MachineState:
    """The state that a provider's ack shows: `via`, or `end` at once where no record in `via` could be well formed.

    A Failed machine without a cluster has nothing to drain, and one without a host has nothing to delete (ADR 8).
    Configure sets the cluster with its first step, Create and Delete clear it, and Drain keeps it to the end.
    """
    invariant = INVARIANTS[ask.via]
    bound = ask.call is Call.CONFIGURE or (cluster and ask.call is Call.DRAIN)
    return ask.via if invariant.host.admits(host) and invariant.cluster.admits(bound) else ask.end


class Host(msgspec.Struct, frozen=True, gc=False):
    """The real thing behind a machine: which provider has it and what that provider calls it."""

    provider: str
    ref: str

    @property
    def provider_id(self) -> str:
        """What the Node carries as spec.providerID."""
        return f"{self.provider}://{self.ref}"


class Machine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One machine or one slot that could become one, as its provider last described it."""

    id: str
    state: MachineState
    instance_type: str
    capacity_type: CapacityType
    host: Host | None = None
    zone: str = ""
    price_per_hour: float = 0.0
    """Dollars an hour while the machine is held."""
    interruption_probability: float = 0.0
    """The chance, from 0 to 1, that the provider takes the machine back by itself."""
    resources: Resources = ()
    """What the hardware has."""
    allocatable: Resources | None = None
    """What pods may use; None where the provider does not say."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The provider's own labels; `labels.of_fields` adds those that are made from fields."""
    last_error: str = ""
    """Why the last transition failed, in the provider's words."""
    cluster: str = ""
    """The cluster that the machine is bound to; empty for none."""
    shard_metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What the shard stored with Configure; the provider echoes it and does not interpret it."""

    @property
    def usable(self) -> Resources:
        """What pods may use: `allocatable`, or all of `resources` where the provider does not say."""
        return self.resources if self.allocatable is None else self.allocatable


class IllegalCallError(ValueError):
    """A call that the machine's present state does not allow."""

    def __init__(self, machine_id: str, call: Call, state: MachineState, host: bool) -> None:
        self.machine_id, self.call, self.state = machine_id, call, state
        legal = [ask for ask in ASKS if ask.call is call]
        sources = " or ".join(
            ask.source.label + ("" if ask.host is Presence.ANY else f" with host {ask.host.value}") for ask in legal
        )
        super().__init__(
            f"machine {machine_id!r}: {call.value} is not legal from {state.label} "
            f"with host {'set' if host else 'empty'}; legal from {sources}"
        )


class InvariantError(ValueError):
    """A machine record that contradicts itself; names the machine and the field at fault."""

    def __init__(self, machine_id: str, field: str, problem: str) -> None:
        self.machine_id, self.field, self.problem = machine_id, field, problem
        super().__init__(f"machine {machine_id!r}: {field}: {problem}")


def can(call: Call, state: MachineState, host: bool) -> bool:
    """True if `call` is legal on a machine in `state` that has (or lacks) a host."""
    ask = _ASKS_BY_CALL.get((call, state))
    return ask is not None and ask.host.admits(host)


def check(call: Call, machine_id: str, state: MachineState, host: bool) -> LegalCall:
    """The legal ask that `call` is on a machine in `state` that has (or lacks) a host, or IllegalCallError."""
    ask = _ASKS_BY_CALL.get((call, state))
    if ask is None or not ask.host.admits(host):
        raise IllegalCallError(machine_id, call, state, host)
    return ask


def check_invariants(machine: Machine) -> None:
    """Raise InvariantError for the first field that breaks the invariant of the machine's state."""
    invariant = INVARIANTS[machine.state]
    fields = (
        ("host", invariant.host, machine.host is not None),
        ("cluster", invariant.cluster, bool(machine.cluster)),
        ("last_error", invariant.last_error, bool(machine.last_error)),
    )
    for field, rule, present in fields:
        if not rule.admits(present):
            raise InvariantError(machine.id, field, f"must be {rule.value} in state {machine.state.label}")
