"""Reading raw machine records: their state, how to tell of them, and what the contract says is wrong with one."""

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

_STATES = {state.value: state for state in MachineState}
_TYPES = {kind.value: kind for kind in CapacityType}
# Labels that say what a top-level field must say.
_SHADOWS = {
    "node.kubernetes.io/instance-type": "instance_type",
    "topology.kubernetes.io/zone": "zone",
    "bigfleet.lucy.sh/capacity-type": "capacity_type",
}


def state_of(record: pb.Machine) -> MachineState | None:
    """The state of a record, or None where it has a number that is no state."""
    return _STATES.get(record.state)


def capacity_of(record: pb.Machine) -> CapacityType | None:
    """How the machine is paid for, or None where the number is no such thing."""
    return _TYPES.get(record.capacity_type)


def has_host(record: pb.Machine) -> bool:
    """True if the record names a host, even half."""
    return bool(record.host.provider or record.host.ref)


def at_work(record: pb.Machine) -> bool:
    """True if the provider is still moving the machine."""
    return state_of(record) in TRANSITIONAL


def label(record: pb.Machine) -> str:
    """The state as people write it."""
    state = state_of(record)
    return f"state {record.state}" if state is None else state.label


def told(record: pb.Machine) -> str:
    """A record in a few words, for a failure's message."""
    parts = [label(record)]
    parts.append(f"host {record.host.provider}://{record.host.ref}" if has_host(record) else "no host")
    parts.append(f"cluster {record.cluster!r}" if record.cluster else "no cluster")
    parts.append(f"{len(record.shard_metadata)} metadata keys")
    if record.last_error:
        parts.append(f"last_error {record.last_error[:120]!r}")
    return f"machine {record.id!r} {', '.join(parts)}"


def identity_faults(record: pb.Machine) -> Iterator[str]:
    """B801: a state, an instance type, and nothing in a label that a field does not say."""
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
    for key, field in _SHADOWS.items():
        if key in record.labels and record.labels[key] != values[field]:
            yield (
                f"machine {record.id!r}: label {key} says {record.labels[key]!r} "
                f"where the field {field} says {values[field]!r}"
            )


def money_faults(record: pb.Machine) -> Iterator[str]:
    """B802: a price that is one, a probability that is one, and none of 0 for spot."""
    price, probability = record.price_per_hour, record.interruption_probability
    if not (math.isfinite(price) and price >= 0):
        yield f"machine {record.id!r}: price_per_hour {price} is not finite and at least 0"
    if not 0 <= probability <= 1:
        yield f"machine {record.id!r}: interruption_probability {probability} is not between 0 and 1"
    elif capacity_of(record) is CapacityType.SPOT and probability == 0:
        yield f"machine {record.id!r}: interruption_probability is 0 on spot capacity"


def binding_faults(record: pb.Machine) -> Iterator[str]:
    """B803: host, cluster and last_error as the state requires; a host whole or not at all."""
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
    """B804: quantities that parse, something to use, and nothing allocatable that is not there."""
    try:
        resources = dict(supply(record.resources.resources))
        allocatable = dict(supply(record.allocatable.resources))
    except ResourceError as error:
        yield f"machine {record.id!r}: {error}"
        return
    if not resources:
        yield f"machine {record.id!r}: resources name nothing that can be used"
    for name, units in allocatable.items():
        if units > resources.get(name, 0):
            yield f"machine {record.id!r}: more {name} is allocatable than the machine has"


def place_faults(record: pb.Machine) -> Iterator[str]:
    """B806: a zone and a capacity type wherever there is a host."""
    if state_of(record) not in HOSTED:
        return
    if not record.zone:
        yield f"{told(record)}: zone is empty though a host is set"
    if capacity_of(record) in {None, CapacityType.UNSPECIFIED}:
        yield f"{told(record)}: capacity_type is {record.capacity_type} though a host is set"


Judge = Callable[[pb.Machine], Iterator[str]]
"""Says what is wrong with a record, one sentence a fault."""

JUDGES: Mapping[str, Judge] = MappingProxyType(
    {
        "B801": identity_faults,
        "B802": money_faults,
        "B803": binding_faults,
        "B804": resource_faults,
        "B806": place_faults,
    }
)
"""What one record alone can be wrong in, by the behaviour that says so."""
