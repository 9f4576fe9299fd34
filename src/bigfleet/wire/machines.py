"""Machine records on the wire ↔ machines of the model.

A record that contradicts the contract is refused with the machine's id, the field and the reason under which it
is counted; whoever asked keeps the last good one.
"""

import math
from collections.abc import Mapping

from bigfleet.model.machine import CapacityType, Host, InvariantError, Machine, MachineState, check_invariants
from bigfleet.model.resources import ResourceError, Resources, quantities, supply
from bigfleet.wire.errors import MachineRefusedError
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

_STATES = {state.value: state for state in MachineState}
_CAPACITY_TYPES = {capacity_type.value: capacity_type for capacity_type in CapacityType}


def machine_from_wire(message: pb.Machine) -> Machine:
    """The machine that a record describes, or MachineRefusedError."""
    machine_id = message.id
    if not machine_id:
        raise MachineRefusedError("", "structural", "id", "is empty")
    state = _STATES.get(message.state)
    if state is None:
        raise MachineRefusedError(machine_id, "structural", "state", f"{message.state} is no state of a machine")
    capacity_type = _CAPACITY_TYPES.get(message.capacity_type)
    if capacity_type is None:
        problem = f"{message.capacity_type} is no capacity type"
        raise MachineRefusedError(machine_id, "structural", "capacity_type", problem)
    if not message.instance_type:
        raise MachineRefusedError(machine_id, "structural", "instance_type", "is empty")
    price, probability = message.price_per_hour, message.interruption_probability
    faults = _faults(price, probability, capacity_type)
    machine = Machine(
        id=machine_id,
        state=state,
        instance_type=message.instance_type,
        capacity_type=capacity_type,
        host=_host(message, machine_id),
        zone=message.zone,
        price_per_hour=0.0 if "price" in faults else price,
        interruption_probability=0.0 if "interruption_probability" in faults else probability,
        resources=_supply(message.resources.resources, machine_id, "resources"),
        allocatable=(
            _supply(message.allocatable.resources, machine_id, "allocatable") if message.allocatable.resources else None
        ),
        labels=dict(message.labels),
        last_error=message.last_error,
        cluster=message.cluster,
        shard_metadata=dict(message.shard_metadata),
    )
    try:
        check_invariants(machine)
    except InvariantError as error:
        raise MachineRefusedError(machine_id, "structural", error.field, error.problem) from None
    for reason, (field, problem) in faults.items():
        raise MachineRefusedError(machine_id, reason, field, problem, machine)
    return machine


def _faults(price: float, probability: float, capacity_type: CapacityType) -> dict[str, tuple[str, str]]:
    """What is wrong with a record's price and probability, by the reason it is counted under."""
    faults = {}
    if not (math.isfinite(price) and price >= 0):
        faults["price"] = ("price_per_hour", f"{price} is no price: it must be finite and not negative")
    if not 0 <= probability <= 1:
        problem = f"{probability} is no probability: it must lie between 0 and 1"
        faults["interruption_probability"] = ("interruption_probability", problem)
    elif capacity_type is CapacityType.SPOT and probability == 0:
        problem = "is 0, but spot capacity can always be taken away"
        faults["interruption_probability"] = ("interruption_probability", problem)
    return faults


def machine_to_wire(machine: Machine) -> pb.Machine:
    """The record that describes a machine."""
    return pb.Machine(
        id=machine.id,
        state=pb.MachineState.ValueType(machine.state),
        host=None if machine.host is None else pb.HostRef(provider=machine.host.provider, ref=machine.host.ref),
        instance_type=machine.instance_type,
        zone=machine.zone,
        capacity_type=pb.CapacityType.ValueType(machine.capacity_type),
        price_per_hour=machine.price_per_hour,
        interruption_probability=machine.interruption_probability,
        resources=pb.Resources(resources=quantities(machine.resources)) if machine.resources else None,
        labels=machine.labels,
        last_error=machine.last_error,
        allocatable=None if machine.allocatable is None else _allocatable(machine.allocatable),
        cluster=machine.cluster,
        shard_metadata=machine.shard_metadata,
    )


def _allocatable(vector: Resources) -> pb.Resources:
    """Nothing allocatable is written as no cpu: an empty map would read as unset, which means everything."""
    return pb.Resources(resources=quantities(vector) or {"cpu": "0"})


def _host(message: pb.Machine, machine_id: str) -> Host | None:
    provider, ref = message.host.provider, message.host.ref
    if not provider and not ref:
        return None
    if not provider or not ref:
        missing = "ref" if provider else "provider"
        raise MachineRefusedError(machine_id, "structural", f"host.{missing}", "is empty, but the host is named")
    return Host(provider, ref)


def _supply(amounts: Mapping[str, str], machine_id: str, field: str) -> Resources:
    try:
        return supply(amounts)
    except ResourceError as error:
        path = f"{field}[{error.name!r}]"
        raise MachineRefusedError(machine_id, "structural", path, error.problem) from None
