"""Pods, the controller that looks after them, and what must hold when it has come to rest."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from bigfleet.kube.client import Client
from bigfleet.podcontroller.controller import Controller, Plan
from bigfleet.podcontroller.pod.penalties import Defaults
from bigfleet.podcontroller.pod.reading import request_name
from bigfleet.telemetry.metrics import PodControllerMetrics
from tests.podcontroller.api_server import ApiServer, Object

REQUESTS = "capacityrequests"
LABEL = {"app.kubernetes.io/managed-by": "bigfleet-pod-controller"}


def pod(
    name: str = "web", namespace: str = "shop", cpu: str = "1", status: Object | None = None, **spec: Any
) -> Object:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}, "annotations": {}}
    return {"metadata": metadata, "spec": {"containers": containers, **spec}, "status": status or {"phase": "Pending"}}


def unschedulable() -> Object:
    return {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def own_name(made: Object) -> str:
    """The name of a pod's request."""
    return request_name(made["metadata"]["name"], made["metadata"]["uid"])


def owner(made: Object) -> Object:
    metadata = made["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    return {**reference, "controller": True, "blockOwnerDeletion": False}


def request(made: Object, name: str = "", cpu: str = "1", **metadata: Any) -> Object:
    """A request of ours for a pod, as it stands in the API server."""
    named = {"name": name or own_name(made), "namespace": made["metadata"]["namespace"], "labels": dict(LABEL)}
    spec = {"resources": {"cpu": cpu}, "priority": 0}
    return {"metadata": {**named, "ownerReferences": [owner(made)], **metadata}, "spec": spec}


def held(server: ApiServer) -> dict[str, str]:
    """The cpu of every request by its name."""
    return {made["metadata"]["name"]: made["spec"]["resources"]["cpu"] for made in server.all(REQUESTS)}


@dataclass
class Running:
    """A controller at work."""

    controller: Controller
    registry: CollectorRegistry
    task: "asyncio.Task[None]"

    def count(self, outcome: str) -> float:
        name = "bigfleet_unschedulable_pod_controller_reconciles_total"
        return self.registry.get_sample_value(name, {"outcome": outcome}) or 0.0

    async def crash(self) -> None:
        """End it wherever it is."""
        self.task.cancel()
        await asyncio.wait({self.task})


@asynccontextmanager
async def running(
    server: ApiServer, plan: Plan | None = None, defaults: Callable[[], Defaults] = dict
) -> AsyncIterator[Running]:
    registry = CollectorRegistry()
    async with Client(server.config, qps=10_000, burst=10_000) as client:
        controller = Controller(client, plan or Plan(), defaults, PodControllerMetrics(registry))
        task = asyncio.create_task(controller.run())
        stage = Running(controller, registry, task)
        try:
            yield stage
        finally:
            await stage.crash()
        if not task.cancelled():
            task.result()


@asynccontextmanager
async def settled(
    server: ApiServer, plan: Plan | None = None, defaults: Callable[[], Defaults] = dict
) -> AsyncIterator[Running]:
    """A controller that has looked at everything there was."""
    async with running(server, plan, defaults) as stage:
        async with asyncio.timeout(30):
            await stage.controller.complete.wait()
        yield stage


async def passed(server: ApiServer, namespace: str = "shop") -> None:
    """Wait until a controller with one worker has looked at everything that changed before now."""
    name = f"sentinel-{server.version}"
    made = server.add("pods", pod(name, namespace, status=unschedulable()))
    await server.until(lambda: (REQUESTS, namespace, own_name(made)) in server.objects)
    server.remove("pods", namespace, name)
    await server.until(lambda: (REQUESTS, namespace, own_name(made)) not in server.objects)
