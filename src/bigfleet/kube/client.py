"""The verbs of an API server: typed objects in and out."""

import builtins
import enum
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from typing import Any, Self, TypeVar

import msgspec

from bigfleet.kube.access.http import ApiCall, Connection
from bigfleet.kube.access.limiter import Limiter
from bigfleet.kube.access.server import ServerConfig
from bigfleet.kube.errors import GoneError, UnreadableError
from bigfleet.kube.objects.decode import Codec, ObjectPage
from bigfleet.kube.objects.names import OPERATOR
from bigfleet.kube.objects.resources import PODS, Resource

T = TypeVar("T")

Body = msgspec.Struct | Mapping[str, Any]

PAGE_OBJECTS = 500
"""Objects asked for in one answer to a list."""

# How often a list begins anew because its page token expired.
_RESTARTS = 3


class Patch(enum.Enum):
    """How the body of a patch is meant."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class VersionInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The version of Kubernetes that the server runs."""

    git_version: str


class Client:
    """`async with Client(config) as client`. Errors are those of `kube.errors`; cancelling a call ends it at once."""

    def __init__(self, config: ServerConfig, *, qps: float = 50.0, burst: int = 100, user_agent: str = "") -> None:
        self.config = config
        self._limiter = Limiter(qps, burst)
        self._user_agent = user_agent or f"bigfleet/{installed_version('bigfleet')}"
        self._codecs: dict[Resource[Any], Codec[Any]] = {}
        self._connected: Connection | None = None

    async def __aenter__(self) -> Self:
        self._connected = Connection(self.config, self._limiter, self._user_agent)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """Read one object."""
        return await self._object(resource, _named(resource, "get", "GET", namespace, name))

    async def list(
        self, resource: Resource[T], namespace: str = "", labels: str = "", fields: str = ""
    ) -> builtins.list[T]:
        """All objects that the selectors choose, as they were at one moment. UnreadableError if one cannot be read."""
        objects: builtins.list[T] = []
        restarts, token = 0, ""
        while True:
            try:
                page = await self.page(resource, namespace, labels, fields, token=token)
            except GoneError:
                # The page token has expired, and a new list is of another moment than the pages so far.
                restarts += 1
                if not token or restarts > _RESTARTS:
                    raise
                objects, token = [], ""
                continue
            for bad in page.unreadable:
                subject = _subject(resource, bad.metadata.namespace, bad.metadata.name)
                raise UnreadableError("list", subject, bad.problem)
            objects.extend(page.objects)
            token = page.metadata.continue_
            if not token:
                return objects

    async def page(
        self,
        resource: Resource[T],
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        *,
        token: str = "",
        not_older_than: str = "",
    ) -> ObjectPage[T]:
        """One page of a list, from the beginning or from the token of the page before. GoneError: begin anew."""
        query = {"limit": str(PAGE_OBJECTS), **_selectors(labels, fields)}
        if token:
            query["continue"] = token
        elif not_older_than:
            query |= {"resourceVersion": not_older_than, "resourceVersionMatch": "NotOlderThan"}
        call = ApiCall("list", _subject(resource, namespace), "GET", resource.path(namespace), query)
        return _decoded(call, self.codec(resource).page, await self._connection.answer(call))

    async def create(self, resource: Resource[T], obj: Body, namespace: str = "") -> T:
        """Create an object; apiVersion and kind are filled in."""
        content = {**_plain(obj), "apiVersion": resource.api_version, "kind": resource.kind}
        metadata = content.get("metadata", {})
        subject = _subject(resource, namespace, metadata.get("name") or metadata.get("generateName", ""))
        _require_namespace(resource, namespace)
        return await self._object(
            resource, ApiCall("create", subject, "POST", resource.path(namespace), body=msgspec.json.encode(content))
        )

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Body | Sequence[Mapping[str, Any]],
        namespace: str = "",
        subresource: str = "",
        content: Patch = Patch.MERGE,
        manager: str = OPERATOR,
    ) -> T:
        """Change an object without reading it first; with Patch.APPLY, as the owner of the fields in the body."""
        query = {"fieldManager": manager}
        plain = _plain(body)
        if content is Patch.APPLY:
            query["force"] = "true"
            metadata = {**plain.get("metadata", {}), "name": name}
            plain |= {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        call = _named(resource, "patch", "PATCH", namespace, name, subresource)._replace(
            query=query,
            body=msgspec.json.encode(plain),
            content=content.value,
            # A JSON patch may do something else when it is applied twice; the other kinds do not.
            repeat=content is not Patch.JSON,
        )
        return await self._object(resource, call)

    async def delete(
        self, resource: Resource[Any], name: str, namespace: str = "", uid: str = "", resource_version: str = ""
    ) -> None:
        """Delete an object, if it still has that UID and version. What it owns is deleted in the background."""
        conditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {key: value for key, value in conditions.items() if value},
        }
        call = _named(resource, "delete", "DELETE", namespace, name)
        await self._connection.answer(call._replace(body=msgspec.json.encode(options)))

    async def evict(self, namespace: str, name: str, uid: str = "", grace_seconds: int | None = None) -> None:
        """Ask for a pod to be evicted. TooManyRequestsError: a disruption budget forbids it; the message says which."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        call = _named(PODS, "evict", "POST", namespace, name, "eviction")
        await self._connection.answer(call._replace(body=msgspec.json.encode(eviction), repeat=True))

    async def version(self) -> VersionInfo:
        """The version of Kubernetes that the server runs."""
        call = ApiCall("get", "version", "GET", "/version")
        return _decoded(call, msgspec.json.Decoder(VersionInfo).decode, await self._connection.answer(call))

    def watch(
        self,
        resource: Resource[Any],
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        *,
        version: str,
        seconds: int,
        silence: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The changes after that version as they come, in pieces of lines, until the server ends it after `seconds`.

        A watch does not count for the limit of calls. UnreachableError: the watch broke. SilentError: the server sent
        nothing for `silence` seconds.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            **_selectors(labels, fields),
        }
        call = ApiCall("watch", _subject(resource, namespace), "GET", resource.path(namespace), query)
        return self._connection.stream(call, silence)

    def codec(self, resource: Resource[T]) -> Codec[T]:
        """The codec of a resource. All calls use the same one, so that equal parts of objects are kept once."""
        codec = self._codecs.get(resource)
        if codec is None:
            codec = self._codecs[resource] = Codec(resource)
        return codec

    @property
    def _connection(self) -> Connection:
        if self._connected is None:
            raise RuntimeError("enter the client first: async with Client(config) as client")
        return self._connected

    async def _object(self, resource: Resource[T], call: ApiCall) -> T:
        return _decoded(call, self.codec(resource).one, await self._connection.answer(call))


def _named(
    resource: Resource[Any], verb: str, method: str, namespace: str, name: str, subresource: str = ""
) -> ApiCall:
    """A call about one object. ValueError without a name: the call would be about all objects."""
    if not name:
        raise ValueError(f"{verb} {resource.kind}: the name is empty")
    _require_namespace(resource, namespace)
    return ApiCall(verb, _subject(resource, namespace, name), method, resource.path(namespace, name, subresource))


def _require_namespace(resource: Resource[Any], namespace: str) -> None:
    if resource.namespaced and not namespace:
        raise ValueError(f"a {resource.kind} lives in a namespace, and none is given")


def _subject(resource: Resource[Any], namespace: str, name: str = "") -> str:
    where = f"{namespace}/{name}" if resource.namespaced and namespace else name
    return f"{resource.kind} {where}".rstrip()


def _selectors(labels: str, fields: str) -> dict[str, str]:
    both = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in both.items() if value}


def _decoded(call: ApiCall, read: Callable[[bytes], T], body: bytes) -> T:
    try:
        return read(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # msgspec names the place and the type, and not the value.
        raise UnreadableError(call.verb, call.subject, str(error)) from None


def _plain(value: object) -> Any:
    """What is sent: structs as mappings, and times with microseconds, which Kubernetes' MicroTime requires."""
    return _timed(msgspec.to_builtins(value, builtin_types=(datetime,)))


def _timed(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, dict):
        return {key: _timed(part) for key, part in value.items()}
    return [_timed(part) for part in value] if isinstance(value, list) else value
