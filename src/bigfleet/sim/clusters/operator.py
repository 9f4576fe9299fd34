"""A simulated cluster's operator on a real session, the shell of `Cluster`: it dials, keeps the stream, dials again.

Reading never waits for writing (protocol.md 21): what is to be said waits in a queue of its own, where a newer roll-up
takes the place of an older one.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.transport.address import Address
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.server_check import DialError
from bigfleet.wire.session_stream import Ending, Stream, StreamEndedError, shard_dialer
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_ENDINGS = 100


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds to wait: before dialling again, at first and at most; when replaced; for a frame to be taken."""

    first: float = 0.5
    most: float = 30.0
    replaced: float = 30.0
    stalled: float = 30.0


class SimOperator:
    """One operator. `run` it in a task and cancel that to stop it; it leaves nothing open."""

    def __init__(
        self, cluster: Cluster, address: Address, tls: LiveTLS | None = None, waits: Waits | None = None
    ) -> None:
        self.cluster, self.waits = cluster, waits or Waits()
        self.endings: deque[Ending] = deque(maxlen=_ENDINGS)
        """How its last streams ended, and why it could not dial."""
        self._dialer = shard_dialer(address, tls)
        self._rng = random.Random(cluster.id)  # noqa: S311 - a simulation must repeat, not surprise
        self._outgoing: deque[pb.OperatorMessage] = deque()
        self._to_write = asyncio.Event()
        self._to_tick = asyncio.Event()
        self._happened = asyncio.Event()
        self._stream: Stream | None = None

    async def run(self) -> None:
        """Be the operator, until cancelled."""
        self.cluster.world.changed = self._to_tick.set
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_time())
                group.create_task(self._keep_connected())
        finally:
            await self._dialer.hang_up()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so; looked at after everything that happens to the cluster."""
        while not is_so():
            await self._happened.wait()

    def cut(self) -> None:
        """End the stream here and now, without a word; it is dialled again."""
        if self._stream is not None:
            self._stream.cut("cut on this side")

    # Time.

    async def _keep_time(self) -> None:
        """A cluster goes on whether or not its operator is connected."""
        clock = asyncio.get_running_loop().time
        while True:
            self._to_tick.clear()
            due = self.cluster.due()
            if due is None or due > clock():
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._to_tick.wait()
            self._say(self.cluster.tick(clock()))

    def _say(self, frames: Iterable[pb.OperatorMessage]) -> None:
        """Something has happened to the cluster, and this is what it has to say."""
        for frame in frames:
            if _is_rollup(frame):
                self._outgoing = deque(older for older in self._outgoing if not _is_rollup(older))
            self._outgoing.append(frame)
        self._to_write.set()
        self._to_tick.set()
        self._happened.set()
        self._happened = asyncio.Event()

    # The stream.

    async def _keep_connected(self) -> None:
        wait = self.waits.first
        while True:
            try:
                self._stream = Stream(await self._dialer.channel())
                ending, was_heard = await self._converse(self._stream)
            except DialError as error:
                ending, was_heard = Ending("UNAVAILABLE", str(error)), False
            self.endings.append(ending)
            self._say([])
            if was_heard:
                wait = self.waits.first
            pause = self.waits.replaced if ending.replaced else wait * self._rng.uniform(0.5, 1.0)
            await asyncio.sleep(pause)
            wait = min(self.waits.most, 2 * wait)

    async def _converse(self, stream: Stream) -> tuple[Ending, bool]:
        """Speak and listen until the stream ends; returns how, and whether anything was heard."""
        clock = asyncio.get_running_loop().time
        ending, was_heard = Ending("CANCELLED", "stopped"), False
        self._outgoing.clear()
        self._say(self.cluster.opened(clock()))
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write_all(stream))
                with suppress(StreamEndedError):
                    while True:
                        frame = pb.ShardMessage.FromString(await self._read(stream))
                        was_heard = True
                        self._say(self.cluster.received(frame, clock()))
                writer.cancel()
            ending = await stream.ending()
        finally:
            stream.cut("hung up")
            self._stream = None
            self.cluster.closed(str(ending), clock())
        return ending, was_heard

    async def _write_all(self, stream: Stream) -> None:
        with suppress(StreamEndedError):
            while True:
                while self._outgoing:
                    await self._write(stream, self._outgoing.popleft())
                self._to_write.clear()
                await self._to_write.wait()

    async def _write(self, stream: Stream, frame: pb.OperatorMessage) -> None:
        try:
            async with asyncio.timeout(self.waits.stalled):
                await stream.write(frame.SerializeToString())
        except TimeoutError:
            stream.cut(f"no frame was taken for {self.waits.stalled:g} s")
            raise StreamEndedError from None

    async def _read(self, stream: Stream) -> bytes:
        return await stream.read()


def _is_rollup(frame: pb.OperatorMessage) -> bool:
    return frame.WhichOneof("payload") == "rollup"
