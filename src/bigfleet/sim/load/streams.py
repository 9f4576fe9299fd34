"""The streams of a loaded shard: roll-ups as bytes, the answers to them, and how long they took.

All code that runs for every roll-up is here. It does as little as it can, because the load shares its cores with the
shard.
"""

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress

import grpc

from bigfleet.model.demand.need import Need
from bigfleet.model.demand.profile import Profile
from bigfleet.model.resources import Resources, total
from bigfleet.transport.session_stream import Stream, StreamEndedError
from bigfleet.wire.hello import OPERATOR_FEATURES, PROTOCOL_VERSION
from bigfleet.wire.needs import need_to_wire
from bigfleet.wire.v1alpha1 import capacity_pb2, provider_pb2
from bigfleet.wire.v1alpha1 import shard_pb2 as pb

_BURST_PRIORITY = 1000
_BLOB = b"#!/bin/sh\n# joins nothing\n" * 20


class Histogram:
    """Times in microseconds, each known to 3 %, in a table of fixed size."""

    _STEPS = 32

    def __init__(self) -> None:
        self._counts = [0] * (64 * self._STEPS)
        self.count = self.max = 0

    def add(self, micros: int) -> None:
        """Add one time to the histogram."""
        micros = max(0, micros)
        self._counts[self._place(micros)] += 1
        self.count += 1
        self.max = max(self.max, micros)

    def quantile(self, share: float) -> int:
        """The time that this share of all times does not exceed, rounded up to the next step; 0 without any times."""
        left = share * self.count
        for place, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                return min(self.max, self._top(place))
        return self.max

    def milliseconds(self) -> dict[str, float]:
        """The p50, the p99 and the largest time, in milliseconds."""
        named = {"p50": self.quantile(0.5), "p99": self.quantile(0.99), "max": self.max}
        return {name: round(micros / 1000, 2) for name, micros in named.items()}

    def _place(self, micros: int) -> int:
        shift = max(0, micros.bit_length() - 6)
        return shift * self._STEPS + (micros >> shift)

    def _top(self, place: int) -> int:
        shift = max(0, place // self._STEPS - 1)
        return (((place - shift * self._STEPS) + 1) << shift) - 1


class Tally:
    """What happened in all clusters together: streams since the start, frames since the last `restart`."""

    def __init__(self) -> None:
        self.open_streams = 0
        self.dropped: Counter[str] = Counter()
        self.restart()

    def restart(self) -> None:
        """Set all counts of frames back to 0."""
        self.latency, self.recent = Histogram(), Histogram()
        self.sent = self.acked = self.refused = self.skipped = self.blobs = self.reclaims = 0
        self.refusal = ""
        self._began = time.time_ns()

    @property
    def unanswered(self) -> int:
        """How many roll-ups were neither acknowledged nor refused."""
        return self.sent - self.acked - self.refused

    def acknowledged(self, ack: pb.Acknowledgement) -> None:
        """Count the answer to a roll-up, and how long it took."""
        if not ack.echo:
            self.refused += 1
            self.refusal = ack.rejection_reason[:200]
            return
        sent = int(ack.echo)
        if sent >= self._began:
            self.acked += 1
            micros = (time.time_ns() - sent) // 1000
            self.latency.add(micros)
            self.recent.add(micros)


class Rows:
    """The rows of a roll-up as bytes: `plain` and `more`, which take turns as demand changes, and `burst`."""

    def __init__(self, rows: int, pods: int, pod: Resources, burst: int) -> None:
        each, rest = divmod(pods, rows)
        # Rows differ in priority, so each is a profile of its own.
        plain = [_need(Profile(priority=row), pod, each + (row < rest)) for row in range(rows)]
        more = [_need(Profile(), pod, each + (rest > 0) + 1), *plain[1:]]
        # One pod to a machine, so that the burst takes as many machines as it has pods.
        alone = Profile(priority=_BURST_PRIORITY, max_per_machine=1)
        self.plain, self.more = _bytes_of(plain), _bytes_of(more)
        self.burst = _bytes_of([*plain, _need(alone, pod, burst)])


def _need(profile: Profile, pod: Resources, pods: int) -> Need:
    return Need(profile, total([(pod, pods)]), pod)


def _bytes_of(needs: Iterable[Need]) -> bytes:
    rows = [need_to_wire(need) for need in needs if need.units]
    return capacity_pb2.ClusterCapacityNeeds(needs=rows).SerializeToString()


def rollup_frame(head: bytes, rows: bytes) -> bytes:
    """An OperatorMessage with this roll-up, stamped with the present time. Its parts are joined as bytes."""
    body = head + rows + capacity_pb2.ClusterCapacityNeeds(timestamp_unix_nanos=time.time_ns()).SerializeToString()
    size, left = bytearray(), len(body)
    while left > 0x7F:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    size.append(left)
    return b"\x12" + size + body


class LoadedCluster:
    """One cluster's stream. It answers only what must be answered."""

    def __init__(self, cluster_id: str, channel: grpc.aio.Channel, tally: Tally, rows: bytes, *, reports: bool) -> None:
        self._channel, self._tally, self._reports = channel, tally, reports
        self._head = capacity_pb2.ClusterCapacityNeeds(cluster_id=cluster_id).SerializeToString()
        features = OPERATOR_FEATURES if self._reports else ()
        hello = pb.Hello(cluster_id=cluster_id, protocol_version=PROTOCOL_VERSION, features=features)
        self._hello = pb.OperatorMessage(hello=hello).SerializeToString()
        self._stream: Stream | None = None
        self._queue: deque[bytes] = deque()
        self._writer: asyncio.Task[None] | None = None
        self.rows = rows
        """The rows of its next roll-up."""
        self.configured: dict[str, float] = {}
        """The machines that are Configured, and since when by the loop's clock."""

    async def run(self, delay: float) -> None:
        """Keep a stream open, until cancelled."""
        await asyncio.sleep(delay)
        wait = 0.5
        while True:
            stream, was_heard = Stream(self._channel), False
            self._stream = stream
            self._queue.append(self._hello)
            self.roll_up(waits=True)
            try:
                with suppress(StreamEndedError):
                    while True:
                        data = await stream.read()
                        if not was_heard:
                            was_heard = True
                            self._tally.open_streams += 1
                        self._heard(pb.ShardMessage.FromString(data))
                self._tally.dropped[(await stream.ending()).code] += 1
            finally:
                stream.cut("hung up")
                self._stream = None
                self._queue.clear()
                if self._writer is not None:
                    self._writer.cancel()
                    await asyncio.gather(self._writer, return_exceptions=True)
            self._tally.open_streams -= was_heard
            wait = 0.5 if was_heard else min(30.0, 2 * wait)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - jitter

    def roll_up(self, *, waits: bool = False) -> None:
        """Send a roll-up if there is a stream; where other frames wait to be taken, only with `waits`."""
        if self._stream is None or (self._queue and not waits):
            self._tally.skipped += 1
            return
        self._tally.sent += 1
        self._send(rollup_frame(self._head, self.rows))

    def _send(self, frame: bytes) -> None:
        self._queue.append(frame)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        # How the stream ended is dealt with where it is read.
        with suppress(StreamEndedError):
            while self._queue and self._stream is not None:
                await self._stream.write(self._queue[0])
                self._queue.popleft()

    def _heard(self, frame: pb.ShardMessage) -> None:
        match frame.WhichOneof("payload"):
            case "ack":
                self._tally.acknowledged(frame.ack)
            case "node_state_update":
                self._machine(frame.node_state_update)
            case "bootstrap_request":
                self._tally.blobs += 1
                answer = pb.BootstrapBlobResponse(
                    request_id=frame.bootstrap_request.request_id, user_data=_BLOB, ttl_seconds=3600
                )
                self._send(pb.OperatorMessage(bootstrap_response=answer).SerializeToString())
            case "reclaim_instruction":
                self._tally.reclaims += 1
                self._reclaim(frame.reclaim_instruction)

    def _machine(self, update: pb.NodeStateUpdate) -> None:
        if update.state != provider_pb2.MACHINE_STATE_CONFIGURED:
            self.configured.pop(update.machine_id, None)
        elif update.machine_id not in self.configured:
            self.configured[update.machine_id] = asyncio.get_running_loop().time()
            if self._reports:
                ready = pb.NodeReadyReport(
                    machine_id=update.machine_id,
                    node_name=update.node_name,
                    provider_id=update.provider_id,
                    state=pb.NodeReadyReport.STATE_READY,
                )
                self._send(pb.OperatorMessage(node_ready=ready).SerializeToString())

    def _reclaim(self, instruction: pb.ReclaimInstruction) -> None:
        named = instruction.instruction_id
        ack = pb.ReclaimAck(instruction_id=named, nodes_started=len(instruction.nodes))
        self._send(pb.OperatorMessage(reclaim_ack=ack).SerializeToString())
        for node in instruction.nodes if self._reports else ():
            outcome = pb.NodeDrainedReport.OUTCOME_DRAINED
            report = pb.NodeDrainedReport(instruction_id=named, node_name=node, outcome=outcome)
            self._send(pb.OperatorMessage(node_drained=report).SerializeToString())
