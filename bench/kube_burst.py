"""How long a thousand pods take from Pending to Running, with every program of ours and a real control plane."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import yaml

from bench.harness import Report
from bench.processes import Program, bigfleet
from bigfleet.kube.access.kubeconfig import load
from bigfleet.kube.client import Client
from bigfleet.kube.objects.kinds import Pod
from bigfleet.kube.objects.resources import NAMESPACES, PODS, Resource
from bigfleet.kube.watch import Watcher
from bigfleet.sim.controlplane.cluster import ControlPlane
from bigfleet.sim.controlplane.programs.binaries import obtain

COUNT = 1_000
BUDGET_SECONDS = 60.0
_PATIENCE = 300.0

_DEPLOYMENTS: Resource[dict[str, object]] = Resource("apps", "v1", "deployments", "Deployment", True, dict)
_CLOUD = {
    "nodes": "real",
    "latency": dict.fromkeys(("create", "configure", "join", "drain", "wipe", "delete"), "100ms"),
    "pools": [
        {
            "name": "std",
            "instance_type": "m.16",
            "zone": "eu-1a",
            "capacity_type": "OnDemand",
            "count": 200,
            "price_per_hour": 0.8,
            "resources": {"cpu": 16, "memory": "64Gi", "pods": 110},
        }
    ],
}


def run(report: Report) -> None:
    """Measure one burst."""
    binaries = obtain(report.progress)
    report.progress(f"{COUNT:,} pods of a Deployment, from Pending to Running")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(report, Path(folder), ControlPlane("bench", Path(folder) / "cluster", binaries)))


class _Running:
    """A watcher's sink that remembers which pods run."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._all = asyncio.Event()

    def replaced(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self.put(pod)

    def put(self, pod: Pod) -> None:
        if pod.status.phase == "Running":
            self._names.add(pod.metadata.name)
            if len(self._names) >= COUNT:
                self._all.set()

    def removed(self, pod: Pod) -> None:
        self._names.discard(pod.metadata.name)

    async def all(self) -> None:
        """Wait until all pods run."""
        async with asyncio.timeout(_PATIENCE):
            await self._all.wait()


async def _measure(report: Report, folder: Path, plane: ControlPlane) -> None:
    (folder / "cloud.yaml").write_text(yaml.safe_dump(_CLOUD))
    cloud, shard = f"unix:{folder}/cloud.sock", f"unix:{folder}/shard.sock"
    health = "--metrics-listen=127.0.0.1:0"
    async with plane, Client(load(plane.kubeconfig), qps=1000, burst=1000) as client:
        await client.create(NAMESPACES, {"metadata": {"name": "bigfleet-system"}})
        kubeconfig = f"--kubeconfig={plane.kubeconfig}"
        with ExitStack() as stack:

            def start(name: str, *arguments: str) -> Program:
                return stack.enter_context(bigfleet(folder, name, *arguments))

            start("cloud", "provider", "sim", f"--config={folder}/cloud.yaml", f"--listen={cloud}")
            files = (f"--data-dir={folder}/data", f"--listen={shard}", health)
            await asyncio.to_thread(start("shard", "shard", f"--provider=sim={cloud}", *files).said, "shard_serving")
            fast = ("--rollup-interval=2s", "--kube-qps=200", "--kube-burst=400", kubeconfig, health)
            operator = start("operator", "operator", "--cluster-id=bench", f"--shard-address={shard}", *fast)
            await asyncio.to_thread(operator.said, "session_opened")
            controller = start("pods", "pod-controller", kubeconfig, health)
            await asyncio.to_thread(controller.said, "caches_synced")
            running = _Running()
            watching = asyncio.create_task(Watcher(client, PODS, running, namespace="default").run())
            try:
                began = time.monotonic()
                await client.create(_DEPLOYMENTS, _deployment(), "default")
                await running.all()
                took = time.monotonic() - began
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
    report.add(f"{COUNT:,} pods, Pending to Running", took, "s", BUDGET_SECONDS)


def _deployment() -> dict[str, object]:
    requests = {"cpu": "1900m", "memory": "1Gi"}
    container = {"name": "main", "image": "some/image", "resources": {"requests": requests}}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": COUNT,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }
