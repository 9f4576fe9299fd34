"""Machine records as they come: their state, a short description, and what the contract finds wrong with a record."""

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from bigfleet.model.machine import HOSTED, INVARIANTS, TRANSITIONAL, CapacityType, MachineState
from bigfleet.model.resources import ResourceError, supply
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

SPECULATIVE, IDLE, CONFIGURED, FAILED = (
    MachineState.SPECULATIVE,
    MachineState.IDLE,
    MachineState.CONFIGURED,
    MachineState.FAILED,
)

_TOLD_ERROR_CHARACTERS = 300
_STATES = {state.value: state for state in MachineState}
_TYPES = {kind.value: kind for kind in CapacityType}
# Labels that repeat a field of the record.
_FIELD_LABELS = {
    "node.kubernetes.io/instance-type": "instance_type",
    "topology.kubernetes.io/zone": "zone",
    "bigfleet.lucy.sh/capacity-type": "capacity_type",
}


def state_of(record: pb.Machine) -> MachineState | None:
    """The state of a record, or None if its number is no state."""
    return _STATES.get(record.state)


def capacity_of(record: pb.Machine) -> CapacityType | None:
    """The capacity type of a record, or None if its number is no capacity type."""
    return _TYPES.get(record.capacity_type)


def has_host(record: pb.Machine) -> bool:
    """True if the record names a host, even if only one of its two fields is set."""
    return bool(record.host.provider or record.host.ref)


def at_work(record: pb.Machine) -> bool:
    """True if a transition of the machine is under way."""
    return state_of(record) in TRANSITIONAL


def label(record: pb.Machine) -> str:
    """The name of the state, for messages."""
    state = state_of(record)
    return f"state {record.state}" if state is None else state.label


def told(record: pb.Machine) -> str:
    """A record in a few words, for messages."""
    parts = [label(record)]
    parts.append(f"host {record.host.provider}://{record.host.ref}" if has_host(record) else "no host")
    parts.append(f"cluster {record.cluster!r}" if record.cluster else "no cluster")
    parts.append(f"{len(record.shard_metadata)} metadata keys")
    if record.last_error:
        parts.append(f"last_error {record.last_error[:_TOLD_ERROR_CHARACTERS]!r}")
    return f"machine {record.id!r} {', '.join(parts)}"


def identity_faults(record: pb.Machine) -> Iterator[str]:
    """B801: a state, an instance type, and no label that contradicts a field."""
    if state_of(record) is None:
        yield f"machine {record.id!r}: state {record.state} is no state"
    if not record.instance_type:
        yield f"machine {record.id!r}: instance_type is empty"
    capacity = capacity_of(record)
    values = {
        "instance_type": record.instance_type,
        "zone": record.zone,
        "capacity_type": "" if capacity is None else capacity.label,
    }
    for key, field in _FIELD_LABELS.items():
        if key in record.labels and record.labels[key] != values[field]:
            yield (
                f"machine {record.id!r}: label {key} says {record.labels[key]!r} "
                f"where the field {field} says {values[field]!r}"
            )


def money_faults(record: pb.Machine) -> Iterator[str]:
    """B802: a price, a probability between 0 and 1, and for spot a probability above 0."""
    price, probability = record.price_per_hour, record.interruption_probability
    if not (math.isfinite(price) and price >= 0):
        yield f"machine {record.id!r}: price_per_hour {price} is not finite and at least 0"
    if not 0 <= probability <= 1:
        yield f"machine {record.id!r}: interruption_probability {probability} is not between 0 and 1"
    elif capacity_of(record) is CapacityType.SPOT and probability == 0:
        yield f"machine {record.id!r}: interruption_probability is 0 on spot capacity"


def binding_faults(record: pb.Machine) -> Iterator[str]:
    """B803: host, cluster and last_error as the state requires, and a host with both of its fields."""
    state = state_of(record)
    if state is None:
        return
    rule = INVARIANTS[state]
    for field, presence, present in (
        ("host", rule.host, has_host(record)),
        ("cluster", rule.cluster, bool(record.cluster)),
        ("last_error", rule.last_error, bool(record.last_error)),
    ):
        if not presence.admits(present):
            yield f"{told(record)}: {field} must be {presence.value} in this state"
    if bool(record.host.provider) != bool(record.host.ref):
        yield f"{told(record)}: host.provider and host.ref go together"


def resource_faults(record: pb.Machine) -> Iterator[str]:
    """B804: quantities that parse, at least one resource, and no more allocatable than there is."""
    try:
        resources = dict(supply(record.resources.resources))
        allocatable = dict(supply(record.allocatable.resources))
    except ResourceError as error:
        yield f"machine {record.id!r}: {error}"
        return
    if not resources:
        yield f"machine {record.id!r}: resources are empty"
    for name, units in allocatable.items():
        if units > resources.get(name, 0):
            yield f"machine {record.id!r}: more {name} is allocatable than the machine has"


def place_faults(record: pb.Machine) -> Iterator[str]:
    """B806: a zone and a capacity type if there is a host."""
    if state_of(record) not in HOSTED:
        return
    if not record.zone:
        yield f"{told(record)}: zone is empty though a host is set"
    if capacity_of(record) in {None, CapacityType.UNSPECIFIED}:
        yield f"{told(record)}: capacity_type is {record.capacity_type} though a host is set"


Judge = Callable[[pb.Machine], Iterator[str]]
"""Yields one sentence for each fault of a record."""

JUDGES: Mapping[str, Judge] = MappingProxyType(
    {
        "B801": identity_faults,
        "B802": money_faults,
        "B803": binding_faults,
        "B804": resource_faults,
        "B806": place_faults,
    }
)
"""The judges of a single record, by the behaviour that each stands for."""
