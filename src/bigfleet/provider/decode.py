"""Reads the bytes of a MachineList in short steps, so that other tasks run between them.

One message may hold half a million machines; decoding it in one go would hold the interpreter for seconds.
"""

from collections.abc import Iterator

from bigfleet.model.machine import Machine
from bigfleet.provider.records import MachinePage, Refusal
from bigfleet.wire.errors import MachineRefusedError
from bigfleet.wire.machines import machine_from_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

# A few hundred machines: some milliseconds of decoding and converting.
_SLICE_BYTES = 256 * 1024
# The tags of fields 1 and 2 of a MachineList, which has no others; both are length-delimited.
_TAGS = frozenset({0x0A, 0x12})
# Each byte of a varint has 7 bits of the number; the eighth bit says that more bytes follow.
_VARINT_BITS, _VARINT_MASK, _VARINT_MORE = 7, 0x7F, 0x80
# No length needs a larger shift; a longer varint is malformed.
_MAX_SHIFT = 35


def slices(raw: bytes, size: int = _SLICE_BYTES) -> Iterator[bytes]:
    """Cut a serialized MachineList between its fields into parts of about `size` bytes, each a MachineList of its own.

    Bytes that are no MachineList are left in one piece, and protobuf refuses them.
    """
    end = len(raw)
    start = at = 0
    while at < end:
        if raw[at] not in _TAGS:
            break
        at += 1
        length = shift = 0
        while at < end:
            byte = raw[at]
            at += 1
            length |= (byte & _VARINT_MASK) << shift
            shift += _VARINT_BITS
            if byte < _VARINT_MORE or shift > _MAX_SHIFT:
                break
        at += length
        if at - start >= size and at <= end:
            yield raw[start:at]
            start = at
    if start < end:
        yield raw[start:]


class PageReader:
    """Reads one answer to List slice by slice. DecodeError where the bytes are no MachineList."""

    def __init__(self, raw: bytes) -> None:
        self._slices = slices(raw)
        self._machines: dict[str, Machine] = {}
        self._refused: list[Refusal] = []
        #: Ids of the records read so far.
        self._seen: set[str] = set()
        #: Ids that several records have.
        self._twins: set[str] = set()
        self._rows = 0
        self._revision = b""

    def step(self) -> bool:
        """Read the next slice. Returns False where there was none."""
        part = next(self._slices, None)
        if part is None:
            return False
        message = pb.MachineList.FromString(part)
        self._rows += len(message.machines)
        self._revision = message.revision or self._revision
        for record in message.machines:
            machine_id = record.id
            if machine_id in self._seen:
                self._twins.add(machine_id)
                continue
            if machine_id:
                self._seen.add(machine_id)
            try:
                self._machines[machine_id] = machine_from_wire(record)
            except MachineRefusedError as error:
                self._refused.append(Refusal.of(error))
        return True

    def page(self) -> MachinePage:
        """The page that the slices make. Records that share an id are all refused, as none is known to be right."""
        machines = {i: machine for i, machine in self._machines.items() if i not in self._twins}
        refused = [refusal for refusal in self._refused if refusal.machine_id not in self._twins]
        refused += (Refusal(i, "structural", "id", "stands in one answer more than once") for i in sorted(self._twins))
        return MachinePage(machines, tuple(refused), self._rows, self._revision)
