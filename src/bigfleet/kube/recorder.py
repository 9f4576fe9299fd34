"""Events on objects, for people to read. Each is written once, and nothing waits for it."""

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

# Events that may wait to be written.
_MAX_WAITING = 1000
# Events that are remembered as written.
_MAX_SAID = 100_000
_MAX_NOTE = 1000
_MAX_NAME = 253
_MAX_INSTANCE = 128
# Where Kubernetes keeps Events about objects without a namespace.
_CLUSTER_NAMESPACE = "default"

_log = structlog.get_logger("bigfleet.kube")


class Occurrence(msgspec.Struct, frozen=True):
    """What happened to an object: the reason in one word, the action, and a sentence for people."""

    regarding: ObjectReference
    reason: str
    action: str
    note: str
    type: str = "Warning"


class Recorder:
    """Writes Events, each once. When too many wait, further ones are dropped and logged."""

    def __init__(self, client: Client, reporter: str, instance: str, now: Callable[[], datetime]) -> None:
        self._client, self._reporter, self._instance, self._now = client, reporter, instance[:_MAX_INSTANCE], now
        self._waiting: asyncio.Queue[Occurrence] = asyncio.Queue(_MAX_WAITING)
        self._said: OrderedDict[Occurrence, None] = OrderedDict()

    def say(self, occurrence: Occurrence) -> None:
        """Have the Event written, unless it was."""
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
        """Write the Events that wait, until cancelled."""
        while True:
            occurrence = await self._waiting.get()
            about = occurrence.regarding
            namespace = about.namespace or _CLUSTER_NAMESPACE
            try:
                await self._client.create(EVENTS, self._event(occurrence, namespace), namespace)
            except AlreadyExistsError:
                # An earlier process has written this Event.
                pass
            except ApiError as error:
                # The Event is not written again unless it happens again.
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
