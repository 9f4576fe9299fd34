"""The pod controller as a process: leadership, the defaults file, health and signals around `Controller`."""

import asyncio
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from bigfleet.kube.access.server import ServerConfig
from bigfleet.kube.client import Client
from bigfleet.kube.election import Election, LeadershipLostError
from bigfleet.kube.errors import ApiError
from bigfleet.kube.objects.names import POD_CONTROLLER
from bigfleet.kube.objects.resources import NAMESPACES
from bigfleet.podcontroller.controller import Controller, Plan
from bigfleet.podcontroller.defaults_file import DefaultsFile
from bigfleet.podcontroller.demand_mark import mark
from bigfleet.podcontroller.keeper import Mode
from bigfleet.telemetry.health import Heartbeat, Readiness
from bigfleet.telemetry.http import HealthEndpoint
from bigfleet.telemetry.metrics import PodControllerMetrics
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.listen import open_listener

_log = structlog.get_logger("bigfleet.podcontroller")

# The one condition of readiness.
_CACHES = "caches"
# How long to wait before the ConfigMap is written again after a failure.
_AGAIN_SECONDS = 5.0
# How often readiness is looked at.
_LOOK_SECONDS = 0.5
_BAD_REQUEST = 400


class SelectorError(Exception):
    """A namespace selector that the API server does not understand."""


class PodControllerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the process."""

    server: ServerConfig
    plan: Plan
    namespace: str
    metrics_listen: TCPAddress
    penalty_defaults: Path | None = None
    kube_qps: float = 500.0
    kube_burst: int = 1000


class Served(msgspec.Struct, frozen=True):
    """A process that runs: the port of its metrics, and its work, which ends when stopped or with an error."""

    metrics_port: int
    working: "asyncio.Task[None]"


@asynccontextmanager
async def serving(config: PodControllerConfig) -> AsyncIterator[Served]:
    """Work whenever this process holds the Lease, for as long as the body runs; then finish the calls under way."""
    defaults = DefaultsFile(config.penalty_defaults)
    registry, heartbeat, readiness = CollectorRegistry(), Heartbeat(), Readiness(_CACHES)
    async with AsyncExitStack() as stack:
        listener = open_listener(config.metrics_listen)
        http = stack.enter_context(HealthEndpoint(listener, registry, readiness, heartbeat))
        beating = asyncio.create_task(heartbeat.keep())
        stack.callback(beating.cancel)
        client = await stack.enter_async_context(
            Client(config.server, qps=config.kube_qps, burst=config.kube_burst, user_agent=POD_CONTROLLER)
        )
        process = _Process(config, client, defaults, PodControllerMetrics(registry), readiness)
        _log.info(
            "pod_controller_started",
            mode=config.plan.mode.value,
            namespaces=list(config.plan.namespaces),
            namespace_selector=config.plan.namespace_selector,
            metrics_port=http.port,
        )
        working = asyncio.create_task(process.run())
        try:
            yield Served(http.port, working)
        finally:
            readiness.fail(_CACHES, "shutting down")
            process.stop()
            await asyncio.wait({working})
        working.result()


async def serve(config: PodControllerConfig) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serving(config) as served:
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({served.working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        _log.info("pod_controller_stopping")
    _log.info("pod_controller_stopped")


class _Process:
    """Waits for the Lease and works, in turns."""

    def __init__(
        self,
        config: PodControllerConfig,
        client: Client,
        defaults: DefaultsFile,
        metrics: PodControllerMetrics,
        readiness: Readiness,
    ) -> None:
        self._config, self._client, self._defaults = config, client, defaults
        self._metrics, self._readiness = metrics, readiness
        self._stopping = asyncio.Event()
        self._controller: Controller | None = None

    def stop(self) -> None:
        self._stopping.set()
        if self._controller is not None:
            self._controller.stop()

    async def run(self) -> None:
        await self._check_selector()
        identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        election = Election(self._client, self._config.namespace, POD_CONTROLLER, identity, lambda: datetime.now(UTC))
        while not self._stopping.is_set():
            # A copy that waits for the Lease counts as ready; otherwise a rollout would wait for it for ever.
            self._readiness.meet(_CACHES)
            if await _unless(self._stopping, election.won()):
                try:
                    await self._lead(election)
                except LeadershipLostError as error:
                    _log.warning("leadership_lost", reason=str(error))
                finally:
                    await election.release()

    async def _lead(self, election: Election) -> None:
        """Work for as long as this process holds the Lease."""
        self._readiness.fail(_CACHES, "not listed yet")
        controller = Controller(self._client, self._config.plan, lambda: self._defaults.defaults, self._metrics)
        self._controller = controller
        if self._stopping.is_set():
            return
        tasks = [
            asyncio.create_task(self._work(controller)),
            asyncio.create_task(election.kept()),
            asyncio.create_task(self._defaults.watch(controller.look_again)),
            asyncio.create_task(self._watch(controller)),
        ]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            self._controller = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, controller: Controller) -> None:
        if self._config.plan.mode is Mode.ALL:
            # Until every pod has been looked at, the requests may be those of another mode.
            marking = asyncio.create_task(self._mark_when(controller.complete))
            try:
                await controller.run()
            finally:
                marking.cancel()
                await asyncio.gather(marking, return_exceptions=True)
        elif await _unless(self._stopping, self._mark()):
            await controller.run()

    async def _mark_when(self, complete: asyncio.Event) -> None:
        await complete.wait()
        await self._mark()

    async def _mark(self) -> None:
        while True:
            try:
                await mark(self._client, self._config.namespace, self._config.plan.mode)
            except ApiError as error:
                _log.warning("demand_not_marked", error=str(error))
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                return

    async def _watch(self, controller: Controller) -> None:
        """Keep the readiness up to date, until cancelled."""
        while True:
            if controller.healthy():
                self._readiness.meet(_CACHES)
            else:
                self._readiness.fail(_CACHES, "not listed yet, or not watched for a while")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _check_selector(self) -> None:
        """Raise SelectorError at the start for a selector that the API server does not understand."""
        selector = self._config.plan.namespace_selector
        if not selector:
            return
        try:
            await self._client.page(NAMESPACES, labels=selector)
        except ApiError as error:
            if error.code == _BAD_REQUEST:
                raise SelectorError(f"--namespace-selector {selector!r}: {error.message}") from None
            _log.warning("namespace_selector_unchecked", error=str(error))


async def _unless(stopping: asyncio.Event, waited: Coroutine[Any, Any, None]) -> bool:
    """Await something, or stop waiting when told to stop. Returns whether it came to its end."""
    tasks = [asyncio.create_task(waited), asyncio.create_task(stopping.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            return False
        tasks[0].result()
        return True
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
