"""How many lifecycle calls a second a provider built on the kit takes through gRPC, with and without durable state.

The provider is a process of its own and its substrate answers at once, so that the kit alone is measured.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from bench.harness import Report
from bigfleet.providerkit import Backend, CapacityType, Job, Offer, Shape, main
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub

_MACHINES = 4_000
_CALLERS = 64
_FLOOR = {"memory": 2_000, "SQLite": 500}
_SHAPE = Shape(
    instance_type="m8",
    zone="z1",
    capacity_type=CapacityType.ON_DEMAND,
    price_per_hour=0.4,
    resources={"cpu": "8", "memory": "32Gi"},
)


class Instant(Backend):
    """A substrate that does everything at once."""

    scheme = "instant"

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}

    async def offers(self) -> Iterable[Offer]:
        """All machines, of one shape."""
        return [Offer(f"m-{number}", _SHAPE) for number in range(_MACHINES)]

    async def create(self, job: Job) -> str:
        """Make a host that is named after its token."""
        self._hosts[job.token] = f"h-{job.token}"
        return self._hosts[job.token]

    async def configure(self, job: Job, blob: bytes) -> None:
        """Do nothing."""

    async def drain(self, job: Job, grace_seconds: int) -> None:
        """Do nothing."""

    async def delete(self, job: Job) -> None:
        """Forget the host."""
        self._hosts.pop(job.token, None)

    async def describe(self, job: Job) -> str:
        """The host that was made under the token."""
        return self._hosts.get(job.token, "")


def run(report: Report) -> None:
    """Measure both stores."""
    with tempfile.TemporaryDirectory() as folder:
        for store, state in (("memory", "memory"), ("SQLite", str(Path(folder) / "state"))):
            report.progress(f"kit: {4 * _MACHINES:,} lifecycle calls from {_CALLERS} callers, state in {store}")
            rate, worst = asyncio.run(_measure(state, f"unix:{folder}/{store}.sock"))
            report.add(f"kit, {store}: lifecycle calls", rate, "calls/s", _FLOOR[store], at_least=True)
            report.add(f"kit, {store}: p99 of a call", worst * 1000, "ms")


async def _measure(state: str, address: str) -> tuple[float, float]:
    async with _provider(state, address) as provider:
        clock, took, spent = time.perf_counter, list[float](), 0.0
        epoch, sequence = time.time_ns(), 0

        async def phase(call: Callable[[dict[str, Any]], Awaitable[object]], done: pb.MachineState.ValueType) -> None:
            nonlocal spent
            machines = iter(range(_MACHINES))

            async def caller() -> None:
                nonlocal sequence
                for number in machines:
                    sequence += 1
                    token = {"shard_id": "bench", "shard_epoch": epoch, "sequence_number": sequence}
                    began = clock()
                    await call({"machine_id": f"m-{number}", **token})
                    took.append(clock() - began)

            began = clock()
            async with asyncio.TaskGroup() as callers:
                for _ in range(_CALLERS):
                    callers.create_task(caller())
            spent += clock() - began
            while len((await provider.List(pb.ListFilter(states=[done]))).machines) < _MACHINES:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        await phase(lambda f: provider.Create(pb.CreateRequest(**f)), pb.MACHINE_STATE_IDLE)
        await phase(
            lambda f: provider.Configure(pb.ConfigureRequest(**f, cluster_id="c", shard_metadata={"row": "1"})),
            pb.MACHINE_STATE_CONFIGURED,
        )
        await phase(lambda f: provider.Drain(pb.DrainRequest(**f)), pb.MACHINE_STATE_IDLE)
        await phase(lambda f: provider.Delete(pb.DeleteRequest(**f)), pb.MACHINE_STATE_SPECULATIVE)
        took.sort()
        return len(took) / spent, took[int(len(took) * 0.99)]


@asynccontextmanager
async def _provider(state: str, address: str) -> AsyncIterator[CapacityProviderStub]:
    command = ["-m", "bench.provider_kit", "--state", state, "--listen", address, "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command)
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            await asyncio.wait_for(channel.channel_ready(), 30)
            yield CapacityProviderStub(channel)
    finally:
        process.terminate()
        await process.wait()


if __name__ == "__main__":
    main("instant", lambda _config: Instant())
