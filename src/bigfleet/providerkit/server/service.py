"""The six calls over gRPC: checks of form and identity, and the contract's codes for refusals."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError, Message

from bigfleet.model.machine import Call
from bigfleet.providerkit.ledger.fence import Mark, Token
from bigfleet.providerkit.ledger.ledger import (
    FencedError,
    IllegalError,
    RefusedError,
    Request,
    UnknownMachineError,
    UnsupportedError,
)
from bigfleet.providerkit.ledger.render import Renderer
from bigfleet.providerkit.ledger.selector import Selector, problem
from bigfleet.providerkit.offer import MAX_ID_BYTES
from bigfleet.providerkit.provider import Provider
from bigfleet.providerkit.store import StateError
from bigfleet.telemetry.metrics import ProviderMetrics
from bigfleet.transport.identity import (
    IdentityError,
    NotPermittedError,
    Role,
    peer_identity,
    require,
    require_fencing_owner,
)
from bigfleet.wire.errors import WireError
from bigfleet.wire.needs import requirements_from_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

MAX_BLOB_BYTES = 1 << 20
MAX_METADATA_BYTES = 256 << 10
_SERVICE = "bigfleet.v1alpha1.CapacityProvider"
# A longer list is encoded in a thread, so that other calls are answered meanwhile.
_LONG_LIST = 2_000
_RENDER_THREADS = 2
_MOST_DETAIL_CHARACTERS = 500

_Context = grpc.aio.ServicerContext[Any, Any]


class _Fenced(Protocol):
    machine_id: str
    shard_id: str
    shard_epoch: int
    sequence_number: int


class InvalidError(RefusedError):
    """A malformed request. The text names the field."""


_CODES: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (InvalidError, grpc.StatusCode.INVALID_ARGUMENT),
    (WireError, grpc.StatusCode.INVALID_ARGUMENT),
    (FencedError, grpc.StatusCode.FAILED_PRECONDITION),
    (UnknownMachineError, grpc.StatusCode.NOT_FOUND),
    (UnsupportedError, grpc.StatusCode.UNIMPLEMENTED),
    (IllegalError, grpc.StatusCode.ABORTED),
    (StateError, grpc.StatusCode.UNAVAILABLE),
    (IdentityError, grpc.StatusCode.PERMISSION_DENIED),
    (NotPermittedError, grpc.StatusCode.PERMISSION_DENIED),
)
_REFUSALS = tuple(kind for kind, _ in _CODES)


class Service:
    """Answers the calls of one provider, with bytes that the renderer makes."""

    def __init__(self, provider: Provider, metrics: ProviderMetrics) -> None:
        self._provider, self._metrics = provider, metrics
        self._render = Renderer(provider.scheme)
        # Not the event loop's own threads: blocking calls of a backend may have taken all of those.
        self._renderers = ThreadPoolExecutor(_RENDER_THREADS, thread_name_prefix="render")

    def add_to(self, server: grpc.aio.Server) -> None:
        """Add the six calls to a server that has not started yet."""
        answers: Mapping[str, tuple[type[Message], Callable[[Any, _Context], Awaitable[bytes]]]] = {
            "Create": (pb.CreateRequest, self._create),
            "Configure": (pb.ConfigureRequest, self._configure),
            "Drain": (pb.DrainRequest, self._drain),
            "Delete": (pb.DeleteRequest, self._delete),
            "Get": (pb.MachineRef, self._get),
            "List": (pb.ListFilter, self._list),
        }
        handlers: dict[str, grpc.RpcMethodHandler[Any, bytes]] = {
            method: grpc.unary_unary_rpc_method_handler(self._answering(method, message, answer))
            for method, (message, answer) in answers.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))

    def _answering(
        self, method: str, message: type[Message], answer: Callable[[Any, _Context], Awaitable[bytes]]
    ) -> Callable[[bytes, _Context], Awaitable[bytes]]:
        observe = self._metrics.call_duration.of(method).observe
        count = self._metrics.calls.of

        async def answering(raw: bytes, context: _Context) -> bytes:
            began = time.perf_counter()
            code = grpc.StatusCode.INTERNAL
            try:
                result = await answer(_decoded(message, raw), context)
                code = grpc.StatusCode.OK
            except _REFUSALS as error:
                code = next(code for kind, code in _CODES if isinstance(error, kind))
                await context.abort(code, _said(error))
            finally:
                observe(time.perf_counter() - began)
                count(method, code.name).inc()
            return result

        return answering

    async def _create(self, request: pb.CreateRequest, context: _Context) -> bytes:
        return await self._ask(Request(call=Call.CREATE, machine=request.machine_id, mark=_mark(request, context)))

    async def _configure(self, request: pb.ConfigureRequest, context: _Context) -> bytes:
        mark = _mark(request, context)
        _check_id("cluster_id", request.cluster_id)
        if len(request.bootstrap_blob) > MAX_BLOB_BYTES:
            raise InvalidError(
                f"bootstrap_blob: {len(request.bootstrap_blob)} bytes, at most {MAX_BLOB_BYTES} are taken"
            )
        metadata = dict(request.shard_metadata)
        size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())
        if size > MAX_METADATA_BYTES:
            raise InvalidError(f"shard_metadata: {size} bytes, at most {MAX_METADATA_BYTES} are taken")
        asked = Request(
            call=Call.CONFIGURE,
            machine=request.machine_id,
            mark=mark,
            cluster=request.cluster_id,
            metadata=metadata,
        )
        return await self._ask(asked, request.bootstrap_blob)

    async def _drain(self, request: pb.DrainRequest, context: _Context) -> bytes:
        mark = _mark(request, context)
        grace = request.grace_period_seconds
        if grace < 0:
            raise InvalidError(f"grace_period_seconds: {grace} is negative")
        return await self._ask(Request(call=Call.DRAIN, machine=request.machine_id, mark=mark, grace_seconds=grace))

    async def _delete(self, request: pb.DeleteRequest, context: _Context) -> bytes:
        return await self._ask(Request(call=Call.DELETE, machine=request.machine_id, mark=_mark(request, context)))

    async def _ask(self, request: Request, blob: bytes = b"") -> bytes:
        ack = await self._provider.ask(request, blob)
        return self._render.ack(ack.operation_id, ack.entry)

    async def _get(self, request: pb.MachineRef, context: _Context) -> bytes:
        _check_reader(context)
        _check_id("id", request.id)
        return self._render.machine(self._provider.ledger.get(request.id))

    async def _list(self, request: pb.ListFilter, context: _Context) -> bytes:
        _check_reader(context)
        if request.max_results < 0:
            raise InvalidError(f"max_results: {request.max_results} is negative")
        requirements = requirements_from_wire(request.label_selector, "label_selector")
        if fault := problem(requirements):
            raise InvalidError(f"label_selector: {fault}")
        # An unknown number is no machine's state and selects nothing. Dropped, it would select everything.
        states = frozenset(request.states)
        wanted = Selector(states, requirements).admits
        entries, cursor = self._provider.ledger.changed(request.since_revision, request.max_results, wanted)
        if len(entries) < _LONG_LIST:
            return self._render.machines(entries, cursor)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._renderers, self._render.machines, entries, cursor)

    def close(self) -> None:
        """End the threads."""
        self._renderers.shutdown(wait=False, cancel_futures=True)


def _decoded(kind: type[Message], raw: bytes) -> Message:
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise InvalidError(f"the bytes of the request are no {kind.DESCRIPTOR.name}") from None


def _check_reader(context: _Context) -> None:
    require(peer_identity(context), Role.SHARD, Role.READONLY, Role.ADMIN)


def _check_id(field: str, value: str) -> None:
    if not value:
        raise InvalidError(f"{field}: is empty")
    if len(value.encode()) > MAX_ID_BYTES:
        raise InvalidError(f"{field}: is longer than {MAX_ID_BYTES} bytes")


def _mark(request: _Fenced, context: _Context) -> Mark | None:
    """Check the request's fencing token and its owner, and return it. None if the request has no token."""
    _check_id("machine_id", request.machine_id)
    epoch, sequence = request.shard_epoch, request.sequence_number
    for field, value in (("shard_epoch", epoch), ("sequence_number", sequence)):
        if value < 0:
            raise InvalidError(f"{field}: {value} is negative")
    require_fencing_owner(peer_identity(context), request.shard_id)
    if request.shard_id:
        _check_id("shard_id", request.shard_id)
        return Mark(request.machine_id, request.shard_id, Token(epoch, sequence))
    if epoch or sequence:
        raise InvalidError("shard_id: is empty, but the request carries a token")
    return None


def _said(error: Exception) -> str:
    return str(error)[:_MOST_DETAIL_CHARACTERS]
