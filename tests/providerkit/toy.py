"""A substrate for tests: hosts in a dict, every method paused, failed or hung at will."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable

from bigfleet.model.machine import CapacityType
from bigfleet.providerkit import Backend, BackendError, Job, Known, Limits, Notice, Offer, Shape

SHAPE = Shape(
    instance_type="m8",
    zone="z1",
    capacity_type=CapacityType.ON_DEMAND,
    price_per_hour=0.4,
    resources={"cpu": "8", "memory": "32Gi"},
    labels={"example.com/rack": "r1"},
)


class Toy(Backend):
    """Succeeds at once unless told otherwise. `gates[method]` holds a method until set; `errors[method]` fails it."""

    scheme = "toy"
    limits = Limits(create=30, configure=30, drain=30, delete=30)
    ready_poll_seconds = 0.001
    doubt_seconds = 0.15

    def __init__(self, machines: int = 3, hosts: dict[str, str] | None = None) -> None:
        self.machines = [f"m-{i}" for i in range(machines)]
        self.shape = SHAPE
        self.hosts: dict[str, str] = {} if hosts is None else hosts
        self.gates: dict[str, asyncio.Event] = {}
        self.errors: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        self.blobs: list[bytes] = []
        self.nodes_ready = True
        self.notices: asyncio.Queue[Notice] = asyncio.Queue()
        self.closed = False

    async def offers(self) -> Iterable[Offer]:
        return [Offer(machine, self.shape) for machine in self.machines]

    async def create(self, job: Job) -> str:
        await self._at("create")
        return job.host or self.hosts.setdefault(job.token, f"h-{len(self.hosts)}-{job.machine}")

    async def configure(self, job: Job, blob: bytes) -> None:
        await self._at("configure")
        self.blobs.append(blob)

    async def ready(self, job: Job) -> bool:
        self.calls["ready"] += 1
        return self.nodes_ready

    async def drain(self, job: Job, grace_seconds: int) -> None:
        await self._at("drain")

    async def delete(self, job: Job) -> None:
        await self._at("delete")
        self.hosts = {token: host for token, host in self.hosts.items() if host != job.host}

    async def describe(self, job: Job) -> str:
        await self._at("describe")
        return self.hosts.get(job.token, "")

    async def watch(self, known: Known) -> AsyncIterator[Notice]:
        while True:
            yield await self.notices.get()

    async def close(self) -> None:
        self.closed = True

    async def _at(self, method: str) -> None:
        self.calls[method] += 1
        if method in self.gates:
            await self.gates[method].wait()
        if method in self.errors:
            raise BackendError(self.errors[method])


class Hardware(Backend):
    """Hosts that stand there already and cannot be deleted."""

    scheme = "metal"

    async def offers(self) -> Iterable[Offer]:
        return [Offer(f"b-{i}", SHAPE, host=f"rack1-{i}") for i in range(2)]

    async def configure(self, job: Job, blob: bytes) -> None:
        """Nothing to do."""

    async def drain(self, job: Job, grace_seconds: int) -> None:
        """Nothing to do."""
