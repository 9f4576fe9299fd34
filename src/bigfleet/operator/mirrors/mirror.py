"""Objects that show in the cluster what the shard has said: how they should be, how they are, and the writes between.

How an object should be is compared with what the watch shows. So an operator that restarts writes nothing anew, and an
object that somebody deletes or edits is restored. Objects are written by server-side apply: no read comes before the
write, and fields that somebody else has set stay.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec
import structlog

from bigfleet.kube.client import Client, Patch
from bigfleet.kube.errors import ApiError, NotFoundError
from bigfleet.kube.objects.names import OPERATOR
from bigfleet.kube.objects.resources import Resource
from bigfleet.model.crd import AvailableCapacity, UpcomingNode

_log = structlog.get_logger("bigfleet.operator")

T = TypeVar("T", UpcomingNode, AvailableCapacity)

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_MAX_NAME = 253
# Characters of a text that a name made from it keeps, so that the hash after them fits.
_MAX_KEPT = 200
_WORKERS = 8
_FIRST_RETRY, _LAST_RETRY = 0.5, 30.0


def object_name(text: str) -> str:
    """A name that the API server takes: the text itself where it is one. Different texts have different names."""
    if len(text) <= _MAX_NAME and _NAME.fullmatch(text):
        return text
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_MAX_KEPT].strip("-")
    return f"{plain or 'x'}-{blake2b(text.encode(), digest_size=6).hexdigest()}"


class Mirror(Generic[T]):
    """All objects of one kind that bear our label. It is the sink of a watch on them.

    `wrote` is called after each write with what was done (apply, status, delete) and how it went (success, error).
    """

    def __init__(self, client: Client, resource: Resource[T], wrote: Callable[[str, str], None]) -> None:
        self._client, self._wrote = client, wrote
        self._resource: Resource[T] = resource
        #: How objects should be, by name.
        self._wanted: dict[str, T] = {}
        #: How objects are, by name.
        self._actual: dict[str, T] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        #: Names in the queue.
        self._queued: set[str] = set()
        #: Names that are being written now.
        self._busy: set[str] = set()
        #: Names that were queued while they were being written.
        self._anew: set[str] = set()
        #: Names that the watch has shown since their write began: the answer to the write may be older than that.
        self._told: set[str] = set()
        #: Names that were dropped while a write of theirs may yet take effect.
        self._unsure: set[str] = set()
        #: Names that wait to be written again after a failure.
        self._retrying: set[str] = set()
        #: By name, how long the last wait after a failure was.
        self._waits: dict[str, float] = {}

    # What the watch says.

    def replaced(self, objects: Sequence[T]) -> None:
        """The watch has listed anew: these are all objects."""
        former, self._actual = self._actual, {each.metadata.name: each for each in objects}
        self._told |= self._busy
        self._unsure &= self._actual.keys() | self._busy
        for name in former.keys() | self._actual.keys() | self._busy:
            self._look_at(name)

    def put(self, each: T) -> None:
        """An object is new, or has changed."""
        self._actual[each.metadata.name] = each
        self._told |= self._busy & {each.metadata.name}
        self._look_at(each.metadata.name)

    def removed(self, each: T) -> None:
        """An object is gone."""
        self._actual.pop(each.metadata.name, None)
        self._told |= self._busy & {each.metadata.name}
        self._unsure.discard(each.metadata.name)
        self._look_at(each.metadata.name)

    # How objects should be.

    def actual(self, name: str) -> T | None:
        """The object as the watch shows it."""
        return self._actual.get(name)

    def wanted(self, name: str) -> T | None:
        """The object as it should be."""
        return self._wanted.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._actual.keys() | self._wanted.keys())

    def want(self, each: T) -> None:
        """Have this object written, exactly like this."""
        self._wanted[each.metadata.name] = each
        self._unsure.discard(each.metadata.name)
        self._look_at(each.metadata.name)

    def drop(self, name: str) -> None:
        """Have the object of that name deleted."""
        self._wanted.pop(name, None)
        if name in self._waits or name in self._busy:
            self._unsure.add(name)
        self._enqueue(name)

    # Writing.

    async def run(self) -> None:
        """Write, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work(group))

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            name = await self._queue.get()
            self._queued.discard(name)
            if name in self._busy:
                self._anew.add(name)
                continue
            self._busy.add(name)
            try:
                await self._put_right(name)
            except ApiError as error:
                wait = self._waits[name] = min(_LAST_RETRY, 2 * self._waits.get(name, _FIRST_RETRY / 2))
                _log.warning("write_failed", kind=self._resource.kind, name=name, error=str(error), again_in=wait)
                if name not in self._retrying:
                    self._retrying.add(name)
                    group.create_task(self._again(name, wait))
            else:
                self._waits.pop(name, None)
            finally:
                self._busy.discard(name)
                self._told.discard(name)
            if name in self._anew:
                self._anew.discard(name)
                self._enqueue(name)

    async def _again(self, name: str, wait: float) -> None:
        await asyncio.sleep(wait)
        self._retrying.discard(name)
        self._enqueue(name)

    def _look_at(self, name: str) -> None:
        """Queue the object if it differs from how it should be. One neither wanted nor dropped is left alone."""
        wanted = self._wanted.get(name)
        if wanted is None:
            differs = name in self._unsure and name in self._actual
        else:
            differs = not _equal(wanted, self._actual.get(name))
        if differs:
            self._enqueue(name)

    def _enqueue(self, name: str) -> None:
        if name not in self._queued:
            self._queued.add(name)
            self._queue.put_nowait(name)

    async def _put_right(self, name: str) -> None:
        wanted, actual = self._wanted.get(name), self._actual.get(name)
        if wanted is None:
            if actual is not None:
                await self._delete(name, actual.metadata.uid)
            return
        if not _equal_but_status(wanted, actual):
            actual = await self._apply(wanted, "apply", "", {"status"})
        if not _equal_status(wanted, actual):
            await self._apply(wanted, "status", "status", {"spec"})

    async def _apply(self, wanted: T, what: str, subresource: str, without: set[str]) -> T:
        name, whole = wanted.metadata.name, msgspec.to_builtins(wanted)
        body = {key: value for key, value in whole.items() if key not in without}
        if subresource:
            body["metadata"] = {"name": name}
        self._told.discard(name)
        try:
            written: T = await self._client.patch(
                self._resource, name, body, subresource=subresource, content=Patch.APPLY, manager=OPERATOR
            )
        except ApiError:
            self._wrote(what, "error")
            raise
        self._wrote(what, "success")
        if name not in self._told:
            self._actual[name] = written
        return written

    async def _delete(self, name: str, uid: str) -> None:
        try:
            await self._client.delete(self._resource, name, uid=uid)
        except NotFoundError:
            pass
        except ApiError:
            self._wrote("delete", "error")
            raise
        self._wrote("delete", "success")


def _equal(wanted: T, actual: T | None) -> bool:
    return actual is not None and _equal_but_status(wanted, actual) and _equal_status(wanted, actual)


def _equal_but_status(wanted: T, actual: T | None) -> bool:
    if actual is None or wanted.spec != actual.spec:
        return False
    labels, annotations = actual.metadata.labels, actual.metadata.annotations
    return all(labels.get(key) == value for key, value in wanted.metadata.labels.items()) and all(
        annotations.get(key) == value for key, value in wanted.metadata.annotations.items()
    )


def _equal_status(wanted: T, actual: T | None) -> bool:
    return wanted.status is None or (actual is not None and wanted.status == actual.status)
