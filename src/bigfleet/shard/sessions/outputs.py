"""What a session returns: values that say what an operator's frames mean, and the words in which they say it."""

import enum

import msgspec

from bigfleet.model.demand.need import Rollup
from bigfleet.wire.v1alpha1 import shard_pb2 as pb


class Code(enum.StrEnum):
    """How a stream ends, by the name of its gRPC code."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    UNAVAILABLE = "UNAVAILABLE"
    ABORTED = "ABORTED"


class Thing(enum.StrEnum):
    """What a frame may name."""

    REQUEST = "request"
    INSTRUCTION = "instruction"
    NODE = "node"
    MACHINE = "machine"


class Standing(enum.Enum):
    """Whose a thing is, seen from one cluster."""

    OURS = "ours"
    """The thing is the cluster's."""
    UNKNOWN = "unknown"
    """The thing is nobody's, is over, or has left the cluster. A late report about it is no offence."""
    FOREIGN = "foreign"
    """The thing is another cluster's."""


class NodeProgress(enum.IntEnum):
    """How far a Node has come. Values are the wire numbers; a report with any other number is passed over."""

    ABSENT = 1
    NOT_READY = 2
    READY = 3


class Opened(msgspec.Struct, frozen=True):
    """The cluster has a live session: send it again what still stands."""

    cluster: str
    #: The features that the operator named in its Hello.
    features: frozenset[str]
    #: Whether the session took the place of an older one.
    replaced: bool


class SessionEnded(msgspec.Struct, frozen=True):
    """The cluster's live session has ended, and no other has taken its place."""

    cluster: str


class IdentityRefused(msgspec.Struct, frozen=True):
    """A certificate does not fit the cluster that the stream named in its Hello. To be counted."""

    cluster: str
    reason: str


class RolledUp(msgspec.Struct, frozen=True):
    """A roll-up that is well formed. Whether it becomes the demand is decided by demand."""

    cluster: str
    rollup: Rollup


class RollupRefused(msgspec.Struct, frozen=True):
    """A malformed roll-up: log it, count it and acknowledge it with this reason. The demand stays as it was."""

    cluster: str
    reason: str


class BlobAnswered(msgspec.Struct, frozen=True):
    """User data for a bootstrap request: a secret, which is never shown."""

    cluster: str
    request: str
    user_data: bytes
    ttl_seconds: int

    def __repr__(self) -> str:
        size, ttl = len(self.user_data), self.ttl_seconds
        return f"BlobAnswered({self.cluster!r}, {self.request!r}, <{size} bytes>, {ttl})"


class BlobFailed(msgspec.Struct, frozen=True):
    """The operator cannot give user data for a request."""

    cluster: str
    request: str
    error: str
    #: Whether the error is about this machine only; otherwise no machine of the need would do.
    about_machine: bool = False


class ReclaimAcked(msgspec.Struct, frozen=True):
    """The node of an instruction is cordoned."""

    cluster: str
    instruction: str


class NodeReady(msgspec.Struct, frozen=True):
    """How far a machine's Node has come."""

    cluster: str
    machine: str
    state: NodeProgress


class NodeDrained(msgspec.Struct, frozen=True):
    """The operator has emptied the node of an instruction, or has given up."""

    cluster: str
    instruction: str
    #: Whether the node is empty.
    empty: bool
    #: Why the node could not be emptied.
    reason: str


class Strayed(msgspec.Struct, frozen=True):
    """A frame about something that the shard does not know was dropped. To be logged."""

    cluster: str
    thing: Thing
    name: str


class Send(msgspec.Struct, frozen=True):
    """Put a frame into the cluster's outbox."""

    cluster: str
    frame: pb.ShardMessage


class Close(msgspec.Struct, frozen=True):
    """End the stream of that number. Frames that it still sends are dropped."""

    stream: int
    code: Code
    reason: str


Output = (
    Opened | SessionEnded | IdentityRefused | RolledUp | RollupRefused | BlobAnswered | BlobFailed | ReclaimAcked
    | NodeReady | NodeDrained | Strayed | Send | Close
)  # fmt: skip
