"""Pods of all sizes find nodes: real scheduler, real kubelet certificates, machines bought for them and given back."""

from collections import Counter
from pathlib import Path

import pytest

from bigfleet.kube.objects.resources import PODS
from bigfleet.sim.controlplane.programs.binaries import Binaries
from tests.e2e.cluster import apply, until
from tests.e2e.fleet import fleet, pool

pytestmark = pytest.mark.timeout(600)

DAEMON = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      # As agents of nodes have it: a pod that was faster than they makes room again.
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: some/image, resources: {requests: {cpu: 300m}}}]
"""


async def test_a_thousand_pending_pods_run(tmp_path: Path, binaries: Binaries) -> None:
    async with fleet(tmp_path, binaries) as made:
        await made.start_cloud(pool("std", 200, cpu=16))
        await made.start_shard()
        cluster = await made.cluster("a")
        await cluster.deploy("web", 1000, "1900m", memory="1Gi")
        # How fast is the bench's to say.
        await cluster.runs(1000, seconds=180)
        # Eight of them fit a machine, and daemons there are none.
        assert await made.states() == {"Configured": 125, "Speculative": 75}


async def test_large_pods_pods_beside_a_daemon_and_tiny_pods_all_run(tmp_path: Path, binaries: Binaries) -> None:
    async with fleet(tmp_path, binaries) as made:
        await made.start_cloud(pool("std", 180), pool("big", 30, cpu=64, price_per_hour=10.0))
        await made.start_shard()
        cluster = await made.cluster("a")
        await apply(cluster.plane, DAEMON)
        await cluster.deploy("large", 100, "5")
        await cluster.runs(100, "large", seconds=180)
        # Two of 3.9 fit 8 cores alone, and one beside a daemon of 0.3.
        await cluster.deploy("odd", 50, "3900m")

        async def have_settled() -> bool:
            odd, daemons = cluster.pods.of("odd"), await cluster.client.list(PODS, "kube-system", labels="app=agent")
            running = [pod for pod in (*odd, *daemons) if pod.status.phase == "Running"]
            sits = Counter(pod.spec.node_name for pod in odd)
            return len(running) == len(odd) + len(daemons) == 50 + 150 and max(sits.values()) == 1

        # Where two sat on a node before its daemon, nodes too many come and go, and kube-controller-manager needs a
        # minute and more after that to collect their daemons.
        await until(have_settled, "50 pods run on 50 of 150 nodes, each with its daemon", 240)
        assert (await made.states())["Configured"] == 150
        tiny = {"nodeSelector": {"node.kubernetes.io/instance-type": "m.64"}}
        await cluster.deploy("tiny", 2000, "10m", memory="10Mi", spec=tiny)
        await cluster.runs(2000, "tiny", seconds=240)
        # 110 pods a node, of which the daemon is one.
        assert len({pod.spec.node_name for pod in cluster.pods.of("tiny")}) == 19
