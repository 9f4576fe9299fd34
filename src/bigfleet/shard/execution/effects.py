"""What the execute part wants done: values for a shell to carry out, in order."""

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


class Keep(msgspec.Struct, frozen=True):
    """Write the commitment down. Where it is new, no other effect on its machine may come before it is durable."""

    commitment: Commitment


class Ended(msgspec.Struct, frozen=True):
    """The commitment is no more: erase it, count it."""

    commitment: Commitment
    outcome: Outcome
    detail: str = ""


class Ask(msgspec.Struct, frozen=True):
    """Call the provider. For Configure, `stamp` goes into shard_metadata and `blob` is the user data, a secret, with
    which the call may begin `until` then.
    """

    machine: str
    provider: str
    call: Call
    cluster: str = ""
    stamp: Stamp | None = None
    blob: bytes = b""
    grace_seconds: int = 0
    until: float = math.inf

    def __repr__(self) -> str:
        what = f"{self.machine!r}, {self.provider!r}, {self.call}, {self.cluster!r}, {self.stamp!r}"
        return f"Ask({what}, <{len(self.blob)} bytes>, {self.grace_seconds})"


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
    """The request needs no answer any more."""

    cluster: str
    request_id: str


class Instruct(msgspec.Struct, frozen=True):
    """Tell the cluster's operator to empty the machine's node; `preempts` says whom it goes to, None for nobody."""

    cluster: str
    instruction_id: str
    machine: str
    grace_seconds: int
    preempts: Stamp | None = None


class WithdrawInstruction(msgspec.Struct, frozen=True):
    """The instruction no longer stands: uncordon."""

    cluster: str
    instruction_id: str
    machine: str
    reason: str


class Held(enum.Enum):
    """Who is no candidate for a while, and why."""

    MACHINE = "machine"
    """It failed, or was not Ready in time (protocol.md 8)."""
    SHAPE = "shape"
    """Its type, zone and class are out of stock."""
    CREATE = "create"
    """A Create of its type, zone and class failed; the second in a short time holds them all."""
    NEED = "need"
    """Its operator could not give user data."""
    RECLAIM = "reclaim"
    """It would not empty within the grace (protocol.md 14)."""


class HoldOut(msgspec.Struct, frozen=True):
    """Keep it from being chosen again at once."""

    held: Held
    commitment: Commitment


class Incident(msgspec.Struct, frozen=True):
    """Something that a person must hear of; `stop` where the shard may be a ghost of itself (protocol.md 10)."""

    machine: str
    text: str
    stop: bool = False


Effect = Keep | Ended | Ask | Settle | RequestBlob | WithdrawBlob | Instruct | WithdrawInstruction | HoldOut | Incident
