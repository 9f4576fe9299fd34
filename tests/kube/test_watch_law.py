"""The law of a watcher: after any changes, cuts, lies and relists, its sink equals the server's truth."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.kube import client as client_module
from bigfleet.kube.client import Client
from bigfleet.kube.objects.resources import CAPACITY_REQUESTS, KubeObject, Resource
from bigfleet.kube.objects.resources import CONFIG_MAPS as PLAIN
from bigfleet.kube.watch import Watcher
from bigfleet.transport.pace import Pace

if TYPE_CHECKING:
    from tests.kube.scripted_server import Server, Serving

NAMES = "abcde"
Step = tuple[str, str]

changes = st.tuples(st.sampled_from(["put", "put", "break", "delete"]), st.sampled_from(NAMES))
others = st.tuples(st.sampled_from(["compact", "cut", "pause", "pause"]), st.just(""))
faults = st.sampled_from(
    ["fine", "fine", "refused", "hang up", "half a line", "garbage", "end", "busy", "error 500", "bookmark"]
)


class Truth:
    """An honest API server for one collection, but for the faults it is told to have."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        self.version = 1
        self.objects: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[int, bytes]] = []
        self.compacted = 0
        self.snapshots: dict[int, list[dict[str, Any]]] = {}
        self.watching: set[asyncio.Event] = set()
        self.cuts = 0

    def readable(self) -> dict[str, str]:
        """What a sink should hold: names and versions."""
        return {
            name: obj["metadata"]["resourceVersion"] for name, obj in self.objects.items() if obj["spec"]["priority"]
        }

    def change(self, what: str, name: str) -> None:
        self.version += 1
        if what == "delete":
            obj = self.objects.pop(name, None)
            if obj is None:
                return
            kind, obj = "DELETED", obj | {"metadata": obj["metadata"] | {"resourceVersion": str(self.version)}}
        else:
            kind = "MODIFIED" if name in self.objects else "ADDED"
            # Nothing that a string could be is a priority, and no list is anybody's data.
            broken = {"data": [], "spec": {"resources": {}, "priority": ""}}
            whole = {"data": {}, "spec": {"resources": {"cpu": "1"}, "priority": 1}}
            metadata = {"name": name, "namespace": "ns", "resourceVersion": str(self.version)}
            obj = self.objects[name] = {"metadata": metadata, **(broken if what == "break" else whole)}
        self.log.append((self.version, _line(kind, obj)))
        self.tell()

    def compact(self) -> None:
        self.version += 1
        self.compacted = self.version
        self.log.clear()
        self.snapshots.clear()

    def cut(self) -> None:
        self.cuts += 1
        self.tell()

    def tell(self) -> None:
        for event in self.watching:
            event.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        fault = self.faults.pop(0) if self.faults else "fine"
        if fault == "refused":
            return _status(503, "ServiceUnavailable")
        if fault == "busy":
            return web.Response(status=429, headers={"Retry-After": "0"})
        if fault == "hang up":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return await self._watch(request, fault) if "watch" in request.query else self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        token = request.query.get("continue", "")
        version, _, start = token.partition("/") if token else (str(self.version), "", "0")
        if not token:
            self.snapshots[self.version] = sorted(self.objects.values(), key=lambda obj: obj["metadata"]["name"])
        snapshot = self.snapshots.get(int(version))
        if snapshot is None:
            return _status(410, "Expired")
        end = int(start) + int(request.query["limit"])
        metadata = {"resourceVersion": version, "continue": f"{version}/{end}" if end < len(snapshot) else ""}
        return web.json_response({"metadata": metadata, "items": snapshot[int(start) : end]})

    async def _watch(self, request: web.Request, fault: str) -> web.StreamResponse:
        at = int(request.query["resourceVersion"])
        if at < self.compacted and fault == "fine":
            return _status(410, "Expired")
        response = web.StreamResponse()
        await response.prepare(request)
        event, cuts = asyncio.Event(), self.cuts
        self.watching.add(event)
        try:
            while True:
                if at < self.compacted:
                    await response.write(_line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
                    return response
                due = [entry for entry in self.log if entry[0] > at]
                for version, line in due:
                    await response.write(line)
                    at = version
                if fault == "half a line":
                    await response.write(_line("ADDED", {})[:9])
                elif fault == "garbage":
                    await response.write(b"}{\n")
                elif fault == "error 500":
                    await response.write(_line("ERROR", {"kind": "Status", "code": 500}))
                elif fault == "bookmark":
                    at = max(at, self.version)
                    await response.write(_line("BOOKMARK", {"metadata": {"resourceVersion": str(at)}}))
                if fault in {"half a line", "garbage", "error 500", "end"}:
                    return response
                fault = "fine"
                if self.cuts != cuts:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                event.clear()
                await event.wait()
        except ConnectionResetError:
            return response
        finally:
            self.watching.discard(event)


def _line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def _status(code: int, reason: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "reason": reason}, status=code)


class Held:
    """A sink that objects to being told of the past."""

    def __init__(self) -> None:
        self.objects: dict[str, str] = {}
        self.changed = asyncio.Event()

    def replaced(self, objects: Sequence[KubeObject], /) -> None:
        new = {obj.metadata.name: obj.metadata.resource_version for obj in objects}
        assert len(new) == len(objects)
        for name, version in new.items():
            assert int(version) >= int(self.objects.get(name, "0"))
        self.objects = new
        self.changed.set()

    def put(self, obj: KubeObject, /) -> None:
        assert int(obj.metadata.resource_version) > int(self.objects.get(obj.metadata.name, "0"))
        self.objects[obj.metadata.name] = obj.metadata.resource_version
        self.changed.set()

    def removed(self, obj: KubeObject, /) -> None:
        assert obj.metadata.namespace == "ns"
        self.objects.pop(obj.metadata.name, None)
        self.changed.set()


@asynccontextmanager
async def _watched(server: "Server", resource: Resource[Any], held: Held) -> Any:
    async def sleep(_: float) -> None:
        await asyncio.sleep(0)

    async with Client(server.config, qps=1e6, burst=1_000_000) as client:
        watcher = Watcher(client, resource, held, pace=Pace(sleep=sleep))
        task = asyncio.create_task(watcher.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("resource", [CAPACITY_REQUESTS, PLAIN], ids=["shared", "plain"])
@given(before=st.lists(changes, max_size=8), steps=st.lists(changes | others, max_size=25), faults=st.lists(faults))
@settings(max_examples=40)
def test_in_the_end_the_sink_equals_the_truth(
    serving: "Serving", resource: Resource[Any], before: list[Step], steps: list[Step], faults: list[str]
) -> None:
    async def run() -> None:
        truth, held = Truth(faults), Held()
        for step in before:
            truth.change(*step)
        async with serving() as server:
            server.behave = truth.answer
            async with _watched(server, resource, held) as task:
                for what, name in steps:
                    if what == "compact":
                        truth.compact()
                    elif what == "cut":
                        truth.cut()
                    elif what == "pause":
                        for _ in range(20):
                            await asyncio.sleep(0)
                    else:
                        truth.change(what, name)
                # A watcher that waits for nothing but news learns of a compaction by the next event only.
                truth.change("put", "last")
                async with asyncio.timeout(60):
                    while held.objects != truth.readable():
                        held.changed.clear()
                        told = asyncio.create_task(held.changed.wait())
                        await asyncio.wait({told, task}, return_when=asyncio.FIRST_COMPLETED)
                        told.cancel()
                        if task.done():
                            task.result()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_module, "PAGE_OBJECTS", 2)
        asyncio.run(run())
