"""ShardAdmin: what a person asks of one shard and tells it to do."""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, Protocol

import grpc
import msgspec
import structlog

from bigfleet.engine.records import Kind
from bigfleet.model.machine import MachineState
from bigfleet.shard.demand.table import ForgetError
from bigfleet.transport.identity import Role, peer_identity, refusals_abort, require
from bigfleet.wire.v1alpha1 import shardadmin_pb2 as pb
from bigfleet.wire.v1alpha1.shardadmin_pb2_grpc import ShardAdminServicer, add_ShardAdminServicer_to_server

MOST_REASON = 1000
"""How many characters the reason for a pause may have."""

_log = structlog.get_logger("bigfleet.shard")

_Context = grpc.aio.ServicerContext[Any, Any]


class ClusterStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster, as an admin sees it."""

    id: str
    #: Whether its operator has a session.
    connected: bool
    #: Whether its demand may acquire and give back.
    live: bool
    #: Whether a roll-up was accepted since the shard's start.
    reported: bool
    #: Whether the last roll-up said that it does not name all pods.
    partial: bool
    #: Whether an admin withdrew its demand for good.
    forgotten: bool
    #: Whether a doubtful roll-up waits for confirmation.
    quarantined: bool
    #: For how long it has had no session; 0 while it has one.
    seconds_away: float
    #: How many rows it asks for.
    needs: int
    #: How many of these the last decision left short.
    needs_short: int
    #: How many machines are bound to it or meant for it.
    machines: int


class ProviderStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One provider, as an admin sees it."""

    name: str
    #: Whether the provider answered when it was last asked for a list.
    reachable: bool
    #: How many seconds ago a List last ended well; None if none did since the shard's start.
    since_list: float | None
    #: Why the last List failed; empty where it did not.
    last_error: str
    #: How many machines the provider has.
    machines: int


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The shard, as an admin sees it."""

    shard_id: str
    epoch: int
    cycle: int
    decided_at_unix_nanos: int
    #: How many machines are in each state.
    machines: Mapping[MachineState, int]
    providers: tuple[ProviderStanding, ...]
    #: How many commitments there are of each kind.
    in_flight: Mapping[Kind, int]
    #: Why the shard is paused; empty where it is not. A pause by flag has a reason too.
    paused: str
    dry_run: bool
    #: Why the shard has stood down; empty where it has not.
    fenced: str
    #: How the decision engine runs: compiled, or interpreted and why.
    engine: str
    #: Why no decision is made until the engine is compiled; empty where decisions are made.
    waits_for_engine: str
    #: Why the local file cannot be written; empty where it can.
    file_problem: str
    #: Since when it cannot; 0 where it can.
    file_lost_unix_nanos: int


class AdminAnswers(Protocol):
    """What an admin may see and change of the shard.

    A change is durable when its method returns. Where the change cannot be written down, the method raises OSError and
    nothing has changed.
    """

    def status(self) -> ShardStatus:
        """The state of the shard."""

    def clusters(self) -> Iterable[ClusterStanding]:
        """Every cluster that the shard knows, forgotten ones that still have machines among them."""

    async def pause(self, reason: str) -> bool:
        """Send no mutating call and no new instruction (protocol rule 18). Returns whether it was paused before."""

    async def resume(self) -> bool:
        """Act again. Returns whether the shard was paused before."""

    async def forget(self, cluster_id: str) -> int:
        """Withdraw a cluster's demand (protocol rule 11), or raise ForgetError. Returns how many machines it has."""


class Admin(ShardAdminServicer):
    """The ShardAdmin service. Over TLS it answers admin, and readonly where nothing changes; over plaintext anybody."""

    def __init__(self, answers: AdminAnswers) -> None:
        self._answers = answers

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve it on a server not yet started."""
        add_ShardAdminServicer_to_server(self, server)

    async def SetActuation(  # noqa: N802 - a name on the wire
        self, request: pb.SetActuationRequest, context: _Context
    ) -> pb.SetActuationResponse:
        """Pause or resume."""
        admin = await _admitted(context, Role.ADMIN)
        reason = request.reason.strip()
        if request.paused and not 0 < len(reason) <= MOST_REASON:
            text = f"reason: a pause needs one of 1 to {MOST_REASON} characters, found {len(reason)}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        try:
            was_paused = await (self._answers.pause(reason) if request.paused else self._answers.resume())
        except OSError as error:
            await _not_durable(context, error)
        _log.warning("actuation_set", paused=request.paused, reason=reason, was_paused=was_paused, by=admin)
        return pb.SetActuationResponse(was_paused=was_paused)

    async def ForgetCluster(  # noqa: N802 - a name on the wire
        self, request: pb.ForgetClusterRequest, context: _Context
    ) -> pb.ForgetClusterResponse:
        """Forget a cluster."""
        admin = await _admitted(context, Role.ADMIN)
        cluster_id = request.cluster_id
        if not cluster_id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "cluster_id: is empty")
        try:
            machines = await self._answers.forget(cluster_id)
        except ForgetError as error:
            known = any(cluster.id == cluster_id for cluster in self._answers.clusters())
            code = grpc.StatusCode.FAILED_PRECONDITION if known else grpc.StatusCode.NOT_FOUND
            await context.abort(code, str(error)[:500])
        except OSError as error:
            await _not_durable(context, error)
        _log.warning("cluster_forgotten", cluster=cluster_id, machines=machines, by=admin)
        return pb.ForgetClusterResponse(machines=machines)

    async def ListClusters(  # noqa: N802 - a name on the wire
        self,
        request: pb.ShardAdminListClustersRequest,  # noqa: ARG002 - has no field
        context: _Context,
    ) -> pb.ShardAdminListClustersResponse:
        """Every cluster."""
        await _admitted(context, Role.READONLY, Role.ADMIN)
        clusters = sorted(self._answers.clusters(), key=lambda cluster: cluster.id)
        return pb.ShardAdminListClustersResponse(clusters=map(_cluster_to_wire, clusters))

    async def GetStatus(  # noqa: N802 - a name on the wire
        self,
        request: pb.GetStatusRequest,  # noqa: ARG002 - has no field
        context: _Context,
    ) -> pb.GetStatusResponse:
        """The state of the shard."""
        await _admitted(context, Role.READONLY, Role.ADMIN)
        status = self._answers.status()
        return pb.GetStatusResponse(
            shard_id=status.shard_id,
            epoch=status.epoch,
            cycle=status.cycle,
            decided_at_unix_nanos=status.decided_at_unix_nanos,
            machines_by_state={state.label: count for state, count in status.machines.items() if count},
            providers=map(_provider_to_wire, sorted(status.providers, key=lambda provider: provider.name)),
            actions_in_flight={kind.value: count for kind, count in status.in_flight.items() if count},
            actuation_paused=bool(status.paused),
            pause_reason=status.paused,
            dry_run=status.dry_run,
            fenced_reason=status.fenced,
            engine=status.engine,
            waits_for_engine=status.waits_for_engine,
            local_file_error=status.file_problem,
            local_file_error_since_unix_nanos=status.file_lost_unix_nanos,
        )


async def _admitted(context: _Context, *roles: Role) -> str:
    """Who calls, if that is one of these roles. Over plaintext only the address of the caller is known."""
    async with refusals_abort(context):
        peer = peer_identity(context)
        require(peer, *roles)
    return context.peer() if peer is None else str(peer)


async def _not_durable(context: _Context, error: OSError) -> NoReturn:
    text = f"nothing has changed: it could not be written down: {error.strerror or error}"
    await context.abort(grpc.StatusCode.UNAVAILABLE, text[:500])


def _cluster_to_wire(cluster: ClusterStanding) -> pb.ClusterStanding:
    return pb.ClusterStanding(
        cluster_id=cluster.id,
        connected=cluster.connected,
        live=cluster.live,
        reported=cluster.reported,
        partial=cluster.partial,
        forgotten=cluster.forgotten,
        quarantined=cluster.quarantined,
        seconds_away=int(cluster.seconds_away),
        needs=cluster.needs,
        needs_short=cluster.needs_short,
        machines=cluster.machines,
    )


def _provider_to_wire(provider: ProviderStanding) -> pb.ProviderStanding:
    return pb.ProviderStanding(
        name=provider.name,
        reachable=provider.reachable,
        listed=provider.since_list is not None,
        seconds_since_list=int(provider.since_list or 0),
        last_error=provider.last_error,
        machines=provider.machines,
    )
