"""The pod controller against a real API server and a real scheduler, with the rights that its manifest gives it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigfleet.kube.objects.resources import CAPACITY_REQUESTS, CONFIG_MAPS, EVENTS, PODS
from bigfleet.model.crd import CapacityRequest
from bigfleet.sim.controlplane.cluster import ControlPlane
from bigfleet.sim.controlplane.commands import KUBELET_KWOK, KUBELET_LABEL
from bigfleet.sim.controlplane.programs.binaries import Binaries
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.e2e.cluster import admin, apply, until
from tests.e2e.fleet import Cluster, fleet, pool
from tests.shared.program import Program

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

_ROOT = Path(__file__).parents[2]
_NAMESPACE = "bigfleet-system"


@asynccontextmanager
async def controller(plane: ControlPlane, folder: Path, *flags: str) -> AsyncIterator[Program]:
    """The program as it is shipped: its own service account, and nothing that this may not do."""
    documents = yaml.safe_load_all((_ROOT / "deploy" / "pod-controller.yaml").read_text())
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    await apply(plane, namespace, *(each for each in documents if each["kind"] != "Deployment"))
    async with admin(plane) as client:
        running = await Cluster("e2e", plane, client, folder).start("pod-controller", *flags)
    try:
        await running.said("caches_synced")
        yield running
    finally:
        assert await running.stop() == 0
        # Nothing may be left to the role's mercy, and nothing is refused by it.
        refused = [line for line in running.lines if "Forbidden" in str(line) and "terminated" not in str(line)]
        assert refused == []


@pytest.fixture
async def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = str(request.node.name).replace("_", "-")[:50].rstrip("-")
    await apply(
        control_plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"of": name}}}
    )
    return name


def pod(namespace: str, name: str = "web", cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "some/image", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    whole = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}


def node(name: str, **labels: str) -> dict[str, Any]:
    named = {KUBELET_LABEL: KUBELET_KWOK, "kubernetes.io/hostname": name, **labels}
    status = {
        "allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110"},
        "capacity": {"cpu": "32", "memory": "64Gi", "pods": "110"},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": named}, "status": status}


async def requests(plane: ControlPlane, namespace: str) -> list[CapacityRequest]:
    async with admin(plane) as client:
        return await client.list(CAPACITY_REQUESTS, namespace)


async def requested(plane: ControlPlane, namespace: str, count: int) -> list[CapacityRequest]:
    """The requests of the namespace once there are so many."""

    async def are() -> Any:
        found = await requests(plane, namespace)
        return found if len(found) == count else None

    if count == 0:

        async def none() -> bool:
            return not await requests(plane, namespace)

        await until(none, f"no request in {namespace}")
        return []
    found: list[CapacityRequest] = await until(are, f"{count} requests in {namespace}")
    return found


async def test_a_pod_has_one_request_from_its_first_moment_to_its_last(
    control_plane: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    async with controller(control_plane, tmp_path):
        await apply(control_plane, pod(namespace, cpu="1500m", nodeSelector={"zone": "nowhere"}))
        (made,) = await requested(control_plane, namespace, 1)
        assert made.metadata.name.startswith("cr-pod-web-")
        assert made.spec.resources == {"cpu": "1500m"}
        assert made.status is not None
        assert made.status.phase == "Pending"
        await control_plane.kubectl("delete", "pod", "web", f"--namespace={namespace}", "--wait=false")
        await requested(control_plane, namespace, 0)


async def test_the_garbage_collector_takes_a_request_whose_pod_went_while_nobody_looked(
    control_plane: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    async with controller(control_plane, tmp_path):
        await apply(control_plane, pod(namespace, nodeSelector={"zone": "nowhere"}))
        await requested(control_plane, namespace, 1)
    await control_plane.kubectl("delete", "pod", "web", f"--namespace={namespace}")
    await requested(control_plane, namespace, 0)


async def test_a_request_that_somebody_edits_deletes_or_doubles_is_put_right(
    control_plane: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    async with controller(control_plane, tmp_path):
        await apply(control_plane, pod(namespace, nodeSelector={"zone": "nowhere"}))
        (made,) = await requested(control_plane, namespace, 1)
        name, where = made.metadata.name, f"--namespace={namespace}"

        async def is_right() -> bool:
            found = await requests(control_plane, namespace)
            return [(each.metadata.name, each.spec, each.metadata.owner_references) for each in found] == [
                (name, made.spec, made.metadata.owner_references)
            ]

        for change in (
            (
                "patch",
                "cr",
                name,
                where,
                "--type=merge",
                '--patch={"spec":{"resources":{"memory":"9Gi"},"maxPerNode":2}}',
            ),
            ("patch", "cr", name, where, "--type=merge", '--patch={"metadata":{"ownerReferences":null}}'),
            ("label", "cr", name, where, "app.kubernetes.io/managed-by-"),
            ("delete", "cr", name, where),
        ):
            await control_plane.kubectl(*change)
            await until(is_right, f"{name} is right again after {change[0]}")
        text = await control_plane.kubectl("get", "cr", name, where, "--output=json")
        copied = json.loads(text)
        copied["metadata"] = {key: copied["metadata"][key] for key in ("namespace", "labels", "ownerReferences")} | {
            "name": "cr-pod-web-again"
        }
        await apply(control_plane, copied)
        await until(is_right, "the second request is gone")


async def test_ended_daemon_and_gated_pods_have_none(
    control_plane: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    await apply(control_plane, node("daemon-node", daemons="here"))
    container = {"name": "main", "image": "some/image"}
    template = {
        "metadata": {"labels": {"app": "daemon"}},
        "spec": {
            "containers": [container],
            "nodeSelector": {"daemons": "here"},
            "tolerations": [{"operator": "Exists"}],
        },
    }
    daemons: dict[str, object] = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "daemon", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "daemon"}}, "template": template},
    }
    await apply(control_plane, daemons, pod(namespace, "gated", schedulingGates=[{"name": "x.io/quota"}]))

    async def daemon_runs() -> bool:
        async with admin(control_plane) as client:
            return any(
                each.status.phase == "Running" for each in await client.list(PODS, namespace, labels="app=daemon")
            )

    await until(daemon_runs, "the daemon runs")
    async with controller(control_plane, tmp_path):
        await apply(control_plane, pod(namespace, "plain", nodeSelector={"zone": "nowhere"}))
        (made,) = await requested(control_plane, namespace, 1)
        assert made.metadata.name.startswith("cr-pod-plain-")
        # A pod that ended keeps its object and gives its request up.
        await control_plane.kubectl(
            "patch", "pod", "plain", f"--namespace={namespace}", "--subresource=status", "--type=merge",
            '--patch={"status":{"phase":"Failed"}}',
        )  # fmt: skip
        await requested(control_plane, namespace, 0)


async def test_a_malformed_annotation_and_an_impossible_affinity_are_told_by_events(
    control_plane: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    made = pod(namespace, nodeSelector={"zone": "nowhere"})
    made["metadata"]["annotations"] = {"bigfleet.lucy.sh/interruption-penalty": "a lot"}
    term = {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["4"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    async with controller(control_plane, tmp_path):
        await apply(control_plane, made, pod(namespace, "picky", affinity=affinity))

        async def told() -> Any:
            async with admin(control_plane) as client:
                events = await client.list(EVENTS, namespace)
            ours = {(each.regarding.name, each.reason) for each in events if "bigfleet" in each.reporting_controller}
            return ours == {("web", "MalformedPenalty"), ("picky", "CapacityNotRequested")}

        await until(told, "both are told")
        (found,) = await requested(control_plane, namespace, 1)
        assert found.spec.interruption_penalty == 0


async def test_only_unschedulable_pods_and_the_word_partial(
    control_plane: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    await apply(control_plane, node("one-node", only="here"))

    async def mark() -> str:
        async with admin(control_plane) as client:
            return (await client.get(CONFIG_MAPS, "bigfleet-pod-controller", _NAMESPACE)).data["demand"]

    async def runs() -> bool:
        async with admin(control_plane) as client:
            return (await client.get(PODS, "fits", namespace)).status.phase == "Running"

    async with controller(control_plane, tmp_path, "--mode", "unschedulable-only", "--namespaces", namespace):
        assert await mark() == "partial"
        await apply(control_plane, pod(namespace, "fits", nodeSelector={"only": "here"}))
        await until(runs, "the pod that fits runs")
        await apply(control_plane, pod(namespace, "waits", cpu="33", nodeSelector={"only": "here"}))
        (made,) = await requested(control_plane, namespace, 1)
        assert made.metadata.name.startswith("cr-pod-waits-")
        # Placed at last, it stays demand.
        await apply(
            control_plane,
            {**node("large-node", only="here"), "status": {"allocatable": {"cpu": "64", "memory": "9Gi", "pods": "9"}}},
        )
        await control_plane.kubectl(
            "patch", "node", "large-node", "--subresource=status", "--type=merge",
            '--patch={"status":{"allocatable":{"cpu":"64","memory":"9Gi","pods":"9"},"capacity":{"cpu":"64","memory":"9Gi","pods":"9"}}}',
        )  # fmt: skip

        async def placed() -> str:
            async with admin(control_plane) as client:
                return (await client.get(PODS, "waits", namespace)).spec.node_name

        assert await until(placed, "the other is placed") == "large-node"
        assert [each.metadata.name for each in await requests(control_plane, namespace)] == [made.metadata.name]
    async with controller(control_plane, tmp_path, "--namespaces", namespace):
        await requested(control_plane, namespace, 2)

        async def total() -> bool:
            return await mark() == "total"

        await until(total, "all demand is there")


async def test_one_works_and_the_next_takes_over(control_plane: ControlPlane, tmp_path: Path, namespace: str) -> None:
    flags = ("--namespace-selector", f"of={namespace}")
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(controller(control_plane, tmp_path, *flags))
        await apply(control_plane, pod(namespace, "a", nodeSelector={"zone": "nowhere"}))
        await requested(control_plane, namespace, 1)
        second = asyncio.create_task(stack.enter_async_context(controller(control_plane, tmp_path, *flags)))
        assert await first.stop() == 0
        await second
        await apply(control_plane, pod(namespace, "b", nodeSelector={"zone": "nowhere"}))
        await requested(control_plane, namespace, 2)


def tenant(namespace: str, name: str, cpu: str, beside: str = "") -> dict[str, Any]:
    """A pod; with `beside`, one that the scheduler puts on that pod's node."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": beside}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return pod(namespace, name, cpu, **({"affinity": {"podAffinity": required}} if beside else {}))


async def test_a_pod_that_found_its_own_place_is_not_evicted_when_the_demand_is_partial(
    tmp_path: Path, binaries: Binaries
) -> None:
    async with fleet(tmp_path, binaries) as made:
        await made.start_cloud(pool("std", 10))
        await made.start_shard()
        cluster = await made.cluster("a", pod_controller=("--mode", "unschedulable-only"))
        await apply(cluster.plane, *(tenant("default", name, "5") for name in ("leaves", "goes", "stays")))
        await cluster.runs(3)
        nodes = {each.metadata.name: each.spec.node_name for each in cluster.pods.of()}
        assert len(set(nodes.values())) == 3
        await apply(cluster.plane, tenant("default", "settler", "1", beside="leaves"))
        await cluster.runs(4)
        assert len(await requests(cluster.plane, "default")) == 3, "the settler found a place by itself"
        (settler,) = cluster.pods.of("settler")
        # Both nodes lose all that was asked for; one is empty then, and the settler sits on the other.
        await cluster.kubectl("delete", "pod", "leaves", "goes")

        async def given_back() -> bool:
            return nodes["goes"] not in await configured()

        async def configured() -> set[str]:
            machines = (await made.machines()).values()
            return {machine.id for machine in machines if machine.state == pb.MACHINE_STATE_CONFIGURED}

        await until(given_back, "the empty node is given back", 120)
        assert await configured() == {nodes["leaves"], nodes["stays"]}
        (now,) = cluster.pods.of("settler")
        assert (now.metadata.uid, now.status.phase) == (settler.metadata.uid, "Running")
        assert now.metadata.deletion_timestamp is None
        assert not (await cluster.nodes())[nodes["leaves"]].spec.unschedulable
