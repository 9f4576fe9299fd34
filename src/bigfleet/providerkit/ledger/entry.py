"""A machine as the kit keeps it, and the steps of its life.

`model/machine.py` says which step is legal. Here stands what a step does to the fields.
"""

import secrets
from collections.abc import Mapping

import msgspec

from bigfleet.model.machine import ASKS, Call, MachineState, acknowledged, check
from bigfleet.providerkit.backend import Change, Job, Notice
from bigfleet.providerkit.offer import Offer, Shape

_S = MachineState
_ENDS = {ask.call: (ask.via, ask.end) for ask in ASKS}
"""The state in which a call is under way and the one in which it is done."""

# Characters of last_error that are kept.
_MAX_ERROR = 1024
# A machine whose every Create fails would gather doubts without end. The oldest are dropped.
_MOST_DOUBTS = 8


class Operation(msgspec.Struct, frozen=True):
    """A transition that was begun, with what is needed to go on with it after a restart."""

    id: str
    call: Call
    grace_seconds: int = 0
    recovers: bool = False
    """The transition leads out of Failed."""
    handed_over: bool = False
    """Of a Configure: the host has its blob, and only the node is waited for."""


def operation(call: Call, grace_seconds: int = 0, *, recovers: bool = False) -> Operation:
    """A new transition, with an id that is never used again."""
    return Operation(f"{call.value.lower()}-{secrets.token_hex(12)}", call, grace_seconds, recovers)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A machine."""

    id: str
    shape: Shape
    state: MachineState
    host: str = ""
    cluster: str = ""
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    last_error: str = ""
    made: Operation | None = None
    """The last Create or Delete."""
    bound: Operation | None = None
    """The last Configure or Drain since then."""
    token: str = ""
    """The Create that made the host."""
    doubts: tuple[str, ...] = ()
    """Creates that failed and whose hosts may still appear."""
    offered: bool = True
    """The backend offers the machine. A machine that is not offered goes once nobody uses it."""

    @property
    def running(self) -> Operation | None:
        """The transition that is under way."""
        for step in (self.made, self.bound):
            if step is not None and _ENDS[step.call][0] is self.state:
                return step
        return None

    def job(self) -> Job:
        """The machine as the backend is told of it."""
        running = self.running
        recovering = running is not None and running.recovers
        return Job(self.id, self.shape, self.token, self.host, self.cluster, recovering)


def offered(offer: Offer) -> Entry:
    """The machine of an offer, before any call."""
    state = _S.IDLE if offer.host else _S.SPECULATIVE
    return Entry(id=offer.id, shape=offer.shape, state=state, host=offer.host)


def repeated(entry: Entry, call: Call, cluster: str) -> Operation | None:
    """The transition that this call repeats: the same call, under way or done, and for Configure the same cluster."""
    if entry.state not in _ENDS[call] or (call is Call.CONFIGURE and cluster != entry.cluster):
        return None
    step = entry.made if call in (Call.CREATE, Call.DELETE) else entry.bound
    return step if step is not None and step.call is call else None


def begun(entry: Entry, step: Operation, cluster: str, metadata: Mapping[str, str]) -> Entry:
    """The machine right after a call was taken. IllegalCallError if the call is not legal."""
    host = bool(entry.host)
    ask = check(step.call, entry.id, entry.state, host)
    state = acknowledged(ask, host, bool(entry.cluster))
    change = msgspec.structs.replace
    if state is ask.end:
        return ended(change(entry, bound=step) if step.call is Call.DRAIN else change(entry, made=step), step)
    entry = change(entry, state=state, last_error="")
    match step.call:
        case Call.CREATE:
            return change(entry, made=step, bound=None, token=step.id, cluster="", metadata={})
        case Call.DELETE:
            return change(entry, made=step, bound=None, cluster="", metadata={})
        case Call.CONFIGURE:
            return change(entry, bound=step, cluster=cluster, metadata=metadata)
        case Call.DRAIN:
            return change(entry, bound=step)


def ended(entry: Entry, step: Operation, host: str = "") -> Entry:
    """The machine once the transition has ended well. `host` is the host that a Create made."""
    state = _ENDS[step.call][1]
    change = msgspec.structs.replace
    match step.call:
        case Call.CREATE:
            return change(entry, state=state, host=host)
        case Call.CONFIGURE:
            return change(entry, state=state)
        case Call.DRAIN:
            return change(entry, state=state, cluster="", metadata={}, last_error="")
        case Call.DELETE:
            return vanished(entry)


def failed(entry: Entry, error: str) -> Entry:
    """The machine once a transition has failed. A Create that failed leaves a doubt whether it made a host."""
    doubts = entry.doubts
    if entry.state is _S.CREATING:
        doubts = (*doubts, entry.token)[-_MOST_DOUBTS:]
    # The substrate's text may contain characters that no record can carry.
    error = error.encode(errors="replace").decode().strip()[:_MAX_ERROR] or "failed for a reason that was not given"
    return msgspec.structs.replace(entry, state=_S.FAILED, last_error=error, doubts=doubts)


def vanished(entry: Entry) -> Entry:
    """The machine once its host does not exist any more."""
    return msgspec.structs.replace(
        entry, state=_S.SPECULATIVE, host="", cluster="", metadata={}, last_error="", bound=None, token=""
    )


def noticed(entry: Entry, notice: Notice, deletes: bool) -> Entry | None:
    """The machine after an unasked change (protocol rule 2), or None if the notice says nothing new."""
    text = f"{notice.change.value}: {notice.text}" if notice.text else notice.change.value
    if not entry.host or (notice.host and notice.host != entry.host):
        return None
    match notice.change:
        case Change.TAKEN_BACK:
            step = operation(Call.DRAIN, notice.grace_seconds)
            return (
                msgspec.structs.replace(entry, state=_S.DRAINING, bound=step) if entry.state is _S.CONFIGURED else None
            )
        case Change.GONE if deletes:
            return vanished(entry)
        case Change.BROKEN | Change.GONE:
            # Hardware cannot be created again, so the machine stays, for a person to look at.
            return None if entry.state is _S.FAILED else failed(entry, text)
