"""Machine records on the wire ↔ machines of the model.

A record that breaks the contract is refused with the machine's id, the field and the reason under which it is counted;
the caller keeps the last good record. Values that many machines have in common (types, zones, labels, vectors, prices)
are one object in all of them: they are most of a record, and a shard holds half a million records.
"""

import functools
import itertools
import math
from collections.abc import Mapping

from bigfleet.model.machine import (
    INVARIANTS,
    CapacityType,
    Host,
    InvariantError,
    Machine,
    MachineState,
    check_invariants,
)
from bigfleet.model.resources import ResourceError, Resources, quantities, supply
from bigfleet.wire.errors import MachineRefusedError
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

_STATES = {state.value: state for state in MachineState}
_CAPACITY_TYPES = {capacity_type.value: capacity_type for capacity_type in CapacityType}
# Every (state, has a host, has a cluster, has a last_error) that the invariants allow; a lookup here is cheap.
_FITTING = frozenset(
    (state, host, cluster, last_error)
    for state, rule in INVARIANTS.items()
    for host, cluster, last_error in itertools.product((False, True), repeat=3)
    if rule.host.admits(host) and rule.cluster.admits(cluster) and rule.last_error.admits(last_error)
)

# How many values are shared at a time, and how long one may be. Only a faulty provider sends more.
_SHARED_VALUES = 2**15
_SHARED_LENGTH = 2**10


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
    instance_type = message.instance_type
    if not instance_type:
        raise MachineRefusedError(machine_id, "structural", "instance_type", "is empty")
    price, probability = message.price_per_hour, message.interruption_probability
    faults = _faults(price, probability, capacity_type)
    machine = Machine(
        id=machine_id,
        state=state,
        instance_type=_text(instance_type),
        capacity_type=capacity_type,
        host=_host(message, machine_id),
        zone=_text(message.zone),
        price_per_hour=0.0 if "price_per_hour" in faults else _number(price),
        interruption_probability=0.0 if "interruption_probability" in faults else _number(probability),
        resources=_supply(message.resources, machine_id, "resources") or (),
        allocatable=_supply(message.allocatable, machine_id, "allocatable"),
        labels=_labels(message.labels),
        last_error=message.last_error,
        cluster=_text(message.cluster),
        shard_metadata=_metadata(message.shard_metadata),
    )
    if (state, machine.host is not None, machine.cluster != "", machine.last_error != "") not in _FITTING:
        try:
            check_invariants(machine)
        except InvariantError as error:
            raise MachineRefusedError(machine_id, "structural", error.field, error.problem) from None
    for field, (reason, problem) in faults.items():
        raise MachineRefusedError(machine_id, reason, field, problem, machine, tuple(faults))
    return machine


def _faults(price: float, probability: float, capacity_type: CapacityType) -> Mapping[str, tuple[str, str]]:
    """What is wrong with a record's price and probability: by field, the reason for the counter and the problem."""
    faults = {}
    if not (math.isfinite(price) and price >= 0):
        faults["price_per_hour"] = ("price", f"{price} is no price: it must be finite and not negative")
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
    """An empty vector is written as zero cpu: an empty map would read as unset, which means everything."""
    return pb.Resources(resources=quantities(vector) or {"cpu": "0"})


def _host(message: pb.Machine, machine_id: str) -> Host | None:
    host = message.host
    provider, ref = host.provider, host.ref
    if not provider and not ref:
        return None
    if not provider or not ref:
        missing = "ref" if provider else "provider"
        raise MachineRefusedError(machine_id, "structural", f"host.{missing}", "is empty, but the host is named")
    return Host(_text(provider), ref)


def _supply(message: pb.Resources, machine_id: str, field: str) -> Resources | None:
    """The vector; None where the record states none."""
    # Looking a vector up by its bytes is several times faster than reading the map.
    key = message.SerializeToString(deterministic=True)
    try:
        return _shared_supply(key) if len(key) <= _SHARED_LENGTH else _shared_supply.__wrapped__(key)
    except ResourceError as error:
        path = f"{field}[{error.name!r}]"
        raise MachineRefusedError(machine_id, "structural", path, error.problem) from None


@functools.lru_cache(_SHARED_VALUES)
def _shared_supply(serialized: bytes) -> Resources | None:
    amounts = pb.Resources.FromString(serialized).resources
    return supply(amounts) if amounts else None


def _text(text: str) -> str:
    return _shared_text(text) if len(text) <= _SHARED_LENGTH else text


@functools.lru_cache(_SHARED_VALUES)
def _shared_text(text: str) -> str:
    return text


@functools.lru_cache(_SHARED_VALUES)
def _number(number: float) -> float:
    return number


def _labels(message: Mapping[str, str]) -> Mapping[str, str]:
    # A message's own map is slow to walk, so it is copied first.
    labels = dict(message)
    return _shared_labels(tuple(sorted(labels.items()))) if _is_short(labels) else labels


@functools.lru_cache(_SHARED_VALUES)
def _shared_labels(pairs: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return {_shared_text(key): _shared_text(value) for key, value in pairs}


def _metadata(message: Mapping[str, str]) -> Mapping[str, str]:
    """Two machines hardly ever have equal metadata, but its keys and values are often equal, so these are shared."""
    metadata = dict(message)
    if not metadata:
        return _shared_labels(())
    if not _is_short(metadata):
        return metadata
    return dict(zip(map(_shared_text, metadata), map(_shared_text, metadata.values()), strict=True))


def _is_short(texts: Mapping[str, str]) -> bool:
    return sum(map(len, texts)) + sum(map(len, texts.values())) <= _SHARED_LENGTH
