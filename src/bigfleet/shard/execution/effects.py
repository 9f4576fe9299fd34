"""What lifecycle and recovery want done: values that the core carries out, in order."""

import enum
import math

import msgspec

from bigfleet.engine.records import Stamp
from bigfleet.model.machine import Call
from bigfleet.shard.execution.commitment import Commitment


class Outcome(enum.StrEnum):
    """How a commitment ended, as metrics and the audit log write it."""

    SUCCESS = "success"
    FAILED = "failed"
    TIMEOUT = "timeout"
    DROPPED = "dropped"
    FENCED = "fenced"
    MISMATCH = "mismatch"
    REFUSED = "refused"
    UNSUPPORTED = "unsupported"
    EXHAUSTED = "exhausted"
    BOOTSTRAP_ERROR = "bootstrap_error"
    GIVEN_UP = "given_up"


class Problem(enum.Enum):
    """Why a call to a provider brought no ack that fits. The value is the outcome of the call's commitment.

    UNAVAILABLE has no outcome: what became of the call is not known, so the commitment goes on with a Get.
    """

    UNAVAILABLE = None
    NOT_FOUND = Outcome.DROPPED
    REFUSED = Outcome.REFUSED
    INVALID = Outcome.FAILED
    FENCED = Outcome.FENCED
    UNSUPPORTED = Outcome.UNSUPPORTED
    EXHAUSTED = Outcome.EXHAUSTED
    MISMATCH = Outcome.MISMATCH


class Keep(msgspec.Struct, frozen=True):
    """Write the commitment down. No effect of a new commitment may be carried out before the commitment is durable."""

    commitment: Commitment


class Ended(msgspec.Struct, frozen=True):
    """The commitment is over: erase it from the file, and count it."""

    commitment: Commitment
    outcome: Outcome
    #: What a person is told besides the outcome.
    detail: str = ""


class ProviderCall(msgspec.Struct, frozen=True):
    """Make a mutating call to a provider."""

    machine: str
    provider: str
    call: Call
    #: The cluster that a Configure binds the machine to.
    cluster: str = ""
    #: What a Configure writes into the machine's shard_metadata.
    stamp: Stamp | None = None
    #: The user data of a Configure: a secret, which is never shown.
    blob: bytes = b""
    #: The grace of a Drain.
    grace_seconds: int = 0
    #: Until when a Configure may begin: later, its user data might expire before it ends.
    until: float = math.inf

    def __repr__(self) -> str:
        what = f"{self.machine!r}, {self.provider!r}, {self.call}, {self.cluster!r}, {self.stamp!r}"
        return f"ProviderCall({what}, <{len(self.blob)} bytes>, {self.grace_seconds})"


class Settle(msgspec.Struct, frozen=True):
    """Get the machine: what became of a call is not known."""

    machine: str
    provider: str


class RequestBlob(msgspec.Struct, frozen=True):
    """Ask the cluster's operator for user data."""

    cluster: str
    request_id: str
    machine: str
    stamp: Stamp


class WithdrawBlob(msgspec.Struct, frozen=True):
    """Tell the cluster's operator that a request for user data needs no answer any more."""

    cluster: str
    request_id: str


class Instruct(msgspec.Struct, frozen=True):
    """Tell the cluster's operator to empty the machine's node."""

    cluster: str
    instruction_id: str
    machine: str
    #: What is left of the pods' grace.
    grace_seconds: int
    #: The binding that the machine goes to; None where it goes to nobody.
    preempts: Stamp | None = None


class WithdrawInstruction(msgspec.Struct, frozen=True):
    """Tell the cluster's operator that an instruction no longer stands, so that it uncordons the node."""

    cluster: str
    instruction_id: str
    machine: str
    reason: str


class Held(enum.Enum):
    """Who is no candidate for a while, and why."""

    MACHINE = "machine"
    """The machine failed, or its Node was not Ready in time (protocol rule 8)."""
    SHAPE = "shape"
    """The provider has no more machines of this type, zone and class."""
    CREATE = "create"
    """A Create of this type, zone and class failed. The second failure in a short time holds the shape out."""
    NEED = "need"
    """The operator could not give user data for this need."""
    RECLAIM = "reclaim"
    """The machine would not empty within the grace (protocol rule 14)."""


class HoldOut(msgspec.Struct, frozen=True):
    """Keep what failed from being chosen again at once."""

    held: Held
    commitment: Commitment
    #: What the provider or the operator said.
    said: str


class Fenced(msgspec.Struct, frozen=True):
    """A provider fenced a call. A person must hear of it."""

    machine: str
    text: str
    #: Whether the machine's call before that was fenced too: another process may be this shard (protocol rule 10).
    stop: bool = False


Effect = (
    Keep
    | Ended
    | ProviderCall
    | Settle
    | RequestBlob
    | WithdrawBlob
    | Instruct
    | WithdrawInstruction
    | HoldOut
    | Fenced
)
