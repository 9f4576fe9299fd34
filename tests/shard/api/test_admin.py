"""ShardAdmin over real gRPC on loopback. The books are a fake that records what it is told, with no shard."""

import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from bigfleet.engine.records import Kind
from bigfleet.model.machine import MachineState
from bigfleet.shard.api.admin import MOST_REASON, Admin, ClusterStanding, ProviderStanding, ShardStatus
from bigfleet.shard.demand.table import ForgetError
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.dial import Dialer
from bigfleet.transport.grpc_options import CHANNEL_OPTIONS, SERVER_OPTIONS
from bigfleet.transport.identity import Role
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from bigfleet.wire.v1alpha1 import shardadmin_pb2 as pb
from bigfleet.wire.v1alpha1.shardadmin_pb2_grpc import ShardAdminStub

OK, DENIED = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED


def standing(cluster: str, **fields: Any) -> ClusterStanding:
    said: dict[str, Any] = {
        "connected": False,
        "live": False,
        "reported": True,
        "partial": False,
        "forgotten": False,
        "quarantined": False,
        "seconds_away": 90.5,
        "needs": 4,
        "needs_short": 1,
        "machines": 12,
    }
    return ClusterStanding(id=cluster, **said | fields)


STATUS = ShardStatus(
    shard_id="eu-1",
    epoch=7,
    cycle=412,
    decided_at_unix_nanos=1_700_000_000_000_000_000,
    machines={MachineState.CONFIGURED: 10, MachineState.IDLE: 2, MachineState.FAILED: 0},
    providers=(
        ProviderStanding(name="metal", reachable=False, since_list=None, last_error="no route", machines=0),
        ProviderStanding(name="cloud", reachable=True, since_list=4.9, last_error="", machines=12),
    ),
    in_flight={Kind.PROVISION: 2, Kind.DELETE: 0},
    paused="drill",
    dry_run=True,
    fenced="epoch 8 was seen",
    file_problem="",
    file_lost_unix_nanos=0,
    engine="compiled",
    waits_for_engine="",
)


class FakeBooks:
    """A shard that knows the clusters `shop`, which is away, and `bank`, which is connected."""

    def __init__(self, fault: OSError | None = None) -> None:
        self.told: list[str] = []
        self.paused = ""
        self.fault = fault

    def status(self) -> ShardStatus:
        return STATUS

    def clusters(self) -> Iterable[ClusterStanding]:
        return [standing("shop"), standing("bank", connected=True, live=True, seconds_away=0.0)]

    async def pause(self, reason: str) -> bool:
        self._write(f"pause {reason}")
        was, self.paused = bool(self.paused), reason
        return was

    async def resume(self) -> bool:
        self._write("resume")
        was, self.paused = bool(self.paused), ""
        return was

    async def forget(self, cluster_id: str) -> int:
        if cluster_id == "bank":
            raise ForgetError(cluster_id, "has a session")
        if cluster_id != "shop":
            raise ForgetError(cluster_id, "is not known here")
        self._write(f"forget {cluster_id}")
        return 12

    def _write(self, change: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.told.append(change)


@asynccontextmanager
async def served(books: FakeBooks, tls: LiveTLS | None = None) -> AsyncIterator[int]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    Admin(books).add_to(server)
    port = bind(server, TCPAddress("127.0.0.1", 0), None if tls is None else tls.server_credentials())
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@asynccontextmanager
async def asked(books: FakeBooks) -> AsyncIterator[ShardAdminStub]:
    async with served(books) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield ShardAdminStub(channel)


async def code_of(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return OK, ""


async def test_a_pause_reaches_the_books_with_its_reason_and_a_resume_ends_it() -> None:
    books = FakeBooks()
    async with asked(books) as stub:
        answers = [
            (await stub.SetActuation(pb.SetActuationRequest(paused=paused, reason=reason))).was_paused
            for paused, reason in ((True, " a drill\n"), (True, "longer"), (False, ""), (False, ""))
        ]
    assert books.told == ["pause a drill", "pause longer", "resume", "resume"]
    assert answers == [False, True, True, False]


@pytest.mark.parametrize("reason", ["", "  ", "x" * (MOST_REASON + 1)])
async def test_a_pause_without_a_reason_or_with_a_novel_is_refused(reason: str) -> None:
    books = FakeBooks()
    async with asked(books) as stub:
        code, text = await code_of(stub.SetActuation(pb.SetActuationRequest(paused=True, reason=reason)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("reason: a pause needs one of 1 to 1000 characters")
    assert books.told == []


async def test_forgetting_says_how_many_machines_the_cluster_has() -> None:
    books = FakeBooks()
    async with asked(books) as stub:
        answer = await stub.ForgetCluster(pb.ForgetClusterRequest(cluster_id="shop"))
    assert (answer.machines, books.told) == (12, ["forget shop"])


@pytest.mark.parametrize(
    ("cluster", "code", "text"),
    [
        ("", grpc.StatusCode.INVALID_ARGUMENT, "cluster_id: is empty"),
        ("nobody", grpc.StatusCode.NOT_FOUND, "cluster 'nobody': is not known here"),
        ("bank", grpc.StatusCode.FAILED_PRECONDITION, "cluster 'bank': has a session"),
    ],
)
async def test_a_cluster_that_cannot_be_forgotten_is_refused(cluster: str, code: grpc.StatusCode, text: str) -> None:
    async with asked(FakeBooks()) as stub:
        assert await code_of(stub.ForgetCluster(pb.ForgetClusterRequest(cluster_id=cluster))) == (code, text)


@pytest.mark.parametrize(
    "call",
    [
        lambda stub: stub.SetActuation(pb.SetActuationRequest(paused=True, reason="drill")),
        lambda stub: stub.SetActuation(pb.SetActuationRequest()),
        lambda stub: stub.ForgetCluster(pb.ForgetClusterRequest(cluster_id="shop")),
    ],
    ids=["pause", "resume", "forget"],
)
async def test_a_change_that_cannot_be_written_down_is_told_and_not_logged_as_made(
    call: Callable[[ShardAdminStub], Awaitable[Any]],
) -> None:
    with capture_logs() as logs:
        async with asked(FakeBooks(OSError(errno.ENOSPC, "No space left on device"))) as stub:
            code, text = await code_of(call(stub))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert text == "nothing has changed: it could not be written down: No space left on device"
    assert logs == []


async def test_every_cluster_is_listed_by_id() -> None:
    async with asked(FakeBooks()) as stub:
        answer = await stub.ListClusters(pb.ShardAdminListClustersRequest())
    assert list(answer.clusters) == [
        pb.ClusterStanding(
            cluster_id="bank", connected=True, live=True, reported=True, needs=4, needs_short=1, machines=12
        ),
        pb.ClusterStanding(cluster_id="shop", reported=True, seconds_away=90, needs=4, needs_short=1, machines=12),
    ]


@pytest.mark.parametrize("flag", ["connected", "live", "reported", "partial", "forgotten", "quarantined"])
async def test_each_flag_of_a_cluster_is_its_own(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    books, flags = FakeBooks(), ("connected", "live", "reported", "partial", "forgotten", "quarantined")
    monkeypatch.setattr(books, "clusters", lambda: [standing("shop", **{name: name == flag for name in flags})])
    async with asked(books) as stub:
        (cluster,) = (await stub.ListClusters(pb.ShardAdminListClustersRequest())).clusters
    assert [name for name in flags if getattr(cluster, name)] == [flag]


async def test_the_status_is_told_whole_with_zeros_left_out_and_providers_by_name() -> None:
    async with asked(FakeBooks()) as stub:
        answer = await stub.GetStatus(pb.GetStatusRequest())
    assert answer == pb.GetStatusResponse(
        shard_id="eu-1",
        epoch=7,
        cycle=412,
        decided_at_unix_nanos=1_700_000_000_000_000_000,
        machines_by_state={"Configured": 10, "Idle": 2},
        providers=[
            pb.ProviderStanding(name="cloud", reachable=True, listed=True, seconds_since_list=4, machines=12),
            pb.ProviderStanding(name="metal", last_error="no route"),
        ],
        actions_in_flight={"Provision": 2},
        actuation_paused=True,
        pause_reason="drill",
        dry_run=True,
        fenced_reason="epoch 8 was seen",
        engine="compiled",
    )


@pytest.mark.parametrize(
    ("uri", "reads", "changes"),
    [
        ("bigfleet://admin", OK, OK),
        ("bigfleet://readonly", OK, DENIED),
        ("bigfleet://cluster/shop", DENIED, DENIED),
        ("bigfleet://shard/eu-1", DENIED, DENIED),
        ("bigfleet://provider/cloud", DENIED, DENIED),
        ("bigfleet://coordinator", DENIED, DENIED),
    ],
)
async def test_over_tls_readers_read_and_admins_change(
    pki: Any, uri: str, reads: grpc.StatusCode, changes: grpc.StatusCode
) -> None:
    books = FakeBooks()
    with capture_logs() as logs:
        async with served(books, pki.live("bigfleet://shard/eu-1", "server")) as port:
            dialer = Dialer(TCPAddress("127.0.0.1", port), Role.SHARD, pki.live(uri, "client"), CHANNEL_OPTIONS)
            try:
                stub = ShardAdminStub(await dialer.channel())
                assert (await code_of(stub.ListClusters(pb.ShardAdminListClustersRequest())))[0] is reads
                assert (await code_of(stub.GetStatus(pb.GetStatusRequest())))[0] is reads
                pause = pb.SetActuationRequest(paused=True, reason="drill")
                assert (await code_of(stub.SetActuation(pause)))[0] is changes
                assert (await code_of(stub.SetActuation(pb.SetActuationRequest())))[0] is changes
                assert (await code_of(stub.ForgetCluster(pb.ForgetClusterRequest(cluster_id="shop"))))[0] is changes
            finally:
                await dialer.hang_up()
    assert books.told == (["pause drill", "resume", "forget shop"] if changes is OK else [])
    assert [(entry["event"], entry["by"]) for entry in logs] == (
        [("actuation_set", uri), ("actuation_set", uri), ("cluster_forgotten", uri)] if changes is OK else []
    )
