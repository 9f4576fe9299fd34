"""InspectNeeds over real gRPC on loopback. The books are a fake: a list of verdicts and a lock, with no engine."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import grpc
import pytest

from bigfleet.engine.records import UnmetReason, Verdict
from bigfleet.model.demand.need import Need, NeedKey
from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.demand.profile import Operator, Profile, Requirement
from bigfleet.shard.api import inspection
from bigfleet.shard.api.inspection import Inspection, ToldCause
from bigfleet.shard.decision.causes import CauseKind
from bigfleet.transport.address import TCPAddress
from bigfleet.transport.dial import Dialer
from bigfleet.transport.grpc_options import CHANNEL_OPTIONS, SERVER_OPTIONS
from bigfleet.transport.identity import Role
from bigfleet.transport.listen import bind
from bigfleet.transport.renewal import LiveTLS
from bigfleet.wire.needs import need_to_wire
from bigfleet.wire.v1alpha1 import provider_pb2
from bigfleet.wire.v1alpha1 import shardread_pb2 as pb
from bigfleet.wire.v1alpha1.shardread_pb2_grpc import ShardReadStub


def need(priority: int = 0, group: str = "") -> Need:
    same = (Requirement("rack", Operator.SAME),) if group else ()
    return Need(Profile(priority=priority, requirements=same), (("cpu", 64_000),), (("cpu", 4_000),), group)


def verdict(of: Need, cluster: str = "shop", missing: int = 0, **fields: Any) -> Verdict:
    said: dict[str, Any] = {
        "claimed_machines": 3,
        "bootstraps": 0,
        "provisions": 0,
        "preempts": 0,
        "domain": (),
        "same_satisfiable": True,
        "unmet_reason": UnmetReason.PRIORITY_STARVED if missing else UnmetReason.NONE,
    } | fields
    residual = tuple((name, units * missing) for name, units in of.unit) if missing else ()
    return Verdict(cluster, of.key, missing == 0, missing, residual, **said)


class FakeBooks:
    """The books of a shard that never decides by itself."""

    def __init__(self, rows: Sequence[tuple[Need, Verdict]] = ()) -> None:
        self.rows = list(rows)
        self.cycle, self.decided_at_unix_nanos = 7, 1_700_000_000_000_000_000
        self.lock = asyncio.Lock()
        self.made = 0
        self.parked: dict[NeedKey, int] = {}

    def reading(self) -> AbstractAsyncContextManager[None]:
        return self.lock

    @property
    def cycle_seconds(self) -> float:
        return 2.5

    def owners(self, cluster: str, key: NeedKey) -> tuple[str, ...]:
        assert self.lock.locked()
        return ("prod/web",)

    def verdict_rows(self, cluster: str) -> tuple[int, Iterator[tuple[Need, Verdict, ToldCause]]]:
        rows = [row for row in self.rows if cluster in ("", row[1].cluster)]
        return len(rows), self._make(rows)

    def _make(self, rows: Sequence[tuple[Need, Verdict]]) -> Iterator[tuple[Need, Verdict, ToldCause]]:
        for row in rows:
            assert self.lock.locked()
            self.made += 1
            short = ToldCause(CauseKind.OUTRANKED, "Others have them.", 1_650_000_000_000_000_000)
            yield *row, ToldCause() if row[1].satisfied else short

    def arrival_unix_nanos(self, cluster: str, key: NeedKey) -> int:
        assert self.lock.locked()
        return 1_600_000_000_000_000_000

    def unmet_age(self, cluster: str, key: NeedKey) -> int:
        assert self.lock.locked()
        return 37

    def parked_age(self, cluster: str, key: NeedKey) -> int:
        assert self.lock.locked()
        return self.parked.get(key, 0)


@asynccontextmanager
async def served(served_by: Inspection, tls: LiveTLS | None = None) -> AsyncIterator[int]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    served_by.add_to(server)
    port = bind(server, TCPAddress("127.0.0.1", 0), None if tls is None else tls.server_credentials())
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@asynccontextmanager
async def asked(served_by: Inspection) -> AsyncIterator[ShardReadStub]:
    async with served(served_by) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield ShardReadStub(channel)


async def answer(books: FakeBooks, **request: Any) -> tuple[pb.InspectNeedsHeader, list[pb.NeedView]]:
    async with asked(Inspection(books)) as stub:
        frames = [frame async for frame in stub.InspectNeeds(pb.InspectNeedsRequest(**request), timeout=60)]
    assert [frame.WhichOneof("frame") for frame in frames] == ["header", *["need"] * (len(frames) - 1)]
    return frames[0].header, [frame.need for frame in frames[1:]]


async def refusal(books: FakeBooks, **request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer(books, **request)
    return caught.value.code(), caught.value.details() or ""


async def test_the_header_names_the_decision_and_every_need_follows_in_serving_order() -> None:
    needs = [need(priority) for priority in (9, 5, 1)]
    header, views = await answer(FakeBooks([(each, verdict(each)) for each in needs]))
    decided = 1_700_000_000_000_000_000
    assert header == pb.InspectNeedsHeader(
        cycle=7, computed_at_unix_nanos=decided, total_needs=3, cycle_interval_millis=2500
    )
    assert [view.need for view in views] == [need_to_wire(each) for each in needs]


async def test_a_covered_need_is_shown_whole() -> None:
    asks = need(9)
    _, (view,) = await answer(FakeBooks([(asks, verdict(asks, bootstraps=2, provisions=1))]))
    assert view == pb.NeedView(
        need=need_to_wire(asks),
        cluster_id="shop",
        arrival_unix_nanos=1_600_000_000_000_000_000,
        profile_fingerprint=asks.profile.fingerprint,
        satisfied=True,
        residual_deficit=provider_pb2.Resources(),
        claimed_machine_count=3,
        bootstrap_count=2,
        provision_count=1,
        same_satisfiable=True,
        owners=["prod/web"],
    )


async def test_a_gang_that_no_domain_holds_is_shown_whole() -> None:
    gang = need(9, "train")
    reason = UnmetReason.TOPOLOGY_UNSATISFIABLE
    books = FakeBooks([(gang, verdict(gang, missing=6, domain=("r1",), same_satisfiable=False, unmet_reason=reason))])
    _, (view,) = await answer(books)
    assert view == pb.NeedView(
        need=need_to_wire(gang),
        cluster_id="shop",
        arrival_unix_nanos=1_600_000_000_000_000_000,
        profile_fingerprint=gang.profile.fingerprint,
        satisfied=False,
        residual_deficit=provider_pb2.Resources(resources={"cpu": "24"}),
        claimed_machine_count=3,
        same_domain="r1",
        same_satisfiable=False,
        acquisition_parked=True,
        parked_age_cycles=37,
        age_cycles_unmet=37,
        unmet_reason=pb.UNMET_REASON_TOPOLOGY_UNSATISFIABLE,
        cause=pb.NEED_CAUSE_OUTRANKED,
        cause_text="Others have them.",
        cause_since_unix_nanos=1_650_000_000_000_000_000,
        owners=["prod/web"],
    )


@pytest.mark.parametrize(("missing", "books_say", "shown"), [(1, 0, 0), (1, 12, 12), (0, 12, 0)])
async def test_a_need_is_parked_while_it_is_short_and_may_not_acquire(missing: int, books_say: int, shown: int) -> None:
    asks = need(9)
    books = FakeBooks([(asks, verdict(asks, missing=missing))])
    books.parked[asks.key] = books_say
    _, (view,) = await answer(books)
    assert (view.acquisition_parked, view.parked_age_cycles) == (shown > 0, shown)
    assert view.age_cycles_unmet == (37 if missing else 0)


async def test_one_cluster_may_be_asked_for_and_one_that_is_not_known_has_no_needs() -> None:
    shop, bank = need(2), need(1)
    books = FakeBooks([(shop, verdict(shop)), (bank, verdict(bank, "bank"))])
    header, views = await answer(books, cluster_id="bank")
    assert (header.total_needs, [view.cluster_id for view in views]) == (1, ["bank"])
    header, views = await answer(books, cluster_id="nobody")
    assert (header.cycle, header.total_needs, views) == (7, 0, [])


async def test_the_total_counts_what_the_limit_leaves_out_and_no_more_verdicts_are_made_than_shown() -> None:
    books = FakeBooks([(each, verdict(each)) for each in map(need, range(10))])
    header, views = await answer(books, limit=4)
    assert (header.total_needs, len(views), books.made) == (10, 4, 4)


async def test_a_negative_limit_is_refused() -> None:
    assert await refusal(FakeBooks(), limit=-1) == (grpc.StatusCode.INVALID_ARGUMENT, "limit: -1 is negative")


async def test_more_needs_than_an_answer_holds_are_refused_unless_the_limit_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspection, "MOST_NEEDS", 3)
    books = FakeBooks([(each, verdict(each)) for each in map(need, range(4))])
    code, text = await refusal(books)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert text == "there are 4 needs and an answer holds 3: name a cluster or a smaller limit"
    assert not books.lock.locked()
    header, views = await answer(books, limit=3)
    assert (header.total_needs, len(views)) == (4, 3)


async def test_other_tasks_get_turns_while_an_answer_is_collected() -> None:
    asks = need()
    books = FakeBooks([(asks, verdict(asks))] * 2_000)
    turns: list[int] = []

    async def watch() -> None:
        while not turns or turns[-1] < 2_000:
            turns.append(books.made)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        await answer(books)
    assert any(0 < made < 2_000 for made in turns)


async def test_a_peer_that_takes_its_time_holds_up_no_decision_and_is_shown_the_decision_that_its_header_names() -> (
    None
):
    asks = need()
    before = [(asks, verdict(asks))] * 5_000
    books = FakeBooks(before)
    async with asked(Inspection(books)) as stub:
        call = stub.InspectNeeds(pb.InspectNeedsRequest(), timeout=60)
        header = await anext(aiter(call))
        async with asyncio.timeout(30), books.lock:
            books.cycle += 1
            books.rows = [(asks, verdict(asks, missing=16))]
        views = [frame.need async for frame in call]
    assert header.header.cycle == 7
    assert len(views) == 5_000
    assert all(view.satisfied for view in views)


async def test_a_peer_that_takes_nothing_is_cut() -> None:
    served_by = Inspection(FakeBooks(more_than_a_connection_buffers()), stall_seconds=0.05)
    async with asked(served_by) as stub:
        call = stub.InspectNeeds(pb.InspectNeedsRequest(), timeout=60)
        await anext(aiter(call))
        await until_idle(served_by)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            [frame async for frame in call]
    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "no frame taken for 0.05 s",
    )


def more_than_a_connection_buffers() -> list[tuple[Need, Verdict]]:
    wordy = Requirement("note", Operator.NOT_IN, ("x" * 10_000,))
    asks = Need(Profile(requirements=(wordy,)), (("cpu", 1),), (("cpu", 1),))
    return [(asks, verdict(asks))] * 5_000


async def until_idle(served_by: Inspection) -> None:
    async with asyncio.timeout(30):
        while served_by._under_way:  # noqa: ASYNC110 - the servicer has no event for it
            await asyncio.sleep(0)


async def test_only_so_many_answers_are_under_way_and_one_that_is_called_off_makes_room() -> None:
    served_by = Inspection(FakeBooks(more_than_a_connection_buffers()))
    async with asked(served_by) as stub:
        calls = [stub.InspectNeeds(pb.InspectNeedsRequest(), timeout=60) for _ in range(inspection.AT_ONCE)]
        for call in calls:
            await anext(aiter(call))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(stub.InspectNeeds(pb.InspectNeedsRequest(limit=1), timeout=60)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls:
            call.cancel()
        await until_idle(served_by)
        assert len([frame async for frame in stub.InspectNeeds(pb.InspectNeedsRequest(limit=1), timeout=60)]) == 2


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("bigfleet://readonly", grpc.StatusCode.OK),
        ("bigfleet://admin", grpc.StatusCode.OK),
        ("bigfleet://cluster/shop", grpc.StatusCode.PERMISSION_DENIED),
        ("bigfleet://shard/eu", grpc.StatusCode.PERMISSION_DENIED),
    ],
)
async def test_over_tls_only_a_reader_or_an_admin_may_ask(pki: Any, uri: str, code: grpc.StatusCode) -> None:
    asks = Need(Profile(interruption=PenaltyBucket.PINNED), (("cpu", 1),), (("cpu", 1),))
    books = FakeBooks([(asks, verdict(asks))])
    async with served(Inspection(books), pki.live("bigfleet://shard/eu", "server")) as port:
        dialer = Dialer(TCPAddress("127.0.0.1", port), Role.SHARD, pki.live(uri, "client"), CHANNEL_OPTIONS)
        try:
            call = ShardReadStub(await dialer.channel()).InspectNeeds(pb.InspectNeedsRequest(), timeout=60)
            with contextlib.suppress(grpc.aio.AioRpcError):
                [frame async for frame in call]
            assert await call.code() is code
        finally:
            await dialer.hang_up()
    assert bool(books.made) == (code is grpc.StatusCode.OK)
