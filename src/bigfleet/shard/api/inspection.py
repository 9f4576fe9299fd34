"""ShardRead: how the last decision left every need.

An answer is of one decision, the one that its header names: rows are collected while that decision stands and sent from
values of their own after that, so a slow peer holds up nobody.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from itertools import islice
from typing import Any, NamedTuple, Protocol

import grpc

from bigfleet.engine.records import Verdict
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.resources import quantities
from bigfleet.shard.decision.causes import CauseKind
from bigfleet.shard.sessions.outbox import STALL_SECONDS
from bigfleet.transport.identity import Role, peer_identity, refusals_abort, require
from bigfleet.wire.needs import need_to_wire
from bigfleet.wire.v1alpha1 import provider_pb2
from bigfleet.wire.v1alpha1 import shardread_pb2 as pb

MOST_NEEDS = 25_000
"""How many needs one answer may hold: the largest roll-up of a cluster. A decision waits 0.4 s while they are read."""

AT_ONCE = 8
"""How many answers may be under way at a time. Each may hold ten megabytes for as long as its peer takes."""

_SERVICE = pb.DESCRIPTOR.services_by_name["ShardRead"].full_name

_TURN = 200
"""How many verdicts are made between two turns of the event loop: 3 ms if needs are covered, 20 ms if all are short."""

_Context = grpc.aio.ServicerContext[Any, Any]


class ToldCause(NamedTuple):
    """Why the pods of a need wait, as it is told."""

    kind: CauseKind = CauseKind.NONE
    text: str = ""
    #: Since when, on the wall clock; 0 where nobody knows.
    since_unix_nanos: int = 0


class NeedAnswers(Protocol):
    """What must be known of the last decision. Times are of the wall clock, ages in decisions."""

    @property
    def cycle(self) -> int:
        """How many decisions were made since the shard's start."""

    @property
    def decided_at_unix_nanos(self) -> int:
        """When the last decision was made; 0 before the first."""

    def reading(self) -> AbstractAsyncContextManager[None]:
        """While held, no decision is made and verdicts stay valid."""

    @property
    def cycle_seconds(self) -> float:
        """How long after a decision the next one comes if demand does not change."""

    def verdict_rows(self, cluster: str) -> tuple[int, Iterator[tuple[Need, Verdict, ToldCause]]]:
        """How many needs the cluster, or all where it is empty, have; what became of each in serving order, and why."""

    def owners(self, cluster: str, key: NeedKey) -> tuple[str, ...]:
        """Some of those who ask for the row; empty where they are not known."""

    def arrival_unix_nanos(self, cluster: str, key: NeedKey) -> int:
        """When the row was first seen."""

    def unmet_age(self, cluster: str, key: NeedKey) -> int:
        """For how many decisions in a row the need has been short; 0 where it is covered."""

    def parked_age(self, cluster: str, key: NeedKey) -> int:
        """For how many decisions in a row nothing could be acquired for it, whatever was free, because its demand is
        not live or it is held out; 0 where it may acquire.
        """


class _Row(NamedTuple):
    need: Need
    verdict: Verdict
    cause: ToldCause
    owners: tuple[str, ...]
    arrival: int
    unmet_age: int
    parked_age: int


class Inspection:
    """Answers InspectNeeds over plaintext to anybody, over TLS to readonly and admin."""

    def __init__(self, answers: NeedAnswers, stall_seconds: float = STALL_SECONDS) -> None:
        self._answers, self._stall_seconds = answers, stall_seconds
        self._under_way = 0

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve it on a server not yet started."""
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(
            self._inspect, pb.InspectNeedsRequest.FromString, pb.InspectNeedsResponse.SerializeToString
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"InspectNeeds": handler}),))

    async def _inspect(self, request: pb.InspectNeedsRequest, context: _Context) -> None:
        async with refusals_abort(context):
            require(peer_identity(context), Role.READONLY, Role.ADMIN)
        if request.limit < 0:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"limit: {request.limit} is negative")
        if self._under_way >= AT_ONCE:
            text = f"{AT_ONCE} answers are under way, which is the most at a time; ask again later"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._under_way += 1
        try:
            stalled = await self._answer(request, context)
        finally:
            self._under_way -= 1
        if stalled:
            # The abort waits behind frames that the peer has not taken, so the answer must not be held meanwhile.
            text = f"no frame taken for {self._stall_seconds:g} s"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)

    async def _answer(self, request: pb.InspectNeedsRequest, context: _Context) -> bool:
        """Send the answer. Returns whether the peer stopped taking it."""
        header, rows = await self._collect(request, context)
        try:
            async with asyncio.timeout(self._stall_seconds) as patience:
                await context.write(pb.InspectNeedsResponse(header=header))
                for row in rows:
                    patience.reschedule(asyncio.get_running_loop().time() + self._stall_seconds)
                    await context.write(pb.InspectNeedsResponse(need=_view(row)))
        except TimeoutError:
            return True
        return False

    async def _collect(
        self, request: pb.InspectNeedsRequest, context: _Context
    ) -> tuple[pb.InspectNeedsHeader, list[_Row]]:
        answers = self._answers
        taken: list[_Row] = []
        async with answers.reading():
            total, rows = answers.verdict_rows(request.cluster_id)
            wanted = min(total, request.limit or total)
            if wanted > MOST_NEEDS:
                text = f"there are {total} needs and an answer holds {MOST_NEEDS}: name a cluster or a smaller limit"
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            header = pb.InspectNeedsHeader(
                cycle=answers.cycle,
                computed_at_unix_nanos=answers.decided_at_unix_nanos,
                total_needs=total,
                cycle_interval_millis=round(answers.cycle_seconds * 1000),
            )
            for need, verdict, cause in islice(rows, wanted):
                place = verdict.cluster, verdict.key
                unmet = 0 if verdict.satisfied else answers.unmet_age(*place)
                # A gang that no domain can cover acquires nothing either, for as long as it has been short.
                parked = unmet and (answers.parked_age(*place) if verdict.same_satisfiable else unmet)
                arrival = answers.arrival_unix_nanos(*place)
                taken.append(_Row(need, verdict, cause, answers.owners(*place), arrival, unmet, parked))
                if len(taken) % _TURN == 0:
                    await asyncio.sleep(0)
        return header, taken


def _view(row: _Row) -> pb.NeedView:
    verdict = row.verdict
    return pb.NeedView(
        need=need_to_wire(row.need),
        cluster_id=verdict.cluster,
        arrival_unix_nanos=row.arrival,
        profile_fingerprint=verdict.key.fingerprint,
        satisfied=verdict.satisfied,
        residual_deficit=provider_pb2.Resources(resources=quantities(verdict.residual)),
        claimed_machine_count=verdict.claimed_machines,
        bootstrap_count=verdict.bootstraps,
        provision_count=verdict.provisions,
        same_domain=",".join(verdict.domain),
        same_satisfiable=verdict.same_satisfiable,
        acquisition_parked=row.parked_age > 0,
        parked_age_cycles=row.parked_age,
        age_cycles_unmet=row.unmet_age,
        unmet_reason=pb.UnmetReason.ValueType(verdict.unmet_reason),
        cause=pb.NeedCause.ValueType(row.cause.kind),
        cause_text=row.cause.text,
        cause_since_unix_nanos=row.cause.since_unix_nanos,
        owners=row.owners,
    )
