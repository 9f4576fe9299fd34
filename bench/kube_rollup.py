"""The operator's roll-up: ten thousand requests in a real API server, and a quarter of a million in its caches."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import msgspec
from msgspec.structs import replace

from bench.harness import Report
from bench.kube_cache import EVENTS, REQUESTS, beside_server, memory, request
from bench.processes import Histogram, bigfleet
from bigfleet.kube.access.kubeconfig import load
from bigfleet.kube.access.server import ServerConfig
from bigfleet.kube.client import Client
from bigfleet.kube.objects.resources import CAPACITY_REQUESTS, NAMESPACES
from bigfleet.kube.watch import Watcher
from bigfleet.model.crd import CapacityRequest
from bigfleet.operator.core import ClusterView
from bigfleet.operator.rollup.rollup import Rollups
from bigfleet.operator.run import settle_memory
from bigfleet.sim.controlplane.cluster import ControlPlane
from bigfleet.sim.controlplane.programs.binaries import obtain
from bigfleet.wire.needs import rollup_to_wire
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from bigfleet.wire.v1alpha1.shard_pb2_grpc import ShardServicer, add_ShardServicer_to_server

STORED = 10_000
KINDS = 18
"""How many kinds of pods the stored requests are of."""
ROLLUPS = 60
CHANGED = REQUESTS // 100


def run(report: Report) -> None:
    """Measure roll-ups through a real API server, and roll-ups from full caches."""
    _stored(report)
    _cached(report)


# Ten thousand, through the API server.


class _Shard(ShardServicer):
    """Takes every roll-up and acknowledges it."""

    def __init__(self) -> None:
        self.needs: list[int] = []
        self.more = asyncio.Event()

    async def Session(  # noqa: N802 - as the proto has it
        self, frames: AsyncIterator[pb.OperatorMessage], _context: object
    ) -> AsyncIterator[pb.ShardMessage]:
        """Serve the session of one operator."""
        async for frame in frames:
            if frame.HasField("rollup"):
                self.needs.append(len(frame.rollup.needs))
                self.more.set()
                yield pb.ShardMessage(ack=pb.Acknowledgement(echo=str(frame.rollup.timestamp_unix_nanos)))

    async def took(self, count: int) -> None:
        """Wait until this many roll-ups have been taken in all."""
        while len(self.needs) < count:
            self.more.clear()
            await self.more.wait()


def _stored(report: Report) -> None:
    binaries = obtain(report.progress)
    report.progress(f"{STORED:,} CapacityRequests of {KINDS} kinds in a real API server, {ROLLUPS} roll-ups")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_roll_up(report, Path(folder), ControlPlane("bench", Path(folder) / "cluster", binaries)))


async def _roll_up(report: Report, folder: Path, plane: ControlPlane) -> None:
    shard, server = _Shard(), grpc.aio.server()
    add_ShardServicer_to_server(shard, server)
    address = f"unix:{folder}/shard.sock"
    server.add_insecure_port(address)
    await server.start()
    async with plane, Client(load(plane.kubeconfig), qps=100_000, burst=100_000) as client:
        await client.create(NAMESPACES, {"metadata": {"name": "bigfleet-system"}})
        began = time.perf_counter()
        limit = asyncio.Semaphore(64)
        async with asyncio.TaskGroup() as group:
            for number in range(STORED):
                group.create_task(_create(client, number, limit))
        report.add(f"{STORED:,} requests created", STORED / (time.perf_counter() - began), "/s")
        flags = ("--cluster-id", "bench", "--shard-address", address, "--kubeconfig", str(plane.kubeconfig))
        limits = ("--rollup-interval=1s", "--kube-qps=500", "--kube-burst=1000", "--metrics-listen=127.0.0.1:0")
        with bigfleet(folder, "operator", "operator", *flags, *limits) as operator:
            await asyncio.to_thread(operator.said, "caches_synced")
            port = (await asyncio.to_thread(operator.said, "operator started rollup_interval=1s"))["metrics_port"]
            await shard.took(1)
            assert isinstance(port, int)  # noqa: S101 - it is what that line holds
            lengths = Histogram(port, "bigfleet_operator_rollup_duration_seconds")
            await shard.took(1 + ROLLUPS)
            name = f"roll-up of {STORED:,} requests"
            report.add(f"{name}: needs", max(shard.needs), "needs", 20)
            report.add(f"{name}: p99 once cached", lengths.quantile(0.99) * 1e3, "ms", 300)
            report.add(f"{name}: the operator's memory", operator.peak_mib(), "MiB")
    await server.stop(None)


async def _create(client: Client, number: int, limit: asyncio.Semaphore) -> None:
    kind = number % KINDS
    spec = {"resources": {"cpu": f"{1 + kind % 6}", "memory": f"{1 + kind // 6}Gi"}, "priority": 100}
    async with limit:
        await client.create(CAPACITY_REQUESTS, {"metadata": {"name": f"r-{number}"}, "spec": spec}, "default")


# A quarter of a million, in the caches.


def _cached(report: Report) -> None:
    report.progress(f"the operator's view of {REQUESTS:,} CapacityRequests")
    figures = beside_server(_hold)
    name = f"roll-up of {REQUESTS:,} requests"
    report.add(f"{name}: needs", figures["needs"], "needs")
    report.add(f"{name}: from scratch", figures["full"], "s", 1)
    report.add(f"{name}: after {CHANGED:,} changes, p50", figures["p50"] * 1e3, "ms")
    report.add(f"{name}: after {CHANGED:,} changes, worst", figures["worst"] * 1e3, "ms", 100)
    report.add(f"{name}: memory", figures["rss"], "MB", 700)
    report.add(f"{name}: peak memory, two lists included", figures["peak"], "MB", 700)


def _hold(pipe: Connection, port: int) -> None:
    pipe.send(asyncio.run(_measured(port)))


async def _measured(port: int) -> dict[str, float]:
    view = ClusterView(lambda: None, lambda _: None, lambda _: None, lambda *_: None)
    rollups = Rollups("bench", view.requests, view.pods, view.nodes, view.daemons, time.time_ns)
    async with Client(ServerConfig(server=f"http://127.0.0.1:{port}"), qps=100_000, burst=100_000) as client:
        watcher = Watcher(client, CAPACITY_REQUESTS, view.requests)
        watching = asyncio.create_task(watcher.run())
        await watcher.synced.wait()
        # The server marks some requests Acknowledged at once. Then it makes the watcher list all of them anew, Pending.
        for wanted in (REQUESTS - EVENTS, REQUESTS):
            while len(view.requests.waiting()) != wanted:  # noqa: ASYNC110 - nobody says when
                await asyncio.sleep(0.05)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    settle_memory()
    figures = {"rss": memory("VmRSS"), "peak": memory("VmHWM")}
    start = time.perf_counter()
    message = rollup_to_wire(rollups.build(rollups.needs()))
    figures |= {"full": time.perf_counter() - start, "needs": len(message.needs)}
    decoder = msgspec.json.Decoder(CapacityRequest)
    times = []
    for turn in range(20):
        for i in range(CHANGED):
            changed = decoder.decode(request((turn * CHANGED + i) % REQUESTS, i))
            size = {**changed.spec.resources, "cpu": f"{1 + turn}"}
            view.requests.put(replace(changed, spec=replace(changed.spec, resources=size)))
        start = time.perf_counter()
        view.requests.waiting()
        rollup_to_wire(rollups.build(rollups.needs()))
        times.append(time.perf_counter() - start)
    times.sort()
    return {**figures, "p50": times[len(times) // 2], "worst": times[-1]}
