"""What authors get wrong, and what substrates do: each costs one transition and never the provider."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import grpc
import pytest
from prometheus_client import CollectorRegistry

from bigfleet.model.machine import Call, CapacityType, MachineState
from bigfleet.providerkit import Backend, BackendError, Job, Limits, Offer, OfferError, Shape
from bigfleet.providerkit.provider import Provider
from bigfleet.providerkit.server.serve import Endpoint, serving
from bigfleet.providerkit.store import MemoryStore, SQLiteStore
from bigfleet.telemetry.metrics import ProviderMetrics
from bigfleet.transport.address import TCPAddress
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from bigfleet.wire.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from tests.providerkit.driving import Remembering, ask, configured, created, provider, reaches, until
from tests.providerkit.toy import SHAPE, Toy

S = MachineState


@asynccontextmanager
async def durable(backend: Backend, path: Path) -> AsyncIterator[Provider]:
    async with Provider(backend, SQLiteStore(path, "toy"), ProviderMetrics(CollectorRegistry())) as subject:
        yield subject


class Odd(Toy):
    """Returns or raises what it is given, once."""

    def __init__(self, oddity: object) -> None:
        super().__init__()
        self.oddity = oddity

    async def create(self, job: Job) -> str:
        if job.machine != "m-0":
            return await super().create(job)
        if isinstance(self.oddity, BaseException):
            raise self.oddity
        return cast("str", self.oddity)


@pytest.mark.parametrize(
    "oddity",
    [7, None, "", Path("h"), "lone \ud800", "h" * 5000, "two\nlines", BackendError("lone \ud800"), BackendError("")],
    ids=repr,
)
async def test_a_host_or_an_error_that_no_record_can_carry_fails_that_machine_alone(
    oddity: object, tmp_path: Path
) -> None:
    async with durable(Odd(oddity), tmp_path / "state") as subject:
        await ask(subject, Call.CREATE)
        assert (await reaches(subject, S.FAILED)).last_error.startswith("Create: ")
        await ask(subject, Call.CREATE, "m-1")
        await reaches(subject, S.IDLE, "m-1")
    async with durable(Toy(), tmp_path / "state") as subject:
        assert subject.ledger.get("m-0").state is S.FAILED


async def test_an_author_who_cancels_himself_or_times_out_fails_in_his_own_words() -> None:
    for oddity, words in ((asyncio.CancelledError(), "cancelled itself"), (TimeoutError("no route"), "no route")):
        async with provider(Odd(oddity)) as subject:
            await ask(subject, Call.CREATE)
            assert words in (await reaches(subject, S.FAILED)).last_error


async def test_a_limit_that_cannot_be_told_fails_the_machine() -> None:
    class Limitless(Toy):
        def limit(self, job: Job, call: Call) -> float:
            raise KeyError(job.machine)

    async with provider(Limitless()) as subject:
        await ask(subject, Call.CREATE)
        assert "KeyError" in (await reaches(subject, S.FAILED)).last_error


async def test_a_method_that_will_not_be_cancelled_still_fails_at_its_limit() -> None:
    class Stubborn(Toy):
        limits = Limits(create=0.02)

        async def create(self, job: Job) -> str:
            while not self.closed:
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    self.calls["cancelled"] += 1
                    if self.calls["cancelled"] > 1:
                        raise
            return "late"

    backend = Stubborn()
    async with provider(backend) as subject:
        await ask(subject, Call.CREATE)
        assert "did not end within" in (await reaches(subject, S.FAILED)).last_error


class TestSweep:
    async def test_a_substrate_that_hangs_for_one_machine_does_not_hold_up_the_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bigfleet.providerkit.carrier._SWEEP_SECONDS", 0.01)

        class Hanging(Toy):
            async def describe(self, job: Job) -> str:
                if job.machine == "m-0" and self.calls["armed"]:
                    await asyncio.Event().wait()
                return await super().describe(job)

        backend = Hanging()
        backend.errors["create"] = "no"
        async with provider(backend) as subject:
            tokens = []
            for machine in ("m-0", "m-1"):
                await ask(subject, Call.CREATE, machine)
                tokens.append((await reaches(subject, S.FAILED, machine)).token)
                await ask(subject, Call.DELETE, machine)
            backend.calls["armed"] = 1
            backend.hosts[tokens[1]] = "late"
            await until(lambda: backend.hosts == {})

    async def test_a_doubt_that_came_up_meanwhile_stays(self) -> None:
        backend = Toy()
        backend.errors["create"] = "no"
        async with provider(backend) as subject:
            await ask(subject, Call.CREATE)
            first = await reaches(subject, S.FAILED)
            await ask(subject, Call.DELETE)
            entry = subject.ledger.get("m-0")
            await ask(subject, Call.CREATE)
            await until(lambda: len(subject.ledger.get("m-0").doubts) == 2)
            subject._carrier._doubted["m-0"] = 99
            await subject._carrier._sweep_one(entry)
            assert first.token not in subject.ledger.get("m-0").doubts
            assert len(subject.ledger.get("m-0").doubts) == 1


class TestRestarts:
    async def test_a_blob_on_its_way_arrives_before_the_provider_ends(self) -> None:
        store, backend = Remembering(), Toy()
        backend.gates["configure"] = asyncio.Event()
        backend.nodes_ready = False
        async with provider(backend, store) as subject:
            await created(subject)
            await ask(subject, Call.CONFIGURE, cluster="c")
            await until(lambda: backend.calls["configure"])
            asyncio.get_running_loop().call_later(0.05, backend.gates["configure"].set)
        async with provider(Toy(hosts=backend.hosts), store) as subject:
            await reaches(subject, S.CONFIGURED)

    async def test_a_host_found_after_a_crash_is_awaited_until_it_is_up(self) -> None:
        store, hosts = Remembering(), dict[str, str]()
        backend = Toy(hosts=hosts)
        backend.gates["create"] = asyncio.Event()
        async with provider(backend, store) as subject:
            hosts[(await ask(subject, Call.CREATE)).entry.token] = "h-pending"
        again = Toy(hosts=hosts)
        again.gates["create"] = asyncio.Event()
        async with provider(again, store) as subject:
            await until(lambda: again.calls["create"])
            assert subject.ledger.get("m-0").state is S.CREATING
            again.gates["create"].set()
            assert (await reaches(subject, S.IDLE)).host == "h-pending"

    async def test_what_is_offered_no_more_leaves_no_trace_in_the_file(self, tmp_path: Path) -> None:
        async with durable(Toy(), tmp_path / "state") as subject:
            await created(subject)
            await ask(subject, Call.DELETE)
            await reaches(subject, S.SPECULATIVE)
        async with durable(Toy(0), tmp_path / "state") as subject:
            assert len(subject.ledger) == 0
        store = SQLiteStore(tmp_path / "state", "toy")
        assert store.load().entries == []
        store.close()

    async def test_hardware_at_a_new_address_is_asked_there_once_it_is_idle(self) -> None:
        class Movable(Toy):
            refresh_seconds = 0.001
            address = "10.0.0.1"

            async def offers(self) -> Iterable[Offer]:
                self.calls["offers"] += 1
                return [Offer("m-0", SHAPE, self.address)]

        backend = Movable()
        async with provider(backend) as subject:
            await ask(subject, Call.CONFIGURE, cluster="c")
            await reaches(subject, S.CONFIGURED)
            backend.address = "10.0.0.2"
            # The second question from now is asked once the answer to the first was taken.
            asked = backend.calls["offers"]
            await until(lambda: backend.calls["offers"] > asked + 1)
            assert subject.ledger.get("m-0").host == "10.0.0.1"
            await ask(subject, Call.DRAIN)
            await until(lambda: subject.ledger.get("m-0").host == "10.0.0.2")

    async def test_what_the_backend_was_doing_has_ended_before_it_is_closed(self) -> None:
        class Tidy(Toy):
            async def create(self, job: Job) -> str:
                self.calls["create"] += 1
                try:
                    return await asyncio.sleep(60, "h")
                finally:
                    await asyncio.sleep(0.01)
                    self.calls["let go"] += 1

            async def close(self) -> None:
                assert self.calls["let go"] == 1
                await super().close()

        store, backend = Remembering(), Tidy()
        async with provider(backend, store) as subject:
            await ask(subject, Call.CREATE)
            await until(lambda: backend.calls["create"])
        assert backend.closed
        assert store.entries["m-0"].state is S.CREATING


class TestOffers:
    def test_numbers_as_yaml_reads_them_are_taken(self) -> None:
        resources = cast("dict[str, str]", {"cpu": 8, "memory": "32Gi"})
        shape = Shape(instance_type="m8", capacity_type=CapacityType.ON_DEMAND, resources=resources)
        assert dict(shape.record().resources.resources) == {"cpu": "8", "memory": "32Gi"}

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"resources": {"cpu": None}}, r"resources\['cpu'\]"),
            ({"resources": {"cpu": "many"}}, r"resources\['cpu'\]"),
            ({"allocatable": {"cpu": "9"}}, r"allocatable\['cpu'\]: is more than the machine has"),
            ({"price_per_hour": float("nan")}, "price_per_hour"),
            ({"capacity_type": CapacityType.SPOT}, "interruption_probability"),
            ({"capacity_type": CapacityType.UNSPECIFIED}, "capacity_type"),
            ({"resources": {}}, "resources: are empty"),
            ({"instance_type": ""}, "instance_type"),
            ({"labels": {"k": "v" * 70_000}}, "over 65536 bytes"),
        ],
    )
    def test_a_shape_that_no_shard_would_take_is_refused_by_field(self, fields: dict[str, object], words: str) -> None:
        good = {"instance_type": "m8", "capacity_type": CapacityType.ON_DEMAND, "resources": {"cpu": "8"}}
        with pytest.raises(OfferError, match=words):
            Shape(**{**good, **fields})  # type: ignore[arg-type]


class TestService:
    async def test_many_callers_at_once_are_all_answered(self) -> None:
        async with (
            serving(Toy(1900), MemoryStore(), Endpoint(TCPAddress("127.0.0.1", 0))) as served,
            grpc.aio.insecure_channel(str(served.address)) as channel,
        ):
            stub = CapacityProviderStub(channel)
            acks = await asyncio.gather(
                *(stub.Create(pb.CreateRequest(machine_id=f"m-{i}")) for i in range(1900)), return_exceptions=True
            )
        assert [ack for ack in acks if isinstance(ack, BaseException)] == []

    @pytest.mark.parametrize("raw", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe"])
    async def test_bytes_that_are_no_request_are_invalid(self, raw: bytes) -> None:
        async with (
            serving(Toy(), MemoryStore(), Endpoint(TCPAddress("127.0.0.1", 0))) as served,
            grpc.aio.insecure_channel(str(served.address)) as channel,
        ):
            for method in ("Create", "Configure", "Drain", "Delete", "Get"):
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                    f"/bigfleet.v1alpha1.CapacityProvider/{method}"
                )
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(raw)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_bound_machine_of_a_vanished_pool_stays(tmp_path: Path) -> None:
    async with durable(Toy(), tmp_path / "state") as subject:
        await configured(subject)
    async with durable(Toy(0), tmp_path / "state") as subject:
        assert subject.ledger.get("m-0").cluster == "c"
