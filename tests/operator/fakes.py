"""An API server in memory, as far as the operator uses one: versions, UIDs, preconditions, merge patches, applies,
watches and evictions under disruption budgets. And a clock that moves when a test says so."""

import asyncio
import base64
import builtins
import heapq
import itertools
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import msgspec

from bigfleet.kube.client import Client, Patch, VersionInfo
from bigfleet.kube.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError, TooManyRequestsError
from bigfleet.kube.objects.resources import NODES, PODS, Resource

T = TypeVar("T")
Key = tuple[str, str, str]

START = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


class FakeClock:
    """Both clocks, moved together; a jump moves the wall alone."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._offset = START - timedelta(seconds=self._now)
        self._timers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def wall(self) -> datetime:
        return self._offset + timedelta(seconds=self._now)

    async def sleep(self, seconds: float) -> None:
        await self.wait(seconds, asyncio.Event())

    async def wait(self, seconds: float, woken: asyncio.Event) -> None:
        timer = asyncio.get_running_loop().create_future()
        if seconds < math.inf:
            heapq.heappush(self._timers, (self._now + max(seconds, 0.0), next(self._order), timer))
            self._fire()
        waking = asyncio.ensure_future(woken.wait())
        try:
            await asyncio.wait({timer, waking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
            timer.cancel()

    def _fire(self) -> None:
        while self._timers and self._timers[0][0] <= self._now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.done():
                timer.set_result(None)

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, stopping wherever somebody waits for it."""
        until = self._now + seconds
        await settle()
        while self._timers and self._timers[0][0] <= until:
            self._now = max(self._now, self._timers[0][0])
            self._fire()
            await settle()
        self._now = until


async def settle() -> None:
    """Let every task go on until it waits for the clock; nothing here waits for anything else."""
    for _ in range(100):
        await asyncio.sleep(0)


class FakeServer:
    """The objects, as JSON. `client()` speaks to it."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.objects: dict[Key, dict[str, Any]] = {}
        self.budgets: dict[str, int] = {}
        """Of the pods with this label `app`, so many must stay."""
        self.lingering = False
        """Whether evicted pods stay, terminating, until the test removes them."""
        self.calls: list[tuple[str, str]] = []
        self.evictions: list[tuple[str, int | None]] = []
        self.refuse: Callable[[str, str], Exception | None] = lambda _verb, _name: None
        """Asked before each call with verb and name: what to raise instead."""
        self.late: Callable[[str, str], asyncio.Event | None] = lambda _verb, _name: None
        """Asked before each call with verb and name: what the answer waits for, once the call has taken effect."""
        self.die_at: tuple[int, bool] | None = None
        """The call, counted from here, at which the caller dies, and whether it still takes effect."""
        self.died = asyncio.Event()
        self.sinks: list[tuple[Resource[Any], Any]] = []
        self._version = itertools.count(1)

    def client(self) -> Client:
        return cast("Client", self)

    # Client's own methods.

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        return await self._call("get", name, lambda: self._typed(resource, self._find(resource, namespace, name)))

    async def list(
        self, resource: Resource[T], namespace: str = "", labels: str = "", fields: str = ""
    ) -> builtins.list[T]:
        def listed() -> builtins.list[T]:
            return [
                self._typed(resource, each)
                for (plural, space, _), each in self.objects.items()
                if plural == resource.plural and namespace in ("", space) and _selected(each, labels, fields)
            ]

        return await self._call("list", resource.plural, listed)

    async def create(self, resource: Resource[T], obj: dict[str, Any], namespace: str = "") -> T:
        name = obj["metadata"]["name"]

        def created() -> T:
            if (resource.plural, namespace, name) in self.objects:
                raise AlreadyExistsError("create", name)
            made = self.put(resource, obj, namespace)
            return self._typed(resource, made)

        return await self._call("create", name, created)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: dict[str, Any],
        namespace: str = "",
        subresource: str = "",
        content: Patch = Patch.MERGE,
        manager: str = "",
    ) -> T:
        def patched() -> T:
            if content is Patch.APPLY and (resource.plural, namespace, name) not in self.objects and not subresource:
                return self._typed(resource, self.put(resource, body, namespace))
            assert content in (Patch.MERGE, Patch.APPLY)
            there = self._find(resource, namespace, name)
            meta = body["metadata"]
            if meta.get("uid", there["metadata"]["uid"]) != there["metadata"]["uid"]:
                # As the real one does, which for a delete says Conflict.
                raise InvalidError("patch", name, "metadata.uid: field is immutable")
            self._require(there, "", meta.get("resourceVersion", ""))
            return self._typed(resource, self._store(resource, namespace, _merged(there, body)))

        return await self._call("patch", name, patched)

    async def delete(
        self, resource: Resource[Any], name: str, namespace: str = "", uid: str = "", resource_version: str = ""
    ) -> None:
        def deleted() -> None:
            self._require(self._find(resource, namespace, name), uid, resource_version)
            self.remove(resource, name, namespace)

        await self._call("delete", name, deleted)

    async def evict(self, namespace: str, name: str, uid: str = "", grace_seconds: int | None = None) -> None:
        def evicted() -> None:
            there = self._find(PODS, namespace, name)
            self._require(there, uid, "")
            app = there["metadata"].get("labels", {}).get("app", "")
            alive = [
                each for each in self._of(PODS) if _app(each) == app and "deletionTimestamp" not in each["metadata"]
            ]
            if app in self.budgets and len(alive) <= self.budgets[app]:
                raise TooManyRequestsError("evict", name, BUDGET, retry_after=1.0)
            self.evictions.append((name, grace_seconds))
            if self.lingering:
                stamp = self.clock.wall().isoformat()
                self._store(PODS, namespace, _merged(there, {"metadata": {"deletionTimestamp": stamp}}))
            else:
                self.remove(PODS, name, namespace)

        await self._call("evict", name, evicted)

    async def version(self) -> VersionInfo:
        return await self._call("get", "version", lambda: VersionInfo("v1.34.4"))

    # For tests.

    def put(self, resource: Resource[Any], obj: dict[str, Any], namespace: str = "") -> dict[str, Any]:
        """Make an object as somebody else would, or make it anew."""
        obj = json.loads(json.dumps(obj))
        meta = obj["metadata"]
        number = next(self._version)
        meta.setdefault("uid", f"uid-{number}")
        meta.setdefault("creationTimestamp", self.clock.wall().replace(microsecond=0).isoformat())
        meta["namespace"] = namespace
        for key, text in obj.pop("stringData", {}).items():
            obj.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
        return self._store(resource, namespace, obj)

    def change(self, resource: Resource[Any], name: str, body: dict[str, Any], namespace: str = "") -> None:
        """Change an object as somebody else would."""
        self._store(resource, namespace, _merged(self._find(resource, namespace, name), body))

    def remove(self, resource: Resource[Any], name: str, namespace: str = "") -> None:
        gone = self.objects.pop((resource.plural, namespace, name))
        for watched, sink in self.sinks:
            if watched is resource:
                sink.removed(self._typed(resource, gone))

    def find(self, resource: Resource[T], name: str, namespace: str = "") -> T | None:
        there = self.objects.get((resource.plural, namespace, name))
        return None if there is None else self._typed(resource, there)

    def names(self, resource: Resource[Any]) -> builtins.list[str]:
        return [name for plural, _, name in self.objects if plural == resource.plural]

    def watch(self, resource: Resource[Any], sink: Any) -> None:
        """Show the sink what there is, and from then on every change at once."""
        sink.replaced([self._typed(resource, each) for each in self._of(resource)])
        self.sinks.append((resource, sink))

    def node(self, name: str, *, provider_id: str = "", ready: bool = True, **spec: Any) -> None:
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        self.put(
            NODES,
            {
                "metadata": {"name": name},
                "spec": {"providerID": provider_id, **spec},
                "status": {"conditions": conditions},
            },
        )

    def pod(
        self,
        name: str,
        node: str,
        *,
        app: str = "",
        phase: str = "Running",
        tolerations: Sequence[dict[str, str]] = (),
        **meta: Any,
    ) -> None:
        spec = {"nodeName": node, "terminationGracePeriodSeconds": 30, "tolerations": list(tolerations)}
        labels = {"app": app} if app else {}
        metadata = {"name": name, "labels": labels, **meta}
        self.put(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": phase}}, "default")

    # Within.

    async def _call(self, verb: str, name: str, does: Callable[[], T]) -> T:
        self.calls.append((verb, name))
        # A real call never returns within the same step.
        await asyncio.sleep(0)
        if self.died.is_set():
            await asyncio.Event().wait()
        if self.die_at is not None:
            left, takes_effect = self.die_at
            self.die_at = left - 1, takes_effect
            if left == 0:
                self.died.set()
                if takes_effect:
                    does()
                await asyncio.Event().wait()
        if (error := self.refuse(verb, name)) is not None:
            raise error
        gate, answer = self.late(verb, name), does()
        if gate is not None:
            await gate.wait()
        return answer

    def _of(self, resource: Resource[Any]) -> Sequence[dict[str, Any]]:
        return [each for (plural, _, _), each in self.objects.items() if plural == resource.plural]

    def _find(self, resource: Resource[Any], namespace: str, name: str) -> dict[str, Any]:
        try:
            return self.objects[resource.plural, namespace, name]
        except KeyError:
            raise NotFoundError("get", name) from None

    def _require(self, there: dict[str, Any], uid: str, version: str) -> None:
        meta = there["metadata"]
        if (uid and uid != meta["uid"]) or (version and version != meta["resourceVersion"]):
            raise ConflictError("change", meta["name"], "the object has been modified")

    def _store(self, resource: Resource[Any], namespace: str, obj: dict[str, Any]) -> dict[str, Any]:
        obj["metadata"]["resourceVersion"] = str(next(self._version))
        self.objects[resource.plural, namespace, obj["metadata"]["name"]] = obj
        for watched, sink in self.sinks:
            if watched is resource:
                sink.put(self._typed(resource, obj))
        return obj

    def _typed(self, resource: Resource[T], obj: dict[str, Any]) -> T:
        return msgspec.json.decode(json.dumps(obj), type=resource.type)


def _merged(there: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    made = dict(there) if isinstance(there, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _merged(made.get(key), value)
    return made


def _app(pod: dict[str, Any]) -> str:
    app: str = pod["metadata"].get("labels", {}).get("app", "")
    return app


def _selected(obj: dict[str, Any], labels: str, fields: str) -> bool:
    there = obj["metadata"].get("labels", {})
    for each in filter(None, labels.split(",")):
        key, equals, value = each.partition("=")
        if key not in there or (equals and there[key] != value):
            return False
    if fields:
        path, _, value = fields.partition("=")
        assert path == "spec.nodeName"
        return bool(obj["spec"].get("nodeName") == value)
    return True
