"""The demo: one cluster's requests, rolled up and sent through a real session to a stand-in for the shard.

The stand-in takes Hello and one roll-up, judges both as a shard does, and acknowledges; it decides nothing.
"""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import msgspec

from bigfleet.model.aggregate import aggregate
from bigfleet.model.crd import CapacityRequest
from bigfleet.model.need import Rollup
from bigfleet.transport.address import Address, TCPAddress
from bigfleet.transport.dial import Dialer
from bigfleet.transport.grpc_options import CHANNEL_OPTIONS, SERVER_OPTIONS
from bigfleet.transport.identity import Identity, Kind, peer_identity, refusals_abort, require
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from bigfleet.wire.errors import WireError
from bigfleet.wire.needs import rollup_from_wire, rollup_to_wire
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from bigfleet.wire.v1alpha1.shard_pb2_grpc import ShardServicer, ShardStub, add_ShardServicer_to_server

PROTOCOL_VERSION = "v1alpha1"

_ACCEPTED = ("bigfleet-demo", "accepted")

_Context = grpc.aio.ServicerContext[Any, Any]


class RefusedError(Exception):
    """The far end did not take the session; the text is its sentence."""


class Delivery(msgspec.Struct, frozen=True):
    """What went through: the roll-up as the far end read it, its size on the wire, and who sent it."""

    rollup: Rollup
    wire_bytes: int
    milliseconds: float
    address: str
    peer: Identity | None


def roll_up(cluster_id: str, requests: Sequence[CapacityRequest]) -> Rollup:
    """The roll-up of a cluster that holds exactly these requests, taken now."""
    return Rollup(cluster_id=cluster_id, timestamp_unix_nanos=time.time_ns(), needs=aggregate(requests))


async def deliver(rollup: Rollup, listen: Address, tls: LiveTLS | None) -> Delivery:
    """Serve a stand-in shard, dial it, send the roll-up and wait for its acknowledgement."""
    shard = _StandIn()
    server = grpc.aio.server(options=SERVER_OPTIONS)
    add_ShardServicer_to_server(shard, server)
    port = bind(server, listen, None if tls is None else tls.server_credentials())
    await server.start()
    address = TCPAddress(listen.host or "localhost", port) if isinstance(listen, TCPAddress) else listen
    dialer = Dialer(address, Kind.SHARD if tls is None else tls.identity, tls, CHANNEL_OPTIONS)
    try:
        start = time.perf_counter()
        message = pb.OperatorMessage(rollup=rollup_to_wire(rollup))
        hello = pb.Hello(cluster_id=rollup.cluster_id, protocol_version=PROTOCOL_VERSION)
        session = ShardStub(await dialer.channel()).Session()
        await session.write(pb.OperatorMessage(hello=hello))
        # Nothing more is written to a session that is being refused: a failed write would hide the reason.
        if _ACCEPTED not in tuple(await session.initial_metadata()):
            raise RefusedError(f"the session was refused: {await session.details()}")
        await session.write(message)
        await session.done_writing()
        echoes = [frame.ack.echo async for frame in session]
        elapsed = time.perf_counter() - start
    except grpc.aio.AioRpcError as error:
        raise RefusedError(f"the session was refused: {error.details()}") from error
    finally:
        await dialer.hang_up()
        await server.stop(None)
    if echoes != [str(rollup.timestamp_unix_nanos)] or shard.received is None:
        raise RuntimeError(f"the roll-up was acknowledged as {echoes}, not as itself")
    return Delivery(shard.received, message.ByteSize(), elapsed * 1000, str(address), shard.peer)


class _StandIn(ShardServicer):
    """Remembers the last roll-up that it could read."""

    def __init__(self) -> None:
        self.received: Rollup | None = None
        self.peer: Identity | None = None

    async def Session(  # noqa: N802 - the contract's name
        self, request_iterator: AsyncIterator[pb.OperatorMessage], context: _Context
    ) -> AsyncIterator[pb.ShardMessage]:
        """Check who is there, take roll-ups, acknowledge each by its time stamp."""
        hello = await anext(request_iterator)
        if hello.WhichOneof("payload") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first frame must be Hello")
        async with refusals_abort(context):
            self.peer = peer_identity(context)
            require(self.peer, Kind.CLUSTER, named=hello.hello.cluster_id)
        await context.send_initial_metadata((_ACCEPTED,))
        async for message in request_iterator:
            try:
                self.received = rollup_from_wire(message.rollup)
            except WireError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            yield pb.ShardMessage(ack=pb.Acknowledgement(echo=str(message.rollup.timestamp_unix_nanos)))
