"""A shard under load: shard, provider and clusters are processes of their own and speak real gRPC on loopback.

These benchmarks take a few minutes; `python -m bench.soak` has their long forms.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from bench.harness import Report
from bench.processes import Histogram, Program, bigfleet, slope
from bigfleet.transport.grpc_options import PROVIDER_CHANNEL_OPTIONS
from bigfleet.wire.v1alpha1 import provider_pb2, shardadmin_pb2
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from bigfleet.wire.v1alpha1.shardadmin_pb2_grpc import ShardAdminStub

CYCLES = "bigfleet_shard_cycle_duration_seconds"
STREAMS, MACHINES, RATE = 1_000, 10_000, 1_000
FLEET, CHANGED = 500_000, 5_000
BURST = 1_000
_ROUNDS = 5
_LAST = 15.0

_INSTANT = "latency: {create: 0, configure: 0, join: 0, drain: 0, wipe: 0, delete: 0}"


def run(report: Report) -> None:
    """Measure every budget of the shard, in the short form."""
    burst(report)
    streams(report, seconds=30)
    fleet(report)


def burst(report: Report) -> None:
    """Measure the time from a roll-up that asks for a thousand more pods until their machines are Configured."""
    report.progress(f"{BURST:,} pods more on an instant provider")
    with _running(2 * BURST) as (_, shard):
        load = _Load(shard, "--clusters", "1", "--rate", "0.1", "--seconds", "40", "--rows", "1", "--pods", "1",
                     "--pod", "cpu=5,memory=4Gi", "--burst", str(BURST), "--burst-at", "5")  # fmt: skip
        figures = load.ended()
    seconds = dict(figures["burst"]["seconds"])
    report.add(f"{BURST:,} pods' demand to machines Configured", seconds["all"] or float("inf"), "s", 3)


def streams(
    report: Report, seconds: int, rate: int = RATE, clusters: int = STREAMS, *, pods: int = 20, settle: int = 20
) -> bool:
    """Measure many clusters that roll up all the time; returns whether every budget held."""
    report.progress(f"{clusters:,} streams, {rate:,} roll-ups/s for {seconds} s")
    what = f"{clusters:,} streams, {rate:,} roll-ups/s"
    with _running(MACHINES) as (_, shard), _Watched(shard) as watched:
        load = _Load(shard, "--clusters", str(clusters), "--rate", str(rate), "--seconds", str(seconds),
                     "--settle", str(settle), "--pods", str(pods))  # fmt: skip
        load.settled()
        cycles, used = Histogram(_metrics_port(shard), CYCLES), shard.cpu_seconds()
        figures = load.ended()
        p99 = cycles.quantile(0.99) * 1e3
        used = (shard.cpu_seconds() - used) / seconds
        memory = watched.samples
    late = figures["latency_ms"]["p99"]
    lost = sum(figures["dropped"].values())
    report.add(f"{what}: cycle p99", p99, "ms", 100)
    report.add(f"{what}: roll-up to acknowledgement p99", late, "ms", 250)
    report.add(f"{what}: streams dropped", lost, "", 0)
    report.add(f"{what}: roll-ups unanswered", figures["unanswered"], "", 0)
    report.add(f"{what}: machines Configured meanwhile", figures["configured"], "")
    report.add(f"{what}: the shard's CPU", used, "cores")
    report.add(f"{what}: memory", memory[-1][1], "MiB")
    settled = [sample for sample in memory if sample[0] > memory[-1][0] / 2]
    report.add(f"{what}: memory slope, second half", slope(settled) * 60, "MiB/min")
    return p99 <= 100 and late <= 250 and not lost and not figures["unanswered"]


def fleet(report: Report) -> None:
    """Measure half a million machines: how soon the first decision comes, and what a cycle costs with 1 % changed."""
    report.progress(f"a shard over {FLEET:,} machines")
    with _running(FLEET, "--cycle-interval", "4s", "--idle-hold-on-demand", "1h") as (cloud, shard):
        asyncio.run(_decisions(shard, 1))
        report.add(f"{FLEET:,} machines: start to first decision", time.monotonic() - shard.started, "s", 60)
        report.add(f"{FLEET:,} machines: peak memory", shard.peak_mib(), "MiB", 1536)
        # A cycle counts as decided before its length is observed. So the second is awaited, and the first not measured.
        asyncio.run(_decisions(shard, 2))
        cycles = Histogram(_metrics_port(shard), CYCLES)
        took = asyncio.run(_change(cloud))
        report.progress(f"{_ROUNDS} times {CHANGED:,} machines changed, in {took:.0f} s")
        report.add(f"{FLEET:,} machines, 1 % changed: cycle p50", cycles.quantile(0.5) * 1e3, "ms", 150)
        report.add(f"{FLEET:,} machines, 1 % changed: cycle p99", cycles.quantile(0.99) * 1e3, "ms")
        report.add(f"{FLEET:,} machines: memory after it", shard.rss_mib(), "MiB", 1536)


class _Watched:
    """Samples a program's memory once a second, in a thread of its own."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.samples: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "_Watched":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        start = time.monotonic()
        while not self._over.wait(1.0):
            self.samples.append((time.monotonic() - start, self._program.rss_mib()))


@contextlib.contextmanager
def _running(machines: int, *more: str) -> Iterator[tuple[Program, Program]]:
    """Run a cloud of this many machines and a shard over it, for as long as the body runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "cloud.yaml"
        config.write_text(_config(machines))
        at_any_port = "--listen", "127.0.0.1:0"
        with bigfleet(folder, "cloud", "provider", "sim", "--config", str(config), *at_any_port) as cloud:
            provider = f"sim={cloud.said('provider_serving')['address']}"
            files = "--metrics-listen", "127.0.0.1:0", "--data-dir", str(folder / "data")
            with bigfleet(folder, "shard", "shard", *at_any_port, *files, "--provider", provider, *more) as shard:
                shard.said("shard_serving")
                yield cloud, shard


def _config(machines: int) -> str:
    pools = min(10, machines // 100)
    count = machines // pools
    rows = "".join(
        f"- {{name: pool-{n}, instance_type: m.{n}, zone: eu-1{'abc'[n % 3]}, family: m, price_per_hour: 0.4, "
        f"capacity_type: OnDemand, count: {count}, racks: {max(1, count // 40)}, "
        "resources: {cpu: 8, memory: 32Gi, pods: 110}}\n"
        for n in range(pools)
    )
    return f"region: eu-1\n{_INSTANT}\npools:\n{rows}"


class _Load:
    """The process that puts load on the shard (`bench.shard_load`)."""

    def __init__(self, shard: Program, *arguments: str) -> None:
        target = str(shard.said("shard_serving")["address"])
        command = [sys.executable, "-m", "bench.shard_load", "--target", target, *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def settled(self) -> None:
        """Wait until the measured part begins, which is when the process writes its first line."""
        if self._process.stderr is not None:
            self._process.stderr.readline()

    def ended(self) -> dict[str, Any]:
        """Wait for the end of the process; returns what it measured."""
        out, errors = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"the load process failed: {errors[-1000:]}")
        figures: dict[str, Any] = json.loads(out.splitlines()[-1])
        return figures


def _metrics_port(shard: Program) -> int:
    return int(str(shard.said("shard_serving")["metrics_port"]))


async def _decisions(shard: Program, count: int) -> None:
    """Wait for this many decisions after every provider has been listed."""
    async with grpc.aio.insecure_channel(str(shard.said("shard_serving")["address"])) as channel:
        admin, listed = ShardAdminStub(channel), -1
        while True:
            status = await admin.GetStatus(shardadmin_pb2.GetStatusRequest(), timeout=60)
            if listed < 0 and all(provider.listed for provider in status.providers):
                listed = status.cycle
            if 0 <= listed <= status.cycle - count:
                return
            await asyncio.sleep(0.1)


async def _change(cloud: Program) -> float:
    """Create one machine in a hundred, again and again, behind the shard's back; returns how long that took."""
    began = time.monotonic()
    target = str(cloud.said("provider_serving")["address"])
    async with grpc.aio.insecure_channel(target, PROVIDER_CHANNEL_OPTIONS) as channel:
        stub, limit = CapacityProviderStub(channel), asyncio.Semaphore(200)

        async def create(number: int) -> None:
            async with limit:
                machine = f"pool-{number % 10}-{number // 10:06d}"
                await stub.Create(provider_pb2.CreateRequest(machine_id=machine), timeout=60)

        for start in range(_ROUNDS):
            async with asyncio.TaskGroup() as group:
                for number in range(CHANGED):
                    group.create_task(create(start * CHANGED + number))
            await asyncio.sleep(4)
        await asyncio.sleep(_LAST)
    return time.monotonic() - began
