"""One provider as a shard sees it: the six calls, with types of the model in and out.

Every attempt of a mutating call carries a fencing token of its own. A call is tried again only after errors that may
pass. Everything that a provider answers is checked.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from bigfleet.model.demand.profile import Requirement
from bigfleet.model.machine import Call, Machine
from bigfleet.provider.acks import misfit
from bigfleet.provider.decode import PageReader
from bigfleet.provider.errors import AckMismatchError, BrokenContractError, error_of, quoted
from bigfleet.provider.fencing import Fencing
from bigfleet.provider.records import Ack, Answer, Gathering, Listing, MachinePage, Refusal
from bigfleet.provider.walk import PageRequest, Walk
from bigfleet.telemetry.metrics import ShardMetrics
from bigfleet.transport.address import Address
from bigfleet.transport.dial import Dialer
from bigfleet.transport.grpc_options import PROVIDER_CHANNEL_OPTIONS
from bigfleet.transport.identity import Identity, Role
from bigfleet.transport.pace import Pace
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.server_check import DialError
from bigfleet.wire.errors import MachineRefusedError
from bigfleet.wire.machines import machine_from_wire
from bigfleet.wire.needs import requirements_to_wire
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

_log = structlog.get_logger("bigfleet.provider")

M = TypeVar("M", bound=Message)

CALL_SECONDS = 30.0
"""What one attempt of a lifecycle call or a Get may take."""

LIST_SECONDS = 120.0
"""What one attempt of a List may take."""

ATTEMPTS = 4
"""How often a call is sent at most."""

PACE = Pace(first_wait=0.25, longest_wait=5.0, certain=0.0)
"""The waits between two attempts. Nothing of them is certain: shards that a provider failed together spread out."""

PAGE_ROWS = 10_000
"""Machines asked for in one answer to List: some 5 MB, which take half a second to read."""

# All attempts of a call together may take so many times as long as one attempt.
_PATIENCE = 2
_RETRIED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_READS = frozenset({"Get", "List"})
_SERVICE = pb.DESCRIPTOR.services_by_name["CapacityProvider"].full_name
# More than any shard holds. A provider whose list never ends must not fill the memory.
_MOST_MACHINES = 5_000_000
_MOST_CURSOR_BYTES = 64 * 1024
# Refused records of one answer that are logged; all of them are counted.
_LOGGED_REFUSALS = 10
# Characters of a provider's text that a log line holds.
_SHOWN = 200


def provider_dialer(name: str, address: Address, tls: LiveTLS | None) -> Dialer:
    """A dialer for a provider. Over TLS the server must be the provider of that name."""
    return Dialer(address, Identity(Role.PROVIDER, name), tls, PROVIDER_CHANNEL_OPTIONS)


class ProviderClient:
    """The calls of one provider. Errors are those of `provider.errors`; cancelling a call ends it at once."""

    def __init__(
        self,
        name: str,
        dialer: Dialer,
        fencing: Fencing,
        metrics: ShardMetrics,
        *,
        pace: Pace = PACE,
        attempts: int = ATTEMPTS,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        self.name = name
        self._dialer, self._fencing, self._metrics = dialer, fencing, metrics
        self._pace, self._attempts, self._page_rows = pace, attempts, page_rows

    async def create(self, machine_id: str) -> Ack:
        """Ask the provider to create a speculative machine."""
        return await self._mutate(Call.CREATE, machine_id, pb.CreateRequest)

    async def configure(
        self, machine_id: str, cluster_id: str, bootstrap_blob: bytes, shard_metadata: Mapping[str, str]
    ) -> Ack:
        """Ask for an idle machine to join a cluster, and for the metadata to be kept with the machine."""
        request = partial(
            pb.ConfigureRequest, cluster_id=cluster_id, bootstrap_blob=bootstrap_blob, shard_metadata=shard_metadata
        )
        return await self._mutate(Call.CONFIGURE, machine_id, request, cluster_id, shard_metadata)

    async def drain(self, machine_id: str, grace_seconds: int) -> Ack:
        """Ask for a machine to leave its cluster."""
        return await self._mutate(Call.DRAIN, machine_id, partial(pb.DrainRequest, grace_period_seconds=grace_seconds))

    async def delete(self, machine_id: str) -> Ack:
        """Ask the provider to take an idle machine back."""
        return await self._mutate(Call.DELETE, machine_id, pb.DeleteRequest)

    async def get(self, machine_id: str) -> Answer:
        """One machine as it is now."""
        sent = pb.MachineRef(id=machine_id).SerializeToString()
        raw = await self._call("Get", machine_id, lambda: sent, CALL_SECONDS)
        return Answer(*self._record("Get", machine_id, self._decoded("Get", machine_id, pb.Machine, raw)))

    async def list(self, since: bytes = b"", selector: Sequence[Requirement] = ()) -> Listing:
        """What changed after the cursor or, without one, every machine; a provider may ignore the selector."""
        began = self._pace.clock()
        gathering = Gathering()
        cursor = b""
        async with aclosing(self.pages(since, selector)) as pages:
            async for page in pages:
                gathering.add(page)
                cursor = page.revision
                if len(gathering.machines) > _MOST_MACHINES:
                    problem = f"it lists more than {_MOST_MACHINES:,} machines, and does not end"
                    raise BrokenContractError(self.name, "List", "", problem)
        return gathering.listing(cursor, full=not since, began=began)

    async def pages(
        self, since: bytes = b"", selector: Sequence[Requirement] = ()
    ) -> AsyncGenerator[MachinePage, None]:
        """What `list` gives, page by page. A later row about a machine replaces an earlier one."""
        walk = Walk(since, self._page_rows)
        while walk.request is not None:
            page = await self._page(walk.request, selector)
            walk.take(page.ids(), page.rows, page.revision)
            yield page

    async def close(self) -> None:
        """Close the connection. Calls that run would dial anew, so cancel them first."""
        await self._dialer.hang_up()

    async def _mutate(
        self,
        call: Call,
        machine_id: str,
        request: Callable[..., Message],
        cluster_id: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> Ack:
        method = call.value

        def sent() -> bytes:
            token = self._fencing.token()
            fenced = request(
                machine_id=machine_id,
                shard_id=token.shard_id,
                shard_epoch=token.epoch,
                sequence_number=token.sequence,
            )
            return fenced.SerializeToString()

        raw = await self._call(method, machine_id, sent, CALL_SECONDS)
        message = self._decoded(method, machine_id, pb.TransitionAck, raw)
        if not message.HasField("machine"):
            raise self._broken(method, machine_id, "machine", "is missing from the ack")
        ack = Ack(message.operation_id, *self._record(method, machine_id, message.machine))
        if not ack.operation_id:
            # The transition runs all the same; its end shows in the machine's state.
            self._report(Refusal(machine_id, "structural", "operation_id", "is empty"), method)
        problem = misfit(call, ack.machine, cluster_id, metadata)
        if problem is not None:
            raise AckMismatchError(self.name, method, ack, problem)
        return ack

    def _record(self, method: str, machine_id: str, message: pb.Machine) -> tuple[Machine, Refusal | None]:
        """The machine in an answer. With a bad price or probability, the rest of the record is taken."""
        if message.id != machine_id:
            raise self._broken(method, machine_id, "id", f"the answer is about machine {quoted(message.id)}")
        try:
            return machine_from_wire(message), None
        except MachineRefusedError as error:
            refusal = Refusal.of(error)
            self._refuse((refusal,), method)
            if refusal.rest is None:
                raise BrokenContractError(self.name, method, machine_id, f"{refusal.field}: {refusal.rule}") from None
            return refusal.rest, refusal

    async def _page(self, request: PageRequest, selector: Sequence[Requirement]) -> MachinePage:
        sent = pb.ListFilter(
            max_results=request.limit, since_revision=request.since, label_selector=requirements_to_wire(selector)
        ).SerializeToString()
        raw = await self._call("List", "", lambda: sent, LIST_SECONDS)
        reader = PageReader(raw)
        try:
            while await asyncio.to_thread(reader.step):
                pass
        except DecodeError:
            raise self._broken("List", "", "answer", "is no MachineList") from None
        page = await asyncio.to_thread(reader.page)
        if len(page.revision) > _MOST_CURSOR_BYTES:
            raise self._broken("List", "", "revision", f"has {len(page.revision):,} bytes")
        self._refuse(page.refused, "List")
        return page

    async def _call(self, method: str, machine_id: str, sent: Callable[[], bytes], deadline: float) -> bytes:
        """The bytes of the answer, after several attempts where that may help. `sent` makes each attempt's request."""
        clock, attempt = self._pace.clock, 0
        ends = clock() + _PATIENCE * deadline
        while True:
            attempt += 1
            began = clock()
            try:
                return await self._attempt(method, sent(), min(deadline, ends - began))
            except grpc.aio.AioRpcError as error:
                code, words = error.code(), error.details() or ""
            except DialError as error:
                code, words = grpc.StatusCode.UNAVAILABLE, str(error)
            finally:
                self._metrics.provider_rpc_duration.of(self.name, method).observe(clock() - began)
            self._metrics.provider_rpc_errors.of(self.name, method, code.name).inc()
            wait = self._pace.wait(attempt)
            if code not in _RETRIED or attempt >= self._attempts or clock() + wait >= ends:
                break
            await self._pace.sleep(wait)
        problem = f"{code.name} {quoted(words)}" + (f" after {attempt} attempts" if attempt > 1 else "")
        if code is grpc.StatusCode.FAILED_PRECONDITION and method in _READS:
            problem = f"{problem}, though reads are never fenced"
            raise BrokenContractError(self.name, method, machine_id, problem, code.name)
        raise error_of(code)(self.name, method, machine_id, problem, code.name)

    async def _attempt(self, method: str, sent: bytes, deadline: float) -> bytes:
        try:
            channel = await self._dialer.channel()
            # Messages stay bytes here, because lists are decoded off the event loop.
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{_SERVICE}/{method}")
            return await call(sent, timeout=deadline)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # This task was not cancelled: the channel was closed during the call.
            raise DialError(self._dialer.address, "the connection was closed during the call") from None

    def _decoded(self, method: str, machine_id: str, kind: type[M], raw: bytes) -> M:
        try:
            return kind.FromString(raw)
        except DecodeError:
            raise self._broken(method, machine_id, "answer", f"is no {kind.DESCRIPTOR.name}") from None

    def _broken(self, method: str, machine_id: str, field: str, rule: str) -> BrokenContractError:
        self._report(Refusal(machine_id, "structural", field, rule), method)
        return BrokenContractError(self.name, method, machine_id, f"{field}: {rule}")

    def _refuse(self, refused: Sequence[Refusal], method: str) -> None:
        for reason, count in Counter(refusal.reason for refusal in refused).items():
            self._metrics.machines_rejected.of(reason).inc(count)
        for refusal in refused[:_LOGGED_REFUSALS]:
            self._report(refusal, method)
        if len(refused) > _LOGGED_REFUSALS:
            _log.warning("provider_refusals_not_shown", provider=self.name, count=len(refused) - _LOGGED_REFUSALS)

    def _report(self, refusal: Refusal, method: str) -> None:
        _log.warning(
            "provider_broke_contract",
            provider=self.name,
            method=method,
            machine=refusal.machine_id[:_SHOWN],
            field=refusal.field[:_SHOWN],
            rule=refusal.rule,
        )
