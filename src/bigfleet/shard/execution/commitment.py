"""Commitments: what the shard has decided to do with a machine and has not seen done yet.

At most one a machine. It is durable before its first call, counts as supply of its cluster from the decision on, and
ends when the machine is seen where it was to go, when it cannot get there, or when its time is over; its end never sets
a machine's state (protocol.md 6, 9).
"""

import enum
from collections.abc import Iterator

import msgspec

from bigfleet.engine.records import Kind, Stamp
from bigfleet.model.machine import Call


class Step(enum.Enum):
    """How far a commitment has come. A call that runs and a state that is awaited are two steps: only in the first may
    the provider not know of it.
    """

    DECIDED = "decided"
    """Not known to be durable: nothing may be sent."""
    WAITING = "waiting"
    """For an operator to connect; nothing is on its way."""
    CREATE = "create"
    CREATING = "creating"
    BLOB = "blob"
    """The operator was asked for user data."""
    CONFIGURE = "configure"
    CONFIGURING = "configuring"
    INSTRUCTED = "instructed"
    """The operator was told to empty the node."""
    DRAIN = "drain"
    DRAINING = "draining"
    DELETE = "delete"
    DELETING = "deleting"
    DOUBT = "doubt"
    """What became of a call is not known; a Get will tell."""


CALLING: dict[Step, Call] = {
    Step.CREATE: Call.CREATE,
    Step.CONFIGURE: Call.CONFIGURE,
    Step.DRAIN: Call.DRAIN,
    Step.DELETE: Call.DELETE,
}
"""The steps in which a call is on its way, and which."""

AWAITING: dict[Call, Step] = {
    Call.CREATE: Step.CREATING,
    Call.CONFIGURE: Step.CONFIGURING,
    Call.DRAIN: Step.DRAINING,
    Call.DELETE: Step.DELETING,
}
"""The step after a call was acknowledged."""

REVOCABLE = frozenset({Step.DECIDED, Step.WAITING, Step.BLOB, Step.INSTRUCTED})
"""Steps in which no call is on its way or awaited, so that the commitment can end without the provider noticing."""


class Commitment(msgspec.Struct, frozen=True, kw_only=True):
    """One machine's outstanding work.

    `id` ties what is said of its beginning to what is said of its end. `cluster` is whom the machine is for: empty
    where it goes to nobody. `leaves` is the cluster it is drained from. `began` is when this step began, `deadline`
    when an instruction's grace is over and `doubted` when the first of its calls was made that all brought no answer,
    on the shard's clock. `unsettled` says that an earlier life wrote it and no Get has answered since; `renewed` that
    user data was asked for a second time, since the first was soon to expire.
    """

    id: str = ""
    machine: str
    provider: str
    kind: Kind
    step: Step
    began: float
    cluster: str = ""
    leaves: str = ""
    stamp: Stamp | None = None
    grace_seconds: int = 0
    deadline: float = 0.0
    request_id: str = ""
    instruction_id: str = ""
    decided: float = 0.0
    doubted: float | None = None
    unsettled: bool = False
    renewed: bool = False
    reason: str = ""


def resumed(commitment: Commitment, written: float, away: float, now: float) -> Commitment:
    """The commitment on the clock of a new life, where `written` is when it was written down on the old one's.

    A grace counts the wall seconds since, `away`, between 0 and what was left of it; all else resumes where it stood
    (protocol.md 19).
    """
    shift, left = now - written, commitment.deadline - written
    return msgspec.structs.replace(
        commitment,
        began=commitment.began + shift,
        decided=commitment.decided + shift,
        doubted=None if commitment.doubted is None else commitment.doubted + shift,
        deadline=now + left - min(max(away, 0.0), max(left, 0.0)),
    )


class Commitments:
    """All of them, by machine, and by the request or instruction that waits for an operator's word."""

    def __init__(self) -> None:
        self._all: dict[str, Commitment] = {}
        self._machine_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Commitment]:
        return iter(list(self._all.values()))

    def get(self, machine_id: str) -> Commitment | None:
        """The machine's, if it has one."""
        return self._all.get(machine_id)

    def behind(self, asked: str, step: Step) -> Commitment | None:
        """The one whose request or instruction this is, if it still waits for the answer."""
        commitment = self._all.get(self._machine_of.get(asked, ""))
        return commitment if commitment is not None and commitment.step is step else None

    def put(self, commitment: Commitment) -> None:
        """Have it instead of the machine's earlier one."""
        self.take(commitment.machine)
        self._all[commitment.machine] = commitment
        for asked in (commitment.request_id, commitment.instruction_id):
            if asked:
                self._machine_of[asked] = commitment.machine

    def take(self, machine_id: str) -> None:
        """Have none for the machine any more."""
        commitment = self._all.pop(machine_id, None)
        if commitment is not None:
            self._machine_of.pop(commitment.request_id, None)
            self._machine_of.pop(commitment.instruction_id, None)
