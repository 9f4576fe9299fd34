"""The gRPC side of sessions: bytes in, frames out. Nothing is decided here.

Reading never waits for writing (protocol rule 21): a task of its own writes the frames of a stream. The task runs only
while a frame waits to be sent, so that ten thousand quiet streams cost little.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import structlog

from bigfleet.shard.core.core import Core
from bigfleet.shard.orders import EndStream
from bigfleet.shard.sessions.outputs import Close, Code
from bigfleet.shard.sessions.session import Session
from bigfleet.transport.identity import IdentityError, peer_identity
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_log = structlog.get_logger("bigfleet.shard")

_SERVICE = pb.DESCRIPTOR.services_by_name["Shard"].full_name
_LARGE = 64 * 1024
"""The longest frame that is read on the event loop. Reading a roll-up of this size takes some milliseconds."""

_TICK_SECONDS = 5.0
"""How often streams are cut that do not greet or do not read."""

_Context = grpc.aio.ServicerContext[bytes, bytes]


class _Stream:
    """One stream: its session, and how it ends."""

    def __init__(self, session: Session, context: _Context) -> None:
        self.session, self.context = session, context
        self.writer: asyncio.Task[None] | None = None
        self.end: asyncio.Future[tuple[Code, str] | None] = asyncio.get_running_loop().create_future()

    def close(self, code: Code, reason: str) -> None:
        """End it with this status."""
        if not self.end.done():
            self.end.set_result((code, reason))

    def hung_up(self) -> None:
        """The peer has ended it."""
        if not self.end.done():
            self.end.set_result(None)


class SessionStreams:
    """All streams of a shard."""

    def __init__(self, core: Core, after: Callable[[], None]) -> None:
        self._core, self._after = core, after
        self._streams: dict[int, _Stream] = {}
        self._shut = ""
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._streams)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Answer the Shard service."""
        session: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._session)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Session": session}),))

    def wake(self, cluster: str) -> None:
        """The cluster's outbox has something to send."""
        session = self._core.parts.sessions.of(cluster)
        stream = None if session is None else self._streams.get(session.number)
        if stream is not None and stream.writer is None:
            stream.writer = asyncio.create_task(self._write(stream, cluster))

    def end(self, order: EndStream) -> None:
        """End a stream."""
        stream = self._streams.get(order.stream)
        if stream is not None:
            stream.close(order.code, order.reason)

    def shut(self, reason: str) -> None:
        """End every stream, and take no new one."""
        self._shut = reason
        for stream in list(self._streams.values()):
            self._core.said(stream.session.close(Code.UNAVAILABLE, reason))
        self._after()

    async def gone(self) -> None:
        """Wait until no stream is left."""
        await self._none.wait()

    async def tick(self) -> None:
        """Cut streams that do not greet or do not read, for as long as this runs."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = self._core.clocks.now()
            for stream in list(self._streams.values()):
                outbox = self._core.parts.sender.outboxes.get(stream.session.cluster)
                self._core.said(stream.session.tick(outbox, now))
            self._after()

    async def _session(self, _requests: AsyncIterator[bytes], context: _Context) -> None:
        try:
            peer = peer_identity(context)
        except IdentityError as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        # Sent with the first frame, metadata would be too late: a stream that ends during that frame could not say why.
        await context.send_initial_metadata(())
        if self._shut:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._shut)
        stream = _Stream(self._core.stream(peer), context)
        self._streams[stream.session.number] = stream
        self._none.clear()
        reading = asyncio.create_task(self._read(stream))
        try:
            ended = await stream.end
        finally:
            del self._streams[stream.session.number]
            if not self._streams:
                self._none.set()
            tasks = [reading, *([stream.writer] if stream.writer is not None else [])]
            for task in tasks:
                task.cancel()
            self._core.said(stream.session.ended())
            self._after()
            await asyncio.gather(*tasks, return_exceptions=True)
        if ended is not None:
            code, reason = ended
            await context.abort(grpc.StatusCode[code], reason)

    async def _read(self, stream: _Stream) -> None:
        session, context = stream.session, stream.context
        try:
            while True:
                data: Any = await context.read()
                if data is grpc.aio.EOF:
                    break
                if len(data) > _LARGE:
                    outputs = await asyncio.to_thread(session.read, data)
                    # The session was replaced or cut meanwhile, so its outputs are void unless they end the stream.
                    if session.is_over and not any(isinstance(output, Close) for output in outputs):
                        outputs = []
                else:
                    outputs = session.read(data)
                self._core.said(outputs)
                self._after()
        except Exception:  # noqa: BLE001 - a fault of ours in one stream must not go unsaid
            _log.exception("session_broke", cluster=session.cluster)
            stream.close(Code.UNAVAILABLE, "an internal error; it is in the shard's log")
        finally:
            stream.hung_up()

    async def _write(self, stream: _Stream, cluster: str) -> None:
        sender, sessions, clock = self._core.parts.sender, self._core.parts.sessions, self._core.clocks.now
        outbox = sender.outboxes[cluster]
        try:
            while sessions.of(cluster) is stream.session:
                frame = outbox.take()
                if frame is None and outbox.behind:
                    outbox.catch_up(sender.states(cluster), clock())
                    frame = outbox.take()
                if frame is None:
                    break
                await stream.context.write(frame.SerializeToString())
                if sessions.of(cluster) is stream.session:
                    outbox.sent(clock())
        except grpc.aio.BaseError:
            stream.hung_up()
        finally:
            stream.writer = None
