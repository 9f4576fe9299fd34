"""The controller at work: watchers fill tables, tables queue keys, and workers put the request of each key right."""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from bigfleet.kube.client import Client
from bigfleet.kube.errors import ApiError
from bigfleet.kube.objects.names import MANAGED_BY, POD_CONTROLLER
from bigfleet.kube.objects.resources import CAPACITY_REQUESTS, NAMESPACES, PODS
from bigfleet.kube.recorder import Recorder
from bigfleet.kube.watch import Watcher
from bigfleet.podcontroller.keeper import Keeper, KeepOutcome, Mode
from bigfleet.podcontroller.pod.penalties import Defaults
from bigfleet.podcontroller.queue import WorkQueue
from bigfleet.podcontroller.tables import Key, PodTable, RequestTable, Scope
from bigfleet.telemetry.metrics import PodControllerMetrics

_log = structlog.get_logger("bigfleet.podcontroller")

REPORTER = "bigfleet.lucy.sh/pod-controller"
"""What Events call this program."""

# How long calls under way may take once the controller is stopped.
_DRAIN_SECONDS = 5.0
# Failures that are logged in a second; many keys may fail at once.
_LINES_A_SECOND = 5


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The controller's settings: which pods get requests, and how many keys are worked on at a time."""

    mode: Mode = Mode.ALL
    namespaces: tuple[str, ...] = ()
    namespace_selector: str = ""
    concurrency: int = 32
    instance: str = POD_CONTROLLER


class Controller:
    """Keeps one request for each pod, from `run` until it is cancelled or stopped."""

    def __init__(
        self, client: Client, plan: Plan, defaults: Callable[[], Defaults], metrics: PodControllerMetrics
    ) -> None:
        self._plan, self._metrics = plan, metrics
        self._queue: WorkQueue[Key] = WorkQueue()
        self._pods = PodTable(self._queue.add)
        self._requests = RequestTable(self._queue.add)
        self._scope = Scope(plan.namespaces or None, self._rescope)
        self._events = Recorder(client, REPORTER, plan.instance, lambda: datetime.now(UTC))
        self._keeper = Keeper(client, plan.mode, self._pods, self._requests, self._scope, defaults, self._events)
        self._watchers: list[Watcher[Any]] = [
            Watcher(client, PODS, self._pods),
            Watcher(client, CAPACITY_REQUESTS, self._requests, labels=f"{MANAGED_BY}={POD_CONTROLLER}"),
        ]
        if plan.namespace_selector:
            self._watchers.append(Watcher(client, NAMESPACES, self._scope, labels=plan.namespace_selector))
        self._stopping = asyncio.Event()
        #: Keys from the first lists that no worker has put right yet; None before the lists are there.
        self._unseen: set[Key] | None = None
        #: Workers that have a key in hand.
        self._busy = 0
        self._idle = asyncio.Event()
        #: When the present second of log lines began, and how many lines it has.
        self._lines = (0.0, 0)
        self.complete = asyncio.Event()
        """Set once every pod that was there at the start has its request, or has been found to need none."""

    def healthy(self) -> bool:
        """Whether everything has been listed and is watched."""
        return all(watcher.synced.is_set() and watcher.healthy() for watcher in self._watchers)

    def stop(self) -> None:
        """End `run` once the calls under way have been answered, or after a few seconds."""
        self._stopping.set()

    def look_again(self) -> None:
        """Have every pod looked at, as after a change of the penalty defaults."""
        self._add(self._pods.keys())

    async def run(self) -> None:
        """Keep requests right until stopped or cancelled."""
        tasks = [asyncio.create_task(watcher.run()) for watcher in self._watchers]
        tasks += [asyncio.create_task(self._events.run()), asyncio.create_task(self._work_when_synced())]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            ended, _ = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in ended - {stopping}:
                # Such a task ends only with an error.
                task.result()
            await self._drain()
        finally:
            stopping.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(stopping, *tasks, return_exceptions=True)
            self._queue.close()

    async def _work_when_synced(self) -> None:
        for watcher in self._watchers:
            await watcher.synced.wait()
        pods, requests = self._pods.keys(), self._requests.keys()
        _log.info("caches_synced", pods=len(pods), requests=len(requests))
        # All of these are in the queue: a table queues whatever comes into it.
        self._unseen = pods | requests
        self._note_seen(None)
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._plan.concurrency):
                workers.create_task(self._work())

    async def _work(self) -> None:
        while not self._stopping.is_set():
            key = await self._queue.take()
            if self._stopping.is_set():
                return
            self._busy += 1
            try:
                await self._attend(key)
            finally:
                self._busy -= 1
                if not self._busy:
                    self._idle.set()
            # Many keys that need no call would otherwise keep the event loop to themselves.
            await asyncio.sleep(0)

    async def _attend(self, key: Key) -> None:
        try:
            outcome = await self._keeper.keep(key)
        except ApiError as error:
            self._metrics.reconciles.of(KeepOutcome.ERROR).inc()
            failures = self._queue.failed(key, error.retry_after or 0.0)
            self._tell(key, error, failures)
            return
        self._metrics.reconciles.of(outcome).inc()
        self._queue.done(key)
        self._note_seen(key)

    def _note_seen(self, key: Key | None) -> None:
        if self._unseen is not None and not self.complete.is_set():
            if key is not None:
                self._unseen.discard(key)
            if not self._unseen:
                self.complete.set()

    async def _drain(self) -> None:
        self._idle.clear()
        if self._busy:
            try:
                async with asyncio.timeout(_DRAIN_SECONDS):
                    await self._idle.wait()
            except TimeoutError:
                # The next process puts right what is cut short here.
                _log.warning("calls_cut_short", calls=self._busy)

    def _rescope(self, namespace: str) -> None:
        self._add(key for key in self._pods.keys() | self._requests.keys() if key[0] == namespace)

    def _add(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._queue.add(key)

    def _tell(self, key: Key, error: ApiError, failures: int) -> None:
        second, lines = self._lines
        now = time.monotonic()
        if now - second >= 1:
            second, lines = now, 0
        self._lines = (second, lines + 1)
        if lines < _LINES_A_SECOND:
            _log.warning("request_not_kept", namespace=key[0], request=key[1], failures=failures, error=str(error))
