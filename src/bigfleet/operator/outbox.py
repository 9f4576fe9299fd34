"""The frames that wait to be sent in a session, in order. A newer roll-up replaces one that still waits.

Reading from the shard never waits for the outbox (protocol rule 21). The outbox is bounded: when the shard takes
nothing for too long, the session ends, and the next session says again what matters.
"""

import asyncio
from collections import deque

from bigfleet.wire.v1alpha1 import shard_pb2 as pb

LIMIT = 50_000
"""Frames that may wait: two reports for every machine of the largest cluster."""


class OutboxFullError(Exception):
    """The shard has taken too little for too long, and a frame was lost: the session must end."""


class Outbox:
    """The frames of one session that wait to be sent."""

    def __init__(self) -> None:
        self._frames: deque[pb.OperatorMessage] = deque()
        self._rollup: pb.OperatorMessage | None = None
        self._more = asyncio.Event()
        self._full = False
        self.dropped = 0
        """How many roll-ups were replaced by newer ones, and frames lost for want of room."""

    def put(self, frame: pb.OperatorMessage) -> None:
        """Have a frame sent."""
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
