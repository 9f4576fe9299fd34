"""The stream to the shard: dialled, kept, dialled again, for as long as this operator leads (protocol.md 21, 24).

Reading and writing never wait for each other. A shard that refuses the cluster as another's names that one's address,
which is followed; when the other refuses in turn or is silent, the configured address is next.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec
import structlog
from google.protobuf.message import DecodeError

from bigfleet.operator.outbox import Outbox, OutboxFullError
from bigfleet.telemetry.metrics import OperatorMetrics
from bigfleet.transport.address import Address, AddressError, dial_address
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.server_check import DialError
from bigfleet.transport.session_stream import Ending, Stream, StreamEndedError, shard_dialer
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_log = structlog.get_logger("bigfleet.operator")


class SessionWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: before dialling again, at first and at most; when replaced; for a frame to be taken; to be answered.

    A session that lasted for `lasting` lets the waits begin anew.
    """

    first: float = 0.5
    most: float = 30.0
    replaced: float = 30.0
    stalled: float = 30.0
    silent: float = 60.0
    lasting: float = 10.0


class SessionListener(Protocol):
    """What the operator makes of the session."""

    def opened(self, say: Callable[[pb.OperatorMessage], None]) -> None:
        """A stream is there; what is said with `say` is sent in order, Hello first."""

    def received(self, frame: pb.ShardMessage) -> None:
        """A frame has arrived."""

    def closed(self, why: str) -> None:
        """The stream is over."""


class Link:
    """Keeps a session with the shard at this address, or at the one to which it points."""

    def __init__(
        self,
        address: Address,
        tls: LiveTLS | None,
        talk: SessionListener,
        metrics: OperatorMetrics,
        waits: SessionWaits | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._home, self._tls, self._talk, self._metrics = address, tls, talk, metrics
        self._waits = waits or SessionWaits()
        # Operators that lost one shard together must not come back together.
        self._rng = rng or random.SystemRandom()
        self._sessions = 0
        self.connected = False
        """Whether a session is up and was answered."""

    async def run(self) -> None:
        """Keep the session, until cancelled."""
        address, wait = self._home, self._waits.first
        while True:
            began = time.monotonic()
            ending, was_heard = await self._session(address)
            elsewhere = _redirect(ending)
            if elsewhere is not None and elsewhere != address:
                _log.info("session_redirected", to=str(elsewhere), by=str(address))
                address = elsewhere if address == self._home else self._home
            elif not was_heard:
                address = self._home
            if was_heard and time.monotonic() - began >= self._waits.lasting:
                wait = self._waits.first
            pause = self._waits.replaced if ending.replaced else wait * self._rng.uniform(0.5, 1.0)
            _log.warning("session_ended", address=str(address), reason=str(ending), again_in=round(pause, 2))
            await asyncio.sleep(pause)
            wait = min(self._waits.most, 2 * wait)

    async def _session(self, address: Address) -> tuple[Ending, bool]:
        """One session from dialling to its end; how it ended, and whether anything was heard."""
        dialer = shard_dialer(address, self._tls)
        try:
            try:
                channel = await dialer.channel()
            except DialError as error:
                return Ending("UNAVAILABLE", str(error)), False
            self._sessions += 1
            if self._sessions > 1:
                self._metrics.session_reconnects.inc()
            return await self._converse(Stream(channel), address)
        finally:
            await dialer.hang_up()

    async def _converse(self, stream: Stream, address: Address) -> tuple[Ending, bool]:
        ending, was_heard = Ending("CANCELLED", "stopped"), False
        outbox = Outbox()
        self._talk.opened(outbox.put)
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write_all(stream, outbox))
                with suppress(StreamEndedError):
                    while True:
                        frame = await self._read(stream, None if was_heard else self._waits.silent)
                        if not was_heard:
                            was_heard = self.connected = True
                            _log.info("session_opened", address=str(address))
                        self._talk.received(frame)
                writer.cancel()
            ending = await stream.ending()
        finally:
            stream.cut("hung up")
            self.connected = False
            self._metrics.outbox_dropped.inc(outbox.dropped)
            self._talk.closed(str(ending))
        return ending, was_heard

    async def _read(self, stream: Stream, patience: float | None) -> pb.ShardMessage:
        try:
            async with asyncio.timeout(patience):
                data = await stream.read()
            return pb.ShardMessage.FromString(data)
        except TimeoutError:
            stream.cut(f"nothing was heard for {self._waits.silent:g} s")
        except DecodeError:
            stream.cut("it sent what is no frame")
        raise StreamEndedError

    async def _write_all(self, stream: Stream, outbox: Outbox) -> None:
        with suppress(StreamEndedError):
            while True:
                try:
                    frame = await outbox.take()
                    async with asyncio.timeout(self._waits.stalled):
                        await stream.write(frame.SerializeToString())
                except TimeoutError:
                    stream.cut(f"no frame was taken for {self._waits.stalled:g} s")
                    return
                except OutboxFullError:
                    stream.cut("it takes frames too slowly")
                    return


def _redirect(ending: Ending) -> Address | None:
    """Where a shard that this cluster is not bound to says it belongs: the last address in its refusal."""
    if ending.code == "FAILED_PRECONDITION":
        for word in reversed(ending.details.split()):
            with suppress(AddressError):
                return dial_address(word.strip(".,;()'\""))
    return None
