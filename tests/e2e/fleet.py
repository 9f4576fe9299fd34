"""A whole BigFleet for tests: a simulated cloud whose hosts really join, a shard, and in each cluster an operator and a
pod controller. All of them are processes; in the clusters they may do what the shipped roles say, and nothing more."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import yaml

from bigfleet.kube.access.kubeconfig_file import ClusterEntry, UserEntry, encoded, one_cluster, written
from bigfleet.kube.client import Client
from bigfleet.kube.objects.kinds import Node, Pod
from bigfleet.kube.objects.resources import NODES, PODS
from bigfleet.kube.watch import Watcher
from bigfleet.sim.cloud.hosts import beside, existing
from bigfleet.sim.controlplane.cluster import ControlPlane
from bigfleet.sim.controlplane.programs.binaries import Binaries
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from tests.e2e.cluster import admin, apply
from tests.shared.program import Program

_ROOT = Path(__file__).parents[2]
_BIGFLEET = str(Path(sys.executable).with_name("bigfleet"))
_NAMESPACE = "bigfleet-system"
_LOOK_SECONDS = 0.25

AT_ONCE = dict.fromkeys(("create", "configure", "join", "drain", "wipe", "delete"), "100ms")
"""Latencies of a cloud that is in a hurry."""

SHARD = {
    "cycle-interval": "2s",
    "reclaim-after": "2s",
    "reclaim-percent": "100",
    "draining-percent": "100",
    "idle-hold-on-demand": "2s",
    "idle-hold-spot": "2s",
}
"""Flags of a shard that is in a hurry."""


def pool(name: str, count: int, cpu: int = 8, **more: object) -> dict[str, object]:
    """Machines of one kind, as the cloud's configuration has them."""
    kind = {"name": name, "instance_type": f"m.{cpu}", "zone": "eu-1a", "capacity_type": "OnDemand", "count": count}
    resources = {"cpu": cpu, "memory": f"{4 * cpu}Gi", "pods": 110}
    return {**kind, "price_per_hour": 0.05 * cpu, "resources": resources, **more}


class Pods:
    """A sink of a watch on pods: looking at thousands of them again and again would keep the API server busy."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self.changed = asyncio.Event()

    def replaced(self, pods: Sequence[Pod]) -> None:
        self._pods = {pod.metadata.name: pod for pod in pods}
        self.changed.set()

    def put(self, pod: Pod) -> None:
        self._pods[pod.metadata.name] = pod
        self.changed.set()

    def removed(self, pod: Pod) -> None:
        self._pods.pop(pod.metadata.name, None)
        self.changed.set()

    def of(self, app: str = "") -> list[Pod]:
        """Those of one Deployment, or all."""
        return [pod for pod in self._pods.values() if not app or pod.metadata.labels.get("app") == app]

    def phases(self, app: str = "") -> Counter[str]:
        """How many are in each phase."""
        return Counter(pod.status.phase for pod in self.of(app))


class Cluster:
    """One cluster, its operator and its pod controller. `pods` are those of the namespace default."""

    def __init__(self, name: str, plane: ControlPlane, client: Client, folder: Path) -> None:
        self.name, self.plane, self.client, self._folder = name, plane, client, folder
        self.programs: dict[str, Program] = {}
        self.pods = Pods()

    async def watch(self) -> None:
        """Keep `pods` as they are, until cancelled."""
        await Watcher(self.client, PODS, self.pods, namespace="default").run()

    async def nodes(self) -> dict[str, Node]:
        """Its Nodes by name."""
        return {node.metadata.name: node for node in await self.client.list(NODES)}

    async def runs(self, count: int, app: str = "", seconds: float = 120.0) -> None:
        """Wait until so many pods run, and none else is there."""
        await self.has({"Running": count} if count else {}, app, seconds)

    async def has(self, phases: dict[str, int], app: str = "", seconds: float = 120.0) -> None:
        """Wait until so many pods are in each phase."""
        try:
            async with asyncio.timeout(seconds):
                while self.pods.phases(app) != phases:
                    self.pods.changed.clear()
                    await self.pods.changed.wait()
                    # Thousands of changes come at once, and counting all pods after each of them takes a core.
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            found = dict(self.pods.phases(app))
            raise AssertionError(f"not within {seconds:g} s in {self.name}: {app} {phases}, but {found}") from None

    async def deploy(
        self, name: str, replicas: int, cpu: str, *, memory: str = "100Mi", spec: dict[str, Any] | None = None
    ) -> None:
        """A Deployment of pods that ask for so much; applied again it is scaled."""
        await apply(self.plane, deployment(name, replicas, cpu, memory, spec or {}))

    async def kubectl(self, *arguments: str) -> str:
        """What kubectl prints, as the admin."""
        return await self.plane.kubectl(*arguments)

    async def kill(self, program: str) -> None:
        """End it as a loss of power would."""
        await self.programs.pop(program).kill()

    async def start(self, program: str, *flags: str) -> Program:
        """Run `operator` or `pod-controller` with the rights that its manifest gives it."""
        kubeconfig = self._folder / f"{self.name}-{program}.kubeconfig"
        if not kubeconfig.exists():
            account = f"bigfleet-{program}"
            token = (await self.kubectl("create", "token", account, f"--namespace={_NAMESPACE}")).strip()
            kubeconfig.write_text(json.dumps(_kubeconfig(self.plane, token)))
        common = ("--kubeconfig", str(kubeconfig), "--namespace", _NAMESPACE, "--metrics-listen", "127.0.0.1:0")
        started = await Program.start(f"{self.name} {program}", _BIGFLEET, program, *common, *flags)
        self.programs[program] = started
        return started


class Fleet:
    """The cloud, the shard, and the clusters."""

    def __init__(self, folder: Path, stack: AsyncExitStack, binaries: Binaries) -> None:
        self.folder, self._stack, self._binaries = folder, stack, binaries
        self.clusters: dict[str, Cluster] = {}
        self.programs: dict[str, Program] = {}
        self._flags: dict[str, str] = {}
        self._channel = grpc.aio.insecure_channel(f"unix:{folder}/cloud.sock")

    async def start_cloud(self, *pools: dict[str, object], **more: object) -> None:
        """The cloud; without pools as it was."""
        config = self.folder / "cloud.yaml"
        if pools:
            config.write_text(yaml.safe_dump({"nodes": "real", "latency": AT_ONCE, "pools": list(pools), **more}))
        listen = ("--listen", f"unix:{self.folder}/cloud.sock", "--state", str(self.folder / "cloud.state"))
        cloud = await Program.start("cloud", _BIGFLEET, "provider", "sim", "--config", str(config), *listen)
        self.programs["cloud"] = cloud
        await cloud.said("provider_serving")

    async def start_shard(self, **flags: str) -> None:
        """The shard; flags of an earlier start stand."""
        self._flags |= {key.replace("_", "-"): value for key, value in flags.items()}
        settings = {
            "listen": f"unix:{self.folder}/shard.sock",
            "metrics-listen": "127.0.0.1:0",
            "data-dir": str(self.folder / "data"),
            "provider": f"sim=unix:{self.folder}/cloud.sock",
            **SHARD,
            **self._flags,
        }
        arguments = [part for key, value in settings.items() for part in (f"--{key}", value)]
        shard = await Program.start("shard", _BIGFLEET, "shard", *arguments)
        self.programs["shard"] = shard
        await shard.said("shard_serving")

    async def cluster(
        self, name: str, *, plane: ControlPlane | None = None, pod_controller: tuple[str, ...] | None = ()
    ) -> Cluster:
        """A cluster with its operator, and its pod controller unless that is None."""
        if plane is None:
            plane = ControlPlane(name, self.folder / name, self._binaries)
            await self._stack.enter_async_context(plane)
        client = await self._stack.enter_async_context(admin(plane))
        cluster = self.clusters[name] = Cluster(name, plane, client, self.folder)
        watching = asyncio.create_task(cluster.watch())
        self._stack.callback(watching.cancel)
        await apply(plane, *_without_deployments("operator.yaml", "pod-controller.yaml"))
        await self.start_operator(cluster)
        if pod_controller is not None:
            await cluster.start("pod-controller", *pod_controller)
        return cluster

    async def start_operator(self, cluster: Cluster, *flags: str) -> None:
        """The cluster's operator, once it has a session."""
        shard = ("--cluster-id", cluster.name, "--shard-address", f"unix:{self.folder}/shard.sock")
        operator = await cluster.start("operator", *shard, "--rollup-interval", "2s", "--kube-qps", "200", *flags)
        await operator.said("session_opened")

    async def kill(self) -> None:
        """End all of BigFleet, but not the cloud and not the clusters, as a loss of power would."""
        await self.programs.pop("shard").kill()
        for cluster in self.clusters.values():
            for program in list(cluster.programs):
                await cluster.kill(program)

    async def machines(self) -> dict[str, pb.Machine]:
        """Every machine, as the provider shows it."""
        answer = await CapacityProviderStub(self._channel).List(pb.ListFilter(), wait_for_ready=True, timeout=60)
        return {machine.id: machine for machine in answer.machines}

    async def states(self) -> Counter[str]:
        """How many machines are in each state."""
        return Counter(
            pb.MachineState.Name(machine.state).removeprefix("MACHINE_STATE_").capitalize()
            for machine in (await self.machines()).values()
        )

    def hosts(self) -> list[str]:
        """Every host that exists in the cloud."""
        return existing(beside(self.folder / "cloud.state"))

    async def close(self) -> None:
        """End it all."""
        await self._channel.close()
        programs = [*self.programs.values()]
        programs += [program for cluster in self.clusters.values() for program in cluster.programs.values()]
        await asyncio.gather(*(program.kill() for program in programs))


@asynccontextmanager
async def fleet(folder: Path, binaries: Binaries) -> AsyncIterator[Fleet]:
    """A fleet in that folder; what failed says what its programs last said."""
    async with AsyncExitStack() as stack:
        made = Fleet(folder, stack, binaries)
        stack.push_async_callback(made.close)
        try:
            yield made
        except BaseException as error:
            programs = [*made.programs.values()]
            programs += [program for cluster in made.clusters.values() for program in cluster.programs.values()]
            for program in programs:
                error.add_note("\n".join([f"{program.name} last said:", *map(str, program.lines[-15:])]))
            raise


def deployment(name: str, replicas: int, cpu: str, memory: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A Deployment, with whatever else its pods' spec has."""
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "main", "image": "some/image", "resources": {"requests": requests}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec},
            },
        },
    }


def _without_deployments(*files: str) -> list[str]:
    """Shipped manifests but for their Deployments, whose programs are started here as processes."""
    documents = [each for file in files for each in yaml.safe_load_all((_ROOT / "deploy" / file).read_text()) if each]
    return [yaml.safe_dump(each) for each in documents if each["kind"] != "Deployment"]


def _kubeconfig(plane: ControlPlane, token: str) -> dict[str, object]:
    cluster = ClusterEntry(server=plane.server, certificate_authority_data=encoded(plane.ca))
    return written(one_cluster("c", cluster, "u", UserEntry(token=token)))
