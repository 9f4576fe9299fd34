"""Objects that say in the cluster what the shard said: as they should be, as they are, and the writes between the two.

What should be is compared with what the watch shows, so that an operator that restarts writes nothing anew, and what
somebody deletes or edits comes back. Written by server-side apply: no read before the write, and fields that somebody
else has put there stay.
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
_WORKERS = 8
_FIRST_RETRY, _LAST_RETRY = 0.5, 30.0


def object_name(text: str) -> str:
    """A name that the API server takes, the text itself where it is one; different texts, different names."""
    if len(text) <= _MAX_NAME and _NAME.fullmatch(text):
        return text
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:200].strip("-")
    return f"{plain or 'x'}-{blake2b(text.encode(), digest_size=6).hexdigest()}"


class Mirror(Generic[T]):
    """One kind of object. It is the sink of a watch on those with our label.

    `wrote` is called after each write with what was done (apply, status, delete) and how it went (success, error).
    """

    def __init__(self, client: Client, resource: Resource[T], wrote: Callable[[str, str], None]) -> None:
        self._client, self._wrote = client, wrote
        self._resource: Resource[T] = resource
        self._wanted: dict[str, T] = {}
        self._actual: dict[str, T] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        # Being written now, and those of them that were queued meanwhile.
        self._busy: set[str] = set()
        self._anew: set[str] = set()
        # Those of them that the watch has told of since: the answer to the write may be older than that.
        self._told: set[str] = set()
        # Dropped while a write of theirs may yet show.
        self._unsure: set[str] = set()
        self._retrying: set[str] = set()
        self._waits: dict[str, float] = {}

    # What the watch says.

    def replaced(self, objects: Sequence[T]) -> None:
        """These are all there are."""
        former, self._actual = self._actual, {each.metadata.name: each for each in objects}
        self._told |= self._busy
        self._unsure &= self._actual.keys() | self._busy
        for name in former.keys() | self._actual.keys() | self._busy:
            self._look_at(name)

    def put(self, each: T) -> None:
        """An object is new, or another than it was."""
        self._actual[each.metadata.name] = each
        self._told |= self._busy & {each.metadata.name}
        self._look_at(each.metadata.name)

    def removed(self, each: T) -> None:
        """An object is gone."""
        self._actual.pop(each.metadata.name, None)
        self._told |= self._busy & {each.metadata.name}
        self._unsure.discard(each.metadata.name)
        self._look_at(each.metadata.name)

    # What should be.

    def actual(self, name: str) -> T | None:
        """The object as the watch shows it."""
        return self._actual.get(name)

    def wanted(self, name: str) -> T | None:
        """The object as it should be."""
        return self._wanted.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._actual.keys() | self._wanted.keys())

    def want(self, each: T) -> None:
        """There should be this object, just so."""
        self._wanted[each.metadata.name] = each
        self._unsure.discard(each.metadata.name)
        self._look_at(each.metadata.name)

    def drop(self, name: str) -> None:
        """There should be no such object."""
        self._wanted.pop(name, None)
        if name in self._waits or name in self._busy:
            self._unsure.add(name)
        self._enqueue(name)

    # The writes between.

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
        """An object that nobody has said anything about yet is left alone: the shard may still name it."""
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
