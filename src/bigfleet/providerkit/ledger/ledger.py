"""The contract as a value: calls in, judgements out, no I/O and no clock.

A judgement is computed, made durable by whoever asked for it, and only then installed; so nothing is ever shown that a
crash could take back, and a write that fails changes nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from bigfleet.model.machine import Call, IllegalCallError, MachineState
from bigfleet.providerkit.ledger.entry import Entry, Operation, begun, offered, operation, repeated
from bigfleet.providerkit.ledger.fence import Mark, Marks
from bigfleet.providerkit.ledger.revisions import Revisions
from bigfleet.providerkit.offer import Offer, OfferError


class RefusedError(Exception):
    """A call that is not carried out; the text says why, for the caller."""


class FencedError(RefusedError):
    """Its token is not newer than one already seen."""


class UnknownMachineError(RefusedError):
    """There is no such machine."""


class IllegalError(RefusedError):
    """The machine's state does not allow it."""


class UnsupportedError(RefusedError):
    """This hardware cannot do it at all."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One mutating call, checked for form already. No `mark`: it carries no token and is not fenced."""

    call: Call
    machine: str
    mark: Mark | None = None
    cluster: str = ""
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    grace_seconds: int = 0


class Judgement(msgspec.Struct, frozen=True):
    """What a call comes to: the transition that answers it and the machine right after, or the refusal."""

    request: Request
    answer: tuple[Operation, Entry] | RefusedError
    starts: bool = False

    @property
    def changed(self) -> Entry | None:
        """The machine, if this call changes it."""
        return self.answer[1] if self.starts and isinstance(self.answer, tuple) else None


class Ledger:
    """Every machine, mark and revision."""

    def __init__(self, offers: Iterable[Offer], kept: Iterable[Entry], marks: Iterable[Mark], *, deletes: bool) -> None:
        self._deletes = deletes
        self._entries: dict[str, Entry] = {}
        self._marks = Marks()
        self._revisions = Revisions()
        self.counts: Counter[MachineState] = Counter()
        for entry in kept:
            self._show(msgspec.structs.replace(entry, offered=False))
        self.offer(offers)
        for mark in marks:
            self._marks.move(mark, mark.machine in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def find(self, machine: str) -> Entry | None:
        """The machine of that id, if there is one."""
        return self._entries.get(machine)

    def get(self, machine: str) -> Entry:
        """The machine of that id, or UnknownMachineError."""
        entry = self._entries.get(machine)
        if entry is None:
            raise UnknownMachineError(f"there is no machine {machine!r}")
        return entry

    def offer(self, offers: Iterable[Offer]) -> list[str]:
        """Take the offers as they are now: new ones appear, changed ones change, and one that is no longer there goes
        as soon as nobody uses it. Returns those that went.
        """
        seen: set[str] = set()
        for offer in offers:
            if offer.id in seen:
                raise OfferError(f"machine {offer.id!r}: is offered twice")
            seen.add(offer.id)
            entry = self._entries.get(offer.id)
            if entry is None:
                self.install(offered(offer))
            else:
                # Hardware may have moved to another address; one in use is asked at the old one until it is Idle.
                host = offer.host if offer.host and entry.state is MachineState.IDLE else entry.host
                if entry.shape != offer.shape or not entry.offered or host != entry.host:
                    self.install(msgspec.structs.replace(entry, shape=offer.shape, offered=True, host=host))
        return [
            entry.id
            for entry in [entry for entry in self._entries.values() if entry.id not in seen]
            if not self.install(msgspec.structs.replace(entry, offered=False))
        ]

    def judge(self, request: Request) -> Judgement:
        """What the call comes to, by the order that the contract sets: fence, existence, ability, repeat, legality."""
        if request.mark is not None and not self._marks.passes(request.mark):
            token = request.mark.token
            raise FencedError(
                f"machine {request.machine!r}: the token (epoch {token.epoch}, sequence {token.sequence}) of shard "
                f"{request.mark.shard!r} is not newer than one already seen"
            )
        try:
            entry = self.get(request.machine)
        except UnknownMachineError as error:
            return Judgement(request, error)
        if request.call is Call.DELETE and not self._deletes:
            return Judgement(request, UnsupportedError(f"machine {request.machine!r}: this hardware cannot be deleted"))
        step = repeated(entry, request.call, request.cluster)
        if step is not None:
            return Judgement(request, (step, entry))
        step = operation(request.call, request.grace_seconds, recovers=entry.state is MachineState.FAILED)
        try:
            after = begun(entry, step, request.cluster, request.metadata)
        except IllegalCallError as error:
            return Judgement(request, IllegalError(str(error)))
        return Judgement(request, (step, after), starts=True)

    def settle(self, judgement: Judgement) -> str:
        """Take a judgement that is durable. Returns a machine whose marks were forgotten, if any."""
        if judgement.changed is not None:
            self.install(judgement.changed)
        mark = judgement.request.mark
        return "" if mark is None else self._marks.move(mark, mark.machine in self._entries)

    def part_with(self, machine: str) -> str:
        """The machine went: its marks count among those of unknown ones. Returns one whose marks were forgotten."""
        return self._marks.stray(machine)

    def install(self, entry: Entry) -> bool:
        """Show the machine as it is now; False for one that is neither offered nor has a host to end, and goes."""
        free = entry.state is (MachineState.SPECULATIVE if self._deletes else MachineState.IDLE)
        before = self._entries.get(entry.id)
        if not free or entry.offered or entry.doubts:
            if before != entry:
                self._show(entry)
            return True
        if before is not None:
            self.counts[before.state] -= 1
            del self._entries[entry.id]
            self._revisions.forget(entry.id)
        return False

    def _show(self, entry: Entry) -> None:
        before = self._entries.get(entry.id)
        if before is not None:
            self.counts[before.state] -= 1
        self.counts[entry.state] += 1
        self._entries[entry.id] = entry
        # A delta must not tell of what no record shows: a doubt that has grown old, a blob that was handed over.
        if before is None or _seen(before) != _seen(entry):
            self._revisions.bump(entry.id)

    def changed(self, cursor: bytes, most: int, wanted: Callable[[Entry], bool]) -> tuple[list[Entry], bytes]:
        """At most so many wanted machines that changed after the cursor (0: all), and the cursor that follows them."""
        found: list[Entry] = []
        for number, machine in self._revisions.since(cursor):
            entry = self._entries[machine]
            if wanted(entry):
                found.append(entry)
                if len(found) == most:
                    return found, self._revisions.cursor(number)
        return found, self._revisions.cursor()


def _seen(entry: Entry) -> tuple[object, ...]:
    """What a record of the machine shows, besides its id."""
    return entry.shape, entry.state, entry.host, entry.cluster, entry.metadata, entry.last_error
