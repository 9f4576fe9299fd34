"""The ledger judges calls and holds all machines, without I/O and without a clock.

A judgement is computed, then made durable by the caller, then installed. So nothing is shown that a crash could take
back, and a write that fails changes nothing.
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
    """A call that is refused. The text tells the caller why."""


class FencedError(RefusedError):
    """The call's token is not newer than the mark."""


class UnknownMachineError(RefusedError):
    """There is no such machine."""


class IllegalError(RefusedError):
    """The machine's state does not allow the call."""


class UnsupportedError(RefusedError):
    """This provider never supports the call."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One mutating call whose form has been checked. Without a `mark` the call has no token and is not fenced."""

    call: Call
    machine: str
    mark: Mark | None = None
    cluster: str = ""
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    grace_seconds: int = 0


class Judgement(msgspec.Struct, frozen=True):
    """The answer to a call."""

    request: Request
    answer: tuple[Operation, Entry] | RefusedError
    """The call's transition and the machine right after it, or the refusal."""
    starts: bool = False
    """The call starts a new transition; otherwise it repeats one."""

    @property
    def changed(self) -> Entry | None:
        """The machine, if this call changes it."""
        return self.answer[1] if self.starts and isinstance(self.answer, tuple) else None


class Ledger:
    """All machines, marks and revisions."""

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
        """The machine with this id, or None."""
        return self._entries.get(machine)

    def get(self, machine: str) -> Entry:
        """The machine with this id, or UnknownMachineError."""
        entry = self._entries.get(machine)
        if entry is None:
            raise UnknownMachineError(f"there is no machine {machine!r}")
        return entry

    def offer(self, offers: Iterable[Offer]) -> list[str]:
        """Take the offers as they are now. Returns the machines that went.

        A machine that is no longer offered goes as soon as nobody uses it.
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
                # Hardware may have another address now. A machine in use keeps the old one until it is Idle.
                host = offer.host if offer.host and entry.state is MachineState.IDLE else entry.host
                if entry.shape != offer.shape or not entry.offered or host != entry.host:
                    self.install(msgspec.structs.replace(entry, shape=offer.shape, offered=True, host=host))
        return [
            entry.id
            for entry in [entry for entry in self._entries.values() if entry.id not in seen]
            if not self.install(msgspec.structs.replace(entry, offered=False))
        ]

    def judge(self, request: Request) -> Judgement:
        """Judge a call in the order that the contract sets: fence, existence, support, repeat, legality."""
        if request.mark is not None and not self._marks.passes(request.mark):
            token = request.mark.token
            raise FencedError(
                f"machine {request.machine!r}: the token (epoch {token.epoch}, sequence {token.sequence}) of shard "
                f"{request.mark.shard!r} is not newer than one that was seen before"
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
        """Install a judgement that is durable. Returns the stray whose marks were forgotten, if any."""
        if judgement.changed is not None:
            self.install(judgement.changed)
        mark = judgement.request.mark
        return "" if mark is None else self._marks.move(mark, mark.machine in self._entries)

    def part_with(self, machine: str) -> str:
        """Count a machine that went as a stray. Returns the stray whose marks were forgotten, if any."""
        return self._marks.stray(machine)

    def install(self, entry: Entry) -> bool:
        """Show the machine as it is now. False if it goes instead: it is not offered and nobody uses it."""
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
        # A change that no record shows, such as an old doubt that was dropped, must not appear in a delta.
        if before is None or _seen(before) != _seen(entry):
            self._revisions.bump(entry.id)

    def changed(self, cursor: bytes, most: int, wanted: Callable[[Entry], bool]) -> tuple[list[Entry], bytes]:
        """The wanted machines that changed after the cursor, at most `most` (0: all), and the next cursor."""
        found: list[Entry] = []
        for number, machine in self._revisions.since(cursor):
            entry = self._entries[machine]
            if wanted(entry):
                found.append(entry)
                if len(found) == most:
                    return found, self._revisions.cursor(number)
        return found, self._revisions.cursor()


def _seen(entry: Entry) -> tuple[object, ...]:
    """The fields of the machine that a record shows, apart from its id."""
    return entry.shape, entry.state, entry.host, entry.cluster, entry.metadata, entry.last_error
