"""A whole shard on virtual time for the tests of the rules: its clouds, its clusters, and what is read off them."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from bigfleet.model.demand.profile import Profile
from bigfleet.model.machine import MachineState
from bigfleet.model.resources import demand
from bigfleet.providerkit.ledger.entry import Entry
from bigfleet.sim import clock
from bigfleet.sim.cloud.config import CloudConfig
from bigfleet.sim.cloud.reading import read
from bigfleet.sim.clusters.cluster import Cluster
from bigfleet.sim.clusters.habits import Habits
from bigfleet.sim.clusters.world import Workload, World
from bigfleet.wire.v1alpha1 import shard_pb2 as pb
from tests.shard.rig.virtual import Made, Operator, Rig, Times, rigged

S = MachineState
CREATE, JOIN, DRAIN, DELETE = 20.0, 10.0, 5.0, 5.0
"""What the cloud here takes, to the second."""

_LATENCY = {"create": CREATE, "configure": 0, "join": JOIN, "drain": DRAIN, "wipe": 0, "delete": DELETE}


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on virtual time."""

    @functools.wraps(test)
    def run(*args: Any, **fields: Any) -> None:
        clock.run(test(*args, **fields))

    return run


def pool(name: str, count: int, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "instance_type": "c.8",
        "zone": "a",
        "capacity_type": "OnDemand",
        "price_per_hour": 0.4,
        "count": count,
        "resources": {"cpu": 8, "memory": "32Gi", "pods": 110},
        **fields,
    }


def cloud(*pools: dict[str, Any], scheme: str = "sim", **fields: Any) -> CloudConfig:
    return read(json.dumps({"scheme": scheme, "latency": _LATENCY, "pools": pools, **fields}), scheme)


def workload(name: str = "web", cores: int = 8, leave_seconds: float | None = 5.0, **profile: Any) -> Workload:
    """By default one pod fills a machine."""
    unit = demand({"cpu": cores, "memory": "4Gi"})
    return Workload(name=name, unit=unit, profile=Profile(**{"priority": 100, **profile}), leave_seconds=leave_seconds)


def join(rig: Rig, name: str, pods: int = 0, *, of: Workload | None = None, **habits: Any) -> Operator:
    """A cluster that wants so many pods."""
    cluster = Cluster(name, World(), Habits(**habits), stamp=lambda: int(now() * 1e9))
    cluster.world.deploy(of or workload(), pods)
    return rig.join(cluster)


@asynccontextmanager
async def fleet(*clouds: CloudConfig, machines: int = 10, times: Times | None = None) -> AsyncIterator[Rig]:
    """A rig whose shard runs, by default with so many on-demand machines."""
    async with rigged(clouds or [cloud(pool("od", machines))], times=times) as rig:
        rig.start()
        yield rig


def hello(cluster: str, *features: str) -> pb.OperatorMessage:
    """For sessions that are led by hand."""
    return pb.OperatorMessage(hello=pb.Hello(cluster_id=cluster, protocol_version="v1alpha1", features=features))


def now() -> float:
    return asyncio.get_running_loop().time()


def entries(rig: Rig, *states: MachineState) -> list[Entry]:
    """Machines as their providers have them."""
    every = (entry for provider in rig.providers.values() for entry in provider.ledger)
    return [entry for entry in every if not states or entry.state in states]


def bound(rig: Rig, cluster: str) -> list[str]:
    """The machines that serve a cluster."""
    return [entry.id for entry in entries(rig, S.CONFIGURED) if entry.cluster == cluster]


def calls(rig: Rig, call: str, since: float = 0.0) -> list[Made]:
    return [made for made in rig.made if made.call == call and made.at >= since]


async def settled(rig: Rig, within: float = 600.0) -> None:
    """Wait until nothing is under way."""
    await rig.until(lambda: not len(rig.core.parts.commitments), within)


async def serving(rig: Rig, cluster: str, machines: int, within: float = 300.0) -> None:
    await rig.until(lambda: len(bound(rig, cluster)) == machines, within)
    await settled(rig)
