"""Keeps a sink up to date with a collection of objects: lists it in pages, then watches from the version of the list.

A watch that breaks is resumed where it broke. Where the server has forgotten that version, the collection is listed
again. The sink is never emptied meanwhile: it learns what vanished during a gap when the new list is complete. An
object that cannot be read counts as missing, in lists and watches alike.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec
import structlog

from bigfleet.kube.access.http import error_from
from bigfleet.kube.client import Client
from bigfleet.kube.errors import (
    ApiError,
    GoneError,
    SilentError,
    TooManyRequestsError,
    UnreachableError,
    UnreadableError,
)
from bigfleet.kube.objects.decode import WatchEvent
from bigfleet.kube.objects.kinds import Status
from bigfleet.kube.objects.resources import KubeObject, Resource
from bigfleet.model.crd import ObjectMeta
from bigfleet.transport.pace import Pace

_log = structlog.get_logger("bigfleet.kube")

R = TypeVar("R")
V = TypeVar("V")
K = TypeVar("K", bound=KubeObject)
K_co = TypeVar("K_co", bound=KubeObject, covariant=True)
K_contra = TypeVar("K_contra", bound=KubeObject, contravariant=True)

PACE = Pace()
"""The waits of a watcher that fails."""

SILENCE_SECONDS = 180.0
"""A watch that brings nothing for so long counts as broken: servers send a bookmark a minute."""

UNHEALTHY_SECONDS = 60.0
"""How long a watcher may fail to watch before its sink counts as out of date."""

# The server is asked to end a watch after a random time between these, so that not all come back at once.
_SHORTEST_WATCH, _LONGEST_WATCH = 300, 600
# A watch that ends sooner and has brought nothing counts as a failure.
_TOO_SHORT = 1.0
# A watch that lasts so long resets the count of failures.
_LONG_ENOUGH = 10.0
_MOST_LINE_BYTES = 64 * 1024 * 1024
# Unreadable objects that are logged by name.
_MOST_NAMES = 1000
# How often a list begins anew because its page token expired.
_RESTARTS = 3
# After so many refusals in succession the collection is listed again: the server may never have had the version.
_REFUSALS = 3
_STATUS = msgspec.json.Decoder(Status)


class Sink(Protocol[K_contra]):
    """Where the objects go. All calls are made in the event loop, one at a time, in order."""

    def replaced(self, objects: Sequence[K_contra], /) -> None:
        """The collection has been listed: these are all objects, and any other is gone."""

    def put(self, obj: K_contra, /) -> None:
        """An object is new, or has changed."""

    def removed(self, obj: K_contra, /) -> None:
        """An object is gone, whether or not the sink knew it. Only its metadata is sure to be filled."""


@runtime_checkable
class Remembering(Protocol[K_co]):
    """A sink that can say what it holds. A new list brings it the objects that it had, where these are unchanged.

    So a quarter of a million objects are not in memory twice, and `replaced` can tell by identity which are new.
    """

    def known(self, namespace: str, name: str, /) -> K_co | None:
        """The object of that name as it was last put."""


class Watcher(Generic[K]):
    """Keeps a sink equal to the objects that the selectors choose, for as long as `run` runs."""

    def __init__(
        self,
        client: Client,
        resource: Resource[K],
        sink: Sink[K],
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        *,
        pace: Pace = PACE,
    ) -> None:
        self.synced = asyncio.Event()
        """Set once the first list is in the sink."""
        self.unreadable = 0
        """How often an object could not be read."""
        self._client, self._resource, self._sink = client, resource, sink
        self._remembering: Remembering[K] | None = sink if isinstance(sink, Remembering) else None
        self._scope = (namespace, labels, fields)
        self._codec = client.codec(resource)
        self._pace = pace
        self._log = _log.bind(resource=resource.plural, **({"namespace": namespace} if namespace else {}))
        #: The version up to which the sink is up to date; empty before a list.
        self._version = ""
        #: A version that the next list may not be older than; empty asks for the latest.
        self._floor = ""
        #: Failures in succession.
        self._failures = 0
        #: Since when there has been no watch.
        self._failing_since: float | None = None
        #: Unreadable objects that have been logged.
        self._named: set[tuple[str, str]] = set()

    def healthy(self) -> bool:
        """Whether the sink has been filled and is not known to be out of date."""
        failing = self._failing_since
        return self.synced.is_set() and (failing is None or self._pace.clock() - failing < UNHEALTHY_SECONDS)

    async def run(self) -> None:
        """Watch until cancelled, until the sink raises, or until KubeConfigError says that no call can be made."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except ApiError as error:
                await self._failed(error)

    async def _failed(self, error: ApiError) -> None:
        self._failures += 1
        if self._failing_since is None:
            self._failing_since = self._pace.clock()
        refused = not isinstance(error, UnreachableError | TooManyRequestsError)
        # A server that was restored from a backup sends nothing until it reaches the version, so silence makes us list.
        lost = isinstance(error, GoneError | UnreadableError | SilentError)
        lost = lost or (refused and self._failures >= _REFUSALS)
        wait = max(self._pace.wait(self._failures), min(error.retry_after or 0.0, self._pace.longest_wait))
        self._log.warning("kube_watch_failed", reason=str(error), relist=lost or not self._version, wait=round(wait, 1))
        if lost:
            self._version = ""
        await self._pace.sleep(wait)

    async def _list(self) -> None:
        """List the collection page by page, and pass it to the sink once it is complete."""
        objects: list[K] = []
        version, token, pages, restarts = "", "", 0, 0
        floor, self._floor = self._floor, ""
        while True:
            try:
                page = await self._client.page(self._resource, *self._scope, token=token, not_older_than=floor)
            except GoneError:
                restarts += 1
                if not token or restarts > _RESTARTS:
                    raise
                objects, token, pages, floor = [], "", 0, ""
                continue
            pages += 1
            # If later pages are of a later moment, watching from the first page's version only repeats some events.
            version = page.metadata.resource_version if pages == 1 else version
            objects.extend(map(self._known, page.objects))
            for bad in page.unreadable:
                self._set_aside(bad.metadata, bad.problem)
            token = page.metadata.continue_
            if not token:
                break
        if not version:
            raise UnreadableError("list", self._resource.kind, "the list has no resourceVersion to watch from")
        self._sink.replaced(objects)
        self._version = version
        # Some servers ignore the limit for such a list, so it is asked only where one page holds everything.
        self._floor = version if pages == 1 else ""
        self.synced.set()

    def _known(self, obj: K) -> K:
        """The object that the sink holds, if it is the same version; else the new one."""
        if self._remembering is None:
            return obj
        found = obj.metadata
        held = self._remembering.known(found.namespace, found.name)
        if held is None:
            return obj
        same = held.metadata.resource_version == found.resource_version and held.metadata.uid == found.uid
        return held if same else obj

    async def _watch(self) -> None:
        """Pass changes to the sink until the server ends the watch."""
        began = self._pace.clock()
        seconds = round(_SHORTEST_WATCH + (_LONGEST_WATCH - _SHORTEST_WATCH) * self._pace.dice())
        started = self._version
        watching = self._client.watch(
            self._resource, *self._scope, version=started, seconds=seconds, silence=SILENCE_SECONDS
        )
        async with watching as pieces:
            self._failing_since = None
            rest = bytearray()
            async for piece in pieces:
                end = piece.rfind(b"\n") + 1
                if end:
                    rest += piece[:end]
                    self._apply(bytes(rest))
                    rest = bytearray(piece[end:])
                    # Reading on while more has already come would not let other tasks run.
                    await asyncio.sleep(0)
                else:
                    rest += piece
                if len(rest) > _MOST_LINE_BYTES:
                    raise UnreadableError("watch", self._resource.kind, f"a line of over {len(rest):,} bytes")
                if self._failures and self._pace.clock() - began >= _LONG_ENOUGH:
                    self._failures = 0
        lasted = self._pace.clock() - began
        if self._version == started and lasted < _TOO_SHORT:
            raise UnreachableError("watch", self._resource.kind, "the server ended it at once")
        self._failures = 0

    def _apply(self, lines: bytes) -> None:
        for event in self._read(self._codec.events, lines):
            self._take(event)

    def _take(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            self._reached(self._read(self._codec.metadata, event.object))
        elif event.type == "ERROR":
            said = self._read(_STATUS.decode, event.object)
            error, _ = error_from("watch", self._resource.kind, said.code, said)
            if not isinstance(error, TooManyRequestsError):
                # The server will not go on from this version.
                self._version = ""
            raise error
        else:
            gone = event.type == "DELETED"
            try:
                obj = self._codec.one(event.object)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                metadata = self._read(self._codec.metadata, event.object)
                self._set_aside(metadata, str(error))
                obj, gone = self._read(self._codec.tombstone, metadata), True
            if gone:
                self._sink.removed(obj)
            else:
                self._sink.put(obj)
            self._reached(obj.metadata)

    def _read(self, read: Callable[[R], V], raw: R) -> V:
        try:
            return read(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UnreadableError("watch", self._resource.kind, str(error)) from None

    def _reached(self, metadata: ObjectMeta) -> None:
        if not metadata.resource_version:
            raise UnreadableError("watch", self._resource.kind, "an event without resourceVersion")
        self._version = metadata.resource_version
        self._floor = self._floor and self._version

    def _set_aside(self, metadata: ObjectMeta, problem: str) -> None:
        self.unreadable += 1
        name = (metadata.namespace, metadata.name)
        if name not in self._named and len(self._named) < _MOST_NAMES:
            self._named.add(name)
            self._log.warning("kube_object_unreadable", object="/".join(filter(None, name)), problem=problem)
