"""A cache of CapacityRequests: the memory of a quarter of a million, how fast they are listed, how fast changes apply.

The server is another process that sends recorded bytes, so that only reading and holding requests is measured.
"""

import asyncio
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from aiohttp import web

from bench.harness import Report
from bigfleet.kube.access.server import ServerConfig
from bigfleet.kube.client import PAGE_OBJECTS, Client
from bigfleet.kube.objects.resources import CAPACITY_REQUESTS
from bigfleet.kube.watch import Watcher
from bigfleet.model.crd import CapacityRequest
from bigfleet.model.demand.aggregate import Aggregator

REQUESTS = 250_000
EVENTS = 50_000
_TICK_SECONDS = 0.001
_PIECE_BYTES = 64 * 1024


def run(report: Report) -> None:
    """Measure the budgets of a cache, in a process that does nothing else."""
    report.progress(f"caching {REQUESTS:,} CapacityRequests, then {EVENTS:,} changes, then all again")
    figures = beside_server(_hold)
    report.add(f"list of {REQUESTS:,} requests into a cache", figures["list"], "s")
    report.add("longest event-loop stall, the first sums", figures["list_stall"] * 1e3, "ms")
    report.add(f"RSS with {REQUESTS:,} requests and their sums", figures["rss"], "MB", 500)
    report.add("of which the program itself", figures["bare"], "MB")
    report.add("watch events applied", EVENTS / figures["events"], "events/s", 5000, at_least=True)
    report.add("longest event-loop stall under events", figures["events_stall"] * 1e3, "ms")
    report.add("relist after 410", figures["relist"], "s")
    report.add("longest event-loop stall in a relist", figures["relist_stall"] * 1e3, "ms")
    report.add("peak RSS, relist included", figures["peak"], "MB", 500)


def beside_server(work: Callable[[Connection, int], None]) -> dict[str, float]:
    """The figures that `work` sends from a process of its own, beside one that serves recorded requests."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    to_work, of_work = context.Pipe()
    server = context.Process(target=serve, args=(theirs,))
    server.start()
    try:
        process = context.Process(target=work, args=(of_work, ours.recv()))
        process.start()
        figures: dict[str, float] = to_work.recv()
        process.join()
    finally:
        ours.send(None)
        server.join()
    return figures


class Cache:
    """Every request by its name, and the sums that the operator reports."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], CapacityRequest] = {}
        self.sums = Aggregator()
        self.changes = 0
        self.lists = 0
        self.changed = asyncio.Event()

    def replaced(self, objects: Sequence[CapacityRequest], /) -> None:
        """Take a new list; what it leaves out is gone."""
        self.lists += 1
        former, self.held = self.held, {(obj.metadata.namespace, obj.metadata.name): obj for obj in objects}
        for namespace, name in former.keys() - self.held.keys():
            self.sums.remove(namespace, name)
        for key, obj in self.held.items():
            if former.get(key) is not obj:
                self.sums.put(obj)
        self.changed.set()

    def known(self, namespace: str, name: str, /) -> CapacityRequest | None:
        """The request of that name; None without one."""
        return self.held.get((namespace, name))

    def put(self, obj: CapacityRequest, /) -> None:
        """Add a request, or replace it with a newer version."""
        self.changes += 1
        self.held[obj.metadata.namespace, obj.metadata.name] = obj
        self.sums.put(obj)
        self.changed.set()

    def removed(self, obj: CapacityRequest, /) -> None:
        """Take a request away."""
        self.changes += 1
        self.held.pop((obj.metadata.namespace, obj.metadata.name), None)
        self.sums.remove(obj.metadata.namespace, obj.metadata.name)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is asked after every change."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()


def _hold(pipe: Connection, port: int) -> None:
    pipe.send(asyncio.run(_measured(port)))


async def _measured(port: int) -> dict[str, float]:
    figures = {"bare": memory("VmRSS")}
    cache = Cache()
    config = ServerConfig(server=f"http://127.0.0.1:{port}")
    stalls = [0.0]
    ticking = asyncio.create_task(_tick(stalls))
    # A list is 500 calls, and the limit on calls a second is not to be measured.
    async with Client(config, qps=100_000, burst=100_000) as client:
        watching = asyncio.create_task(Watcher(client, CAPACITY_REQUESTS, cache).run())
        start = time.perf_counter()
        await cache.until(lambda: cache.lists == 1)
        figures["list"] = time.perf_counter() - start
        figures["list_stall"] = await _longest(stalls)
        figures["rss"] = memory("VmRSS")
        await cache.until(lambda: cache.changes > 0)
        start = time.perf_counter()
        await cache.until(lambda: cache.changes == EVENTS)
        figures["events"] = time.perf_counter() - start
        start = time.perf_counter()
        figures["events_stall"] = await _longest(stalls)
        await cache.until(lambda: cache.lists == 2)
        figures["relist"] = time.perf_counter() - start
        figures["relist_stall"] = await _longest(stalls)
        figures["peak"] = memory("VmHWM")
        if len(cache.held) != REQUESTS or not cache.sums.needs():
            raise RuntimeError(f"{len(cache.held):,} requests are held instead of {REQUESTS:,}")
        for task in (watching, ticking):
            task.cancel()
        await asyncio.gather(watching, ticking, return_exceptions=True)
    return figures


async def _tick(stalls: list[float]) -> None:
    last = time.perf_counter()
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        now = time.perf_counter()
        stalls[0] = max(stalls[0], now - last - _TICK_SECONDS)
        last = now


async def _longest(stalls: list[float]) -> float:
    """The longest stall since the last call of this function."""
    await asyncio.sleep(5 * _TICK_SECONDS)
    longest, stalls[0] = stalls[0], 0.0
    return longest


def memory(field: str) -> float:
    """The memory of this process in MB: with VmRSS what it holds now, with VmHWM the most that it ever held."""
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0]) * 1024 / 1e6


def serve(pipe: Connection) -> None:
    """Serve two lists in pages, between them one watch with many changes that ends in 410, and then a silent watch."""
    pages = [
        b",".join(request(i, i + 1) for i in range(at, min(at + PAGE_OBJECTS, REQUESTS)))
        for at in range(0, REQUESTS, PAGE_OBJECTS)
    ]
    events = b"".join(
        b'{"type":"MODIFIED","object":%s}\n' % request(i * 7919 % REQUESTS, REQUESTS + i, "Acknowledged")
        for i in range(EVENTS)
    )
    events += b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
    watches = 0

    async def answer(asked: web.Request) -> web.StreamResponse:
        nonlocal watches
        if "watch" not in asked.query:
            number = int(asked.query.get("continue", "0"))
            following = str(number + 1) if number + 1 < len(pages) else ""
            head = json.dumps({"resourceVersion": str(REQUESTS), "continue": following}).encode()
            return web.Response(body=b'{"metadata":%s,"items":[%s]}' % (head, pages[number]))
        response = web.StreamResponse()
        await response.prepare(asked)
        watches += 1
        if watches == 1:
            for at in range(0, len(events), _PIECE_BYTES):
                await response.write(events[at : at + _PIECE_BYTES])
            return response
        await asyncio.Event().wait()
        return response

    async def serving() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pipe.send(runner.addresses[0][1])
        await asyncio.to_thread(pipe.recv)
        await runner.cleanup()

    asyncio.run(serving())


def request(i: int, version: int, phase: str = "Pending") -> bytes:
    """A request as an API server sends it, of one of 600 kinds of pods; owned by its pod, with its pod's UID on it."""
    kind = i % 600
    name = f"cr-pod-app-{kind:03d}-7d9c6b5f4-{i:06x}"
    stamp = f"2026-01-0{1 + i // 50_000}T{i // 2100 % 24:02d}:{i // 35 % 60:02d}:00Z"
    managed: dict[str, object] = {
        "f:spec": {".": {}, "f:priority": {}, "f:resources": {".": {}, "f:cpu": {}, "f:memory": {}}}
    }
    request = {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {
            "creationTimestamp": stamp,
            "generation": 1,
            "labels": {"bigfleet.lucy.sh/pod-controller": "true"},
            "managedFields": [
                {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "fieldsV1": managed, "manager": "pod-controller"}
            ],
            "name": name,
            "namespace": f"team-{kind % 40}",
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "blockOwnerDeletion": False,
                    "controller": True,
                    "kind": "Pod",
                    "name": name.removeprefix("cr-pod-"),
                    "uid": f"5f0e3c52-9a1d-4c57-8e21-{i:012x}",
                }
            ],
            "resourceVersion": str(version),
            "uid": f"0b9d6e1c-44f3-4f0a-9c3f-{i:012x}",
        },
        "spec": {
            "interruptionPenalty": "2",
            "priority": kind % 12 * 1000,
            "requirements": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [f"eu-1{'abc'[kind % 3]}"]},
            ],
            "resources": {"cpu": f"{250 * (1 + kind % 25)}m", "memory": f"{512 * (1 + kind % 17)}Mi"},
        },
        "status": {"phase": phase} | ({"acknowledgedAt": stamp} if phase == "Acknowledged" else {}),
    }
    return json.dumps(request, separators=(",", ":")).encode()
