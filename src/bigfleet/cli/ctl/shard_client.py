"""Calls to a shard over one connection. A refusal becomes an error that a person can act on."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated

import grpc
import msgspec
import typer

from bigfleet.cli.ctl.need_words import InspectedNeed, inspected_need, waits
from bigfleet.cli.program import InputError
from bigfleet.model.resources import ResourceError
from bigfleet.transport.address import Address, dial_address
from bigfleet.transport.dial import Dialer
from bigfleet.transport.grpc_options import CHANNEL_OPTIONS
from bigfleet.transport.identity import Role
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSFiles
from bigfleet.wire.errors import WireError
from bigfleet.wire.v1alpha1 import shardadmin_pb2 as admin
from bigfleet.wire.v1alpha1 import shardread_pb2 as read
from bigfleet.wire.v1alpha1.shardadmin_pb2_grpc import ShardAdminStub
from bigfleet.wire.v1alpha1.shardread_pb2_grpc import ShardReadStub

ShardFlag = Annotated[
    str, typer.Option("--shard", envvar="BIGFLEET_SHARD", help="The shard to ask: HOST:PORT or unix:PATH.")
]
CertFlag = Annotated[
    str | None, typer.Option("--tls-cert", help="Certificate chain, PEM; all three TLS files or none.")
]
KeyFlag = Annotated[str | None, typer.Option("--tls-key", help="Its private key, PEM.")]
CAFlag = Annotated[str | None, typer.Option("--tls-ca", help="The CA bundle that the shard is checked against, PEM.")]

DEFAULT_SHARD = "127.0.0.1:7780"

_CALL_SECONDS = 30.0
_STREAM_SECONDS = 300.0


class Target(msgspec.Struct, frozen=True):
    """The shard that is asked, and the certificate with which it is asked."""

    address: Address
    tls: LiveTLS | None
    """Our certificate; None for a connection without TLS."""

    @classmethod
    def from_flags(cls, shard: str, cert: str | None, key: str | None, ca: str | None) -> "Target":
        """The shard that the flags name; raises an error of the command line where a flag is wrong."""
        files = TLSFiles.from_flags(cert, key, ca)
        return cls(dial_address(shard), None if files is None else LiveTLS.start(files))


class ShardState(msgspec.Struct, frozen=True):
    """What explains a need beside the need itself: the shard's status, and how it sees each cluster."""

    status: admin.GetStatusResponse
    clusters: dict[str, admin.ClusterStanding]


class InspectedNeeds(msgspec.Struct, frozen=True):
    """The needs that were asked for, and the state of the shard where it tells of it."""

    header: read.InspectNeedsHeader
    needs: list[InspectedNeed]
    shard_state: ShardState | None
    #: How many needs are covered by machines that do not serve yet, those that are not shown among them.
    waiting: int = 0


async def inspect_needs(target: Target, cluster: str, limit: int, *, unmet: bool) -> InspectedNeeds:
    """Ask for needs, at most `limit` of them unless it is 0; with `unmet`, only for those that are short."""
    async with _channel(target) as channel:
        shard_state = await _shard_state(target, ShardAdminStub(channel))
        # The shard counts all needs against its limit; here only those that are shown count.
        request = read.InspectNeedsRequest(cluster_id=cluster, limit=0 if unmet else limit)
        header, needs, waiting = read.InspectNeedsHeader(), list[InspectedNeed](), 0
        with _refusals(target):
            call = ShardReadStub(channel).InspectNeeds(request, timeout=_STREAM_SECONDS)
            async for frame in call:
                if frame.WhichOneof("frame") == "header":
                    header = frame.header
                    continue
                waiting += waits(frame.need)
                if not (unmet and frame.need.satisfied):
                    needs.append(_read(target, frame.need))
                    if len(needs) == limit:
                        call.cancel()
                        break
    return InspectedNeeds(header, needs, shard_state, waiting)


async def list_clusters(target: Target) -> list[admin.ClusterStanding]:
    """Every cluster that the shard knows."""
    async with _channel(target) as channel:
        with _refusals(target):
            request = admin.ShardAdminListClustersRequest()
            return list((await ShardAdminStub(channel).ListClusters(request, timeout=_CALL_SECONDS)).clusters)


async def get_status(target: Target) -> admin.GetStatusResponse:
    """The status of the shard."""
    async with _channel(target) as channel:
        with _refusals(target):
            return await ShardAdminStub(channel).GetStatus(admin.GetStatusRequest(), timeout=_CALL_SECONDS)


async def set_actuation(target: Target, *, paused: bool, reason: str = "") -> bool:
    """Pause or resume the shard; returns whether it was paused before."""
    request = admin.SetActuationRequest(paused=paused, reason=reason)
    async with _channel(target) as channel:
        with _refusals(target):
            return (await ShardAdminStub(channel).SetActuation(request, timeout=_CALL_SECONDS)).was_paused


async def forget_cluster(target: Target, cluster: str) -> int:
    """Withdraw a cluster's demand; returns how many machines the cluster has."""
    request = admin.ForgetClusterRequest(cluster_id=cluster)
    async with _channel(target) as channel:
        with _refusals(target):
            return (await ShardAdminStub(channel).ForgetCluster(request, timeout=_CALL_SECONDS)).machines


@asynccontextmanager
async def _channel(target: Target) -> AsyncIterator[grpc.aio.Channel]:
    dialer = Dialer(target.address, Role.SHARD, target.tls, CHANNEL_OPTIONS)
    try:
        yield await dialer.channel()
    finally:
        await dialer.hang_up()


async def _shard_state(target: Target, stub: ShardAdminStub) -> ShardState | None:
    """The shard's status and clusters; None where a shard that is not ours has no ShardAdmin service."""
    with _refusals(target):
        try:
            status = await stub.GetStatus(admin.GetStatusRequest(), timeout=_CALL_SECONDS)
            listed = await stub.ListClusters(admin.ShardAdminListClustersRequest(), timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise
    return ShardState(status, {cluster.cluster_id: cluster for cluster in listed.clusters})


def _read(target: Target, view: read.NeedView) -> InspectedNeed:
    try:
        return inspected_need(view)
    except (WireError, ResourceError) as error:
        raise InputError(f"the shard at {target.address} tells of a need that cannot be read: {error}") from None


@contextmanager
def _refusals(target: Target) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            problem = "it does not know this call; is it a shard, and not an older one?"
        else:
            problem = error.details() or "it gives no reason"
        raise InputError(f"the shard at {target.address}: {error.code().name}: {problem}") from None
