"""Hosts of the simulated cloud join a real cluster with their bootstrap data and nothing else, live there, and go."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from bigfleet.kube.client import Client
from bigfleet.kube.objects.kinds import Node
from bigfleet.kube.objects.resources import LEASES, NODES, PODS
from bigfleet.model.machine import Call, MachineState
from bigfleet.providerkit.ledger.ledger import Request
from bigfleet.providerkit.provider import Provider
from bigfleet.providerkit.store import MemoryStore
from bigfleet.sim.agent.user_data import ARGUMENTS, KUBECONFIG
from bigfleet.sim.cloud.backend import CloudBackend
from bigfleet.sim.cloud.hosts import Hosts
from bigfleet.sim.cloud.reading import read
from bigfleet.sim.controlplane.cluster import ControlPlane
from bigfleet.telemetry.metrics import ProviderMetrics
from tests.e2e.cluster import admin, apply, bootstrap_token, until

S = MachineState
BINDINGS = ("bigfleet-dev:node-bootstrapper", "bigfleet-dev:node-autoapprove-bootstrap")


def user_data(plane: ControlPlane, token: str, name: str, arguments: str = "") -> bytes:
    """What the operator's own template writes."""
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": plane.server,
                    "certificate-authority-data": base64.b64encode(plane.ca).decode(),
                },
            }
        ],
        "users": [{"name": "kubelet-bootstrap", "user": {"token": token}}],
        "contexts": [{"name": "bootstrap", "context": {"cluster": "c", "user": "kubelet-bootstrap"}}],
        "current-context": "bootstrap",
    }
    files = {
        KUBECONFIG: yaml.safe_dump(kubeconfig),
        ARGUMENTS: f"KUBELET_EXTRA_ARGS=--hostname-override={name} {arguments}\n",
    }
    written = [{"path": path, "content": content} for path, content in files.items()]
    return f"#cloud-config\n{yaml.safe_dump({'write_files': written})}".encode()


class Cloud:
    """A provider whose nodes are real, and calls on it."""

    def __init__(self, count: int, **settings: Any) -> None:
        pool = {
            "name": "a",
            "instance_type": "m.8",
            "zone": "eu-1a",
            "capacity_type": "OnDemand",
            "count": count,
            "racks": 1,
            "resources": {"cpu": 8, "memory": "32Gi"},
            "allocatable": {"cpu": "7500m", "memory": "30Gi"},
        }
        steps = ("create", "configure", "join", "drain", "wipe", "delete")
        config = {"pools": [pool], "nodes": "real", "region": "eu-1", "latency": dict.fromkeys(steps, 0), **settings}
        backend = CloudBackend(read(json.dumps(config), "test"), Hosts())
        self.provider = Provider(backend, MemoryStore(), ProviderMetrics(CollectorRegistry()))
        self.machines = [f"a-{number:06d}" for number in range(count)]

    async def ask(self, call: Call, machine: str, blob: bytes = b"") -> None:
        cluster = "shop" if call is Call.CONFIGURE else ""
        await self.provider.ask(Request(call=call, machine=machine, cluster=cluster), blob)

    async def become(self, state: MachineState, *machines: str, seconds: float = 60.0) -> None:
        def states() -> bool:
            return all(self.provider.ledger.get(machine).state is state for machine in machines)

        await until(states, f"{len(machines)} machines are {state.label}", seconds)

    def error(self, machine: str) -> str:
        return self.provider.ledger.get(machine).last_error

    async def bound(self, plane: ControlPlane, token: str, *machines: str, seconds: float = 60.0) -> None:
        """Create these and have each join under its own name."""
        for machine in machines:
            await self.ask(Call.CREATE, machine)
        await self.become(S.IDLE, *machines)
        for machine in machines:
            await self.ask(Call.CONFIGURE, machine, user_data(plane, token, machine))
        await self.become(S.CONFIGURED, *machines, seconds=seconds)


@asynccontextmanager
async def cloud_of(count: int, **settings: Any) -> AsyncIterator[Cloud]:
    cloud = Cloud(count, **settings)
    async with cloud.provider:
        yield cloud


def is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


async def renewed(client: Client, node: str) -> datetime:
    lease = await client.get(LEASES, node, "kube-node-lease")
    assert lease.spec.renew_time is not None
    return lease.spec.renew_time


async def cleared(client: Client) -> None:
    """Leave no node behind for the next test."""
    for node in await client.list(NODES):
        await client.delete(NODES, node.metadata.name)


async def test_a_host_joins_and_its_pods_run(control_plane: ControlPlane) -> None:
    token = await bootstrap_token(control_plane)
    async with cloud_of(1) as cloud, admin(control_plane) as client:
        await cloud.ask(Call.CREATE, "a-000000")
        await cloud.become(S.IDLE, "a-000000")
        arguments = "--node-labels=team=shop --register-with-taints=dedicated=shop:NoSchedule"
        await cloud.ask(Call.CONFIGURE, "a-000000", user_data(control_plane, token, "n1", arguments))
        await cloud.become(S.CONFIGURED, "a-000000")
        node = await client.get(NODES, "n1")
        assert is_ready(node)
        assert node.spec.provider_id == f"sim://{cloud.provider.ledger.get('a-000000').host}"
        assert [(taint.key, taint.value, taint.effect) for taint in node.spec.taints if taint.key == "dedicated"]
        assert node.status.allocatable.items() >= {"cpu": "7500m", "memory": "30Gi", "pods": "110"}.items()
        assert node.status.capacity["cpu"] == "8"
        assert node.status.node_info.kubelet_version.startswith("v1.34.")
        assert (
            node.metadata.labels.items()
            >= {
                "team": "shop",
                "kubernetes.io/hostname": "n1",
                "node.kubernetes.io/instance-type": "m.8",
                "topology.kubernetes.io/zone": "eu-1a",
                "topology.kubernetes.io/region": "eu-1",
                "topology.bigfleet.lucy.sh/rack": "a-r0000",
                "bigfleet.lucy.sh/capacity-type": "OnDemand",
            }.items()
        )
        await apply(
            control_plane,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p1", "namespace": "default"},
                "spec": {
                    "containers": [{"name": "main", "image": "some/image"}],
                    "nodeSelector": {"team": "shop"},
                    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
                },
            },
        )

        async def runs() -> bool:
            return (await client.get(PODS, "p1", "default")).status.phase == "Running"

        await until(runs, "the pod runs")
        await client.delete(PODS, "p1", "default")
        await cleared(client)


async def test_a_host_that_is_drained_lets_its_lease_grow_old_and_its_node_stand(control_plane: ControlPlane) -> None:
    token = await bootstrap_token(control_plane)
    async with cloud_of(2) as cloud, admin(control_plane) as client:
        stays, goes = cloud.machines
        await cloud.bound(control_plane, token, stays, goes)
        for node in (stays, goes):
            await apply(
                control_plane,
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"on-{node}", "namespace": "default"},
                    "spec": {"containers": [{"name": "main", "image": "some/image"}], "nodeName": node},
                },
            )
        await cloud.ask(Call.DRAIN, goes)
        await cloud.become(S.IDLE, goes)
        seen = await renewed(client, stays)

        async def renewed_twice() -> bool:
            # Two of the neighbour's turns: one that was on its way may still be written.
            return await renewed(client, stays) > seen + timedelta(seconds=15)

        last = await renewed(client, goes)
        await until(renewed_twice, "the neighbour's Lease is renewed twice")
        assert await renewed(client, goes) == last
        # A pod that is deleted now has no kubelet to confirm it, while its neighbour's has.
        for node in (goes, stays):
            await client.delete(PODS, f"on-{node}", "default")

        async def has_ended() -> bool:
            return not await client.list(PODS, "default", fields=f"metadata.name=on-{stays}")

        await until(has_ended, "the neighbour's pod is gone")
        assert (await client.get(PODS, f"on-{goes}", "default")).metadata.deletion_timestamp is not None
        await control_plane.kubectl("delete", "pod", f"on-{goes}", "--grace-period=0", "--force")
        await client.delete(NODES, goes)
        # And the same host comes again, under the same name.
        await cloud.ask(Call.CONFIGURE, goes, user_data(control_plane, token, goes))
        await cloud.become(S.CONFIGURED, goes)
        assert is_ready(await client.get(NODES, goes))
        await cleared(client)


async def test_a_token_that_has_expired_fails_the_machine_with_the_step(control_plane: ControlPlane) -> None:
    token = await bootstrap_token(control_plane, timedelta(seconds=-10))
    async with cloud_of(1, timeouts={"configure": "5s"}) as cloud:
        await cloud.ask(Call.CREATE, "a-000000")
        await cloud.become(S.IDLE, "a-000000")
        await cloud.ask(Call.CONFIGURE, "a-000000", user_data(control_plane, token, "n1"))
        await cloud.become(S.FAILED, "a-000000")
        assert "asking for a certificate with the bootstrap token: " in cloud.error("a-000000")
        assert "401 Unauthorized" in cloud.error("a-000000")


async def test_a_missing_role_binding_fails_the_machine_as_in_production(control_plane: ControlPlane) -> None:
    token = await bootstrap_token(control_plane)
    kept = await control_plane.kubectl("get", "clusterrolebinding", BINDINGS[1], "--output=json")
    await control_plane.kubectl("delete", "clusterrolebinding", BINDINGS[1])
    async with cloud_of(1, timeouts={"configure": "5s"}) as cloud:
        await cloud.ask(Call.CREATE, "a-000000")
        await cloud.become(S.IDLE, "a-000000")
        await cloud.ask(Call.CONFIGURE, "a-000000", user_data(control_plane, token, "n1"))
        await cloud.become(S.FAILED, "a-000000")
        assert "is neither approved nor denied" in cloud.error("a-000000")
    restored = json.loads(kept)
    restored["metadata"] = {"name": BINDINGS[1]}
    await apply(control_plane, restored)


async def test_hundreds_join_at_once(control_plane: ControlPlane) -> None:
    token = await bootstrap_token(control_plane)
    async with cloud_of(250) as cloud, admin(control_plane) as client:
        await cloud.bound(control_plane, token, *cloud.machines, seconds=120)
        assert sum(is_ready(node) for node in await client.list(NODES)) == 250
        await cleared(client)
