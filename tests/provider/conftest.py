"""Providers whose every answer a test writes, and clients of theirs that wait for nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from bigfleet.provider.client import PACE, ProviderClient, provider_dialer
from bigfleet.provider.fencing import Fencing
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.grpc_options import SERVER_OPTIONS
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.provider.scripted_provider import (
    MakeRig,
    Rig,
    Script,
    Time,
)


@pytest.fixture
def make_rig() -> MakeRig:
    """`async with make_rig(page_rows=3) as rig`."""

    @asynccontextmanager
    async def making(
        *,
        page_rows: int = 1000,
        attempts: int = 4,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        server_tls: LiveTLS | None = None,
        client_tls: LiveTLS | None = None,
    ) -> AsyncIterator[Rig]:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        script = Script()
        server.add_generic_rpc_handlers((script,))
        credentials = None if server_tls is None else server_tls.server_credentials()
        port = bind(server, TCPAddress("127.0.0.1", 0), credentials)
        await server.start()
        time, registry, fencing = Time(), CollectorRegistry(), Fencing("s1", 7)
        pace = replace(PACE, dice=lambda: 1.0, sleep=sleep or time.sleep, clock=lambda: time.now)
        dialer = provider_dialer("acme", TCPAddress("127.0.0.1", port), client_tls)
        client = ProviderClient(
            "acme", dialer, fencing, ShardMetrics(registry), pace=pace, attempts=attempts, page_rows=page_rows
        )
        try:
            yield Rig(client, script, fencing, time, registry)
        finally:
            await client.close()
            await server.stop(None)

    return making


@pytest.fixture
async def rig(make_rig: MakeRig) -> AsyncIterator[Rig]:
    async with make_rig() as made:
        yield made


@pytest.fixture
def record() -> Callable[..., pb.Machine]:
    """`record("m-1", state=..., ...)`: a record that fits its state unless a field says otherwise."""

    def recording(machine_id: str, state: int = pb.MACHINE_STATE_IDLE, **fields: Any) -> pb.Machine:
        hosted = state not in (pb.MACHINE_STATE_SPECULATIVE, pb.MACHINE_STATE_CREATING)
        bound = state in (pb.MACHINE_STATE_CONFIGURING, pb.MACHINE_STATE_CONFIGURED, pb.MACHINE_STATE_DRAINING)
        message = pb.Machine(
            id=machine_id,
            state=pb.MachineState.ValueType(state),
            host=pb.HostRef(provider="acme", ref=f"host-{machine_id}") if hosted else None,
            instance_type="c8",
            capacity_type=pb.CAPACITY_TYPE_ON_DEMAND,
            price_per_hour=1.5,
            interruption_probability=0.25,
            cluster="prod" if bound else "",
            last_error="broke" if state == pb.MACHINE_STATE_FAILED else "",
        )
        message.MergeFrom(pb.Machine(**fields))
        return message

    return recording
