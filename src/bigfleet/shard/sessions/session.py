"""One operator's stream as a state machine over frames: what each frame means for the shard, and when the stream ends.

A stream is new until its Hello, then its cluster's live session, then over. A cluster has one live session; a newer
session replaces an older one (protocol rule 21). What a frame names must belong to the session's cluster (30).
"""

from collections.abc import Iterable
from typing import Protocol

from google.protobuf.message import DecodeError

from bigfleet.shard.demand.rollup_reader import RollupReader
from bigfleet.shard.sessions.outbox import STALL_SECONDS, Outbox
from bigfleet.shard.sessions.outputs import (
    BlobAnswered,
    BlobFailed,
    Close,
    Code,
    IdentityRefused,
    NodeDrained,
    NodeProgress,
    NodeReady,
    Opened,
    Output,
    ReclaimAcked,
    RolledUp,
    RollupRefused,
    Send,
    SessionEnded,
    Standing,
    Strayed,
    Thing,
)
from bigfleet.transport.identity import Identity, NotPermittedError, Role, require, shown
from bigfleet.wire.errors import WireError
from bigfleet.wire.hello import PROTOCOL_VERSION
from bigfleet.wire.v1alpha1 import capacity_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

HELLO_SECONDS = 30.0
"""A stream that has not said Hello by then is ended."""

MAX_BLOB_BYTES = 1 << 20
"""The largest user data that is taken. No provider of the kit takes larger user data."""

MAX_CORDONED = 65_536
"""How many nodes one frame may name as cordoned. No cluster has more nodes."""

_MAX_ID = 253
"""The longest id of a cluster."""

_MAX_TEXT = 1000
"""How many characters of an operator's text are kept."""

_MAX_FEATURES = 64
"""How many features of a Hello are read, and how long the name of each may be."""

_EMPTIED = {pb.NodeDrainedReport.OUTCOME_DRAINED: True, pb.NodeDrainedReport.OUTCOME_FAILED: False}


_PROGRESS = {progress.value: progress for progress in NodeProgress}


class SessionLookups(Protocol):
    """What a session must know of the rest of the shard to read a frame."""

    def elsewhere(self, cluster: str) -> str:
        """The address of the shard that the cluster is bound to; empty if it is this one or none yet."""

    def standing(self, cluster: str, thing: Thing, name: str) -> Standing:
        """Whose the thing of that id or name is."""

    def stands(self, instruction: str, node: str) -> bool:
        """Whether the instruction stands and is about that node."""


class _ForeignError(Exception):
    """A frame names a thing of another cluster."""

    def __init__(self, cluster: str, thing: str, name: str) -> None:
        super().__init__(f"{thing} {shown(name)} is not of cluster {cluster!r}")


class Session:
    """One stream. Every method returns what follows from its event, in order."""

    def __init__(
        self, number: int, peer: Identity | None, lookups: SessionLookups, live: "dict[str, Session]", now: float
    ) -> None:
        self.number, self._peer, self._lookups, self._live = number, peer, lookups, live
        #: The cluster whose session this is; empty before Hello.
        self.cluster = ""
        self._began = now
        self._over = False
        self._reader = RollupReader()

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended. Frames that it still brings are dropped."""
        return self._over

    def read(self, data: bytes) -> list[Output]:
        """The bytes of a frame have arrived. Bytes that are no frame end the stream."""
        if self._over:
            return []
        try:
            frame = pb.OperatorMessage.FromString(data)
        except DecodeError:
            return self.close(Code.INVALID_ARGUMENT, f"{len(data)} bytes are no OperatorMessage")
        return self.received(frame)

    def received(self, frame: pb.OperatorMessage) -> list[Output]:
        """A frame has arrived. A payload that the shard does not know is passed over."""
        if self._over:
            return []
        payload = frame.WhichOneof("payload")
        if not self.cluster:
            if payload != "hello":
                return self.close(Code.INVALID_ARGUMENT, f"the first frame must be hello, not {payload}")
            return self._hello(frame.hello)
        try:
            match payload:
                case "hello":
                    return self.close(Code.INVALID_ARGUMENT, "hello is said once")
                case "rollup":
                    return self._rollup(frame.rollup)
                case "bootstrap_response":
                    return self._blob(frame.bootstrap_response)
                case "reclaim_ack":
                    return self._reclaim_ack(frame.reclaim_ack)
                case "node_ready":
                    return self._node_ready(frame.node_ready)
                case "node_drained":
                    return self._node_drained(frame.node_drained)
                case "cordoned_nodes":
                    return self._cordoned(frame.cordoned_nodes.nodes)
                case _:
                    return []
        except _ForeignError as error:
            return self.close(Code.PERMISSION_DENIED, str(error))

    def tick(self, outbox: Outbox | None, now: float) -> list[Output]:
        """Time has passed. `outbox` is that of this session's cluster, None before Hello."""
        if self._over:
            return []
        if not self.cluster and now - self._began >= HELLO_SECONDS:
            return self.close(Code.INVALID_ARGUMENT, f"no hello within {HELLO_SECONDS:.0f} s")
        if outbox is not None and outbox.stalled(now):
            return self.close(Code.UNAVAILABLE, f"no frame taken for {STALL_SECONDS:.0f} s")
        if outbox is not None and outbox.overfull:
            return self.close(Code.RESOURCE_EXHAUSTED, f"{len(outbox)} frames wait; connect again for a replay")
        return []

    def close(self, code: Code, reason: str) -> list[Output]:
        """End the stream from this side."""
        return [] if self._over else [Close(self.number, code, reason), *self.ended()]

    def ended(self) -> list[Output]:
        """The stream has ended. A session that was replaced or closed before returns nothing."""
        self._over = True
        if self._live.get(self.cluster) is not self:
            return []
        del self._live[self.cluster]
        return [SessionEnded(self.cluster)]

    def _hello(self, hello: pb.Hello) -> list[Output]:
        cluster = hello.cluster_id
        if not 0 < len(cluster) <= _MAX_ID or "\0" in cluster:
            return self.close(Code.INVALID_ARGUMENT, f"cluster_id {shown(cluster)} must have 1 to {_MAX_ID} characters")
        if hello.protocol_version != PROTOCOL_VERSION:
            problem = f"protocol_version {shown(hello.protocol_version)}; this shard speaks {PROTOCOL_VERSION!r}"
            return self.close(Code.INVALID_ARGUMENT, problem)
        try:
            require(self._peer, Role.CLUSTER, named=cluster)
        except NotPermittedError as error:
            return [IdentityRefused(cluster, str(error)), *self.close(Code.PERMISSION_DENIED, str(error))]
        if address := self._lookups.elsewhere(cluster):
            return self.close(Code.FAILED_PRECONDITION, f"cluster {cluster!r} is bound to the shard at {address}")
        older = self._live.get(cluster)
        self._live[cluster], self.cluster = self, cluster
        # The older session ends only now, since a stream that is refused must not end it.
        outputs = [] if older is None else older.close(Code.ABORTED, "replaced")
        features = frozenset(name for name in hello.features[:_MAX_FEATURES] if len(name) <= _MAX_FEATURES)
        return [*outputs, Opened(cluster, features, older is not None)]

    def _rollup(self, message: capacity_pb2.ClusterCapacityNeeds) -> list[Output]:
        if message.cluster_id and message.cluster_id != self.cluster:
            raise _ForeignError(self.cluster, "cluster", message.cluster_id)
        try:
            return [RolledUp(self.cluster, self._reader.read(message))]
        except WireError as error:
            return [RollupRefused(self.cluster, str(error))]

    def _blob(self, response: pb.BootstrapBlobResponse) -> list[Output]:
        request = response.request_id
        if not self._is_ours(Thing.REQUEST, request):
            return [Strayed(self.cluster, Thing.REQUEST, _cut(request))]
        if response.error or not response.user_data:
            error = _cut(response.error) or "neither user data nor an error came"
            return [BlobFailed(self.cluster, request, error, response.about_machine)]
        if len(response.user_data) > MAX_BLOB_BYTES:
            size = f"user data of {len(response.user_data):,} bytes; providers take {MAX_BLOB_BYTES:,}"
            return [BlobFailed(self.cluster, request, size)]
        if response.ttl_seconds < 0:
            return [BlobFailed(self.cluster, request, f"ttl_seconds is {response.ttl_seconds}")]
        return [BlobAnswered(self.cluster, request, response.user_data, response.ttl_seconds)]

    def _reclaim_ack(self, ack: pb.ReclaimAck) -> list[Output]:
        if not self._is_ours(Thing.INSTRUCTION, ack.instruction_id):
            return [Strayed(self.cluster, Thing.INSTRUCTION, _cut(ack.instruction_id))]
        return [ReclaimAcked(self.cluster, ack.instruction_id)]

    def _node_ready(self, report: pb.NodeReadyReport) -> list[Output]:
        ours = self._is_ours(Thing.MACHINE, report.machine_id)
        self._is_ours(Thing.NODE, report.node_name)
        if not ours:
            return [Strayed(self.cluster, Thing.MACHINE, _cut(report.machine_id))]
        if (state := _PROGRESS.get(report.state)) is None:
            return []
        return [NodeReady(self.cluster, report.machine_id, state)]

    def _node_drained(self, report: pb.NodeDrainedReport) -> list[Output]:
        ours = self._is_ours(Thing.INSTRUCTION, report.instruction_id)
        self._is_ours(Thing.NODE, report.node_name)
        if not ours:
            return [Strayed(self.cluster, Thing.INSTRUCTION, _cut(report.instruction_id))]
        if not self._lookups.stands(report.instruction_id, report.node_name):
            return [Strayed(self.cluster, Thing.NODE, _cut(report.node_name))]
        if (empty := _EMPTIED.get(report.outcome)) is None:
            return []
        return [NodeDrained(self.cluster, report.instruction_id, empty, _cut(report.reason))]

    def _cordoned(self, nodes: Iterable[pb.CordonedNode]) -> list[Output]:
        """Withdraw instructions that no longer stand, so that the operator uncordons their nodes (protocol rule 22).

        A node that another cluster has now is no offence here: it was taken while this operator was away. Ending the
        stream would lock the operator out for good, since it names the same nodes on every connect.
        """
        named = [(each.instruction_id, each.node) for each in nodes]
        if len(named) > MAX_CORDONED:
            return self.close(Code.INVALID_ARGUMENT, f"{len(named)} cordoned nodes; at most {MAX_CORDONED} in a frame")
        over: dict[str, list[str]] = {}
        for instruction, node in named:
            stands = self._is_ours(Thing.INSTRUCTION, instruction) and self._lookups.stands(instruction, node)
            # A withdrawal that names no node would withdraw the whole instruction.
            if node and not stands:
                over.setdefault(instruction, []).append(node)
        return [Send(self.cluster, _withdrawn(instruction, names)) for instruction, names in over.items()]

    def _is_ours(self, thing: Thing, name: str) -> bool:
        """Whether the thing is the cluster's. A thing of another cluster ends the stream."""
        standing = self._lookups.standing(self.cluster, thing, name) if name else Standing.UNKNOWN
        if standing is Standing.FOREIGN:
            raise _ForeignError(self.cluster, thing, name)
        return standing is Standing.OURS


class Sessions:
    """All streams of a shard; at most one live session per cluster."""

    def __init__(self, lookups: SessionLookups) -> None:
        self._lookups = lookups
        self._live: dict[str, Session] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._live)

    def stream(self, peer: Identity | None, now: float) -> Session:
        """A stream has begun. `peer` is whom the certificate names, None without TLS."""
        self._number += 1
        return Session(self._number, peer, self._lookups, self._live, now)

    def of(self, cluster: str) -> Session | None:
        """The cluster's live session, if it has one."""
        return self._live.get(cluster)


def _withdrawn(instruction: str, nodes: list[str]) -> pb.ShardMessage:
    reason = "the instruction is cancelled or not known"
    return pb.ShardMessage(
        reclaim_withdrawn=pb.ReclaimWithdrawn(instruction_id=instruction, nodes=nodes, reason=reason)
    )


def _cut(text: str) -> str:
    return text[:_MAX_TEXT]
