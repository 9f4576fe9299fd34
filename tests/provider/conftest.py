"""A real gRPC server on loopback whose every answer a test writes, and a client that waits for nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from bigfleet.provider.client import PACE, ProviderClient, provider_dialer
from bigfleet.provider.fencing import Fencing
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.grpc_options import SERVER_OPTIONS
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

REQUESTS: dict[str, type[Message]] = {
    "Create": pb.CreateRequest,
    "Configure": pb.ConfigureRequest,
    "Drain": pb.DrainRequest,
    "Delete": pb.DeleteRequest,
    "Get": pb.MachineRef,
    "List": pb.ListFilter,
}

Reply = Message | bytes | grpc.StatusCode | tuple[grpc.StatusCode, str]
Behaviour = Callable[[Any], Awaitable[Reply]]


class Script(grpc.GenericRpcHandler):
    """Answers call after call: with the next scripted reply, or else as `behave` does. Keeps what it was asked."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.behave: Behaviour | None = None
        self.asked: list[tuple[str, Any]] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        method = handler_call_details.method.rpartition("/")[2]

        async def answer(raw: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
            request = REQUESTS[method].FromString(raw)
            self.asked.append((method, request))
            if self.replies:
                reply = self.replies.pop(0)
            else:
                assert self.behave is not None, f"nothing is scripted for {method}"
                reply = await self.behave(request)
            if isinstance(reply, grpc.StatusCode):
                reply = reply, "said so"
            if isinstance(reply, tuple):
                await context.abort(*reply)
            return reply if isinstance(reply, bytes) else reply.SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer)

    def tokens(self) -> list[tuple[str, int, int]]:
        """The fencing tokens of all mutating calls so far."""
        return [(r.shard_id, r.shard_epoch, r.sequence_number) for _, r in self.asked if hasattr(r, "shard_epoch")]


@dataclass
class Time:
    """A clock that only moves when somebody sleeps."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@dataclass
class Rig:
    """A client, the provider it talks to, and what can be seen of both."""

    client: ProviderClient
    script: Script
    fencing: Fencing
    time: Time
    registry: CollectorRegistry

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


MakeRig = Callable[..., AbstractAsyncContextManager[Rig]]


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
