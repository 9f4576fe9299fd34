"""The I/O around a `Cluster`: a simulated operator dials a real shard, keeps the stream open, and dials again.

Reading never waits for writing (protocol rule 21). Frames to be sent wait in a queue, in which a newer roll-up takes
the place of an older one.
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
from bigfleet.transport.session_stream import Ending, Stream, StreamEndedError, shard_dialer
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_ENDINGS = 100


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """For how many seconds the operator waits."""

    first: float = 0.5
    """The first wait before dialling again; each further one is twice as long."""
    most: float = 30.0
    """The longest wait before dialling again."""
    replaced: float = 30.0
    """The wait before dialling again after another session has replaced this operator's."""
    stalled: float = 30.0
    """How long the shard may take to accept a frame before the stream is cut."""


class SimOperator:
    """One operator. `run` it in a task, and cancel the task to stop it; nothing stays open."""

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
        """Wait until `is_so`, which is asked after everything that happens to the cluster."""
        while not is_so():
            await self._happened.wait()

    def cut(self) -> None:
        """End the stream at once, without telling the shard; the operator then dials again."""
        if self._stream is not None:
            self._stream.cut("cut on this side")

    # Time.

    async def _keep_time(self) -> None:
        """Tick when the cluster is due, whether or not its operator is connected."""
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
        """Queue these frames, and wake whoever waits for something to happen to the cluster."""
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
        """Send and receive until the stream ends; returns how it ended, and whether any frame was received."""
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
