"""Serving a provider until a signal: then it takes no more calls, finishes those that run, and ends.

Transitions that are under way are not waited for. They are durable, and the next process goes on with them.
"""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import msgspec
import structlog
from prometheus_client import CollectorRegistry

from bigfleet.providerkit.backend import Backend
from bigfleet.providerkit.provider import Provider
from bigfleet.providerkit.server.service import Service
from bigfleet.providerkit.store import Store
from bigfleet.telemetry.health import Heartbeat, Readiness
from bigfleet.telemetry.http import HealthEndpoint
from bigfleet.telemetry.metrics import ProviderMetrics
from bigfleet.transport.address import Address, TCPAddress
from bigfleet.transport.grpc_options import PROVIDER_SERVER_OPTIONS
from bigfleet.transport.identity import Role
from bigfleet.transport.listen import bind, open_listener
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSConfigError

_log = structlog.get_logger("bigfleet.providerkit")

_STOP_SECONDS = 5.0
# After a signal the process ends within this time, whatever hangs. Everything that matters is durable.
_HARD_STOP_SECONDS = 20.0


class Endpoint(msgspec.Struct, frozen=True):
    """Where a provider listens, and with which certificate. Without `metrics` there is no HTTP endpoint."""

    listen: Address
    metrics: TCPAddress | None = None
    tls: LiveTLS | None = None


class Served(msgspec.Struct, frozen=True):
    """A provider that serves, with the addresses that it got."""

    address: Address
    metrics_port: int
    provider: Provider


@asynccontextmanager
async def serving(backend: Backend, store: Store, endpoint: Endpoint) -> AsyncIterator[Served]:
    """Serve for as long as the body runs."""
    tls, listen = endpoint.tls, endpoint.listen
    if tls is not None and tls.identity.role is not Role.PROVIDER:
        raise TLSConfigError(
            f"--tls-cert {tls.files.cert}: names {tls.identity}; a provider's is bigfleet://provider/<name>"
        )
    registry, readiness, heartbeat = CollectorRegistry(), Readiness("inventory"), Heartbeat()
    metrics = ProviderMetrics(registry)
    async with AsyncExitStack() as stack:
        metrics_port = 0
        if endpoint.metrics is not None:
            http = HealthEndpoint(open_listener(endpoint.metrics), registry, readiness, heartbeat)
            metrics_port = stack.enter_context(http).port
        beating = asyncio.create_task(heartbeat.keep())
        stack.callback(beating.cancel)
        provider = await stack.enter_async_context(Provider(backend, store, metrics))
        server = grpc.aio.server(options=PROVIDER_SERVER_OPTIONS)
        service = Service(provider, metrics)
        stack.callback(service.close)
        service.add_to(server)
        port = bind(server, listen, None if tls is None else tls.server_credentials())
        await server.start()
        stack.push_async_callback(server.stop, _STOP_SECONDS)
        readiness.meet("inventory")
        address = TCPAddress(listen.host, port) if isinstance(listen, TCPAddress) else listen
        _log.info("provider_serving", address=str(address), machines=len(provider.ledger), tls=tls is not None)
        yield Served(address, metrics_port, provider)
        readiness.fail("inventory", "shutting down")


async def serve(backend: Backend, store: Store, endpoint: Endpoint) -> None:
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
    async with serving(backend, store, endpoint):
        await stop.wait()
        _log.info("provider_stopping")


def _end_hard() -> None:
    _log.error("provider_ended_hard", reason="a task did not end in time", seconds=_HARD_STOP_SECONDS)
    os._exit(1)
