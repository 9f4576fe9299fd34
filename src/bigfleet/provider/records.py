"""A provider's answers as values: machines, refused records, and the cursor of a list."""

from collections.abc import Mapping

import msgspec

from bigfleet.model.machine import Machine
from bigfleet.wire.errors import MachineRefusedError


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A machine record that breaks the contract."""

    machine_id: str
    #: The label under which the refusal is counted.
    reason: str
    #: The field at fault.
    field: str
    #: What is wrong with the field.
    rule: str
    #: Where only price or probability is at fault, the record with the fields in `spoiled` at 0.
    rest: Machine | None = None
    spoiled: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: MachineRefusedError) -> "Refusal":
        """The refusal for an error of conversion."""
        return cls(error.machine_id, error.reason, error.field, error.problem, error.rest, error.spoiled)

    def mended(self, last_good: Machine) -> Machine:
        """The rest of the record with the last good values of spoiled fields; without a rest, the last good record."""
        if self.rest is None:
            return last_good
        return msgspec.structs.replace(self.rest, **{field: getattr(last_good, field) for field in self.spoiled})


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One machine as its provider shows it. The spoiled fields of `refused` must not be used."""

    machine: Machine
    refused: Refusal | None = None


class Ack(msgspec.Struct, frozen=True, gc=False):
    """The ack of a call: the id of the operation, and the machine right after the call was taken."""

    operation_id: str
    machine: Machine
    refused: Refusal | None = None


class MachinePage(msgspec.Struct, frozen=True):
    """One answer to List. No id is both in `machines` and in `refused`; `rows` counts the records that were sent."""

    machines: Mapping[str, Machine]
    refused: tuple[Refusal, ...]
    rows: int
    revision: bytes

    def ids(self) -> set[str]:
        """The ids of all machines on the page, refused ones too."""
        return {*self.machines, *(refusal.machine_id for refusal in self.refused if refusal.machine_id)}


class Listing(msgspec.Struct, frozen=True):
    """A complete List, made of all its pages."""

    machines: Mapping[str, Machine]
    #: Refused records. One has a `rest` only where `machines` lacks that machine; an older record then mends it.
    refused: tuple[Refusal, ...]
    #: Where the next List goes on.
    cursor: bytes
    #: Whether everything was listed, so that a machine which is neither listed nor refused is gone.
    full: bool
    #: When the List began, monotonic. An ack that arrived later is newer than any row.
    began: float


class Gathering:
    """Makes one listing out of pages. A later row about a machine wins; of a bad row, only the bad fields are lost."""

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}
        self._refused: list[Refusal] = []

    def add(self, page: MachinePage) -> None:
        """Add the next page."""
        self.machines.update(page.machines)
        for refusal in page.refused:
            earlier = self.machines.get(refusal.machine_id)
            if earlier is not None:
                self.machines[refusal.machine_id] = refusal.mended(earlier)
            self._refused.append(refusal)

    def listing(self, cursor: bytes, *, full: bool, began: float) -> Listing:
        """The listing that the pages make."""
        refused = tuple(
            msgspec.structs.replace(refusal, rest=None) if refusal.machine_id in self.machines else refusal
            for refusal in self._refused
        )
        return Listing(self.machines, refused, cursor, full, began)
