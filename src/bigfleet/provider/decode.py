"""From the bytes of a MachineList to machines, in steps short enough to take turns with an event loop.

Half a million machines in one message are legal; decoding them in one go would hold the interpreter for a second.
"""

from collections.abc import Iterator

from bigfleet.model.machine import Machine
from bigfleet.provider.records import MachinePage, Refusal
from bigfleet.wire.errors import MachineRefusedError
from bigfleet.wire.machines import machine_from_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

# A few hundred machines: some milliseconds of decoding and converting.
_SLICE_BYTES = 256 * 1024
# Field numbers 1 and 2, both length-delimited: all that a MachineList has.
_TAGS = frozenset({0x0A, 0x12})


def slices(raw: bytes, size: int = _SLICE_BYTES) -> Iterator[bytes]:
    """Cut a serialized MachineList between its fields into parts of about `size` bytes, each a MachineList of its own.

    What cannot be followed is left in one piece for protobuf to judge.
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
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 35:
                break
        at += length
        if at - start >= size and at <= end:
            yield raw[start:at]
            start = at
    if start < end:
        yield raw[start:]


class PageReader:
    """Reads one answer to List, a slice at a time; DecodeError where the bytes are no MachineList."""

    def __init__(self, raw: bytes) -> None:
        self._slices = slices(raw)
        self._machines: dict[str, Machine] = {}
        self._refused: list[Refusal] = []
        self._spoken_of: set[str] = set()
        self._twins: set[str] = set()
        self._rows = 0
        self._revision = b""

    def step(self) -> bool:
        """Read the next slice; False if there was none."""
        part = next(self._slices, None)
        if part is None:
            return False
        message = pb.MachineList.FromString(part)
        self._rows += len(message.machines)
        self._revision = message.revision or self._revision
        for record in message.machines:
            machine_id = record.id
            if machine_id in self._spoken_of:
                self._twins.add(machine_id)
                continue
            if machine_id:
                self._spoken_of.add(machine_id)
            try:
                self._machines[machine_id] = machine_from_wire(record)
            except MachineRefusedError as error:
                self._refused.append(Refusal.of(error))
        return True

    def page(self) -> MachinePage:
        """What all slices came to. Of two records with one id in one answer neither is known to be the true one."""
        machines = {i: machine for i, machine in self._machines.items() if i not in self._twins}
        refused = [refusal for refusal in self._refused if refusal.machine_id not in self._twins]
        refused += (Refusal(i, "structural", "id", "stands in one answer more than once") for i in sorted(self._twins))
        return MachinePage(machines, tuple(refused), self._rows, self._revision)
