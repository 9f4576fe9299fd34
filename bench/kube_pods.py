"""The pod controller on a real control plane: how long after a pod its request appears, at a steady stream of pods."""

import asyncio
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from bench.harness import Report
from bench.processes import Program, bigfleet
from bigfleet.kube.access.kubeconfig import load
from bigfleet.kube.client import Client
from bigfleet.kube.objects.resources import CAPACITY_REQUESTS, NAMESPACES, PODS
from bigfleet.kube.watch import Watcher
from bigfleet.model.crd import CapacityRequest
from bigfleet.sim.controlplane.cluster import ControlPlane
from bigfleet.sim.controlplane.programs.binaries import obtain

PODS_A_SECOND = 200
SECONDS = 20
BUDGET_SECONDS = 1.0

_NAMESPACES = ("bigfleet-system", "bench")
_PATIENCE = 120.0


def run(report: Report) -> None:
    """Measure against the budget of 1 s at the 99th percentile."""
    binaries = obtain(report.progress)
    report.progress(f"{PODS_A_SECOND} pods a second for {SECONDS} s, on a real API server")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(report, Path(folder), ControlPlane("bench", Path(folder) / "cluster", binaries)))


class _Sightings:
    """A watcher's sink that remembers when each pod's request was first seen."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.more = asyncio.Event()

    def replaced(self, objects: Iterable[CapacityRequest]) -> None:
        for request in objects:
            self.put(request)

    def put(self, request: CapacityRequest) -> None:
        for owner in request.metadata.owner_references:
            self.at.setdefault(owner.name, time.monotonic())
        self.more.set()

    def removed(self, request: CapacityRequest) -> None:
        """Ignore the end of a request: when it was seen stays known."""


async def _measure(report: Report, folder: Path, plane: ControlPlane) -> None:
    async with plane, Client(load(plane.kubeconfig), qps=10_000, burst=10_000) as client:
        for name in _NAMESPACES:
            await client.create(NAMESPACES, {"metadata": {"name": name}})
        flags = ("--kubeconfig", str(plane.kubeconfig), "--metrics-listen", "127.0.0.1:0")
        with bigfleet(folder, "pod-controller", "pod-controller", *flags) as program:
            await asyncio.to_thread(program.said, "caches_synced")
            seen = _Sightings()
            watcher = Watcher(client, CAPACITY_REQUESTS, seen)
            watching = asyncio.create_task(watcher.run())
            try:
                await watcher.synced.wait()
                await _stream(report, client, seen, program)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)


async def _stream(report: Report, client: Client, seen: _Sightings, program: Program) -> None:
    count = PODS_A_SECOND * SECONDS
    sent: dict[str, float] = {}
    stored: dict[str, float] = {}
    # One pod goes first, so that the namespace's service account and everything cached exist before the clock runs.
    await _create(client, "first", sent, stored)
    await _until_seen(seen, stored)
    used, start = program.cpu_seconds(), time.monotonic()
    async with asyncio.TaskGroup() as creating:
        for number in range(count):
            await asyncio.sleep(max(0.0, start + number / PODS_A_SECOND - time.monotonic()))
            creating.create_task(_create(client, f"pod-{number}", sent, stored))
    elapsed = time.monotonic() - start
    await _until_seen(seen, stored)
    name = f"pod to CapacityRequest, {PODS_A_SECOND} pods/s"
    waits = sorted(max(0.0, seen.at[pod] - at) for pod, at in stored.items() if pod != "first")
    whole = sorted(seen.at[pod] - at for pod, at in sent.items() if pod != "first")
    report.add("pods created", count / elapsed, "1/s", 0.95 * PODS_A_SECOND, at_least=True)
    report.add(f"{name}, p99", waits[int(0.99 * count)], "s", BUDGET_SECONDS)
    report.add(f"{name}, p50", waits[count // 2], "s")
    report.add(f"{name}, p99 from sending the pod", whole[int(0.99 * count)], "s")
    report.add("pod controller, CPU for each pod", (program.cpu_seconds() - used) / count * 1000, "ms")
    report.add("pod controller, peak RSS", program.peak_mib(), "MiB")


async def _create(client: Client, name: str, sent: dict[str, float], stored: dict[str, float]) -> None:
    requests = {"cpu": "500m", "memory": "1Gi"}
    spec = {"containers": [{"name": "main", "image": "some/image", "resources": {"requests": requests}}]}
    sent[name] = time.monotonic()
    await client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "bench")
    stored[name] = time.monotonic()


async def _until_seen(seen: _Sightings, pods: Iterable[str]) -> None:
    async with asyncio.timeout(_PATIENCE):
        for pod in pods:
            while pod not in seen.at:
                await seen.more.wait()
                seen.more.clear()
