"""The provider client: how long a full list through gRPC takes, how large its records are, how long the loop stalls."""

import asyncio
import gc
import multiprocessing
import time
import tracemalloc
from multiprocessing.connection import Connection

import grpc
from prometheus_client import CollectorRegistry

from bench.harness import Report
from bigfleet.model.machine import CapacityType, Host, Machine, MachineState
from bigfleet.model.resources import supply
from bigfleet.provider.client import PAGE_ROWS, ProviderClient, provider_dialer
from bigfleet.provider.fencing import Fencing
from bigfleet.provider.records import Listing
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.listen import bind
from bigfleet.wire.machines import machine_to_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

MACHINES = 100_000
ROUNDS = 3
_TICK_SECONDS = 0.001
_TYPES = [
    (f"{family}.{size}xlarge", supply({"cpu": str(4 * size), "memory": f"{memory * size}Gi", "pods": "110"}))
    for family, memory in (("c8", 8), ("m8", 16), ("r8", 32))
    for size in (1, 2, 4, 8, 16)
]


def run(report: Report) -> None:
    """Measure the client's budgets against a provider in a process of its own."""
    report.progress(f"serving {MACHINES:,} machines in pages of {PAGE_ROWS:,}, and in one")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    provider = context.Process(target=_provide, args=(theirs,))
    provider.start()
    try:
        port = ours.recv()
        asyncio.run(_measure(report, port))
    finally:
        ours.send(None)
        provider.join()


async def _measure(report: Report, port: int) -> None:
    for title, page_rows in (("in pages", PAGE_ROWS), ("in one answer", MACHINES + 1)):
        name = "bench"
        dialer = provider_dialer(name, TCPAddress("127.0.0.1", port), None)
        metrics = ShardMetrics(CollectorRegistry())
        client = ProviderClient(name, dialer, Fencing("bench", 1), metrics, page_rows=page_rows)
        await dialer.channel()
        times, stalls = [], []
        for _ in range(ROUNDS):
            elapsed, stall, listing = await _list(client)
            if len(listing.machines) != MACHINES or listing.refused:
                raise RuntimeError(f"{len(listing.machines)} machines listed, {len(listing.refused)} refused")
            del listing
            times.append(elapsed)
            stalls.append(stall)
        report.add(f"full list of {MACHINES:,} machines, {title}", sorted(times)[ROUNDS // 2], "s", 3)
        report.add(f"longest event-loop stall, {title}", max(stalls) * 1e3, "ms")
        if page_rows == PAGE_ROWS:
            report.add("a domain record", await _weigh(client) / MACHINES, "bytes")
        await client.close()


async def _list(client: ProviderClient) -> tuple[float, float, Listing]:
    """One full list: its seconds, the longest time in which nothing else ran on the event loop, and the list."""
    gc.collect()
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        last = time.perf_counter()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.perf_counter()
            longest = max(longest, now - last - _TICK_SECONDS)
            last = now

    ticking = asyncio.create_task(tick())
    start = time.perf_counter()
    listing = await client.list()
    elapsed = time.perf_counter() - start
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)
    return elapsed, longest, listing


async def _weigh(client: ProviderClient) -> int:
    gc.collect()
    tracemalloc.start()
    listing = await client.list()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del listing
    return held


def _provide(pipe: Connection) -> None:
    """A provider that serves prebuilt answers until told to stop."""
    records = [machine_to_wire(_machine(i)) for i in range(MACHINES)]
    pages = [
        pb.MachineList(machines=records[at : at + PAGE_ROWS], revision=str(at + PAGE_ROWS).encode()).SerializeToString()
        for at in range(0, MACHINES, PAGE_ROWS)
    ]
    head = str(MACHINES).encode()
    answers = {str(at * PAGE_ROWS).encode(): page for at, page in enumerate(pages)}
    answers[b""] = pages[0]
    answers[head] = pb.MachineList(revision=head).SerializeToString()
    whole = pb.MachineList(machines=records, revision=head).SerializeToString()

    async def answer(request: bytes, _context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        asked = pb.ListFilter.FromString(request)
        return whole if asked.max_results > MACHINES and not asked.since_revision else answers[asked.since_revision]

    class Handler(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":  # noqa: ARG002
            return grpc.unary_unary_rpc_method_handler(answer)

    async def serve() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Handler(),))
        port = bind(server, TCPAddress("127.0.0.1", 0), None)
        await server.start()
        pipe.send(port)
        await asyncio.to_thread(pipe.recv)
        await server.stop(None)

    asyncio.run(serve())


def _machine(i: int) -> Machine:
    """One machine of a fleet in which four in five are bound, with forty to a rack."""
    kind, resources = _TYPES[i // 40 % len(_TYPES)]
    bound = i % 5 != 0
    return Machine(
        id=f"m-{i:06d}",
        state=MachineState.CONFIGURED if bound else MachineState.IDLE,
        instance_type=kind,
        capacity_type=CapacityType.ON_DEMAND,
        host=Host("bench", f"i-{i:017x}"),
        zone=f"eu-1{'abc'[i // 40 % 3]}",
        price_per_hour=0.17 * (1 + i // 40 % len(_TYPES)),
        interruption_probability=0.01,
        resources=resources,
        allocatable=tuple((name, units * 9 // 10) for name, units in resources),
        labels={
            "topology.kubernetes.io/region": "eu-1",
            "topology.bigfleet.lucy.sh/rack": f"r{i // 40:05d}",
            "kubernetes.io/arch": "amd64",
        },
        cluster=f"cluster-{i % 50}" if bound else "",
        shard_metadata={
            "bigfleet.lucy.sh/shard": "eu-1",
            "bigfleet.lucy.sh/epoch": "1767225601",
            "bigfleet.lucy.sh/binding": str(i),
            "bigfleet.lucy.sh/fingerprint": f"{i % 60:032x}",
        }
        if bound
        else {},
    )
