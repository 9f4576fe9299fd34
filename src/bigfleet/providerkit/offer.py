"""What an author offers: machines, and the shape that many of them share.

A shape is checked when it is made, by the rules by which a shard checks a record.
"""

from collections.abc import Mapping

import msgspec

from bigfleet.model.machine import CapacityType
from bigfleet.wire.errors import MachineRefusedError
from bigfleet.wire.machines import machine_from_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

MAX_ID_BYTES = 253
"""The longest id of a machine, a shard or a cluster: what a certificate can name."""

MAX_SHAPE_BYTES = 64 * 1024
"""The largest shape, as bytes on the wire."""


class OfferError(ValueError):
    """An offer that no shard would accept. The text names the machine or the shape, and the field."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a machine's record that does not change with the machine's life."""

    instance_type: str
    capacity_type: CapacityType
    resources: Mapping[str, str | int]
    zone: str = ""
    price_per_hour: float = 0.0
    interruption_probability: float = 0.0
    allocatable: Mapping[str, str | int] = msgspec.field(default_factory=dict)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise OfferError(f"shape {self.instance_type!r} in {self.zone!r}: {problem}")

    def _problem(self) -> str:
        """What is wrong with the shape, or an empty text."""
        try:
            message = self.record()
            message.id, message.state = self.instance_type or "?", pb.MACHINE_STATE_SPECULATIVE
            machine = machine_from_wire(message)
        except (MachineRefusedError, TypeError, ValueError, AttributeError) as error:
            return str(error)
        has = dict(machine.resources)
        for name, amount in machine.allocatable or ():
            if amount > has.get(name, amount):
                return f"allocatable[{name!r}]: is more than the machine has"
        if not machine.usable:
            return "resources: are empty"
        if self.capacity_type is CapacityType.UNSPECIFIED:
            return "capacity_type: is not set"
        return f"its fields are over {MAX_SHAPE_BYTES} bytes" if message.ByteSize() > MAX_SHAPE_BYTES else ""

    def record(self) -> pb.Machine:
        """A record with the fields of the shape. The bytes of the other fields may be appended to its bytes."""
        return pb.Machine(
            instance_type=self.instance_type,
            zone=self.zone,
            capacity_type=pb.CapacityType.ValueType(self.capacity_type),
            price_per_hour=self.price_per_hour,
            interruption_probability=self.interruption_probability,
            resources=_amounts(self.resources),
            allocatable=_amounts(self.allocatable) if self.allocatable else None,
            labels=self.labels,
        )


def _amounts(vector: Mapping[str, str | int]) -> pb.Resources:
    # YAML reads `cpu: 8` as a number.
    return pb.Resources(resources={name: str(amount) for name, amount in vector.items()})


class Offer(msgspec.Struct, frozen=True):
    """One machine: a slot that can be created or, with `host`, hardware that exists already."""

    id: str
    shape: Shape
    host: str = ""

    def __post_init__(self) -> None:
        if not 0 < len(self.id.encode(errors="replace")) <= MAX_ID_BYTES:
            raise OfferError(f"machine {self.id[:80]!r}: an id has 1 to {MAX_ID_BYTES} bytes")
