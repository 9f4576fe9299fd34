"""The operator as a process: API server, shard, leadership, signals and health around `Core`."""

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from bigfleet.kube.access.kubeconfig import SERVICE_ACCOUNT, load
from bigfleet.kube.client import Client
from bigfleet.kube.election import Election, LeadershipLostError
from bigfleet.kube.objects.names import MANAGED_BY, OPERATOR, POD_CONTROLLER
from bigfleet.kube.objects.resources import (
    AVAILABLE_CAPACITIES,
    CAPACITY_REQUESTS,
    CONFIG_MAPS,
    DAEMON_SETS,
    NODES,
    PODS,
    UPCOMING_NODES,
)
from bigfleet.kube.recorder import Recorder
from bigfleet.kube.watch import Watcher
from bigfleet.model.crd import AvailableCapacity, UpcomingNode
from bigfleet.operator.bootstrap.answers import BootstrapAnswers
from bigfleet.operator.bootstrap.cluster_access import ClusterAccess
from bigfleet.operator.bootstrap.template import LiveTemplate
from bigfleet.operator.bootstrap.tokens import BootstrapTokens
from bigfleet.operator.config import OperatorConfig
from bigfleet.operator.core import Clocks, Core, Parts
from bigfleet.operator.link import Link
from bigfleet.operator.mirrors.available_capacity import AvailableCapacities
from bigfleet.operator.mirrors.mirror import Mirror
from bigfleet.operator.mirrors.upcoming_nodes import UpcomingNodes
from bigfleet.operator.node_life.drain_work import DrainWork
from bigfleet.operator.node_life.drains import Drains
from bigfleet.operator.node_life.left_nodes import LeftNodes
from bigfleet.operator.node_life.machines import KnownMachines
from bigfleet.operator.node_life.ready_reports import NodeReadyReports
from bigfleet.operator.rollup.acknowledge import Acknowledger
from bigfleet.operator.rollup.partial_demand import PartialDemand
from bigfleet.telemetry.health import Heartbeat, Readiness
from bigfleet.telemetry.http import HealthEndpoint
from bigfleet.telemetry.logs import bound_ids
from bigfleet.telemetry.metrics import OperatorMetrics
from bigfleet.transport.identity import Identity, Role
from bigfleet.transport.listen import open_listener
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSConfigError

# How often readiness is looked at.
_LOOK_SECONDS = 0.5
# Longest wait between two looks at what is due, however far away that is.
_LONGEST_WAIT = 3600.0
_log = structlog.get_logger("bigfleet.operator")


class _Program:
    """Everything that runs while this operator leads."""

    def __init__(
        self,
        config: OperatorConfig,
        client: Client,
        tls: LiveTLS | None,
        template: LiveTemplate,
        metrics: OperatorMetrics,
        identity: str,
    ) -> None:
        self._client = client
        clocks = Clocks(time.monotonic, lambda: datetime.now(UTC), time.time_ns)
        self._now = clocks.now
        self._stirred = asyncio.Event()
        self._recorder = Recorder(client, "bigfleet.lucy.sh/operator", identity, clocks.wall)
        core = self._core = Core(
            config.cluster_id, config.rollup_interval, clocks, metrics, self._recorder.say, self._stirred.set
        )
        view, machines = core.view, KnownMachines(config.cluster_id)
        self._upcoming: Mirror[UpcomingNode] = Mirror(
            client, UPCOMING_NODES, lambda what, how: metrics.upcoming_node_writes.of(what, how).inc()
        )
        self._available: Mirror[AvailableCapacity] = Mirror(client, AVAILABLE_CAPACITIES, lambda *_: None)
        self._tokens = BootstrapTokens(client, config.cluster_id, clocks.wall)
        ready_reports = NodeReadyReports(machines, view.nodes, self._tokens.asked_at, self._tokens.release)
        left_nodes = LeftNodes(client, machines, view.nodes, clocks.now)
        access = ClusterAccess(
            client,
            clocks.now,
            endpoint=config.api_endpoint,
            ca_file=config.ca_file,
            config=None if client.config.token_file == SERVICE_ACCOUNT / "token" else client.config,
            cluster_dns=config.cluster_dns,
        )
        bootstrap = BootstrapAnswers(
            config.cluster_id,
            template,
            access,
            self._tokens,
            machines,
            left_nodes,
            send=core.send,
            began=ready_reports.asked,
            now=clocks.now,
            kubelet_version=config.kubelet_version,
        )
        drains = DrainWork(
            client,
            Drains(machines, view.nodes, view.pods, left_nodes, core.send),
            view.nodes,
            clocks.now,
            clocks.wall,
        )
        acknowledger = Acknowledger(client, metrics, config.acknowledge_concurrency, clocks.wall)
        parts = self._parts = Parts(
            machines,
            ready_reports,
            left_nodes,
            bootstrap,
            drains,
            UpcomingNodes(self._upcoming, core.is_ready, clocks.wall),
            AvailableCapacities(self._available),
            acknowledger,
        )
        core.complete(parts)
        self.link = Link(config.shard_address, tls, core, metrics)
        ours = f"{MANAGED_BY}={OPERATOR}"
        self.watchers = (
            Watcher(client, CAPACITY_REQUESTS, view.requests),
            Watcher(client, PODS, view.pods),
            Watcher(client, NODES, view.nodes),
            Watcher(client, DAEMON_SETS, view.daemons),
            Watcher(client, UPCOMING_NODES, self._upcoming, labels=ours),
            Watcher(client, AVAILABLE_CAPACITIES, self._available, labels=ours),
            Watcher(
                client,
                CONFIG_MAPS,
                PartialDemand(self._set_partial),
                namespace=config.namespace,
                fields=f"metadata.name={POD_CONTROLLER}",
            ),
        )

    async def run(self) -> None:
        """Be the operator, until cancelled."""
        parts = self._parts
        async with asyncio.TaskGroup() as group:
            for watcher in self.watchers:
                group.create_task(watcher.run())
            for each in (self._recorder, self._upcoming, self._available):
                group.create_task(each.run())
            for part in (parts.left_nodes, parts.bootstrap, parts.drains, parts.acknowledger):
                group.create_task(part.run())
            for watcher in self.watchers:
                await watcher.synced.wait()
            _log.info("caches_synced", requests=len(self._core.view.requests), pods=len(self._core.view.pods))
            settle_memory()
            await self._tokens.load()
            group.create_task(self._tokens.run())
            self._core.synced()
            group.create_task(self.link.run())
            group.create_task(self._keep_time())

    async def _keep_time(self) -> None:
        while True:
            self._stirred.clear()
            wait = self._core.due() - self._now()
            if wait > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(wait, _LONGEST_WAIT)):
                        await self._stirred.wait()
                continue
            self._core.tick()
            await asyncio.sleep(0)

    def _set_partial(self, partial: bool) -> None:
        self._core.rollups.partial = partial


def settle_memory() -> None:
    """Keep the garbage collector from walking the full caches again and again, at a tenth of a second each time."""
    gc.collect()
    gc.freeze()


class _Work(Protocol):
    async def run(self) -> None:
        """Work until cancelled."""


P = TypeVar("P", bound=_Work)


class LeadershipTurns(Generic[P]):
    """Waits for the Lease and leads, in turns.

    Each turn has a program made for it. What the last program knew is out of date: others may have led since.
    """

    def __init__(self, election: Election, make: Callable[[], P]) -> None:
        self._election, self._make = election, make
        self.program: P | None = None
        """The program of the present turn; None while this operator does not lead."""

    async def run(self) -> None:
        """Take turns until cancelled, or until a program fails. The loss of the Lease ends only the turn."""
        while True:
            try:
                await self._election.won()
                await self._lead()
            except* LeadershipLostError as lost:
                _log.warning("leadership_lost", reason=str(_single(lost)), advice="waits to lead again")
            finally:
                await self._election.release()
            _forget_memory()

    async def _lead(self) -> None:
        self.program = self._make()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._election.kept())
                group.create_task(self.program.run())
        finally:
            self.program = None


def _forget_memory() -> None:
    """Let the garbage collector free the caches of a turn that is over."""
    gc.unfreeze()
    gc.collect()


async def serve(config: OperatorConfig) -> None:
    """Run until SIGTERM or SIGINT; lead whenever no other copy leads."""
    tls = None if config.tls is None else LiveTLS.start(config.tls)
    wanted = Identity(Role.CLUSTER, config.cluster_id)
    if tls is not None and tls.identity != wanted:
        raise TLSConfigError(f"--tls-cert {tls.files.cert}: names {tls.identity}; this cluster's is {wanted}")
    template = LiveTemplate.start(config.bootstrap_template_file)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    registry, heartbeat = CollectorRegistry(), Heartbeat()
    readiness = Readiness("kubernetes", "shard")
    metrics = OperatorMetrics(registry)
    identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.getpid()}"
    with bound_ids(cluster=config.cluster_id):
        async with AsyncExitStack() as stack:
            http = stack.enter_context(
                HealthEndpoint(open_listener(config.metrics_listen), registry, readiness, heartbeat)
            )
            client = await stack.enter_async_context(
                Client(load(config.kubeconfig, config.context), qps=config.kube_qps, burst=config.kube_burst)
            )
            _log.info(
                f"operator started rollup_interval={config.interval_written}",
                rollup_interval=config.interval_written,
                shard=str(config.shard_address),
                metrics_port=http.port,
                api_server=client.config.server,
                tls=tls is not None,
            )
            if config.unprotected:
                _log.warning("session_unprotected", advice="give --tls-cert, --tls-key and --tls-ca")
            election = Election(client, config.namespace, OPERATOR, identity, lambda: datetime.now(UTC))
            turns = LeadershipTurns(election, lambda: _Program(config, client, tls, template, metrics, identity))
            stopped = asyncio.create_task(stop.wait())
            tasks = [
                asyncio.create_task(heartbeat.keep()),
                asyncio.create_task(turns.run()),
                asyncio.create_task(_watch(turns, readiness)),
            ]
            try:
                await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            finally:
                _log.info("operator_stopping")
                stopped.cancel()
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended:
                if isinstance(error, Exception):
                    raise _single(error)
        _log.info("operator_stopped")


async def _watch(turns: LeadershipTurns[_Program], readiness: Readiness) -> None:
    """Keep the readiness up to date, until cancelled."""
    while True:
        program = turns.program
        if program is None:
            readiness.fail("kubernetes", "does not lead")
            readiness.fail("shard", "does not lead")
        else:
            _look(program, readiness)
        await asyncio.sleep(_LOOK_SECONDS)


def _look(program: _Program, readiness: Readiness) -> None:
    behind = [watcher for watcher in program.watchers if not watcher.healthy()]
    if behind:
        readiness.fail("kubernetes", f"{len(behind)} of {len(program.watchers)} caches are empty or out of date")
    else:
        readiness.meet("kubernetes")
    if program.link.connected:
        readiness.meet("shard")
    else:
        readiness.fail("shard", "no session")


def _single(error: Exception) -> Exception:
    """The one error inside the groups that task groups wrap around it."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
