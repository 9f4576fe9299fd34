"""An API server in memory, over real HTTP on loopback: versions, UIDs, selectors, watches, preconditions and patches.

A test sees and changes its objects directly, and may strike at any call: refuse it, hold it up, or cut it before
or after it works.
"""

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from bigfleet.kube.access.server import ServerConfig
from tests.shared.api_server import listening, status

Object = dict[str, Any]
Key = tuple[str, str, str]
Strike = Callable[[str, str], "web.Response | asyncio.Event | Literal['before', 'after'] | None"]

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?"
)
_TIMEOUT = 30.0


class CutError(Exception):
    """The connection is cut here."""


@dataclass
class Change:
    """One step of the server's history."""

    version: int
    plural: str
    old: Object | None
    new: Object | None


@dataclass
class ApiServer:
    """All objects by plural, namespace and name, and every change that was made to them."""

    url: str = ""
    objects: dict[Key, Object] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    strike: Strike = lambda method, path: None
    hidden: set[Key] = field(default_factory=set)
    version: int = 100
    moved: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def config(self) -> ServerConfig:
        return ServerConfig(server=self.url)

    # What a test does

    def add(self, plural: str, obj: Object) -> Object:
        metadata = obj["metadata"]
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        if key in self.objects:
            raise web.HTTPConflict(text=_status(409, "AlreadyExists"), content_type="application/json")
        made = copy.deepcopy(obj)
        made["metadata"].setdefault("uid", f"uid-{self.version}")
        self._store(key, made)
        return made

    def edit(self, plural: str, namespace: str, name: str, change: Callable[[Object], object]) -> Object:
        key = (plural, namespace, name)
        made = copy.deepcopy(self.objects[key])
        change(made)
        if made != self.objects[key]:
            self._store(key, made)
        return made

    def remove(self, plural: str, namespace: str, name: str) -> None:
        key = (plural, namespace, name)
        old = self.objects.pop(key)
        self._record(Change(self.version + 1, plural, old, None))

    def all(self, plural: str, namespace: str | None = None) -> list[Object]:
        return [obj for key, obj in sorted(self.objects.items()) if key[0] == plural and namespace in (None, key[1])]

    def writes(self) -> list[tuple[str, str]]:
        return [call for call in self.calls if call[0] not in {"GET", "WATCH"}]

    async def until(self, met: Callable[[], object]) -> None:
        """Wait until something holds; looked at after every change and every call."""
        async with asyncio.timeout(_TIMEOUT), self.moved:
            await self.moved.wait_for(lambda: bool(met()))

    # What a client sees

    async def handle(self, request: web.Request) -> web.StreamResponse:
        found = _PATH.fullmatch(request.path)
        assert found is not None, request.path
        watch = "watch" in request.query
        method = "WATCH" if watch else request.method
        self.calls.append((method, request.path))
        await self._notify()
        struck = self.strike(method, request.path)
        try:
            if isinstance(struck, web.Response):
                return struck
            if struck == "before":
                raise CutError
            if isinstance(struck, asyncio.Event):
                await struck.wait()
            plural, namespace, name = found["plural"], found["namespace"] or "", found["name"] or ""
            body = await request.read()
            if watch:
                return await self._watch(request, plural, namespace)
            answer = self._answer(request, (plural, namespace, name), json.loads(body) if body else {})
            if struck == "after":
                raise CutError
            return answer
        except CutError:
            assert request.transport is not None
            request.transport.abort()
            raise asyncio.CancelledError from None
        except web.HTTPException as refusal:
            return web.Response(status=refusal.status, text=refusal.text, content_type="application/json")
        finally:
            await self._notify()

    def _answer(self, request: web.Request, key: Key, body: Any) -> web.Response:
        plural, namespace, name = key
        if request.method == "GET" and not name:
            chosen = selector(request.query.get("labelSelector", ""))
            items = [
                obj
                for obj in self.all(plural, namespace or None)
                if chosen(obj) and _key(plural, obj) not in self.hidden
            ]
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        if request.method == "POST":
            body["metadata"]["namespace"] = namespace
            _validate(plural, body)
            return web.json_response(self.add(plural, body), status=201)
        if (
            request.method == "PATCH"
            and request.content_type.startswith("application/apply")
            and key not in self.objects
        ):
            return web.json_response(self.add(plural, body), status=201)
        if key not in self.objects:
            raise web.HTTPNotFound(text=_status(404, "NotFound", f"{plural} {name} not found"))
        if request.method == "PATCH":
            patched = copy.deepcopy(self.objects[key])
            patched = _json_patched(patched, body) if isinstance(body, list) else _merged(patched, body)
            asked = body.get("metadata", {}).get("resourceVersion") if isinstance(body, dict) else None
            if asked and asked != self.objects[key]["metadata"]["resourceVersion"]:
                raise web.HTTPConflict(text=_status(409, "Conflict", "the object has been modified"))
            _validate(plural, patched)
            return web.json_response(self.edit(plural, namespace, name, lambda obj: obj.update(patched)))
        if request.method == "DELETE":
            wanted = body.get("preconditions", {}).get("uid")
            if wanted and wanted != self.objects[key]["metadata"]["uid"]:
                raise web.HTTPConflict(text=_status(409, "Conflict", "UID in precondition"))
            self.remove(plural, namespace, name)
            return web.json_response({"kind": "Status", "status": "Success"})
        return web.json_response(self.objects[key])

    async def _watch(self, request: web.Request, plural: str, namespace: str) -> web.StreamResponse:
        chosen = selector(request.query.get("labelSelector", ""))
        seen = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        at = 0
        while True:
            for change in self.history[at:]:
                at += 1
                if change.version > seen and change.plural == plural:
                    for event in _events(change, chosen, self.hidden):
                        await response.write(json.dumps(event).encode() + b"\n")
            async with self.moved:
                while len(self.history) == at:
                    await self.moved.wait()

    def _store(self, key: Key, obj: Object) -> None:
        obj["metadata"]["resourceVersion"] = str(self.version + 1)
        old, self.objects[key] = self.objects.get(key), obj
        self._record(Change(self.version + 1, key[0], old, copy.deepcopy(obj)))

    def _record(self, change: Change) -> None:
        self.version += 1
        self.history.append(change)
        self._told = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self.moved:
            self.moved.notify_all()


def _key(plural: str, obj: Object) -> Key:
    return (plural, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _events(change: Change, chosen: Callable[[Object], bool], hidden: set[Key]) -> Iterator[Object]:
    shown = change.new or change.old
    assert shown is not None
    if _key(change.plural, shown) in hidden:
        return
    was = change.old is not None and chosen(change.old)
    now = change.new is not None and chosen(change.new)
    if was or now:
        kind = ("MODIFIED" if was else "ADDED") if now else "DELETED"
        metadata = {**shown["metadata"], "resourceVersion": str(change.version)}
        yield {"type": kind, "object": {**shown, "metadata": metadata}}


def _status(code: int, reason: str, message: str = "") -> str:
    return json.dumps(status(code, reason, message))


def refusal(code: int, reason: str, message: str = "", **headers: str) -> web.Response:
    """A refusal for `strike`."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return web.Response(
        status=code, text=_status(code, reason, message), content_type="application/json", headers=named
    )


def selector(text: str) -> Callable[[Object], bool]:
    if not text:
        return lambda obj: True
    listed = re.fullmatch(r"([\w./-]+) in \(([\w,]+)\)", text)
    plain = re.fullmatch(r"([\w./-]+)=([\w-]+)", text)
    if listed is None and plain is None:
        raise web.HTTPBadRequest(text=_status(400, "BadRequest", f"unable to parse {text!r}"))
    found = listed or plain
    assert found is not None
    values = found[2].split(",")
    return lambda obj: obj["metadata"].get("labels", {}).get(found[1]) in values


def _validate(plural: str, obj: Object) -> None:
    if plural == "capacityrequests" and len(obj["spec"].get("requirements", ())) > 32:
        raise web.HTTPUnprocessableEntity(text=_status(422, "Invalid", "spec.requirements: must have at most 32 items"))


def _merged(obj: Object, patch: Object) -> Object:
    for key, value in patch.items():
        if isinstance(value, dict):
            obj[key] = _merged(obj.get(key, {}), value)
        elif value is None:
            obj.pop(key, None)
        else:
            obj[key] = value
    return obj


def _json_patched(obj: Object, patch: list[Object]) -> Object:
    for step in patch:
        *folders, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        place = obj
        for folder in folders:
            place = place[folder]
        assert step["op"] == "add", step
        place[last] = step["value"]
    return obj


@asynccontextmanager
async def api_server() -> AsyncIterator[ApiServer]:
    """A server that is up."""
    server = ApiServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with listening(app) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server
