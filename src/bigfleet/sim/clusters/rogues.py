"""Operators that break the rules on purpose, and frames that no operator may send, for tests of a shard.

A vice that a session survives is an operator of its own. A frame that ends the stream at once is sent by `intrude`.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.operator import SimOperator, Waits
from bigfleet.transport.address import Address
from bigfleet.transport.grpc_options import MIB
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.session_stream import Ending, Stream, StreamEndedError, shard_dialer
from bigfleet.wire.hello import PROTOCOL_VERSION
from bigfleet.wire.v1alpha1 import capacity_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

GARBAGE = b"\xff" * 64
"""Bytes that are no message of any kind."""


class HalfOpen(SimOperator):
    """Stays connected, but takes no frame while `hears` is cleared, and sends no frame while `speaks` is cleared."""

    def __init__(
        self, cluster: Cluster, address: Address, tls: LiveTLS | None = None, waits: Waits | None = None
    ) -> None:
        super().__init__(cluster, address, tls, waits)
        self.hears, self.speaks = asyncio.Event(), asyncio.Event()
        self.hears.set()
        self.speaks.set()

    async def _read(self, stream: Stream) -> bytes:
        await self.hears.wait()
        return await super()._read(stream)

    async def _write(self, stream: Stream, frame: pb.OperatorMessage) -> None:
        await self.speaks.wait()
        await super()._write(stream, frame)


class Doubling(SimOperator):
    """Sends every frame twice, except Hello: a second Hello would end the session."""

    async def _write(self, stream: Stream, frame: pb.OperatorMessage) -> None:
        await super()._write(stream, frame)
        if frame.WhichOneof("payload") != "hello":
            await super()._write(stream, frame)


class Reordering(SimOperator):
    """Sends roll-ups in pairs, the newer one first."""

    _held: pb.OperatorMessage | None = None

    async def _write(self, stream: Stream, frame: pb.OperatorMessage) -> None:
        payload, older = frame.WhichOneof("payload"), self._held
        if payload == "rollup":
            self._held = frame if older is None else None
            if older is None:
                return
        elif payload == "hello":
            self._held = older = None
        await super()._write(stream, frame)
        if payload == "rollup" and older is not None:
            await super()._write(stream, older)


async def intrude(address: Address, frames: Iterable[bytes], tls: LiveTLS | None = None) -> Ending:
    """Open a stream, send these frames, and wait for the shard to end the stream; returns how it ended."""
    dialer = shard_dialer(address, tls)
    try:
        stream = Stream(await dialer.channel())
        with suppress(StreamEndedError):
            for frame in frames:
                await stream.write(frame)
            while True:
                await stream.read()
        return await stream.ending()
    finally:
        await dialer.hang_up()


def hello(cluster_id: str, *features: str) -> bytes:
    """The frame that opens a session."""
    message = pb.Hello(cluster_id=cluster_id, protocol_version=PROTOCOL_VERSION, features=features)
    return pb.OperatorMessage(hello=message).SerializeToString()


def rollup(cluster_id: str, padding_bytes: int = 0) -> bytes:
    """A roll-up that asks for one core, made larger by this many bytes."""
    need = capacity_pb2.CapacityNeed(aggregate_resources={"cpu": "1"}, min_unit={"cpu": "1"}, group="x" * padding_bytes)
    message = capacity_pb2.ClusterCapacityNeeds(cluster_id=cluster_id, timestamp_unix_nanos=1, needs=[need])
    return pb.OperatorMessage(rollup=message).SerializeToString()


def huge_rollup(cluster_id: str) -> bytes:
    """A roll-up of 100 MiB, three times what a shard reads."""
    return rollup(cluster_id, 100 * MIB)


def claims(cluster_id: str, *, request: str, instruction: str, machine: str, node: str) -> dict[str, bytes]:
    """Frames about things of this cluster, by kind. In the session of another cluster each ends the stream."""
    said = {
        "rollup": pb.OperatorMessage(rollup=capacity_pb2.ClusterCapacityNeeds(cluster_id=cluster_id)),
        "blob": pb.OperatorMessage(
            bootstrap_response=pb.BootstrapBlobResponse(request_id=request, user_data=b"#!/bin/sh\n")
        ),
        "ack": pb.OperatorMessage(reclaim_ack=pb.ReclaimAck(instruction_id=instruction, nodes_started=1)),
        "ready": pb.OperatorMessage(
            node_ready=pb.NodeReadyReport(machine_id=machine, node_name=node, state=pb.NodeReadyReport.STATE_READY)
        ),
        "drained": pb.OperatorMessage(
            node_drained=pb.NodeDrainedReport(
                instruction_id=instruction, node_name=node, outcome=pb.NodeDrainedReport.OUTCOME_DRAINED
            )
        ),
        "cordoned": pb.OperatorMessage(
            cordoned_nodes=pb.CordonedNodes(nodes=[pb.CordonedNode(instruction_id=instruction, node=node)])
        ),
    }
    return {kind: frame.SerializeToString() for kind, frame in said.items()}
