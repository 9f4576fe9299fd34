"""What happens in a simulated cluster, for whoever watches: counted all, and the telling ones kept for a while."""

import enum
from collections import Counter, deque

import msgspec

_KEPT = 1000


class What(enum.StrEnum):
    """Kinds of events. Those that come every few seconds are counted only."""

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
    {What.ROLLED_UP, What.ACKNOWLEDGED, What.BLOB_ASKED, What.BLOB_SENT, What.MACHINE_SEEN, What.RECLAIM_HEARD}
)


class Event(msgspec.Struct, frozen=True):
    """One thing that happened, to whom, and what a person wants to know beside it. `at` is by the operator's clock."""

    at: float
    what: What
    name: str
    detail: str = ""


class Log:
    """The events of one cluster."""

    def __init__(self) -> None:
        self.counts: Counter[What] = Counter()
        self.recent: deque[Event] = deque(maxlen=_KEPT)

    def note(self, at: float, what: What, name: str = "", detail: str = "") -> None:
        """It has happened."""
        self.counts[what] += 1
        if what not in ROUTINE:
            self.recent.append(Event(at, what, name, detail))
