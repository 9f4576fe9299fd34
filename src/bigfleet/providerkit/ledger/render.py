"""Machines as bytes on the wire.

The fields of a shape are encoded once and appended to the other fields: protobuf reads concatenated messages as one.
"""

from collections.abc import Iterable

from bigfleet.providerkit.ledger.entry import Entry
from bigfleet.providerkit.offer import Shape
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

# Field 1 of MachineList and field 2 of TransitionAck, both length-delimited.
_IN_LIST = b"\x0a"
_IN_ACK = b"\x12"
# Without a bound, shapes that are no longer offered would be held for ever.
_MOST_SHAPES = 1 << 16


class Renderer:
    """Encodes the machines of one provider."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        # The key is the id of the object, because comparing shapes costs more than encoding one. The shape is held, so
        # that no other object can get its id.
        self._shapes: dict[int, tuple[Shape, bytes]] = {}

    def machine(self, entry: Entry) -> bytes:
        """One Machine."""
        message = pb.Machine(id=entry.id, state=pb.MachineState.ValueType(entry.state))
        if entry.host:
            message.host.provider, message.host.ref = self._scheme, entry.host
        if entry.last_error:
            message.last_error = entry.last_error
        if entry.cluster:
            message.cluster = entry.cluster
        if entry.metadata:
            message.shard_metadata.update(entry.metadata)
        return message.SerializeToString() + self._shape(entry.shape)

    def ack(self, operation_id: str, entry: Entry) -> bytes:
        """A TransitionAck."""
        machine = self.machine(entry)
        return pb.TransitionAck(operation_id=operation_id).SerializeToString() + _IN_ACK + _length(machine) + machine

    def machines(self, entries: Iterable[Entry], revision: bytes) -> bytes:
        """A MachineList."""
        parts: list[bytes] = []
        for entry in entries:
            machine = self.machine(entry)
            parts += (_IN_LIST, _length(machine), machine)
        return b"".join((*parts, pb.MachineList(revision=revision).SerializeToString()))

    def _shape(self, shape: Shape) -> bytes:
        known = self._shapes.get(id(shape))
        if known is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            known = self._shapes[id(shape)] = (shape, shape.record().SerializeToString())
        return known[1]


def _length(data: bytes) -> bytes:
    """The varint before a length-delimited field."""
    rest, out = len(data), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
