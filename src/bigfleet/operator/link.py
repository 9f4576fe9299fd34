"""The stream to the shard: dialled, kept and dialled again, for as long as this operator leads (protocol rules 21, 24).

Reading and writing never wait for each other. A shard that the cluster is not bound to refuses it with the address of
the shard that it is bound to. That address is dialled next; when it refuses too or does not answer, the configured
address is dialled again.
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
    """How long the link waits for what, in seconds."""

    #: Before dialling again after the first failure; doubled with each further one.
    first: float = 0.5
    #: Before dialling again, at most.
    most: float = 30.0
    #: Before dialling again after another session of the cluster has replaced this one.
    replaced: float = 30.0
    #: For the shard to take a frame.
    stalled: float = 30.0
    #: For the first frame of the shard.
    silent: float = 60.0
    #: A session that lasted so long lets the waits begin anew.
    lasting: float = 10.0


class SessionListener(Protocol):
    """What is told of the session."""

    def opened(self, say: Callable[[pb.OperatorMessage], None]) -> None:
        """A stream has been opened. `say` sends a frame; frames are sent in order, and Hello must be the first."""

    def received(self, frame: pb.ShardMessage) -> None:
        """A frame has arrived."""

    def closed(self, why: str) -> None:
        """The stream is over."""


class Link:
    """Keeps a session with the shard at this address, or with the one that this shard names."""

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
        # Operators that lost a shard at the same moment must not all come back at the same moment.
        self._rng = rng or random.SystemRandom()
        self._sessions = 0
        self.connected = False
        """Whether there is a session in which the shard has sent a frame."""

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
        """One session from dialling to its end. Returns how it ended, and whether the shard sent a frame."""
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
            stream.cut(f"the shard sent nothing for {self._waits.silent:g} s")
        except DecodeError:
            stream.cut("the shard sent bytes that are no frame")
        raise StreamEndedError

    async def _write_all(self, stream: Stream, outbox: Outbox) -> None:
        with suppress(StreamEndedError):
            while True:
                try:
                    frame = await outbox.take()
                    async with asyncio.timeout(self._waits.stalled):
                        await stream.write(frame.SerializeToString())
                except TimeoutError:
                    stream.cut(f"the shard took no frame for {self._waits.stalled:g} s")
                    return
                except OutboxFullError:
                    stream.cut("the shard takes frames too slowly")
                    return


def _redirect(ending: Ending) -> Address | None:
    """The address of the shard that the cluster is bound to: the last address in a refusal."""
    if ending.code == "FAILED_PRECONDITION":
        for word in reversed(ending.details.split()):
            with suppress(AddressError):
                return dial_address(word.strip(".,;()'\""))
    return None
