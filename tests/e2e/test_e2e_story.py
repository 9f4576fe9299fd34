"""Three clusters share one fleet, for a day in one test: a gang, a preemption, the loss of all of BigFleet, an end."""

import asyncio
from pathlib import Path

import pytest

from bigfleet.model.labels import RACK
from bigfleet.sim.controlplane.programs.binaries import Binaries
from tests.e2e.cluster import apply, until
from tests.e2e.fleet import Cluster, Fleet, fleet, pool

pytestmark = pytest.mark.timeout(600)

PRIORITIES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: critical}
value: 1000000
"""
BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: batch, namespace: default}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: batch}}
"""
ON_ONE_RACK = {
    "nodeSelector": {"node.kubernetes.io/instance-type": "g.8"},
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "training"}}}
            ]
        }
    },
}
CRITICAL = {"priorityClassName": "critical", "nodeSelector": {"node.kubernetes.io/instance-type": "m.8"}}


async def fewest(cluster: Cluster, app: str, found: list[int]) -> None:
    """Note how many run, whenever that changes."""
    while True:
        found.append(cluster.pods.phases(app)["Running"])
        cluster.pods.changed.clear()
        await cluster.pods.changed.wait()


async def test_a_day_of_three_clusters(tmp_path: Path, binaries: Binaries) -> None:
    async with fleet(tmp_path, binaries) as made:
        gpu = pool("gpu", 32, racks=4, instance_type="g.8", price_per_hour=4.0)
        await made.start_cloud(pool("std", 12), pool("more", 12, cpu=16, price_per_hour=5.0), gpu)
        await made.start_shard()
        shop, lab, bank = [await made.cluster(name) for name in ("shop", "lab", "bank")]
        await apply(shop.plane, BUDGET)
        await apply(bank.plane, PRIORITIES)

        await shop.deploy("batch", 12, "5")
        await shop.runs(12)
        nodes = {pod.spec.node_name for pod in shop.pods.of()}
        assert all(name.startswith("std-") for name in nodes)
        assert len(nodes) == 12

        # Eight pods that must share a rack, and racks of eight.
        await lab.deploy("training", 8, "5", spec=ON_ONE_RACK)
        await lab.runs(8)
        labels = {name: node.metadata.labels for name, node in (await lab.nodes()).items()}
        assert len({labels[pod.spec.node_name][RACK] for pod in lab.pods.of()}) == 1

        # Critical work takes what batch has; batch moves on, one pod at a time.
        ran: list[int] = []
        looking = asyncio.create_task(fewest(shop, "batch", ran))
        await bank.deploy("payroll", 3, "5", spec=CRITICAL)
        await bank.runs(3, seconds=240)
        await shop.runs(12)
        looking.cancel()
        assert min(ran) >= 11
        assert all(pod.spec.node_name.startswith("std-") for pod in bank.pods.of())

        # Without BigFleet everything goes on, and what is new waits.
        before = {cluster.name: {pod.metadata.uid for pod in cluster.pods.of()} for cluster in (shop, lab, bank)}
        await made.kill()
        await lab.deploy("late", 2, "5", spec={"nodeSelector": {"node.kubernetes.io/instance-type": "m.16"}})
        await lab.has({"Pending": 2}, "late")
        await asyncio.sleep(10)
        for cluster in (shop, lab, bank):
            running = {pod.metadata.uid for pod in cluster.pods.of() if pod.status.phase == "Running"}
            assert running == before[cluster.name]
        assert lab.pods.phases("late") == {"Pending": 2}

        await made.start_shard()
        for cluster in (shop, lab, bank):
            await made.start_operator(cluster)
            await cluster.start("pod-controller")
        await lab.runs(10, seconds=180)
        for cluster in (shop, lab, bank):
            assert before[cluster.name] <= {pod.metadata.uid for pod in cluster.pods.of()}

        # All work ends; a fall to nothing is believed when it is said for a minute.
        for cluster in (shop, lab, bank):
            await cluster.kubectl("delete", "deployments", "--all", "--wait=false")
        await until(lambda: _is_given_back(made, 56), "all machines are slots again", 240)
        assert made.hosts() == []


async def _is_given_back(made: Fleet, count: int) -> bool:
    return await made.states() == {"Speculative": count}
