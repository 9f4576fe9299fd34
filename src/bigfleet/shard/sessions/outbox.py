"""What waits to be sent to one cluster: in order, newest word per key, bounded. No I/O.

A frame is dropped only if the next connect brings it anyway. While there is no session nothing but withdrawals is kept,
since everything else is replayed from what the shard knows then.
"""

from collections import OrderedDict
from collections.abc import Iterable

from bigfleet.wire.v1alpha1 import shard_pb2 as pb

ROOM = 65_536
"""Acks, node states and capacity updates that may wait: one for each node of the largest clusters known, so that this
fills up only when machines come and go while the peer does not read."""

STALL_SECONDS = 30.0
"""A peer that takes no frame for so long is cut (protocol.md 21)."""

Key = tuple[str, ...]

_DROPPABLE = frozenset({"ack", "node_state_update", "available_capacity"})
_WITHDRAWN = frozenset({"bootstrap_withdrawn", "reclaim_withdrawn"})


class Outbox:
    """One cluster's queue. A shell takes a frame, writes it, and says `sent`; only then may it take the next."""

    def __init__(self, room: int = ROOM) -> None:
        self._least_room = self._room = room
        self._queue: OrderedDict[Key, pb.ShardMessage] = OrderedDict()
        self._droppable: OrderedDict[Key, None] = OrderedDict()
        self._in_hand: tuple[Key, pb.ShardMessage] | None = None
        self._waiting_since: float | None = None
        self._connected = False
        self._acks = 0
        self.dropped = 0
        """Frames dropped for want of room, ever."""
        self.behind = False
        """Whether any was dropped since the last connect: then states are to be replayed once the queue is empty."""

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
        """A session begins, and the writer of the one before has stopped.

        Queued are withdrawals that never left, then all living instructions with the grace that remains, all unanswered
        requests, the states of all machines bound to the cluster and whatever else the caller replays.
        """
        self.disconnected()
        self._connected = True
        self._replay(pb.ShardMessage(reclaim_instruction=instruction) for instruction in instructions)
        self._replay(pb.ShardMessage(bootstrap_request=request) for request in requests)
        self.catch_up(states, now)

    def catch_up(self, states: Iterable[pb.ShardMessage], now: float) -> None:
        """Queue the states of all machines, as on a connect; while a session lasts, for one that has fallen behind."""
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
        """The session has ended; a withdrawal in hand may not have arrived and goes to the front again."""
        if self._in_hand is not None:
            key, frame = self._in_hand
            if self._queue.setdefault(key, frame) is frame:
                self._queue.move_to_end(key, last=False)
        self._connected, self._in_hand, self._waiting_since = False, None, None
        self._droppable.clear()
        # A withdrawal of single nodes answers what the operator says on connect, and it will say it again.
        kept = ((k, f) for k, f in self._queue.items() if k[0] != "nodes" and f.WhichOneof("payload") in _WITHDRAWN)
        self._queue = OrderedDict(kept)

    def stalled(self, now: float) -> bool:
        """Whether frames have waited too long without the peer taking one."""
        return self._waiting_since is not None and now - self._waiting_since >= STALL_SECONDS

    @property
    def overfull(self) -> bool:
        """Whether so much waits that may not be dropped that the peer is better cut: a connect replays it."""
        return len(self._queue) - len(self._droppable) > self._room

    def _key(self, frame: pb.ShardMessage) -> Key:
        """What a frame is the newest word on; a withdrawal takes the place of what it withdraws while that waits."""
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
