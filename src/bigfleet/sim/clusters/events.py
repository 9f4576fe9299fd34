"""What happens in a simulated cluster, for whoever watches. All events are counted; those worth reading are kept."""

import enum
from collections import Counter, deque

import msgspec

_KEPT = 1000


class EventKind(enum.StrEnum):
    """Kinds of events."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    ROLLED_UP = "rolled up"
    ACKNOWLEDGED = "roll-up acknowledged"
    REFUSED = "roll-up refused"
    BLOB_ASKED = "user data asked for"
    BLOB_SENT = "user data sent"
    BLOB_WITHDRAWN = "user data wanted no more"
    MACHINE_SEEN = "machine state heard"
    MACHINE_FAILED = "machine failed"
    NODE_JOINED = "node joined"
    NODE_READY = "node ready"
    NODE_GONE = "node gone"
    RECLAIM_HEARD = "reclaim heard"
    CORDONED = "node cordoned"
    UNCORDONED = "node uncordoned"
    DRAINED = "node drained"
    DRAIN_FAILED = "node not drained"
    STRAY = "frame that is not ours"


ROUTINE = frozenset(
    {
        EventKind.ROLLED_UP,
        EventKind.ACKNOWLEDGED,
        EventKind.BLOB_ASKED,
        EventKind.BLOB_SENT,
        EventKind.MACHINE_SEEN,
        EventKind.RECLAIM_HEARD,
    }
)
"""Kinds that come every few seconds, which are counted and not kept."""


class Event(msgspec.Struct, frozen=True):
    """One thing that happened."""

    at: float
    """When, by the operator's clock."""
    kind: EventKind
    name: str
    """What it happened to: a node, a machine, a request, the cluster."""
    detail: str = ""
    """What else a person wants to know."""


class Log:
    """The events of one cluster: a count of each kind, and the last thousand that are not routine."""

    def __init__(self) -> None:
        self.counts: Counter[EventKind] = Counter()
        self.recent: deque[Event] = deque(maxlen=_KEPT)

    def note(self, at: float, kind: EventKind, name: str = "", detail: str = "") -> None:
        """Count an event, and keep it unless its kind is routine."""
        self.counts[kind] += 1
        if kind not in ROUTINE:
            self.recent.append(Event(at, kind, name, detail))
