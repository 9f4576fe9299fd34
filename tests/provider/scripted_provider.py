"""A real gRPC server on loopback whose every answer a test writes, and a client that waits for nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from bigfleet.provider.client import ProviderClient
from bigfleet.provider.fencing import Fencing
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
