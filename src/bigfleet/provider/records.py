"""What a provider's answers come to: machines, what was refused of them, and where a list left off."""

from collections.abc import Mapping

import msgspec

from bigfleet.model.machine import Machine
from bigfleet.wire.errors import MachineRefusedError


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A record that breaks the contract: whose, in which field, against which rule, and what can be taken of it.

    `reason` is the label under which it is counted. `rest` is there where only price or probability is at fault: the
    record with the fields in `spoiled` at 0.
    """

    machine_id: str
    reason: str
    field: str
    rule: str
    rest: Machine | None = None
    spoiled: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: MachineRefusedError) -> "Refusal":
        """The refusal that a conversion ended in."""
        return cls(error.machine_id, error.reason, error.field, error.problem, error.rest, error.spoiled)

    def mended(self, last_good: Machine) -> Machine:
        """The machine with the spoiled fields as they last were good; without a rest, all of it as it last was."""
        if self.rest is None:
            return last_good
        return msgspec.structs.replace(self.rest, **{field: getattr(last_good, field) for field in self.spoiled})


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One machine as its provider shows it; where `refused` is set, its spoiled fields are not to be used."""

    machine: Machine
    refused: Refusal | None = None


class Ack(msgspec.Struct, frozen=True, gc=False):
    """A call that was taken: the transition's name, and the machine right after it."""

    operation_id: str
    machine: Machine
    refused: Refusal | None = None


class MachinePage(msgspec.Struct, frozen=True):
    """One answer to List. No id is in `machines` and `refused` both; `rows` counts what was sent."""

    machines: Mapping[str, Machine]
    refused: tuple[Refusal, ...]
    rows: int
    revision: bytes

    def ids(self) -> set[str]:
        """Every machine that the page speaks of."""
        return {*self.machines, *(refusal.machine_id for refusal in self.refused if refusal.machine_id)}


class Listing(msgspec.Struct, frozen=True):
    """A whole List, however many pages it took.

    A refusal has a `rest` only where `machines` has nothing of that machine: it is then mended with whatever older
    record there is. Only in a `full` listing does absence mean something, and a refused machine is not absent. `began`
    is monotonic: a row is older than an ack that arrived after it.
    """

    machines: Mapping[str, Machine]
    refused: tuple[Refusal, ...]
    cursor: bytes
    full: bool
    began: float


class Gathering:
    """Makes one listing out of pages: of several rows about a machine the later wins, a bad one costs what is bad."""

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}
        self._refused: list[Refusal] = []

    def add(self, page: MachinePage) -> None:
        """Take the next page."""
        self.machines.update(page.machines)
        for refusal in page.refused:
            earlier = self.machines.get(refusal.machine_id)
            if earlier is not None:
                self.machines[refusal.machine_id] = refusal.mended(earlier)
            self._refused.append(refusal)

    def listing(self, cursor: bytes, *, full: bool, began: float) -> Listing:
        """What the pages came to."""
        refused = tuple(
            msgspec.structs.replace(refusal, rest=None) if refusal.machine_id in self.machines else refusal
            for refusal in self._refused
        )
        return Listing(self.machines, refused, cursor, full, began)
