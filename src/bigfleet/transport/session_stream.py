"""The stream of one session from the operator's side, as bytes, and how it ends.

Frames are bytes here, so that a test can also send what is no frame.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc
import msgspec

from bigfleet.transport.address import Address
from bigfleet.transport.dial import Dialer
from bigfleet.transport.grpc_options import CHANNEL_OPTIONS
from bigfleet.transport.identity import Role
from bigfleet.transport.renewal import LiveTLS

T = TypeVar("T")

SESSION = "/bigfleet.v1alpha1.Shard/Session"
"""The method that opens a session."""

# Otherwise gRPC lets all operators of a process share a connection, and a shard bounds the sessions on one.
_OPTIONS = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))


class Ending(msgspec.Struct, frozen=True):
    """How a stream ended: the name of its gRPC code, and the text with it."""

    code: str
    details: str

    @property
    def replaced(self) -> bool:
        """Whether another session of the same cluster has replaced this one."""
        return self.code == "ABORTED" and self.details == "replaced"

    def __str__(self) -> str:
        return f"{self.code}: {self.details}" if self.details else self.code


class StreamEndedError(Exception):
    """The stream is over; `ending` says how."""


def shard_dialer(address: Address, tls: LiveTLS | None) -> Dialer:
    """A dialer for a shard, with a connection of its own."""
    return Dialer(address, Role.SHARD, tls, _OPTIONS)


class Stream:
    """A session's stream, from the operator's side."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        session = channel.stream_stream(SESSION, request_serializer=_as_is, response_deserializer=_as_is)
        self._call = session()
        self._why = ""
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        # The status is read at once, because a write that fails later replaces it by INTERNAL (grpc issue 36066).
        self._call.add_done_callback(self._ended)

    async def write(self, data: bytes) -> None:
        """Send a frame and wait until gRPC has taken it, or StreamEndedError."""
        try:
            await self._call.write(data)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise StreamEndedError from error
        except asyncio.CancelledError:
            self._raise_if_cut()
            raise

    async def read(self) -> bytes:
        """The next frame, or StreamEndedError."""
        try:
            data = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise StreamEndedError from error
        except asyncio.CancelledError:
            self._raise_if_cut()
            raise
        if not isinstance(data, bytes):
            raise StreamEndedError
        return data

    def cut(self, why: str) -> None:
        """End the stream from this side. Does nothing where it has ended."""
        self._why = self._why or why
        self._call.cancel()

    async def ending(self) -> Ending:
        """How the stream ended; waits until it has."""
        ending = await self._ending
        return Ending(ending.code, self._why) if ending.code == "CANCELLED" and self._why else ending

    def _ended(self, call: grpc.aio.Call) -> None:
        if not self._ending.done():
            self._ending.set_result(Ending(_at_once(call.code()).name, _at_once(call.details()) or ""))

    def _raise_if_cut(self) -> None:
        """Raise StreamEndedError where the call was cancelled and not the task: gRPC raises CancelledError for both."""
        task = asyncio.current_task()
        if self._ending.done() and (task is None or not task.cancelling()):
            raise StreamEndedError


def _at_once(answer: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that does not wait."""
    try:
        answer.send(None)
    except StopIteration as result:
        value: T = result.value
        return value
    raise RuntimeError("gRPC calls back before the status is there")


def _as_is(data: bytes) -> bytes:
    return data
