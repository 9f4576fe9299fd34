"""Watchers against a server that cuts, forgets, stammers and lies, one fault at a time."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from bigfleet.kube import watch
from bigfleet.kube.access import http
from bigfleet.kube.client import Client
from bigfleet.kube.objects.kinds import Node
from bigfleet.kube.objects.resources import CAPACITY_REQUESTS, NODES
from bigfleet.kube.watch import UNHEALTHY_SECONDS, Watcher
from bigfleet.transport.pace import Pace

if TYPE_CHECKING:
    from tests.kube.scripted_server import Behaviour, Server

Refusal = Callable[..., web.Response]
ok = web.json_response


def node(name: str, version: int, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "spec": spec}


def listed(version: int, *items: dict[str, Any], token: str = "") -> web.Response:
    return ok({"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(items)})


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": str(version), "creationTimestamp": None}})


def streamed(*pieces: bytes | Awaitable[None], cut: Awaitable[None] | None = None) -> "Behaviour":
    """A watch that brings these pieces, each after what it waits for, and then ends, or is cut at a given time."""

    async def behave(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            if isinstance(piece, bytes):
                await response.write(piece)
            else:
                await piece
        if cut is not None:
            await cut
            assert request.transport is not None
            request.transport.abort()
        return response

    return behave


async def quiet(request: web.Request) -> web.StreamResponse:
    """A watch in which nothing happens."""
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.Event().wait()
    return response


class Nodes:
    """A sink that holds nodes by name and tells what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.held: dict[str, Node] = {}
        self.changed = asyncio.Event()

    def replaced(self, objects: Sequence[Node], /) -> None:
        self.told.append(sorted(obj.metadata.name for obj in objects))
        self.held = {obj.metadata.name: obj for obj in objects}
        self.changed.set()

    def put(self, obj: Node, /) -> None:
        self.told.append(f"+{obj.metadata.name}")
        self.held[obj.metadata.name] = obj
        self.changed.set()

    def removed(self, obj: Node, /) -> None:
        self.told.append(f"-{obj.metadata.name}")
        self.held.pop(obj.metadata.name, None)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Rig:
    """A watcher of nodes whose waits take no time but are kept."""

    def __init__(self, client: Client) -> None:
        self.sink = Nodes()
        self.waits: list[float] = []
        self.now = 0.0
        pace = Pace(sleep=self._sleep, clock=lambda: self.now, dice=lambda: 1.0)
        self.watcher = Watcher(client, NODES, self.sink, labels="a=b", pace=pace)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.sink.changed.set()
        await asyncio.sleep(0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Rig"]:
        task = asyncio.create_task(self.watcher.run())
        try:
            yield self
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.fixture
def rig(client: Client, server: "Server") -> Rig:
    server.behave = quiet
    return Rig(client)


async def test_lists_then_watches_from_that_very_version(server: "Server", rig: Rig) -> None:
    server.answers = [
        listed(7, node("a", 3), token="t"),
        listed(7, node("b", 5)),
        streamed(line("ADDED", node("c", 8)) + line("DELETED", node("a", 9)), line("MODIFIED", node("b", 10))),
    ]
    assert not rig.watcher.synced.is_set()
    assert not rig.watcher.healthy()
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [["a", "b"], "+c", "-a", "+b"])
        assert rig.watcher.synced.is_set()
        assert rig.watcher.healthy()
    asked = server.asked[2]
    assert asked.query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "600",
        "labelSelector": "a=b",
    }


@pytest.mark.parametrize("cut", [False, True])
async def test_a_cut_resumes_after_the_last_event_or_bookmark(server: "Server", rig: Rig, cut: bool) -> None:
    server.answers = [
        listed(7),
        streamed(line("ADDED", node("a", 8)), cut=rig.sink.until(lambda: "a" in rig.sink.held) if cut else None),
        streamed(bookmark(20)),
        streamed(line("ADDED", node("b", 21))),
    ]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [[], "+a", "+b"])
    watches = [asked.query["resourceVersion"] for asked in server.asked if "watch" in asked.query]
    assert watches[:3] == ["7", "8", "20"]


async def test_half_a_line_at_the_cut_counts_for_nothing(server: "Server", rig: Rig) -> None:
    whole = line("ADDED", node("b", 9))
    server.answers = [
        listed(7),
        streamed(line("ADDED", node("a", 8)) + whole[:20], cut=rig.sink.until(lambda: "a" in rig.sink.held)),
        streamed(whole),
    ]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [[], "+a", "+b"])
    assert server.asked[2].query["resourceVersion"] == "8"


async def test_a_line_may_come_in_pieces_beside_others(server: "Server", rig: Rig) -> None:
    half = line("ADDED", node("b", 9))
    first = rig.sink.until(lambda: "a" in rig.sink.held)
    server.answers = [
        listed(7),
        streamed(line("ADDED", node("a", 8)) + half[:20], first, half[20:] + line("ADDED", node("c", 10))),
    ]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [[], "+a", "+b", "+c"])
    assert rig.waits == []


async def test_pages_of_different_moments_are_watched_from_the_first(server: "Server", rig: Rig) -> None:
    server.answers = [
        listed(7, node("a", 3), token="t"),
        listed(9, node("b", 8)),
        streamed(line("ADDED", node("c", 10))),
    ]
    async with rig.running():
        await rig.sink.until(lambda: "c" in rig.sink.held)
    assert server.asked[2].query["resourceVersion"] == "7"


def forgotten(refusal: Refusal, place: str) -> "Behaviour | web.Response":
    if place == "status":
        return refusal(410, "Expired", "too old resource version: 8 (20)")
    return streamed(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))


@pytest.mark.parametrize("place", ["status", "stream"])
async def test_a_forgotten_version_is_listed_again_and_the_gap_shows(
    server: "Server", rig: Rig, refusal: Refusal, place: str
) -> None:
    server.answers = [
        listed(7, node("a", 3), node("b", 4)),
        streamed(line("ADDED", node("c", 8)), cut=rig.sink.until(lambda: "c" in rig.sink.held)),
        forgotten(refusal, place),
        listed(30, node("b", 4), node("d", 29)),
        streamed(line("ADDED", node("e", 31))),
    ]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [["a", "b"], "+c", ["b", "d"], "+e"])
    assert server.asked[3].query["resourceVersion"] == "8"
    assert server.asked[3].query["resourceVersionMatch"] == "NotOlderThan"
    assert server.asked[4].query["resourceVersion"] == "30"


async def test_a_list_of_many_pages_is_never_asked_for_whole(server: "Server", rig: Rig, refusal: Refusal) -> None:
    server.answers = [
        listed(7, node("a", 3), token="t"),
        listed(7),
        refusal(410, "Gone"),
        listed(8, node("a", 3)),
    ]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [["a"], ["a"]])
    assert "resourceVersion" not in server.asked[3].query


async def test_a_version_from_a_future_that_never_was_is_given_up(server: "Server", rig: Rig, refusal: Refusal) -> None:
    """A server restored from a backup knows neither the version watched nor the one listed from."""
    too_large = refusal(504, "Timeout", "Too large resource version: 900, current: 7")

    async def restored(request: web.Request) -> web.StreamResponse:
        if request.query.get("resourceVersion") == "900":
            return refusal(504, "Timeout", "Too large resource version: 900, current: 7")
        return await quiet(request) if "watch" in request.query else listed(7, node("old", 3))

    server.answers = [listed(900, node("new", 899)), too_large]
    server.behave = restored
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [["new"], ["old"]])


@pytest.mark.parametrize("at", ["first", "again"])
async def test_an_expired_page_begins_the_list_anew(server: "Server", rig: Rig, refusal: Refusal, at: str) -> None:
    server.answers = [listed(5, node("a", 1)), refusal(410, "Gone")] if at == "again" else []
    server.answers += [
        listed(7, node("gone", 2), token="t"),
        refusal(410, "Expired"),
        listed(9, node("b", 8), token="u"),
        listed(9, node("c", 9)),
    ]
    async with rig.running():
        await rig.sink.until(lambda: bool(rig.sink.told) and rig.sink.told[-1] == ["b", "c"])
    assert rig.sink.told == ([["a"], ["b", "c"]] if at == "again" else [["b", "c"]])


async def test_the_sink_keeps_what_it_has_until_a_new_list_is_whole(
    server: "Server", rig: Rig, refusal: Refusal
) -> None:
    server.answers = [
        listed(5, node("a", 1)),
        refusal(410, "Gone"),
        listed(7, node("b", 2), token="t"),
        refusal(500, "InternalError"),
        refusal(403, "Forbidden"),
        listed(9, node("c", 8)),
    ]
    async with rig.running():
        await rig.sink.until(lambda: len(rig.sink.told) == 2)
    assert rig.sink.told == [["a"], ["c"]]


async def test_a_server_that_ends_every_watch_at_once_is_asked_ever_more_slowly(server: "Server", rig: Rig) -> None:
    server.answers = [listed(7), *(streamed() for _ in range(9)), streamed(line("ADDED", node("a", 8)))]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [[], "+a"])
    assert rig.waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


async def test_a_watch_that_lasted_ends_a_row_of_failures(server: "Server", rig: Rig, refusal: Refusal) -> None:
    async def lasting(request: web.Request) -> web.StreamResponse:
        rig.now += 11
        return await streamed(line("ADDED", node("a", 8)))(request)

    server.answers = [listed(7), refusal(503), refusal(503), lasting, refusal(503), listed(9)]
    async with rig.running():
        await rig.sink.until(lambda: len(rig.waits) >= 3)
    assert rig.waits[:3] == [0.5, 1.0, 0.5]


async def test_a_busy_server_is_left_alone_as_long_as_it_asks(server: "Server", rig: Rig) -> None:
    busy = web.Response(status=429, headers={"Retry-After": "20"})
    server.answers = [listed(7), busy, streamed(line("ADDED", node("a", 8)))]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [[], "+a"])
    assert rig.waits[0] == 20.0
    assert server.asked[2].query["resourceVersion"] == "7"


async def test_garbage_in_the_stream_leads_to_a_new_list(server: "Server", rig: Rig) -> None:
    server.answers = [
        listed(7),
        streamed(b"<html>\n"),
        listed(8, node("a", 8)),
        streamed(line("ADDED", {"metadata": {"name": "no version"}})),
        listed(9, node("b", 8)),
        streamed(line("ADDED", {"metadata": 5})),
        listed(10, node("c", 8)),
    ]
    async with rig.running():
        await rig.sink.until(lambda: bool(rig.sink.told) and rig.sink.told[-1] == ["c"])


async def test_an_error_in_the_stream_that_is_not_410_leads_to_a_new_list_too(server: "Server", rig: Rig) -> None:
    server.answers = [
        listed(7),
        streamed(line("ERROR", {"kind": "Status", "code": 500, "message": "etcd event received with PrevKv=nil"})),
        listed(8, node("a", 8)),
    ]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [[], ["a"]])


async def test_a_list_without_a_version_is_not_taken(server: "Server", rig: Rig) -> None:
    server.answers = [ok({"metadata": {}, "items": [node("a", 1)]}), listed(8, node("b", 8))]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [["b"]])


async def test_huge_lines_in_tiny_pieces(server: "Server", rig: Rig) -> None:
    big = line("ADDED", node("big", 8) | {"filler": "ä" * 1_500_000})
    pieces = [big[at : at + 7_001] for at in range(0, len(big), 7_001)]
    server.answers = [listed(7), streamed(*pieces, line("ADDED", node("b", 9)))]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [[], "+big", "+b"])


async def test_a_line_without_end_is_not_gathered_for_ever(
    server: "Server", rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_MOST_LINE_BYTES", 10_000)
    server.answers = [listed(7), streamed(b"x" * 50_000, b"x" * 50_000), listed(8, node("a", 8))]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [[], ["a"]])


async def test_an_object_that_cannot_be_read_is_told_once_and_stops_nothing(server: "Server", rig: Rig) -> None:
    server.answers = [
        listed(7, node("a", 3), node("bad", 4, taints=5)),
        streamed(
            line("MODIFIED", node("a", 8, unschedulable="no")),
            line("MODIFIED", node("bad", 9, taints=6)),
            line("ADDED", node("b", 10)),
            line("DELETED", node("a", 11, unschedulable="no")),
            line("MODIFIED", node("bad", 12)),
        ),
    ]
    with capture_logs() as logs:
        async with rig.running():
            await rig.sink.until(lambda: "+bad" in rig.sink.told)
    # What it was before it could not be read is not what it is.
    assert rig.sink.told == [["a"], "-a", "-bad", "+b", "-a", "+bad"]
    assert rig.watcher.unreadable == 4
    assert [entry["object"] for entry in logs if entry["event"] == "kube_object_unreadable"] == ["bad", "a"]


async def test_event_types_of_the_future_are_put(server: "Server", rig: Rig) -> None:
    server.answers = [listed(7), streamed(line("RENAMED", node("a", 8)))]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [[], "+a"])


async def test_silence_is_not_trusted(server: "Server", rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SILENCE_SECONDS", 0.05)
    server.answers = [listed(900, node("new", 899)), quiet, listed(7, node("old", 3))]
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told[:2] == [["new"], ["old"]])


async def test_a_watch_that_is_never_opened_is_given_up(
    server: "Server", rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return ok({})

    server.answers = [listed(7), deaf, streamed(line("ADDED", node("a", 8)))]
    monkeypatch.setattr(http, "CALL_SECONDS", 0.1)
    async with rig.running():
        await rig.sink.until(lambda: rig.sink.told == [[], "+a"])


async def test_health_is_lost_after_a_while_and_comes_back(server: "Server", rig: Rig, refusal: Refusal) -> None:
    back = asyncio.Event()

    async def refuse(request: web.Request) -> web.StreamResponse:
        if back.is_set():
            return await streamed(line("ADDED", node("b", 9)))(request) if "watch" in request.query else listed(8)
        return refusal(503, "ServiceUnavailable")

    server.answers = [listed(7), streamed(line("ADDED", node("a", 8)))]
    server.behave = refuse
    async with rig.running():
        await rig.sink.until(lambda: len(rig.waits) == 1)
        assert rig.watcher.healthy()
        rig.now += UNHEALTHY_SECONDS
        assert not rig.watcher.healthy()
        assert rig.watcher.synced.is_set()
        back.set()
        await rig.sink.until(lambda: "b" in rig.sink.held)
        assert rig.watcher.healthy()


async def test_what_a_sink_raises_ends_the_watcher(server: "Server", rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(_obj: Node) -> None:
        raise OSError("the sink's own")

    monkeypatch.setattr(rig.sink, "put", put)
    server.answers = [listed(7), streamed(line("ADDED", node("a", 8)))]
    with pytest.raises(OSError, match="the sink's own"):
        await asyncio.wait_for(rig.watcher.run(), 30)


@pytest.mark.parametrize("steps", range(12))
async def test_cancelling_ends_it_whatever_it_is_about(server: "Server", rig: Rig, steps: int) -> None:
    async def behave(request: web.Request) -> web.StreamResponse:
        return await streamed(bookmark(8))(request) if "watch" in request.query else listed(7)

    server.behave = behave
    task = asyncio.create_task(rig.watcher.run())
    await rig.watcher.synced.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)


async def test_of_a_sink_that_remembers_a_new_list_takes_what_is_the_same(
    server: "Server", client: Client, refusal: Refusal
) -> None:
    class Remembering(Nodes):
        def known(self, _namespace: str, name: str, /) -> Node | None:
            return self.held.get(name)

    def with_uid(name: str, version: int, uid: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "resourceVersion": str(version), "uid": uid}}

    sink, waits = Remembering(), Rig(client)
    pace = Pace(sleep=waits._sleep)
    server.behave = quiet
    server.answers = [
        listed(7, with_uid("same", 3, "1"), with_uid("changed", 4, "2"), with_uid("anew", 5, "3")),
        refusal(410, "Gone"),
        listed(9, with_uid("same", 3, "1"), with_uid("changed", 8, "2"), with_uid("anew", 5, "4")),
    ]
    task = asyncio.create_task(Watcher(client, NODES, sink, pace=pace).run())
    await sink.until(lambda: len(sink.told) == 1)
    before = dict(sink.held)
    await sink.until(lambda: len(sink.told) == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sink.held["same"] is before["same"]
    assert sink.held["changed"].metadata.resource_version == "8"
    assert sink.held["anew"].metadata.uid == "4"


async def test_requests_with_equal_specs_hold_one_spec(server: "Server", client: Client) -> None:
    spec = {"resources": {"cpu": "1", "memory": "1Gi"}, "priority": 5}
    labels = {"team": "a"}
    items = [
        {"metadata": {"name": f"r{i}", "namespace": "ns", "labels": labels}, "spec": spec, "status": {"phase": phase}}
        for i, phase in enumerate(["Pending", "Pending", "Acknowledged"])
    ]
    server.answers = [listed(7, *items)]
    first, second, third = await client.list(CAPACITY_REQUESTS)
    assert first.spec is second.spec is third.spec
    assert first.metadata.labels is third.metadata.labels
    assert (first.status, third.status and third.status.phase) == (second.status, "Acknowledged")
    assert first.metadata.name == "r0"
