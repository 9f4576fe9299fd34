"""A shard as a process: files, sockets and signals around `Shard`."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import grpc
import msgspec
import structlog
from prometheus_client import CollectorRegistry

from bigfleet.provider.client import ProviderClient, provider_dialer
from bigfleet.provider.epoch import EpochFile
from bigfleet.provider.fencing import Fencing
from bigfleet.shard.api.admin import Admin
from bigfleet.shard.api.answers import Answers
from bigfleet.shard.api.inspection import Inspection
from bigfleet.shard.config import Config
from bigfleet.shard.core.core import Core
from bigfleet.shard.core.decisions import Decisions
from bigfleet.shard.core.parts import Clocks, Settings
from bigfleet.shard.persistence.audit_log import AuditLog
from bigfleet.shard.persistence.journal import Journal
from bigfleet.shard.shell.engine_compiler import Walks
from bigfleet.shard.shell.shard import Shard
from bigfleet.telemetry.health import Heartbeat, Readiness
from bigfleet.telemetry.http import HealthEndpoint
from bigfleet.telemetry.logs import bound_ids
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.telemetry.traces import Tracing, tracer
from bigfleet.transport.address import Address, TCPAddress
from bigfleet.transport.grpc_options import SERVER_OPTIONS
from bigfleet.transport.identity import Identity, Role
from bigfleet.transport.listen import bind, open_listener
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSConfigError

_log = structlog.get_logger("bigfleet.shard")

T = TypeVar("T")

EPOCH_FILE, JOURNAL_FILE = "epoch", "shard.db"

_STOP_SECONDS = 1.0
_HARD_STOP_SECONDS = 9.5
"""How long after a signal the process ends at the latest, whatever hangs. All that matters is durable by then."""


class _Outside:
    """Files, threads and fencing of a real process."""

    def __init__(self, file: Journal, log: AuditLog, tracing: Tracing, epoch: EpochFile, fencing: Fencing) -> None:
        self.file, self.log, self.tracing = file, log, tracing
        self._epoch, self._fencing = epoch, fencing

    async def threads(self, work: Callable[..., T], /, *args: Any) -> T:
        return await asyncio.to_thread(work, *args)

    async def raise_epoch(self, floor: int) -> int:
        epoch = await asyncio.to_thread(self._epoch.raise_above, floor)
        self._fencing.renew(epoch)
        _log.warning("epoch_raised", epoch=epoch, seen=floor)
        return epoch


class Served(msgspec.Struct, frozen=True):
    """A shard that serves: the addresses that it got, and the shard itself."""

    address: Address
    metrics_port: int
    shard: Shard
    running: "asyncio.Task[None]"


@asynccontextmanager
async def serving(config: Config) -> AsyncIterator[Served]:
    """Serve for as long as the body runs. Then wait for calls on their way, and end."""
    tls = None if config.tls is None else LiveTLS.start(config.tls)
    if tls is not None and tls.identity != Identity(Role.SHARD, config.shard_id):
        wanted = Identity(Role.SHARD, config.shard_id)
        raise TLSConfigError(f"--tls-cert {tls.files.cert}: names {tls.identity}; this shard's is {wanted}")
    config.make_data_dir()
    registry, heartbeat = CollectorRegistry(), Heartbeat()
    readiness = Readiness("providers", "fencing", "local file", "engine")
    metrics = ShardMetrics(registry)
    async with AsyncExitStack() as stack:
        # The journal comes first: if a first start is cut short, no epoch file is left to say that a journal was lost.
        epoch_path = config.data_dir / EPOCH_FILE
        lived = epoch_path if epoch_path.exists() else None
        journal = Journal.open(config.data_dir / JOURNAL_FILE, config.shard_id, lived)
        stack.callback(journal.close)
        epoch = EpochFile.start(epoch_path, config.shard_id)
        stack.callback(epoch.close)
        audit = AuditLog.open(config.audit_log, config.audit_log_size, config.audit_log_files)
        tracing = tracer(config.trace_endpoint, "bigfleet-shard")
        stack.push_async_callback(asyncio.to_thread, tracing.close, _STOP_SECONDS)
        http = stack.enter_context(HealthEndpoint(open_listener(config.metrics_listen), registry, readiness, heartbeat))
        beating = asyncio.create_task(heartbeat.keep())
        stack.callback(beating.cancel)
        fencing = Fencing(config.shard_id, epoch.epoch)
        clients = {
            each.name: ProviderClient(each.name, provider_dialer(each.name, each.address, tls), fencing, metrics)
            for each in config.providers
        }
        for client in clients.values():
            stack.push_async_callback(client.close)
        settings = Settings(
            config.shard_id,
            tuple(clients),
            config.bootstrap_timeout,
            config.ready_timeout,
            config.actuation_paused,
            config.dry_run,
        )
        kept = await asyncio.to_thread(journal.load)
        core = Core(settings, epoch.epoch, kept, Clocks(time.monotonic, time.time), metrics)
        shard = Shard(
            core,
            Decisions(core, config.policy(), interval=config.cycle_interval),
            clients,
            _Outside(journal, audit, tracing, epoch, fencing),
            config,
        )
        server = grpc.aio.server(options=SERVER_OPTIONS)
        answers = Answers(shard)
        shard.streams.add_to(server)
        Inspection(answers).add_to(server)
        Admin(answers).add_to(server)
        port = bind(server, config.listen, None if tls is None else tls.server_credentials())
        await server.start()
        stack.push_async_callback(server.stop, _STOP_SECONDS)
        listen = config.listen
        address = TCPAddress(listen.host, port) if isinstance(listen, TCPAddress) else listen
        _log.info(
            "shard_serving",
            address=str(address),
            metrics_port=http.port,
            epoch=core.parts.actuation.epoch,
            machines_on_file=len(kept.machines),
            actions_on_file=len(kept.commitments),
            providers=list(clients),
            paused=core.parts.actuation.paused,
            dry_run=config.dry_run,
            tls=tls is not None,
        )
        if config.exposed:
            _log.warning("sessions_unprotected", listen=str(listen), advice="give --tls-cert, --tls-key and --tls-ca")
        if not clients:
            _log.warning("no_provider", advice="name one with --provider name=host:port; until then nothing is bought")
        running = asyncio.create_task(shard.run())
        for service in (_watch(shard, readiness), shard.compile_engine()):
            stack.push_async_callback(_end, asyncio.create_task(service))
        try:
            yield Served(address, http.port, shard, running)
        finally:
            readiness.fail("providers", "shutting down")
            shard.stop()
            await running


async def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told() -> None:
        stop.set()
        watchdog = threading.Timer(_HARD_STOP_SECONDS, _end_hard)
        watchdog.daemon = True
        watchdog.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    with bound_ids(shard=config.shard_id):
        async with serving(config) as served:
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait({served.running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            _log.info("shard_stopping")
        _log.info("shard_stopped")


async def _watch(shard: Shard, readiness: Readiness) -> None:
    """Keep the readiness of the process up to date, for as long as this runs."""
    core = shard.core
    while True:
        silent = [name for name in core.settings.providers if not core.parts.supply.has_listed(name)]
        if silent and len(silent) == len(core.settings.providers):
            readiness.fail("providers", f"none has listed yet: {', '.join(silent)}")
        else:
            readiness.meet("providers")
        if core.parts.actuation.stood_down:
            readiness.fail("fencing", core.parts.actuation.stood_down)
        else:
            readiness.meet("fencing")
        if core.parts.actuation.durable:
            readiness.meet("local file")
        else:
            readiness.fail("local file", "cannot be written; no action starts")
        if why := shard.compiler.must_wait(core.size):
            readiness.fail("engine", why)
        else:
            readiness.meet("engine")
        core.metrics.engine_compiled.set(shard.compiler.walks is Walks.COMPILED)
        await asyncio.sleep(0.5)


async def _end(task: "asyncio.Task[None]") -> None:
    """Cancel the task and wait until it has ended."""
    task.cancel()
    await asyncio.wait({task})


def _end_hard() -> None:
    _log.error("shard_ended_hard", reason="something did not let itself be ended", seconds=_HARD_STOP_SECONDS)
    os._exit(1)
