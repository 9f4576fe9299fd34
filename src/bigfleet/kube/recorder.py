"""Events on objects, for people to read: each said once, one at a time, and never in the way of anything else."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime

import msgspec
import structlog

from bigfleet.kube.client import Client
from bigfleet.kube.errors import AlreadyExistsError, ApiError
from bigfleet.kube.objects.kinds import Event, ObjectReference
from bigfleet.kube.objects.resources import EVENTS
from bigfleet.model.crd import ObjectMeta

_MAX_WAITING = 1000
_MAX_SAID = 100_000
_MAX_NOTE = 1000
_MAX_NAME = 253
_MAX_INSTANCE = 128
# Events about objects without a namespace are kept there.
_CLUSTER_NAMESPACE = "default"

_log = structlog.get_logger("bigfleet.kube")


class Occurrence(msgspec.Struct, frozen=True):
    """What happened to which object, in which of a few ways (`reason`, in one word), and the sentence about it."""

    regarding: ObjectReference
    reason: str
    action: str
    note: str
    type: str = "Warning"


class Recorder:
    """Says what happened, unless it was said; what is more than can be said at a time is dropped and logged."""

    def __init__(self, client: Client, reporter: str, instance: str, now: Callable[[], datetime]) -> None:
        self._client, self._reporter, self._instance, self._now = client, reporter, instance[:_MAX_INSTANCE], now
        self._waiting: asyncio.Queue[Occurrence] = asyncio.Queue(_MAX_WAITING)
        self._said: OrderedDict[Occurrence, None] = OrderedDict()

    def say(self, occurrence: Occurrence) -> None:
        """Have it said, unless it was."""
        if occurrence in self._said:
            return
        try:
            self._waiting.put_nowait(occurrence)
        except asyncio.QueueFull:
            about = occurrence.regarding
            _log.warning("event_dropped", kind=about.kind, name=about.name, reason=occurrence.reason)
            return
        self._said[occurrence] = None
        if len(self._said) > _MAX_SAID:
            self._said.popitem(last=False)

    async def run(self) -> None:
        """Say what waits, until cancelled."""
        while True:
            occurrence = await self._waiting.get()
            about = occurrence.regarding
            namespace = about.namespace or _CLUSTER_NAMESPACE
            try:
                await self._client.create(EVENTS, self._event(occurrence, namespace), namespace)
            except AlreadyExistsError:
                # An earlier life of this program has said it.
                pass
            except ApiError as error:
                # An Event is a courtesy: it is said again only when it happens again.
                _log.warning("event_failed", kind=about.kind, name=about.name, error=str(error))
                self._said.pop(occurrence, None)

    def _event(self, occurrence: Occurrence, namespace: str) -> Event:
        about = occurrence.regarding
        digest = hashlib.blake2b(f"{about.uid}\0{occurrence.reason}\0{occurrence.note}".encode(), digest_size=8)
        ending = f".{digest.hexdigest()}"
        return Event(
            metadata=ObjectMeta(name=about.name[: _MAX_NAME - len(ending)].rstrip("-.") + ending, namespace=namespace),
            event_time=self._now(),
            regarding=about,
            type=occurrence.type,
            reason=occurrence.reason,
            action=occurrence.action,
            note=occurrence.note[:_MAX_NOTE],
            reporting_controller=self._reporter,
            reporting_instance=self._instance,
        )
