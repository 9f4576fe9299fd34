"""What is to be said to the shard in this session, in order; a newer roll-up takes the place of one still waiting.

Reading never waits for it (protocol.md 21). It is bounded: of a session whose shard takes nothing, the frames that come
again by themselves are dropped first.
"""

import asyncio
from collections import deque

from bigfleet.wire.v1alpha1 import shard_pb2 as pb

LIMIT = 50_000
"""Frames that may wait; a report for every machine of the largest cluster fits twice."""


class OutboxFullError(Exception):
    """The shard takes too little for too long; the session is to end, and the next begins anew."""


class Outbox:
    """The frames of one session."""

    def __init__(self) -> None:
        self._frames: deque[pb.OperatorMessage] = deque()
        self._rollup: pb.OperatorMessage | None = None
        self._more = asyncio.Event()
        self._full = False
        self.dropped = 0
        """Roll-ups that a newer one replaced, and frames that found no room."""

    def put(self, frame: pb.OperatorMessage) -> None:
        """Have it sent."""
        if frame.WhichOneof("payload") == "rollup":
            self.dropped += self._rollup is not None
            self._rollup = frame
        elif len(self._frames) < LIMIT:
            self._frames.append(frame)
        else:
            self.dropped += 1
            self._full = True
        self._more.set()

    async def take(self) -> pb.OperatorMessage:
        """The next frame; waits for one. OutboxFullError once a frame was lost."""
        while True:
            if self._full:
                raise OutboxFullError
            if self._frames:
                return self._frames.popleft()
            if self._rollup is not None:
                frame, self._rollup = self._rollup, None
                return frame
            self._more.clear()
            await self._more.wait()
