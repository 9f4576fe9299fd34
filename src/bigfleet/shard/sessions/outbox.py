"""The frames that wait to be sent to one cluster: in order, only the newest of each key, bounded. No I/O.

A frame is dropped only if the next connect replays it anyway. While there is no session, only withdrawals are kept:
everything else is replayed from what the shard knows when the operator connects.
"""

from collections import OrderedDict
from collections.abc import Iterable

from bigfleet.wire.v1alpha1 import shard_pb2 as pb

ROOM = 65_536
"""How many acks, node states and capacity updates may wait: one for each node of the largest clusters known. The room
is full only when machines come and go while the peer does not read."""

STALL_SECONDS = 30.0
"""A peer that takes no frame for so long is cut (protocol rule 21)."""

Key = tuple[str, ...]

_DROPPABLE = frozenset({"ack", "node_state_update", "available_capacity"})
_WITHDRAWN = frozenset({"bootstrap_withdrawn", "reclaim_withdrawn"})


class Outbox:
    """One cluster's queue. The writer takes a frame, writes it and calls `sent`; then it may take the next."""

    def __init__(self, room: int = ROOM) -> None:
        self._least_room = self._room = room
        self._queue: OrderedDict[Key, pb.ShardMessage] = OrderedDict()
        self._droppable: OrderedDict[Key, None] = OrderedDict()
        self._in_hand: tuple[Key, pb.ShardMessage] | None = None
        self._waiting_since: float | None = None
        self._connected = False
        self._acks = 0
        #: How many frames were dropped for want of room.
        self.dropped = 0
        #: Whether a frame was dropped since the last connect. Then states are replayed once the queue is empty.
        self.behind = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, frame: pb.ShardMessage, now: float) -> None:
        """Queue a frame, in the place of an older one with the same key; the oldest that may be dropped makes room."""
        key, payload = self._key(frame), frame.WhichOneof("payload")
        if not self._connected and payload not in _WITHDRAWN:
            return
        self._queue[key] = frame
        if payload in _DROPPABLE:
            self._droppable[key] = None
            if len(self._droppable) > self._room:
                oldest, _ = self._droppable.popitem(last=False)
                del self._queue[oldest]
                self.dropped += 1
                self.behind = True
        if self._connected and self._waiting_since is None:
            self._waiting_since = now

    def take(self) -> pb.ShardMessage | None:
        """The next frame to write, if there is one."""
        if self._in_hand is not None:
            raise ValueError("a frame is in hand: say sent or disconnected before the next is taken")
        if not self._connected or not self._queue:
            return None
        self._in_hand = key, frame = self._queue.popitem(last=False)
        self._droppable.pop(key, None)
        return frame

    def sent(self, now: float) -> None:
        """The peer has taken the frame in hand."""
        self._in_hand = None
        self._waiting_since = now if self._queue else None

    def connected(
        self,
        instructions: Iterable[pb.ReclaimInstruction],
        requests: Iterable[pb.BootstrapRequest],
        states: Iterable[pb.ShardMessage],
        now: float,
    ) -> None:
        """A session begins, and the writer of the session before has stopped.

        The queue then holds withdrawals that were never sent, the instructions that stand with what is left of their
        grace, the requests without an answer, and `states`: whatever else the caller replays.
        """
        self.disconnected()
        self._connected = True
        self._replay(pb.ShardMessage(reclaim_instruction=instruction) for instruction in instructions)
        self._replay(pb.ShardMessage(bootstrap_request=request) for request in requests)
        self.catch_up(states, now)

    def catch_up(self, states: Iterable[pb.ShardMessage], now: float) -> None:
        """Queue the states of all machines: on a connect, or after frames were dropped."""
        self.behind = False
        frames = list(states)
        # A cluster with more machines than there is room for must not lose the first of them again and again.
        self._room = max(self._least_room, 2 * len(frames))
        for frame in frames:
            self.put(frame, now)
        if self._queue and self._waiting_since is None:
            self._waiting_since = now

    def _replay(self, frames: Iterable[pb.ShardMessage]) -> None:
        for frame in frames:
            self._queue[self._key(frame)] = frame

    def disconnected(self) -> None:
        """The session has ended. A withdrawal that was being written may not have arrived, so it is queued again."""
        if self._in_hand is not None:
            key, frame = self._in_hand
            if self._queue.setdefault(key, frame) is frame:
                self._queue.move_to_end(key, last=False)
        self._connected, self._in_hand, self._waiting_since = False, None, None
        self._droppable.clear()
        # A withdrawal of single nodes answers what the operator says on every connect.
        kept = ((k, f) for k, f in self._queue.items() if k[0] != "nodes" and f.WhichOneof("payload") in _WITHDRAWN)
        self._queue = OrderedDict(kept)

    def stalled(self, now: float) -> bool:
        """Whether frames have waited too long without the peer taking one."""
        return self._waiting_since is not None and now - self._waiting_since >= STALL_SECONDS

    @property
    def overfull(self) -> bool:
        """Whether more frames wait that may not be dropped than there is room for. The peer is then cut."""
        return len(self._queue) - len(self._droppable) > self._room

    def _key(self, frame: pb.ShardMessage) -> Key:
        """The key of a frame. A withdrawal has the key of what it withdraws, and takes its place in the queue."""
        match frame.WhichOneof("payload"):
            case "node_state_update":
                return "state", frame.node_state_update.supersedes_key
            case "available_capacity":
                return "state", frame.available_capacity.supersedes_key
            case "bootstrap_request":
                return "request", frame.bootstrap_request.request_id
            case "bootstrap_withdrawn":
                return "request", frame.bootstrap_withdrawn.request_id
            case "reclaim_instruction":
                return "reclaim", frame.reclaim_instruction.instruction_id
            case "reclaim_withdrawn":
                withdrawn = frame.reclaim_withdrawn
                if withdrawn.nodes:
                    return "nodes", withdrawn.instruction_id, *withdrawn.nodes
                return "reclaim", withdrawn.instruction_id
            case "ack":
                self._acks += 1
                return "ack", str(self._acks)
            case payload:
                raise ValueError(f"a frame with payload {payload} has no place in an outbox")
