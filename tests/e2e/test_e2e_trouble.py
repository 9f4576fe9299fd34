"""What goes wrong in one cluster: budgets that block, an operator lost in mid-drain, no API server, odd requests."""

import asyncio
import json
from pathlib import Path

import pytest

from bigfleet.kube.objects.kinds import Node
from bigfleet.kube.objects.resources import NODES
from bigfleet.sim.controlplane.programs.binaries import Binaries
from tests.e2e.cluster import apply, until
from tests.e2e.fleet import Cluster, Fleet, fleet, pool

pytestmark = pytest.mark.timeout(400)

INSTRUCTION = "bigfleet.lucy.sh/reclaim-instruction"


def budget(app: str, minimum: int) -> str:
    return f"""
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: {app}, namespace: default}}
spec:
  minAvailable: {minimum}
  selector: {{matchLabels: {{app: {app}}}}}
"""


async def cordoned(cluster: Cluster) -> list[Node]:
    return [node for node in await cluster.client.list(NODES) if node.metadata.annotations.get(INSTRUCTION)]


async def is_configured(made: Fleet, count: int) -> bool:
    return (await made.states())["Configured"] == count


async def test_a_drain_outlives_the_operator_and_the_api_server_and_respects_the_budget(
    tmp_path: Path, binaries: Binaries
) -> None:
    async with fleet(tmp_path, binaries) as made:
        await made.start_cloud(pool("std", 6))
        await made.start_shard()
        cluster = await made.cluster("a")
        await apply(cluster.plane, budget("small", 4))
        # Large pods have a machine each, and a small one finds its place beside each of them.
        await cluster.deploy("large", 4, "5")
        await cluster.runs(4)
        await cluster.deploy("small", 4, "2")
        await cluster.runs(8)
        await cluster.deploy("large", 0, "5")
        await cluster.runs(4)

        # The small ones fit one machine, so three are too many; the budget lets none of them move.
        async def are_held() -> bool:
            return len(await cordoned(cluster)) == 3

        await until(are_held, "three nodes are cordoned and bear their instructions")
        before = {pod.metadata.uid for pod in cluster.pods.of("small")}
        await cluster.kill("operator")
        await cluster.plane.restart_api_server()
        assert all(node.spec.unschedulable for node in await cordoned(cluster))
        await made.start_operator(cluster)
        await asyncio.sleep(5)
        assert await are_held()
        assert {pod.metadata.uid for pod in cluster.pods.of("small")} == before

        # The budget goes; the drains go on where they stood, and the machines go back.
        await cluster.kubectl("delete", "pdb", "small")
        await until(lambda: is_configured(made, 1), "three machines were given back", 120)
        await cluster.runs(4)
        assert len({pod.spec.node_name for pod in cluster.pods.of("small")}) == 1


async def test_a_dead_node_stays_closed_and_goes_though_the_operator_was_restarted(
    tmp_path: Path, binaries: Binaries
) -> None:
    async with fleet(tmp_path, binaries) as made:
        await made.start_cloud(pool("std", 6))
        await made.start_shard()
        cluster = await made.cluster("a")
        await cluster.deploy("web", 2, "5")
        await cluster.runs(2)
        await cluster.deploy("web", 1, "5")
        await until(lambda: is_configured(made, 1), "a machine was given back")
        (dead,) = [name for name, node in (await cluster.nodes()).items() if node.spec.unschedulable]
        await cluster.kill("operator")
        await made.start_operator(cluster)

        async def is_gone() -> bool:
            node = (await cluster.nodes()).get(dead)
            assert node is None or node.spec.unschedulable, "it was opened to the scheduler"
            return node is None

        await until(is_gone, "the Node of the machine that left is deleted", 240)
        assert cluster.pods.phases() == {"Running": 1}


async def test_the_api_server_may_go_and_come(tmp_path: Path, binaries: Binaries) -> None:
    async with fleet(tmp_path, binaries) as made:
        await made.start_cloud(pool("std", 6))
        await made.start_shard()
        cluster = await made.cluster("a")
        await cluster.deploy("web", 2, "5")
        await cluster.runs(2)
        await cluster.plane.restart_api_server()
        await cluster.deploy("web", 4, "5")
        await cluster.runs(4, seconds=180)
        for program in cluster.programs.values():
            assert program.process.returncode is None


async def test_in_partial_mode_a_pod_that_found_its_own_place_is_not_evicted(
    tmp_path: Path, binaries: Binaries
) -> None:
    async with fleet(tmp_path, binaries) as made:
        await made.start_cloud(pool("std", 6))
        await made.start_shard()
        cluster = await made.cluster("a", pod_controller=("--mode", "unschedulable-only"))
        await cluster.deploy("first", 2, "5")
        await cluster.runs(2)
        # They fit beside the others, so the scheduler places them at once and nobody asks for capacity.
        await cluster.deploy("guest", 2, "2")
        await cluster.runs(2, "guest")
        guests = {pod.metadata.uid for pod in cluster.pods.of("guest")}
        requests = json.loads(await cluster.kubectl("get", "cr", "--output=json"))["items"]
        assert all("first" in each["metadata"]["name"] for each in requests)
        await cluster.deploy("first", 1, "5")
        await cluster.runs(3)
        # Long enough for a reclaim, were there one.
        await asyncio.sleep(20)
        assert {pod.metadata.uid for pod in cluster.pods.of("guest")} == guests
        assert await is_configured(made, 2)


async def test_a_request_that_cannot_be_counted_is_said_and_the_rest_is_served(
    tmp_path: Path, binaries: Binaries
) -> None:
    async with fleet(tmp_path, binaries) as made:
        await made.start_cloud(pool("std", 6))
        await made.start_shard()
        cluster = await made.cluster("a")
        huge = {
            "apiVersion": "bigfleet.lucy.sh/v1alpha1",
            "kind": "CapacityRequest",
            "metadata": {"name": "huge", "namespace": "default"},
            "spec": {"resources": {"cpu": "9E"}, "priority": 1},
        }
        await apply(cluster.plane, huge)
        await cluster.deploy("web", 2, "5")
        await cluster.runs(2)

        async def is_said() -> bool:
            return "spec.resources[cpu]" in await cluster.kubectl("get", "events", "--output=yaml")

        await until(is_said, "an Event says what is wrong with it")
        pending = await cluster.kubectl("get", "cr", "--field-selector=status.phase=Pending", "--output=name")
        assert pending.strip() == "capacityrequest.bigfleet.lucy.sh/huge"
