"""Real control planes: a pod runs on a node that KWOK plays, lost programs are noticed, and nothing is left behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bigfleet.kube.client import Client
from bigfleet.kube.objects.resources import PODS
from bigfleet.sim.controlplane import cluster
from bigfleet.sim.controlplane.cluster import ControlPlane
from bigfleet.sim.controlplane.commands import KUBELET_KWOK, KUBELET_LABEL
from bigfleet.sim.controlplane.errors import ControlPlaneError
from bigfleet.sim.controlplane.programs.binaries import Binaries
from tests.e2e.cluster import admin, apply, until

NODE = f"""
apiVersion: v1
kind: Node
metadata:
  name: n1
  labels: {{{KUBELET_LABEL}: {KUBELET_KWOK}}}
status:
  allocatable: {{cpu: "4", memory: 8Gi, pods: "110"}}
  capacity: {{cpu: "4", memory: 8Gi, pods: "110"}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p1, namespace: default}
spec:
  containers: [{name: main, image: some/image, resources: {requests: {cpu: "1"}}}]
"""
REQUEST = """
apiVersion: bigfleet.lucy.sh/v1alpha1
kind: CapacityRequest
metadata: {name: r1, namespace: default}
spec:
  resources: {cpu: "1"}
  priority: 100
"""


async def runs(client: Client, pod: str) -> bool:
    return (await client.get(PODS, pod, "default")).status.phase == "Running"


async def test_a_pod_is_bound_and_runs(control_plane: ControlPlane) -> None:
    await apply(control_plane, NODE, POD)
    async with admin(control_plane) as client:
        await until(lambda: runs(client, "p1"), "the pod runs")
        assert (await client.get(PODS, "p1", "default")).spec.node_name == "n1"


async def test_a_request_is_pending_whoever_makes_it(control_plane: ControlPlane) -> None:
    await apply(control_plane, REQUEST)
    pending = await control_plane.kubectl(
        "get", "capacityrequests", "--field-selector=status.phase=Pending", "--output=name"
    )
    assert pending == "capacityrequest.bigfleet.lucy.sh/r1\n"


async def test_what_is_stored_survives_a_restart_of_the_api_server(control_plane: ControlPlane) -> None:
    await apply(control_plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})
    before = await control_plane.kubectl("get", "namespace", "kept", "--output=jsonpath={.metadata.uid}")
    await control_plane.restart_api_server()
    assert await control_plane.kubectl("get", "namespace", "kept", "--output=jsonpath={.metadata.uid}") == before
    # And everything else finds it again.
    await apply(control_plane, NODE, POD.replace("p1", "p2"))
    async with admin(control_plane) as client:
        await until(lambda: runs(client, "p2"), "a pod made after the restart runs")
    control_plane.check()


async def test_a_program_that_dies_is_noticed(binaries: Binaries, tmp_path: Path) -> None:
    async with ControlPlane("dying", tmp_path, binaries) as plane:
        watching = asyncio.create_task(plane.watch())
        os.kill(plane.pids["kube-scheduler"], signal.SIGKILL)
        with pytest.raises(ControlPlaneError, match=r"kube-scheduler was killed by SIGKILL; its log .*"):
            await watching


async def test_a_port_that_is_taken_at_the_last_moment_is_given_up(
    binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = msgspec.structs.replace(cluster._free_ports(), etcd=taken.getsockname()[1])
        chosen = iter([first, cluster._free_ports()])
        monkeypatch.setattr(cluster, "_free_ports", lambda: next(chosen))
        async with ControlPlane("second", tmp_path, binaries) as plane:
            assert plane._ports.etcd != first.etcd
            plane.check()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def bigfleet(*arguments: str, code: int = 0) -> str:
    """What the command prints, or complains of where it must fail."""
    command = [sys.executable, "-m", "bigfleet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


async def test_a_detached_cluster_runs_until_it_is_taken_down(binaries: Binaries, home: Path) -> None:
    printed = await asyncio.to_thread(bigfleet, "dev", "cluster", "up", "--name", "a", "--detach")
    assert "cluster a is ready after" in printed
    listed = (await asyncio.to_thread(bigfleet, "dev", "cluster", "list")).splitlines()
    kubeconfig = home / "bigfleet" / "clusters" / "a" / "kubeconfig"
    assert listed[1].split()[:2] == ["a", "running"]
    assert listed[1].split()[-1] == str(kubeconfig)
    kubectl = [str(binaries["kubectl"]), f"--kubeconfig={kubeconfig}", "get", "crd", "--output=name"]
    crds = await asyncio.to_thread(subprocess.check_output, kubectl, text=True)
    assert "capacityrequests.bigfleet.lucy.sh" in crds
    refused = await asyncio.to_thread(bigfleet, "dev", "cluster", "up", "--name", "a", "--detach", code=1)
    assert refused.startswith("bigfleet dev: cluster 'a' runs already")
    await asyncio.to_thread(bigfleet, "dev", "cluster", "down", "--name", "a")
    assert len(bigfleet("dev", "cluster", "list").splitlines()) == 1
    assert [each.name for each in kubeconfig.parents[1].iterdir()] == ["a.lock"]


async def test_everything_ends_with_a_foreground_cluster_that_is_killed(binaries: Binaries, home: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bigfleet", "dev", "cluster", "up", "--name", "b", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert b"cluster b is ready after" in await process.stdout.readline()
    children = children_of(process.pid)
    assert len(children) == 5
    process.kill()
    await process.wait()
    await until(lambda: gone(children), "no program of the cluster runs")
    assert bigfleet("dev", "cluster", "list").splitlines()[1].split()[:2] == ["b", "dead"]
    bigfleet("dev", "cluster", "down", "--name", "b")
